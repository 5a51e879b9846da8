"""Comparisons of a study's strategies, from predictions as cells write them."""

from __future__ import annotations

import csv

import pytest

from probescale.study.comparison import compare_best_methods
from probescale.study.folder import StudyFolder
from probescale.study.results import ResultRow

GOLD = ["yes", "no"] * 20
ROW = ResultRow(
    cell="", model="m", task="t", strategy="", budget="k=2", seed=0, k=2, layers="", params=10, ratio_total=0.5,
    ratio_layers=0.5, criterion=None, probed=None, metric="", value=0, low=0, high=1, retention=None, agreement=1,
    milliseconds=1, speedup=1, seconds=1,
)  # fmt: skip


def write_cells(tmp_path, methods, gold=GOLD, metric="accuracy"):
    """A study folder and its rows; `methods`: name -> (layers, (predictions, value) of every seed)."""
    folder, rows = StudyFolder(tmp_path), []
    for name, (layers, seeds) in methods.items():
        for seed, (predicted, value) in enumerate(seeds):
            cell = folder.cell(f"{name}-{seed}")
            cell.mkdir(parents=True)
            with (cell / "predictions.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["row", "right", name])
                writer.writerows(zip(range(len(gold)), gold, predicted, strict=True))
            rows.append(
                ROW.model_copy(
                    update={
                        "cell": cell.name,
                        "strategy": name,
                        "seed": seed,
                        "layers": layers,
                        "value": value,
                        "metric": metric,
                    }
                )
            )
    return folder, rows


def wrong(*rows):
    predicted = list(GOLD)
    for row in rows:
        predicted[row] = "maybe"
    return predicted, 1 - len(rows) / len(GOLD)


def compare(tmp_path, methods, **options):
    (found,) = compare_best_methods(*write_cells(tmp_path, methods, **options))
    return found


def test_one_seed_never_names_a_winner(tmp_path):
    found = compare(tmp_path, {"a": ("1 2", [wrong()]), "b": ("3 4", [wrong(*range(20))])})
    assert found.p is None
    assert not found.significant
    assert found.sentence() == (
        "t, m, k=2: a does better than b on 20 rows and worse on 0, in one training each: give more seeds to tell "
        "whether that is chance."
    )


def test_several_seeds_that_agree_name_one(tmp_path):
    good, bad = [wrong(0), wrong(1), wrong(0)], [wrong(*range(2, 22)), wrong(*range(2, 21)), wrong(*range(2, 22))]
    found = compare(tmp_path, {"b": ("3 4", bad), "a": ("1 2", good)})
    assert found.significant
    assert found.sentence().startswith("t, m, k=2: a does better than b on 20 rows and worse on 2 (3 seeds, p = ")
    assert found.sentence().endswith(": a is better.")


def test_strategies_that_kept_the_same_layers_are_one(tmp_path):
    seeds = [wrong(0), wrong(1)]
    both = {"a": ("1 2", seeds), "b": ("1 2", seeds)}
    assert compare(tmp_path / "two", both).sentence() == "t, m, k=2: a and b kept the same layers."
    found = compare(tmp_path / "three", {**both, "c": ("3 4", [wrong(0, 1, 2)] * 2)})
    assert (found.best, found.other) == ("a and b", "c")


@pytest.mark.parametrize(
    ("metric", "gold", "near", "far"),
    [
        ("spearman", ["1", "2", "3"], ["1.1", "2", "3"], ["1.5", "2", "2.5"]),
        ("tag_accuracy", ["A -", "B A", "A"], ["A B", "B A", "A"], ["A B", "B B", "B"]),
    ],
)
def test_numbers_are_near_or_far_and_words_without_a_tag_cannot_be_wrong(tmp_path, metric, gold, near, far):
    methods = {"a": ("1 2", [(near, 0.9)] * 2), "b": ("3 4", [(far, 0.5)] * 2)}
    found = compare(tmp_path, methods, gold=gold, metric=metric)
    assert (found.wins, found.losses, found.seeds) == (2, 0, 2)
