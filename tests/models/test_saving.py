"""A saved folder works with stock transformers as it was trained."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer, pipeline

from probescale.deploy.open_model import open_model
from probescale.deploy.predict import predict_lines
from probescale.deploy.texts import Line
from probescale.models.loading import load_as_saved
from probescale.models.saving import save_model

LONG = "the film was good " * 6 + "and the plot was awful and dull and poor " * 20


@pytest.mark.parametrize(("own", "read"), [(16, 64), (100, 100)], ids=["less", "more"])
def test_the_tokenizer_allows_the_length_of_training(tmp_path, model_folder, own, read):
    loaded = load_as_saved(str(model_folder("bert")))
    loaded.tokenizer.model_max_length = own
    save_model(loaded, {"kind": "class", "max_length": 64}, tmp_path / "model", max_length=64)
    assert AutoTokenizer.from_pretrained(tmp_path / "model").model_max_length == read
    stock = pipeline("text-classification", model=str(tmp_path / "model"), device="cpu", truncation=True)
    [said] = stock([LONG])
    [plain], [cut] = (list(predict_lines(open_model(str(tmp_path / "model")), [Line(1, LONG)], n)) for n in (read, 16))
    assert said["score"] == pytest.approx(plain.record()["probability"], abs=1e-5)
    assert said["score"] != pytest.approx(cut.record()["probability"], abs=1e-5)
