"""Texts that should be answered alike: sentences with another name or pronoun, and the user's own pairs."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch

from probescale.config import SwapsConfig
from probescale.errors import UserError
from probescale.models.loading import load_classifier
from probescale.recovery.bias import SwapAnswers, answer_swaps, compare_swaps
from probescale.report.regressions import bias_sentence, bias_table
from probescale.tasks.data import Examples
from probescale.tasks.intervals import paired_interval
from probescale.tasks.swaps import FIRST_TEXT, OWN, Swap, Swaps, built_in_swaps, load_swaps

SINGLE = Examples(texts=("x",), pairs=None, labels=(0,), names=("-", "+"))
PAIRED = Examples(texts=("x",), pairs=("y",), labels=(0,), names=("-", "+"))


def test_built_in_pairs_differ_in_one_or_two_words():
    found = built_in_swaps().pairs
    assert len(found) == len(set(found)) == 72
    for pair in found:
        different = [a for a, b in zip(pair.one.split(), pair.other.split(), strict=True) if a != b]
        assert 1 <= len(different) <= 2


@pytest.mark.parametrize("like", [SINGLE, PAIRED], ids=["texts", "pairs"])
def test_a_model_that_reads_nothing_is_not_swayed_and_one_that_reads_is(model_folder, like):
    loaded, swaps = load_classifier(str(model_folder("bert")), None, ("-", "+"), 0), built_in_swaps()
    with torch.no_grad():
        loaded.model.get_parameter("classifier.weight").mul_(50)
    reading = answer_swaps(loaded, swaps, like)
    with torch.no_grad():
        loaded.model.get_parameter("classifier.weight").zero_()
    blind = answer_swaps(loaded, swaps, like)
    assert set(blind.changed) == {False}
    assert set(blind.shift) == {0.0}
    bias = compare_swaps(swaps, blind, reading)
    assert [effect.pairs for effect in bias.groups] == [32, 32, 8]
    assert bias.total.original_shift == 0 < bias.total.small_shift == pytest.approx(np.mean(reading.shift))
    assert bias.total.more_shift[1] > 0


def own(changed: int, of: int, group: str = OWN) -> tuple[Swaps, SwapAnswers, SwapAnswers]:
    """An original that never changes its answer, and a small model that does so for some of the pairs."""
    pairs = tuple(Swap(group, f"one {n}", f"other {n}", sentence=str(n)) for n in range(of))
    never = SwapAnswers(changed=(False,) * of, shift=(0.0,) * of)
    often = tuple(n < changed for n in range(of))
    return Swaps(pairs, "mine.csv"), never, SwapAnswers(changed=often, shift=tuple(map(float, often)))


def test_a_difference_is_named_only_where_its_interval_allows_it():
    much, little = compare_swaps(*own(20, 50)), compare_swaps(*own(1, 50))
    assert "+40.0 points" in bias_sentence(much)
    assert "depends on it more" in bias_sentence(much)
    assert "mine.csv" in bias_sentence(much)
    assert "no clear difference" in bias_sentence(little)
    assert bias_table(much).rows[0][4].startswith("+")


def test_intervals_of_differences_hold_as_often_as_they_say():
    """Equal models that differ by chance: 0 lies within nearly always, also where sentences hang together."""
    rng, inside = np.random.default_rng(0), []
    for _ in range(300):
        moods = np.repeat(rng.normal(size=(12, 2)), 4, axis=0)  # of each sentence, for either model
        one, other = (moods + rng.normal(size=(48, 2)) > 1).astype(float).T
        low, high = paired_interval(one, other, np.repeat(np.arange(12), 4))
        inside.append(low <= 0 <= high)
    assert np.mean(inside) > 0.93


def write(path, rows, header=("text", "other")):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return SwapsConfig(source=str(path))


ROWS = [(f"he is {n}", f"she is {n}") for n in range(6)]


def test_own_pairs_are_read_with_their_groups_and_first_texts(tmp_path):
    plain = load_swaps(write(tmp_path / "a.csv", ROWS), paired=True, field="task.bias")
    assert {(pair.group, pair.first) for pair in plain.pairs} == {(OWN, FIRST_TEXT)}
    header = ("text", "other", "group", "first")
    rows = [(*row, "gender" if n % 2 else "age", "who ?") for n, row in enumerate(ROWS)]
    full = load_swaps(write(tmp_path / "b.csv", rows, header), paired=True, field="task.bias")
    assert [(pair.group, pair.first) for pair in full.pairs[:2]] == [("age", "who ?"), ("gender", "who ?")]
    assert full.fingerprint != plain.fingerprint


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (ROWS, ("text", "second"), 'task.bias.other: column "other" is not in'),
        ([*ROWS, ("he", "")], ("text", "other"), 'task.bias.other: row 7 has no text in column "other"'),
        ([*ROWS, ("he", "he ")], ("text", "other"), "task.bias: both texts of row 7 are the same"),
        (ROWS[:3], ("text", "other"), "task.bias.source: .* has 3 pairs"),
        (
            [(f"he {n}", f"she {n}", f"group {n}") for n in range(30)],
            ("text", "other", "group"),
            "task.bias.group: 30 different groups are too many",
        ),
    ],
)
def test_faults_of_own_pairs_get_one_message(tmp_path, rows, header, message):
    with pytest.raises(UserError, match=message):
        load_swaps(write(tmp_path / "pairs.csv", rows, header), paired=False, field="task.bias")


def test_a_first_text_in_a_task_on_single_texts_is_refused(tmp_path):
    config = write(tmp_path / "pairs.csv", ROWS).model_copy(update={"first": "text"})
    with pytest.raises(UserError, match="no first text"):
        load_swaps(config, paired=False, field="task.bias")
