"""Fuzz past the door: a damaged record, tokenizer, config or weights file reaches predict, bench, export, and a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from helpers.fuzzing import RNG, damaged_json, fuzz, nonsense, result_or_error
from probescale.deploy.export import export
from probescale.deploy.formats import EXPORTERS, Exporter, ExportRecord, exporter
from probescale.deploy.inference import InferenceModel, RunBatch, wrap_pytorch
from probescale.deploy.model_process import build_batch
from probescale.deploy.open_model import open_model
from probescale.deploy.predict import predict_lines
from probescale.deploy.texts import Line
from probescale.models.loading import LoadedModel, load_as_saved, load_classifier
from probescale.recovery.inputs import build_inputs
from probescale.tasks.data import load_rows
from probescale.tasks.kinds import Kind
from probescale.utils.files import write_json

TEXTS = ("good film", "the plot was awful and <image> 一 zzz", "x " * 300, "[MASK] </s> <pad>", "\u200b")
RECORDS = {"kind": "class", "max_length": 16, "params": 5, "proof": {"route": "x"}}
FILES = ("tokenizer.json", "tokenizer_config.json", "config.json", "probescale.json")


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def copies(model_folder, tmp_path_factory) -> dict[str, Path]:
    """A valid model of every family, as a run leaves it; tests damage a copy of one of its files."""
    folder = tmp_path_factory.mktemp("used")
    names = ("bert", "roberta", "t5")
    found = {name: Path(shutil.copytree(model_folder(name), folder / name)) for name in names}
    for name, path in found.items():
        write_json(path / "probescale.json", RECORDS | {"kind": "tags" if name == "t5" else "class"})
    return found


def vocabulary_edited(rng: Random, data: Any) -> Any:
    """Other ids for some pieces or special tokens: valid for the library, and wrong for the model."""
    pieces, number = data["model"]["vocab"], rng.choice([-1, 0, 83, 84, 400, 10**6, 2**31, 2**32 - 1])
    places = [token for token in data["added_tokens"] if rng.random() < 0.3]
    for token in places:
        token.update(id=max(number, 0), special=rng.random() < 0.5)
    if isinstance(pieces, dict) and rng.random() < 0.7:
        pieces[rng.choice(list(pieces))] = number
    return data


def setting_edited(rng: Random, data: Any) -> Any:
    """One setting with another value of any type, or removed."""
    name = rng.choice([*data, "model_max_length", "model_input_names", "pad_token", "padding_side", "id2label"])
    if rng.random() < 0.3:
        data.pop(name, None)
    else:
        names = rng.sample(["input_ids", "attention_mask", "token_type_ids", "x"], rng.randint(0, 3))
        data[name] = names if name == "model_input_names" and rng.random() < 0.5 else nonsense(rng)
    return data


def spoil(rng: Random, sound: bytes, name: str) -> bytes:
    data = json.loads(sound)
    if name == "tokenizer.json" and rng.random() < 0.6:
        return json.dumps(vocabulary_edited(rng, data)).encode()
    return json.dumps(setting_edited(rng, data)).encode() if rng.random() < 0.5 else damaged_json(rng, data)


def use(source: str) -> None:
    """Predict as the command does, and run a batch as bench does."""
    model = open_model(source)
    lines = [Line(number, text) for number, text in enumerate(TEXTS, 1)]
    for prediction in predict_lines(model, lines):
        assert bool(prediction.fault) != (prediction.rendered is not None)
        json.dumps(prediction.record(), allow_nan=False)
    run_as_bench(model)


def run_as_bench(model: InferenceModel) -> None:
    assert len(model.run(build_batch(model, 2, min(8, model.max_length)))) == 2


def train_as_run(source: str) -> None:
    """What a run, begun or resumed, does first with a model: load it with a new head, and read the data."""
    loaded = load_classifier(source, None, ("a", "b"), seed=0)
    inputs = build_inputs(loaded.tokenizer, load_rows([(text, "ab"[n % 2]) for n, text in enumerate(TEXTS)]), 16)
    batch = inputs.collate(loaded.tokenizer, [inputs[number] for number in range(2)])
    with torch.inference_mode():
        loaded.model(**{name: batch[name] for name in inputs.tokens.fields})


@pytest.fixture(scope="module")
def plain_format():
    """A format that writes no graph, so that an export takes little time."""

    @exporter("plain")
    class PlainExporter(Exporter):
        """The weights in a folder of their own."""

        file = "weights/model.safetensors"
        suffixes = (".safetensors",)
        runtime = "torch"

        def write(self, loaded: LoadedModel, kind: Kind | None, folder: Path, *, int8: bool) -> None:
            loaded.model.save_pretrained(folder / "weights")
            loaded.tokenizer.save_pretrained(folder / "weights")

        def open(self, folder: Path, record: ExportRecord) -> RunBatch:
            return wrap_pytorch(load_as_saved(str(folder / "weights"), padded=True, field="MODEL")).run

    yield "plain"
    del EXPORTERS["plain"]


@fuzz(
    "models that are used",
    40,
    rng=RNG,
    family=st.sampled_from(["bert", "roberta", "t5"]),
    name=st.sampled_from(FILES),
    way=st.sampled_from(["use", "use", "train", "export"]),
)
def test_damaged_models_in_use(copies, plain_format, tmp_path_factory, rng, family, name, way):
    path = copies[family] / name
    sound, out = path.read_bytes(), tmp_path_factory.getbasetemp() / "exported"
    path.write_bytes(spoil(rng, sound, name))
    try:
        if way == "use":
            result_or_error(lambda: use(str(path.parent)))
        elif way == "train":
            result_or_error(lambda: train_as_run(str(path.parent)))
        elif result_or_error(lambda: export(str(path.parent), out, plain_format)):
            use(str(out))
    finally:
        path.write_bytes(sound)
        shutil.rmtree(out, ignore_errors=True)


@fuzz("weights that are used", 15, rng=RNG, family=st.sampled_from(["bert", "roberta", "t5"]))
def test_damaged_weights_in_use(copies, rng, family):
    """Values and types of weights, in a file that is valid itself."""
    path = copies[family] / "model.safetensors"
    sound, weights = path.read_bytes(), load_file(path)
    name = rng.choice(list(weights))
    if rng.random() < 0.6:
        value = rng.choice([float("nan"), float("inf"), 1e38, -1e38, 0.0])
        weights[name].view(-1)[rng.randrange(weights[name].numel())] = value
    else:
        kinds = (torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex64, torch.float64)
        weights[name] = weights[name].to(rng.choice(kinds))
    save_file(weights, path, metadata={"format": "pt"})
    try:
        result_or_error(lambda: use(str(path.parent)))
    finally:
        path.write_bytes(sound)


@fuzz("records of exports that are used", 30, rng=RNG)
def test_damaged_records_of_exports(copies, plain_format, tmp_path_factory, rng):
    out = tmp_path_factory.getbasetemp() / "plain"
    if not out.exists():
        export(str(copies["bert"]), out, plain_format)
    path = out / "probescale.json"
    sound = path.read_bytes()
    record = json.loads(sound)
    part = record["plain"] if rng.random() < 0.7 else record
    path.write_bytes(json.dumps(record if setting_edited(rng, part) is not None else {}).encode())
    try:
        result_or_error(lambda: use(str(out)))
    finally:
        path.write_bytes(sound)
