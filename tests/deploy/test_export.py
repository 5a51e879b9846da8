"""Exports: every encoder family as ONNX with any batch and length; what cannot be, or loses too much, is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoConfig

from helpers.sweeps import sweep
from probescale.deploy.export import export
from probescale.deploy.formats import onnx as onnx_format
from probescale.deploy.inference import wrap_pytorch
from probescale.deploy.onnx import session
from probescale.deploy.open_model import open_model
from probescale.errors import ProofFailed, UserError
from probescale.models.families import FAMILIES, find_family
from probescale.models.loading import LoadedModel
from probescale.models.proof.twin import build_twin, build_twin_tokenizer
from probescale.models.surgery import keep_layers
from probescale.tasks.kinds import KINDS

onnx = pytest.importorskip("onnx", reason='pip install "probescale[onnx]"')
pytest.importorskip("onnxruntime", reason='pip install "probescale[onnx]"')
pytest.importorskip("onnxscript", reason='pip install "probescale[onnx]"')
pytestmark = pytest.mark.slow
TYPES = [family.model_types[0] for family in FAMILIES.values()]
GENERATORS = ["bart", "gpt2", "gpt_neox", "opt", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3"]
ENCODERS = [name for name in TYPES if name not in GENERATORS]
KEPT = (1, 2)  # a cut, as it is shipped; the exporter's time is in layers, and two hold every kind of them


def saved(model_type: str, head: str, folder) -> LoadedModel:
    config = AutoConfig.for_model(model_type)
    family = find_family(config)
    model, tokenizer = build_twin(config, family, head), build_twin_tokenizer()  # type: ignore[arg-type]
    assert model is not None
    tokenizer.backend_tokenizer.pre_tokenizer = Whitespace()  # type: ignore[assignment]
    tokenizer.model_max_length = 40
    if head == "sentence":
        model.config.problem_type = "single_label_classification"  # as in every saved model of a run
    cut = keep_layers(LoadedModel(model, tokenizer, family, str(folder), ""), KEPT)
    cut.model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return cut


def batch_of(fields, size: int, length: int) -> dict[str, np.ndarray]:
    """Any tokens, the last text shorter than the others."""
    rng = np.random.default_rng(length)
    ids = rng.integers(5, 64, (size, length))
    mask = np.ones_like(ids)
    mask[-1, max(length // 2, 1) :] = 0
    made = {"input_ids": np.where(mask == 1, ids, 0), "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return {name: made[name] for name in fields}


EXPORTED = [(model_type, "sentence") for model_type in ENCODERS]
EXPORTED += [("bert", "token"), ("bert", "regression"), ("bert", "none"), ("t5", "none")]


@pytest.mark.parametrize("case", sweep(EXPORTED, always=[]), ids="-".join)
def test_every_encoder_family_is_exported_and_answers_the_same(case, tmp_path):
    model_type, head = case
    loaded = saved(model_type, head, tmp_path / "model")
    about = export(str(tmp_path / "model"), tmp_path / "onnx")
    assert about.largest_difference < 1e-4
    ours, graph = wrap_pytorch(loaded), open_model(str(tmp_path / "onnx"))
    name = {"none": None, "token": "tags", "regression": "number"}.get(head, "class")
    assert graph.kind is (name and KINDS[name])
    assert graph.labels == ours.labels
    for size, length in ((1, 3), (1, 33), (5, 12), (2, 40)):
        batch = batch_of(about.inputs, size, length)
        seen = batch["attention_mask"].astype(bool) if head in ("none", "token") else slice(None)
        wanted = ours.run(batch)
        assert np.abs(graph.run(batch) - wanted)[seen].max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("model_type", GENERATORS)
def test_models_with_a_decoder_are_refused_by_name(model_type, tmp_path):
    loaded = saved(model_type, "sentence", tmp_path / "model")
    with pytest.raises(UserError, match=f"{type(loaded.model).__name__} has a decoder") as refused:
        export(str(tmp_path / "model"), tmp_path / "out")
    assert "use --to gguf" in refused.value.hint
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    saved("bert", "sentence", folder / "model")
    export(str(folder / "model"), folder / "onnx")
    export(str(folder / "model"), folder / "int8", int8=True)
    return folder


def test_the_folder_opens_like_any_model(bert):
    graph, ours = open_model(str(bert / "onnx")), open_model(str(bert / "model"))
    assert (graph.format, ours.format) == ("onnx", "pytorch")
    assert graph.max_length == ours.max_length == 40
    record = json.loads((bert / "onnx" / "probescale.json").read_text())["onnx"]
    assert record["inputs"] == ["input_ids", "attention_mask"]
    assert record["metric"] is None


def test_the_length_of_training_goes_with_the_export(bert, tmp_path):
    """Also where the tokenizer's own length (40) is smaller."""
    shutil.copytree(bert / "model", tmp_path / "model")
    (tmp_path / "model" / "probescale.json").write_text(json.dumps({"kind": "class", "max_length": 64}))
    assert export(str(tmp_path / "model"), tmp_path / "onnx").longest == 64
    graph = open_model(str(tmp_path / "onnx"))
    assert graph.max_length == graph.trained_length == 64


