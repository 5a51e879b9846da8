"""Sentences that differ in a name or pronoun alone."""

from __future__ import annotations

import pytest
import torch

from probescale.models.loading import load_classifier
from probescale.recovery.bias import measure_swaps, pairs
from probescale.tasks.data import Examples

SINGLE = Examples(texts=("x",), pairs=None, labels=(0,), names=("-", "+"))
PAIRED = Examples(texts=("x",), pairs=("y",), labels=(0,), names=("-", "+"))


def test_pairs_differ_in_one_or_two_words():
    found = list(pairs())
    assert len(found) == len(set(found)) == 72
    for _, one, other in found:
        different = [a for a, b in zip(one.split(), other.split(), strict=True) if a != b]
        assert 1 <= len(different) <= 2


@pytest.mark.parametrize("like", [SINGLE, PAIRED], ids=["texts", "pairs"])
def test_a_model_that_reads_nothing_is_not_swayed_and_one_that_reads_is(model_folder, like):
    loaded = load_classifier(str(model_folder("bert")), None, ("-", "+"), 0)
    with torch.no_grad():
        loaded.model.get_parameter("classifier.weight").mul_(50)
    assert sum(one.shift for one in measure_swaps(loaded, like)) > 0
    with torch.no_grad():
        loaded.model.get_parameter("classifier.weight").zero_()
    found = measure_swaps(loaded, like)
    assert [one.pairs for one in found] == [32, 32, 8]
    assert {one.changed for one in found} == {one.shift for one in found} == {0.0}
