"""Pairs of training texts: read from a table, brought together in a batch, learned beside the original's vectors."""

from __future__ import annotations

import csv
import random
from itertools import pairwise

import numpy as np
import pytest
import torch

from helpers.data import BAD, GOOD, THINGS
from probescale.config import DataConfig
from probescale.models.loading import load_encoder
from probescale.models.surgery import keep_layers
from probescale.recovery.embedder import Embedder
from probescale.recovery.fine_tuning import fine_tune
from probescale.recovery.pair_lessons import PairLessons
from probescale.recovery.recipe import Recipe
from probescale.recovery.teacher import record_teacher_outputs
from probescale.tasks.passages import Passages
from probescale.tasks.read_passages import load_passages


def write_table(path, rows, header=("question", "sentence", "label")):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return DataConfig(source=str(path), text="question", pair="sentence")


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([("a b", "c d", "1"), ("a b", "e f", "0"), ("g h", "c d", "1")], {("a b", "c d", None), ("g h", "c d", None)}),
        ([("a b", "c d", "4.5"), ("g h", "e f", "0.5"), ("a b", "e f", "2")],
         {("a b", "c d", 4.5), ("g h", "e f", 0.5), ("a b", "e f", 2.0)}),
    ],
)  # fmt: skip
def test_pairs_of_train_are_kept(tmp_path, rows, wanted):
    train = load_passages(write_table(tmp_path / "a.csv", rows), field="task.train", linked=False)
    assert train.links is None
    assert {(train.texts[one], train.texts[other], score) for one, other, score in train.taught} == wanted
    some = train.take([n for n, text in enumerate(train.texts) if text != "g h"])
    assert {(some.texts[a], some.texts[b], score) for a, b, score in some.taught} == {
        pair for pair in wanted if "g h" not in pair
    }
    assert train.joined(Passages(("more",))).taught == train.taught
    assert train.with_texts(("other",), None).taught == ()
    assert train.fingerprint != Passages(train.texts).fingerprint


def test_questions_without_an_answer_are_not_searched(tmp_path):
    rows = [("q one", "s one", "1"), ("q two", "s two", "0"), ("q three", "s one", "0")]
    dev = load_passages(write_table(tmp_path / "a.csv", rows), field="task.dev", linked=True)
    assert sorted(dev.texts) == ["q one", "s one", "s two"]
    assert sorted(dev.texts[n] for n in dev.passages) == ["s one", "s two"]


def test_every_text_is_drawn_once_with_a_partner_beside_it():
    rng = random.Random(0)
    numbers = rng.sample(range(200), 60)
    pairs = tuple((numbers[n], numbers[n + 1], None) for n in range(0, 40, 2))
    order = rng.sample(range(60), 60)
    arranged = PairLessons((*pairs, (500, 501, None))).arrange(order, numbers)
    assert sorted(arranged) == list(range(60))
    drawn = [numbers[place] for place in arranged]
    assert all(abs(drawn.index(one) - drawn.index(other)) == 1 for one, other, _ in pairs)


def test_partners_should_be_near():
    lessons, rows = PairLessons(((0, 1, None), (2, 3, None), (0, 9, None))), torch.arange(4)
    apart = torch.eye(4)
    near = torch.eye(4)[[0, 0, 2, 2]] + 0.1 * torch.eye(4)
    assert lessons.loss(near, rows) < 0.01 < lessons.loss(apart, rows)
    assert lessons.loss(apart[:1], rows[:1]) == 0, "no partner in the batch"
    several = PairLessons(((0, 1, None), (0, 2, None)))
    same = torch.ones(3, 4)
    assert several.loss(same, torch.arange(3)) == pytest.approx(np.log(2) / 2), "partners do not compete"


def test_similarities_should_be_in_the_order_of_scores():
    lessons, rows = PairLessons(((0, 1, 5.0), (2, 3, 1.0))), torch.arange(4)
    right = torch.tensor([[1.0, 0], [1, 0.1], [1, 0], [0, 1]])
    assert lessons.loss(right, rows) < 0.01 < 10 < lessons.loss(right[[2, 3, 0, 1]], rows)


@pytest.mark.slow
@pytest.mark.parametrize("scored", [False, True])
def test_pairs_are_learned(tmp_path, model_folder, scored):
    """Texts with good words belong to their thing's texts with bad words, which the original does not know."""
    rng = random.Random(0)
    pairs = [
        (f"{rng.choice(GOOD)} {thing} {n}", f"the {thing} was {rng.choice(BAD)}") for n, thing in enumerate(THINGS)
    ]
    texts = tuple(dict.fromkeys(text for pair in pairs for text in pair))
    number = {text: n for n, text in enumerate(texts)}
    taught = [(number[a], number[b], 1.0 if scored else None) for a, b in pairs]
    if scored:
        taught += [(number[a], number[b], 0.0) for (a, _), (_, b) in pairwise(pairs)]
    train = Passages(texts, taught=tuple(taught))
    original = load_encoder(str(model_folder("bert")), None)
    teacher = record_teacher_outputs(original, train, None, tmp_path / "teacher", max_length=32)
    margins = {}
    for weight in (0.0, 1.0):
        small = keep_layers(original, (1, 3))
        recipe = Recipe(epochs=20, learning_rate=1e-3, batch_size=8, dropout=0.0, pairs=weight)
        fine_tune(small, train, recipe, teacher=teacher, kept=(1, 3), max_length=32)
        vectors = Embedder(small, 32)(texts)
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        near = unit @ unit.T
        margins[weight] = np.mean([near[number[a], number[b]] for a, b in pairs]) - near.mean()
    assert margins[1.0] > margins[0.0] + 0.05