def test_eight_bits_are_smaller_and_near(bert):
    small, large = (open_model(str(bert / name)) for name in ("int8", "onnx"))
    assert small.format == "onnx int8"
    sizes = [sum(path.stat().st_size for path in (bert / name).glob("*.onnx*")) for name in ("int8", "onnx")]
    assert sizes[0] < sizes[1]
    batch = batch_of(["input_ids", "attention_mask"], 4, 20)
    wanted = large.run(batch)
    assert 0 < np.abs(small.run(batch) - wanted).max() < 0.25 * np.abs(wanted).max()  # weights are random


def test_only_graphs_in_eight_bits_have_nodes_of_the_runtimes_own(bert):
    fused, plain = (onnx.load(bert / name / "model.onnx").graph.node for name in ("int8", "onnx"))
    assert [node.op_type for node in fused if node.domain] == ["MultiHeadAttention"] * len(KEPT)
    assert not [node for node in plain if node.domain]
    assert not [node for node in fused if node.op_type in ("Softmax", "Reshape")]


@pytest.mark.long
def test_a_processor_that_dies_of_eight_bits_gets_float32(bert, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(onnx_format, "can_run", lambda _path: False)
    about = export(str(bert / "model"), tmp_path / "out", int8=True)
    assert not about.int8
    assert open_model(str(tmp_path / "out")).format == "onnx"
    assert "cannot run 8-bit products" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "out").glob("*.onnx")) == ["model.onnx"]


def test_a_graph_that_kills_its_process_is_refused_in_words(bert, tmp_path, monkeypatch):
    """The check is a process of its own: this one dies as a bad instruction would make it die."""
    shutil.copytree(bert / "onnx", tmp_path / "copy")
    record = json.loads((tmp_path / "copy" / "probescale.json").read_text())
    record["onnx"]["int8"] = True
    (tmp_path / "copy" / "probescale.json").write_text(json.dumps(record))
    monkeypatch.setattr(session, "TRY", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    with pytest.raises(UserError, match="processor cannot run"):
        open_model(str(tmp_path / "copy"))


@pytest.mark.long
def test_a_graph_that_answers_otherwise_is_not_written(bert, tmp_path, monkeypatch):
    wrong = saved("bert", "sentence", tmp_path / "other")
    wrong.model.get_parameter("classifier.weight").data.mul_(1.5)
    write = onnx_format.write_graph
    monkeypatch.setattr(onnx_format, "write_graph", lambda _loaded, kind, path, **how: write(wrong, kind, path, **how))
    with pytest.raises(ProofFailed, match="outputs differ"):
        export(str(bert / "model"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_broken_record_is_refused(bert, tmp_path, cli):
    shutil.copytree(bert / "onnx", tmp_path / "copy")
    (tmp_path / "copy" / "probescale.json").write_text("{}")
    done = cli("predict", tmp_path / "copy", bert / "model" / "config.json")
    assert done.code == 2
    assert "no valid record of its export" in done.err
