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
        ("23%", 230_000_000),
        ("100%", 1_000_000_000),
        ("5x", 200_000_000),
        ("2.5 x", 400_000_000),
        ("3x", 333_333_333),
    ],
)
def test_budgets_as_people_write_them(text, limit):
    assert parse_budget(text).limit(1_000_000_000) == limit


def test_k_is_no_limit_on_parameters():
    budget = parse_budget(k=6)
    assert (budget.k, budget.limit(10)) == (6, None)


@pytest.mark.parametrize("text", ["", "big", "-5M", "0", "0%", "0x", "0.5x", "101%", "5 y", "nan", "1e9", "inf"])
def test_what_is_no_budget(text):
    with pytest.raises(UserError, match=r"selection\.budget"):
        parse_budget(text)


@pytest.mark.parametrize(("budget", "k"), [(None, None), ("5x", 3)])
def test_exactly_one(budget, k):
    with pytest.raises(UserError, match="exactly one"):
        parse_budget(budget, k)
