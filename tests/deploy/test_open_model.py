"""A saved model is opened once it has answered: files that do not fit together are refused in words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from transformers import BertForMaskedLM

from helpers.models import tiny_config, tiny_tokenizer
from probescale.deploy import predict
from probescale.deploy.open_model import open_model
from probescale.deploy.predict import predict_lines
from probescale.deploy.texts import Line
from probescale.errors import UserError

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def folder(model_folder, tmp_path) -> Path:
    return Path(shutil.copytree(model_folder("bert"), tmp_path / "model"))


def edit(path: Path, change: Edit) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def beyond(number: int) -> Edit:
    """Give the piece "the" another id; so the vocabulary has as many pieces as before."""
    return lambda data: data["model"]["vocab"].update(the=number)


TOKENIZERS: list[tuple[str, Edit, str]] = [
    ("tokenizer.json", beyond(10**6), 'its token "the" has the id 1000000'),
    ("tokenizer.json", lambda data: data["model"].update(unk_token="none"), "it cannot read a text"),
    ("tokenizer.json", lambda data: data["post_processor"].update(sep=["[SEP]", 9999]), "it adds the id 9999"),
    ("tokenizer_config.json", lambda data: data.pop("pad_token"), "it has no padding token"),
    ("tokenizer_config.json", lambda data: data.update(model_input_names=["foo"]), "must be input_ids"),
    ("tokenizer_config.json", lambda data: data.update(model_input_names=5), "must be input_ids"),
    ("tokenizer_config.json", lambda data: data.update(model_input_names=["input_ids"]), "no attention_mask"),
    ("tokenizer_config.json", lambda data: data.update(model_max_length=-5), "its model_max_length is -5"),
    ("tokenizer_config.json", lambda data: data.update(model_max_length="512"), "its model_max_length is '512'"),
    ("tokenizer_config.json", lambda data: data.update(model_max_length=1.5), "its model_max_length is 1.5"),
    ("config.json", lambda data: data.update(id2label={"0": "", "1": "x"}), "labels need different names"),
    ("config.json", lambda data: data.update(problem_type="regression"), "an answer has 2 values"),
    ("config.json", lambda data: data.update(vocab_size=1000), "weights in other shapes than its config says"),
]


@pytest.mark.parametrize(("name", "change", "says"), TOKENIZERS)
def test_files_that_do_not_fit_together(folder, name, change, says):
    edit(folder / name, change)
    with pytest.raises(UserError, match=says):
        open_model(str(folder))


METADATA = [
    *([], 5, None, "x", {"kind": "tags"}, {"kind": "number"}, {"kind": 5}, {"kind": ["class"]}, {"max_length": "8"}),
    *({"max_length": wrong} for wrong in (-1, 0, 1.5, [8], True, {})),
]


@pytest.mark.parametrize("metadata", METADATA, ids=str)
def test_metadata_of_another_kind(folder, metadata):
    (folder / "probescale.json").write_text(json.dumps(metadata))
    with pytest.raises(UserError, match=r"probescale\.json"):
        open_model(str(folder))


def answers(folder: Path, *texts: str) -> list[predict.Prediction]:
    return list(predict_lines(open_model(str(folder)), [Line(n, text) for n, text in enumerate(texts, 1)]))


def test_a_special_token_without_an_embedding_is_read_as_letters(folder):
    before = answers(folder, "good < image >", "good")
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    token = {"id": 10**5, "content": "<image>", "special": True, **flags}
    edit(folder / "tokenizer.json", lambda data: data["added_tokens"].append(token))
    after = answers(folder, "good <image>", "good")
    for one, other in zip(before, after, strict=True):
        assert one.rendered is not None
        assert one.rendered == other.rendered


def test_a_length_without_room_for_a_text(folder):
    """The tokenizer would not cut at all then, and the model would fail at a long text."""
    model = open_model(str(folder))
    with pytest.raises(UserError, match="2 tokens leave none for a text") as refused:
        list(predict_lines(model, [Line(1, "good " * 500)], max_length=2))
    assert refused.value.hint == "give at least 3"


LONG = "the film was good " * 8 + "and the plot was awful and dull and poor " * 20


@pytest.mark.parametrize(("trained", "read"), [(64, 64), (8, 16), (500, 128)], ids=["more", "less", "no positions"])
def test_the_length_of_training_wins_over_the_one_of_the_tokenizer(folder, trained, read):
    """But it adds no positions that the model does not have."""
    (folder / "probescale.json").write_text(json.dumps({"max_length": trained}))
    unlimited = list(predict_lines(open_model(str(folder)), [Line(1, LONG)], min(trained, 128)))
    edit(folder / "tokenizer_config.json", lambda data: data.update(model_max_length=16))
    assert open_model(str(folder)).max_length == read
    assert answers(folder, LONG) == unlimited
    (folder / "probescale.json").unlink()
    assert open_model(str(folder)).max_length == 16
    assert answers(folder, LONG) != unlimited


def test_a_model_without_positions_reads_what_it_was_trained_on(model_folder, tmp_path):
    folder = Path(shutil.copytree(model_folder("t5"), tmp_path / "model"))
    assert open_model(str(folder)).max_length == 512
    (folder / "probescale.json").write_text(json.dumps({"kind": "tags", "max_length": 1024}))
    model = open_model(str(folder))
    assert model.max_length == 1024
    [answer] = predict_lines(model, [Line(1, "good " * 900)])
    assert len([tag for _, tag in answer.record()["tags"] if tag]) == 900


def damage(folder: Path, name: str, place: int) -> None:
    weights = load_file(folder / "model.safetensors")
    weights[name].view(-1)[place] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_weights_that_are_not_numbers(folder, tmp_path, cli):
    damage(folder, "classifier.bias", 0)
    (tmp_path / "texts.txt").write_text("good\n")
    for command in (("predict", folder, tmp_path / "texts.txt"), ("extract", folder, "--keep", "1", "--out", "x")):
        done = cli(*command)
        assert done.code == 2
        assert "NaN or infinite values in classifier.bias" in done.err
    found = cli("doctor", folder)
    assert "NaN or infinite values in classifier.bias" in found.out
    assert "not usable" in found.out


def test_weights_that_are_not_floats(folder):
    weights = load_file(folder / "model.safetensors")
    name = "bert.encoder.layer.0.output.dense.weight"
    weights[name] = weights[name].mul(100).char()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=f"{name} in I8, which is not a float"):
        open_model(str(folder))


def test_a_line_whose_answer_is_not_a_number_is_named(folder):
    """As an exported model can give it, whose weights are not looked at."""
    model = open_model(str(folder))
    run = model.run

    def broken(batch: dict[str, np.ndarray]) -> np.ndarray:
        odd = (batch["input_ids"] == model.tokenizer.convert_tokens_to_ids("awful")).any(1)
        return np.where(odd[:, None], np.nan, run(batch))

    vars(model)["run"] = broken
    first, second = predict_lines(model, [Line(1, "awful"), Line(2, "good")])
    assert first.fault == "the model's answer is not a finite number"
    assert second.rendered is not None


def test_a_language_model_has_no_labels(tmp_path):
    tokenizer = tiny_tokenizer("bert")
    BertForMaskedLM(tiny_config("bert", len(tokenizer), layers=1)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"is a language model \(BertForMaskedLM\): it predicts tokens, not labels"):
        open_model(str(tmp_path))
