"""What a study found: the smallest trained model that keeps enough, said first."""

from __future__ import annotations

import pytest

from probescale.recovery.result import ORIGINAL
from probescale.study.answers import find_answers, study_cards, study_verdict
from probescale.study.results import ResultRow


def row(strategy: str, budget: str, value: float, params: int, seed: int = 0, **changes: object) -> ResultRow:
    made = ResultRow(
        cell=f"{strategy}-{budget}-{seed}", model="bert", task="sst2", strategy=strategy, budget=budget, seed=seed,
        k=2, layers="1 2", params=params, megabytes=params / 250_000, ratio_total=params / 1_000_000, ratio_layers=0.5,
        criterion=None, probed=None, metric="accuracy", value=value, low=value - 0.02, high=value + 0.02,
        retention=value / 0.9, retention_low=value / 0.9 - 0.01, retention_high=value / 0.9 + 0.01, examples=1000,
        agreement=0.9, milliseconds=1.0, speedup=1_000_000 / params, speed_low=1.0,
        speed_high=3.0, seconds=1.0,
    )  # fmt: skip
    return made.model_copy(update=changes)


WHOLE = [row(ORIGINAL, "", 0.9, 1_000_000, seed) for seed in (0, 1)]
SMALL = [row("stitched", "k=2", value, 500_000, seed) for seed, value in enumerate((0.88, 0.87))]
SMALLER = [row("stitched", "k=1", value, 250_000, seed) for seed, value in enumerate((0.80, 0.79))]
OTHER = [row("top_k", "k=2", value, 500_000, seed) for seed, value in enumerate((0.86, 0.85))]


def test_the_smallest_that_keeps_enough_is_said_first():
    rows = [*WHOLE, *SMALLER, *SMALL, *OTHER]
    found = find_answers(rows)
    decision, heading, reasons = study_verdict(found)
    assert (decision, heading) == ("ship", "Ship stitched with k=2")
    assert reasons == (
        "It keeps 97.2 % of the accuracy, is 2.0 times smaller and 2.0 times as fast, mean of 2 seeds, and is the "
        "smallest trained model that keeps 95 %."
    )
    cards = study_cards(found, rows)
    assert [card.value for card in cards] == ["97.2 %", "2.0 times", "2.0 MB", "stitched"]
    assert cards[3].caption == "ahead for 2 of 2 budgets"
    assert found[0].line() == (pytest.approx(0.855), "95 % of the original")


@pytest.mark.parametrize(
    "second",
    [
        row("stitched", "k=2", 0.84, 500_000, 1),  # keeps too little
        SMALL[1].model_copy(update={"retention_low": 0.94}),  # may keep too little
        SMALL[1].model_copy(update={"retention_low": None}),
        SMALL[1].model_copy(update={"examples": 40}),
    ],
)
def test_a_seed_that_is_not_sure_is_a_doubt(second):
    assert study_verdict(find_answers([*WHOLE, SMALL[0], second]))[:2] == ("unsure", "Perhaps stitched with k=2")


def test_methods_that_are_alike_are_a_tie():
    rows = [*WHOLE, *SMALL, *(one.model_copy(update={"strategy": "top_k"}) for one in SMALL)]
    assert study_cards(find_answers(rows), rows)[3].value == "a tie"


def test_where_none_keeps_enough_the_best_is_named():
    decision, heading, reasons = study_verdict(find_answers([*WHOLE, *SMALLER]))
    assert (decision, heading) == ("no", "No model keeps 95 %")
    assert reasons.startswith("stitched with k=1 keeps most: 88.3 % of the accuracy, 4.0 times smaller")


def test_several_tasks_have_a_card_each():
    second = [one.model_copy(update={"task": "qnli"}) for one in (*WHOLE, *SMALLER)]
    found = find_answers([*WHOLE, *SMALL, *second])
    assert study_verdict(found)[:2] == ("unsure", "1 of 2 can be made smaller")
    assert [card.caption for card in study_cards(found, [])] == ["smaller: sst2, bert", "qnli, bert"]


def test_a_failed_or_empty_study_says_so():
    assert study_verdict(find_answers([]))[:2] == ("unsure", "Nothing is known yet")
    dead = [one.model_copy(update={"retention": None}) for one in (*WHOLE, *SMALL)]
    assert study_verdict(find_answers(dead))[0] == "no"
