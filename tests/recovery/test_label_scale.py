"""Numbers are learned in standard units; what a head cannot hold is refused before any training."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.data import labelled_rows, write_csv
from helpers.decoders import build_decoder, word_tokenizer
from probescale.errors import UserError
from probescale.models.loading import load_classifier
from probescale.pipeline.prepare import prepare
from probescale.pipeline.validate import check
from probescale.recovery.label_scale import FARTHEST, fit_label_scale, refuse_far_numbers


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> str:
    """The folder of a tiny decoder, whose stock head for numbers has no bias."""
    folder = tmp_path_factory.mktemp("decoder")
    tokenizer = word_tokenizer()
    build_decoder(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def settings(model: object, folder, shift: float) -> dict:
    """A run on numbers around the shift, with a deviation of 1."""
    texts = [text for text, _ in labelled_rows(60)]
    numbers = np.random.default_rng(0).normal(size=len(texts))
    numbers = (numbers - numbers.mean()) / numbers.std() + shift
    table = write_csv(folder / "numbers.csv", [(text, f"{n:.6f}") for text, n in zip(texts, numbers, strict=True)])
    task = {"train": str(table), "kind": "number"}
    return {"model": {"source": str(model), "max_length": 32}, "task": task, "selection": {"k": 1}}


@pytest.mark.parametrize("shift", [2005.0, -30.0])
def test_numbers_far_from_0_are_refused_for_a_head_without_a_bias(decoder, tmp_path, shift):
    with pytest.raises(UserError, match="its head has no bias") as refused:
        prepare(check(settings(decoder, tmp_path, shift)))
    assert refused.value.field == "task.train"
    named = float(refused.value.hint.split()[1])
    assert named == pytest.approx(shift, abs=0.5), "the mean of the training rows"
    nearer = prepare(check(settings(decoder, tmp_path, shift - named)))
    assert fit_label_scale(nearer.task.train.row_labels, nearer.loaded.model).mean == 0


def test_a_bias_holds_any_mean(model_folder, tmp_path):
    bench = prepare(check(settings(model_folder("bert"), tmp_path, 2005.0)))
    scale = fit_label_scale(bench.task.train.row_labels, bench.loaded.model)
    assert scale.mean == pytest.approx(2005, abs=0.5)


def test_the_limit_is_a_number_of_deviations(decoder):
    model = load_classifier(decoder, None, (), 0, head="regression").model
    around = np.array([-1.0, 1.0, np.nan])  # a row without a number does not count
    refuse_far_numbers(around + FARTHEST, model)
    refuse_far_numbers(1000 * (around + FARTHEST), model)
    with pytest.raises(UserError, match=r"around 10\.1 and differ from it by 1,"):
        refuse_far_numbers(around + FARTHEST + 0.1, model)
