"""Pairs of texts to measure embeddings with: how they are drawn, and how a search ranks them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from probescale.tasks import passages
from probescale.tasks.passages import PAIRS, Passages


def draw_texts(count: int) -> tuple[str, ...]:
    rng = random.Random(0)
    words = [f"word{number}" for number in range(200)]
    return tuple(f"{' '.join(rng.choices(words, k=8))} {number}" for number in range(count))


def test_as_many_different_pairs_as_promised():
    linked = Passages(draw_texts(1500)).linked(seed=3)
    assert linked.links is not None
    assert len(set(linked.links)) == len(linked.links) == PAIRS
    assert all(one < other < 1500 for one, other in linked.links)
    assert linked.links == Passages(draw_texts(1500)).linked(seed=3).links
    assert linked.links != Passages(draw_texts(1500)).linked(seed=4).links


def test_half_of_the_pairs_share_words():
    texts = draw_texts(1500)
    links = Passages(texts).linked(seed=0).links or ()
    shared = [len(set(texts[one].split()) & set(texts[other].split())) for one, other in links]
    assert np.mean(shared[: PAIRS // 2]) > 2 * np.mean(shared[PAIRS // 2 :])


def test_few_texts_have_few_pairs():
    links = Passages(draw_texts(5)).linked(seed=0).links or ()
    assert len(links) == len(set(links)) == 10, "every pair once"


def test_fewer_pairs_to_search_leave_all_passages():
    """1,000 questions whose answers are searched among 3,000 passages: a tenth of them search the same passages."""
    found = Passages(tuple(map(str, range(4000))), tuple((n, n + 1000) for n in range(1000)), retrieval=True)
    fewer = found.draw(100, seed=0)
    assert len(fewer.links or ()) == 100
    assert {fewer.texts[number] for number in fewer.passages} == set(map(str, range(1000, 4000)))
    assert all(int(fewer.texts[b]) - int(fewer.texts[a]) == 1000 for a, b in fewer.links or ())
    assert found.draw(1000, seed=0) is found


def test_pairs_keep_their_scores_and_lessons_stay_together():
    scored = Passages(tuple(map(str, range(60))), tuple((n, n + 30) for n in range(30)), tuple(map(float, range(30))))
    fewer = scored.draw(10, seed=1)
    assert [fewer.texts[a] for a, _ in fewer.links or ()] == [f"{score:.0f}" for score in fewer.scores or ()]
    assert len(fewer) == 20
    taught = Passages(tuple(map(str, range(90))), taught=tuple((n, n + 30, None) for n in range(30)))
    assert len(taught.draw(40, seed=0).taught) == 20, "both texts of pairs first"
    assert (len(taught.draw(80, seed=0).taught), len(taught.draw(80, seed=0))) == (30, 80)


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_ranks_do_not_depend_on_how_many_are_searched_at_once(monkeypatch, at_once):
    monkeypatch.setattr(passages, "SEARCHED", at_once)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 8))
    found = Passages(tuple(map(str, range(30))), tuple((n, n + 10) for n in range(10)), retrieval=True)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    wanted = [
        1 + sum(unit[n] @ unit[other] > unit[n] @ unit[n + 10] + 1e-6 for other in range(10, 30)) for n in range(10)
    ]
    assert found.compare(vectors).tolist() == wanted
