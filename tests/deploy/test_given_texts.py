"""Texts from Python are the ones that the model was trained on: pairs for a model of pairs, single texts for others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import pipeline

from probescale.api import predict
from probescale.deploy.given_texts import read_given
from probescale.deploy.open_model import open_model
from probescale.errors import UserError

QUESTIONS = ["what was the film like", "what was dull"]
SENTENCES = ["the film was lovely", "a hero so dull and cold"]


@pytest.fixture(params=["passage", None], ids=["pairs", "single"])
def trained(request, tmp_path, model_folder) -> Path:
    """A model whose record names the columns of its training."""
    folder = Path(shutil.copytree(model_folder("bert"), tmp_path / "model"))
    columns = {"text": "question", "pair": request.param, "header": True}
    (folder / "probescale.json").write_text(json.dumps({"kind": "class", "max_length": 64, "columns": columns}))
    return folder


def test_a_model_of_pairs_answers_pairs_alone(trained):
    if not open_model(str(trained)).on_pairs:
        with pytest.raises(UserError, match="reads one text at a time") as refused:
            predict(trained, QUESTIONS, SENTENCES)
        assert (refused.value.field, refused.value.hint) == ("pairs", "leave it out")
        assert [answer.number for answer in predict(trained, QUESTIONS)] == [1, 2]
        return
    with pytest.raises(UserError, match="was trained on pairs of texts, and there are no second texts") as refused:
        predict(trained, QUESTIONS)
    assert refused.value.field == "pairs"
    with pytest.raises(UserError, match="1 second texts for 2 texts"):
        predict(trained, QUESTIONS, SENTENCES[:1])
    stock = pipeline("text-classification", model=str(trained), device="cpu")
    expected: Any = stock([{"text": one, "text_pair": other} for one, other in zip(QUESTIONS, SENTENCES, strict=True)])  # type: ignore[arg-type]
    answers = [answer.record() for answer in predict(trained, QUESTIONS, SENTENCES)]
    assert [answer["probability"] for answer in answers] == pytest.approx([one["score"] for one in expected], abs=1e-5)
    assert [answer["label"] for answer in answers] == [one["label"] for one in expected]


def test_a_model_that_says_nothing_of_its_training_reads_both(model_folder):
    ready = open_model(str(model_folder("bert")))
    assert ready.on_pairs is None
    assert [line.pair for line in read_given(ready, QUESTIONS)] == [None, None]
    assert [line.pair for line in read_given(ready, QUESTIONS, SENTENCES)] == SENTENCES
    [alone] = read_given(ready, QUESTIONS[0], SENTENCES[0])
    assert (alone.number, alone.text, alone.pair) == (1, QUESTIONS[0], SENTENCES[0])


def test_taggers_and_encoders_read_one_text_at_a_time(model_folder, encoder):
    for folder in (model_folder("t5"), encoder):
        ready = open_model(str(folder))
        assert ready.on_pairs is False
        with pytest.raises(UserError, match="reads one text at a time"):
            read_given(ready, QUESTIONS, SENTENCES)
