"""Budgets as texts and numbers, and what is refused."""

from __future__ import annotations

import pytest

from probescale.errors import UserError
from probescale.selection.budget import parse_budget


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("82M", 82_000_000),
        ("128.7m", 128_700_000),
        ("1.5B", 1_500_000_000),
        ("500K", 500_000),
        (82_000_000, 82_000_000),
        ("82,000,000", 82_000_000),
        ("23%", 230_000_000),
        ("100%", 1_000_000_000),
        ("5x", 200_000_000),
        ("2.5 x", 400_000_000),
        ("3x", 333_333_333),
    ],
)
def test_budgets_in_parameters(text, limit):
    (parsed,) = parse_budget(text).limits
    assert parsed.unit == "parameters"
    assert parsed.most(1_000_000_000) == limit


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("12 GFLOPs", "gflops", 12),
        ("500mflops", "gflops", 0.5),
        ("1 GFLOP", "gflops", 1),
        ("1.5TFLOPs", "gflops", 1500),
        ("150MB", "megabytes", 150),
        ("1.2 GB", "megabytes", 1200),
        ("20ms", "milliseconds", 20),
        ("0.5 s", "milliseconds", 500),
    ],
)
def test_budgets_in_other_units(text, unit, amount):
    (parsed,) = parse_budget(text).limits
    assert (parsed.unit, parsed.most(0)) == (unit, pytest.approx(amount))


def test_several_limits_at_once():
    budget = parse_budget(["82M, 20ms", "10 GFLOPs"], k=6)
    assert budget.units == {"parameters", "milliseconds", "gflops"}
    assert budget.k == 6
    assert budget.text == "82M, 20ms, 10 GFLOPs, k=6"


def test_k_alone_sets_no_other_limit():
    budget = parse_budget(k=6)
    assert (budget.k, budget.limits) == (6, ())


@pytest.mark.parametrize("text", ["", "big", "-5M", "0", "0%", "0x", "0.5x", "101%", "5 y", "nan", "1e9", "inf"])
def test_texts_that_are_not_a_budget_are_refused(text):
    with pytest.raises(UserError, match=r"selection\.budget"):
        parse_budget(text)


@pytest.mark.parametrize("budget", [None, [], ()])
def test_a_budget_or_k_is_required(budget):
    with pytest.raises(UserError, match="give a budget, k, or both"):
        parse_budget(budget)
