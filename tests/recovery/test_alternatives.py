"""Alternatives to a subnetwork: each learns, for every kind of task, from labels and from a teacher's answers."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from helpers.data import BAD, GOOD, THINGS, labelled_rows
from probescale.models.loading import load_classifier, load_encoder
from probescale.probing.targets import ProbeLabels
from probescale.recovery.alternatives import measure_alternatives
from probescale.recovery.alternatives.bag_of_words import fit_bag_of_words
from probescale.recovery.alternatives.frozen_encoder import fit_frozen_encoder
from probescale.recovery.alternatives.lessons import LessonSource
from probescale.recovery.alternatives.sparse_probe import SparseProbe
from probescale.recovery.alternatives.static_embeddings import NAME as STATIC
from probescale.recovery.alternatives.static_embeddings import fit_static_embeddings
from probescale.recovery.embedder import Embedder
from probescale.recovery.result import EvaluatedModel
from probescale.tasks.data import Data, TaggedSentences, load_rows
from probescale.tasks.passages import Passages
from probescale.tasks.task import Task

ROWS = labelled_rows(200)
TRAIN, DEV, MORE = load_rows(ROWS[:80]), load_rows(ROWS[80:120]), load_rows(ROWS[120:])
ORIGINAL = EvaluatedModel(
    kept=(1, 2, 3, 4), params=10_000, ratio_total=1.0, ratio_layers=1.0, value=0.8, interval=(0.7, 0.9), retention=1.0,
    losses=(0.5,), milliseconds=1.0, speedup=1.0, seconds=1.0,
)  # fmt: skip
TAG_NAMES = ("O", "OPINION", "THING")


def classes(train: Data = TRAIN, dev: Data = DEV) -> Task:
    return Task("tiny", "accuracy", train, dev, "dev", 0, {})


def tagged(rows: list[tuple[str, str]]) -> TaggedSentences:
    sentences = tuple(tuple(text.replace(",", " ,").split()) for text, _ in rows)
    number = dict.fromkeys(THINGS, 2) | dict.fromkeys([*GOOD, *BAD], 1)
    return TaggedSentences(sentences, tuple(tuple(number.get(w, 0) for w in words) for words in sentences), TAG_NAMES)


def numbered(rows: list[tuple[str, str]]) -> Data:
    """Large numbers: the units of the data have to come back."""
    values = tuple(1000.0 + (100 if label == "positive" else -100) + len(text.split()[3]) for text, label in rows)
    return replace(load_rows(rows), labels=values, names=(), target="number", kind="number")


def logits_for(data: Data) -> np.ndarray:
    """A teacher that gives the gold answers."""
    if data.target == "number":
        return data.row_labels.astype(np.float32)[:, None]
    return np.eye(len(data.names), dtype=np.float32)[data.row_labels.astype(int)] * 6 - 3


def source(train: Data, unlabelled: Data | None = None, logits: np.ndarray | None = None) -> LessonSource:
    return LessonSource(train, unlabelled, logits, seed=0)


@pytest.fixture(scope="module")
def loaded(model_folder):
    return load_classifier(str(model_folder("bert")), None, TRAIN.names, 0)


def test_simple_models_solve_a_simple_task(loaded):
    found = {
        one.name: one for one in measure_alternatives(classes(), None, None, ORIGINAL, loaded, max_length=32, seed=0)
    }
    assert [*found] == ["bag of words", "frozen encoder", *([STATIC] if find_spec("model2vec") else [])]
    bag, frozen = found["bag of words"], found["frozen encoder"]
    assert bag.value == 1.0
    assert frozen.value > 0.8
    for one in found.values():
        assert one.interval[0] <= one.value <= one.interval[1]
        assert one.retention == pytest.approx(one.value / ORIGINAL.value)
        assert one.milliseconds > 0
        assert one.speedup > 0
        assert one.spread is not None
        assert one.spread.low <= one.spread.high
    encoder = sum(parameter.numel() for parameter in loaded.model.base_model.parameters())
    assert frozen.params == encoder + 32 + 1
    assert 0 < bag.params < 5000


def test_results_are_the_same_twice(loaded):
    task, logits = classes(TRAIN.take(range(20))), logits_for(TRAIN.take(range(20)).joined(MORE))
    runs = [measure_alternatives(task, MORE, logits, ORIGINAL, loaded, max_length=32, seed=3) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        timeless = {"milliseconds": 0, "speedup": 0, "spread": None}
        assert one.model_copy(update=timeless) == other.model_copy(update=timeless)


@pytest.mark.parametrize("fit", [fit_bag_of_words, "frozen"])
def test_the_teachers_answers_are_learned_and_labels_of_unlabelled_texts_are_not(loaded, fit):
    train = TRAIN.take(range(20))
    logits = logits_for(train.joined(MORE))

    def right(*args):
        model = fit_frozen_encoder(source(*args), loaded, 32) if fit == "frozen" else fit(source(*args))
        return float((model.predict(DEV) == DEV.gold).mean())

    alone, taught = right(train), right(train, MORE, logits)
    assert taught >= alone
    assert right(train, MORE, -logits) < 0.5 < taught, "a wrong teacher of four times as many texts is believed"
    assert right(train, MORE, None) == alone, "without a teacher, unlabelled texts say nothing"
    turned = replace(MORE, labels=tuple(1 - label for label in MORE.labels))
    assert right(train, turned, logits) == taught, "what stands in for labels is not read"


def test_numbers_come_in_the_units_of_the_data(loaded):
    train, dev, more = (numbered(rows) for rows in (ROWS[:80], ROWS[80:120], ROWS[120:]))
    task = Task("tiny", "r2", train, dev, "dev", 0, {})
    bag, frozen, *_ = measure_alternatives(task, None, None, ORIGINAL, loaded, max_length=32, seed=0)
    assert bag.value > 0.9
    assert frozen.value > 0.3
    model = fit_bag_of_words(source(train, more, logits_for(train.joined(more)) + 500))
    assert 1100 < model.predict(dev).mean() < 1500, "most texts have the teacher's numbers, 500 above the labels"


def test_words_are_tagged(model_folder):
    loaded = load_classifier(str(model_folder("roberta")), None, TAG_NAMES, 0, head="token")
    train, dev, more = (tagged(rows) for rows in (ROWS[:40], ROWS[80:120], ROWS[120:]))
    task, logits = Task("tiny", "tag_accuracy", train, dev, "dev", 0, {}), logits_for(train.joined(more))
    found = measure_alternatives(task, more, logits, ORIGINAL, loaded, max_length=48, seed=0)
    assert [one.name for one in found] == ["bag of words", "frozen encoder"], "static embeddings are for texts"
    assert found[0].value > 0.99
    assert found[1].value > 0.9
    short = fit_frozen_encoder(source(train), loaded, 8).predict(dev)
    assert all(len(tags) == len(words) for tags, words in zip(short, dev.words, strict=True))
    assert all(tags[0] >= 0 and tags[-1] == -1 for tags in short), "words beyond the length limit have no answer"


def test_words_without_an_answer_are_not_learned_from():
    train = tagged(ROWS[:40])
    untagged = replace(train, tags=tuple((-1, *tags[1:]) for tags in train.tags))
    more = tagged(ROWS[120:])
    logits = logits_for(train.joined(more))
    logits[-3:] = np.nan  # as for words beyond the length limit
    lessons = source(untagged, more, logits).draw(None, 10_000)
    rows = train.rows_per_input.sum()
    starts = np.cumsum(train.rows_per_input) - train.rows_per_input
    assert not lessons.answered[[*starts, -1, -2, -3]].any()
    assert lessons.answered.sum() == len(lessons.answered) - len(train) - 3
    assert not lessons.tuning[rows:].any(), "penalties are compared on gold labels"
    assert np.array_equal(lessons.answers.values[rows:-3], more.row_labels[:-3])


def test_each_text_of_a_pair_has_words_of_its_own(model_folder):
    """The first text misleads: its words are those of the other label."""
    other = load_rows(labelled_rows(120, seed=5))
    opposite = {
        label: [t for t, one in zip(other.texts, other.labels, strict=True) if one != label] for label in (0, 1)
    }

    def paired(data):
        firsts = tuple(opposite[label][n % 60] for n, label in enumerate(data.labels))
        return replace(data, texts=firsts, pairs=data.texts)

    train, dev = paired(TRAIN), paired(DEV)
    loaded = load_classifier(str(model_folder("bert")), None, TRAIN.names, 0)
    assert (fit_bag_of_words(source(train)).predict(dev) == dev.gold).all()
    swapped = replace(dev, texts=dev.pairs, pairs=dev.texts)
    assert (fit_bag_of_words(source(train)).predict(swapped) != dev.gold).all(), "which text a word is in matters"
    more = paired(MORE)
    found = measure_alternatives(
        classes(train, dev), more, logits_for(train.joined(more)), ORIGINAL, loaded, max_length=64, seed=0
    )
    assert found[0].value == 1.0
    assert found[1].interval[0] > 0.5, "better than chance: a mean over both texts hardly tells them apart"


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_the_encoder_is_timed_on_what_it_predicts_with(model_folder, family):
    loaded = load_classifier(str(model_folder(family)), None, TRAIN.names, 0)
    model = fit_frozen_encoder(source(TRAIN), loaded, 32)
    assert model.encode_one is not None
    one = DEV.take([3])
    np.testing.assert_allclose(model.encode_one(one), model.encode(one), rtol=1e-4, atol=1e-5)


def test_no_more_rows_are_drawn_than_wanted():
    train, more = tagged(ROWS[:40]), tagged(ROWS[120:])
    logits = logits_for(train.joined(more))
    lessons = source(train, more, logits).draw(100, 200)
    assert 270 < len(lessons.answered) <= 300
    assert 80 < len(source(train).draw(100, 200).answered) <= 100
    assert np.array_equal(lessons.answers.values, lessons.data.row_labels), "answers stay with their words"
    again = source(train, more, logits).draw(100, 200)
    assert again.data == lessons.data
    assert replace(source(train, more, logits), seed=1).draw(100, 200).data != lessons.data


@pytest.mark.parametrize("many", [0, 10**9], ids=["saga", "lbfgs"])
def test_a_class_without_rows_is_never_predicted(monkeypatch, many):
    monkeypatch.setattr("probescale.recovery.alternatives.sparse_probe.MANY_WEIGHTS", many)
    features: Any = csr_matrix(np.repeat(np.eye(4, dtype=np.float32), 30, 0))
    names = tuple("abcdef")
    for present in ([0, 2, 3, 5], [1, 4, 1, 4], [2, 2, 2, 2]):
        target = ProbeLabels("class", np.repeat(present, 30), names)
        fit = SparseProbe(seed=0).fit(features, target, 10.0)
        assert np.array_equal(target.predict(fit(features)), target.values)
        assert np.isfinite(target.loss(fit(features), 120))


def test_several_labels_per_text_have_a_column_each():
    features: Any = csr_matrix(np.repeat(np.eye(4, dtype=np.float32), 30, 0))
    values = np.repeat(
        np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]], np.float32), 30, 0
    )  # the last is never set
    target = ProbeLabels("multi", values, ("a", "b", "c"))
    assert np.array_equal(target.predict(SparseProbe(seed=0).fit(features, target, 10.0)(features)), values)


def test_static_embeddings_where_model2vec_is_installed(loaded, model_folder, capsys):
    pytest.importorskip("model2vec")
    model = fit_static_embeddings(source(TRAIN, MORE, logits_for(TRAIN.joined(MORE))), loaded)
    assert model is not None
    assert (model.predict(DEV) == DEV.gold).mean() > 0.8
    assert model.params > 32 * 50, "the vectors of a vocabulary"
    capsys.readouterr()
    assert fit_static_embeddings(source(TRAIN), replace(loaded, own_tokenizer=None)) is None
    assert f"note: no {STATIC}: " in capsys.readouterr().err


def test_static_embeddings_as_an_encoder(model_folder):
    pytest.importorskip("model2vec")
    original = load_encoder(str(model_folder("bert")), None)
    texts = tuple(text for text, _ in labelled_rows(60))
    dev = Passages(texts, embed=Embedder(original, 32)).linked(0)
    task = Task("tiny", "spearman", Passages(texts), dev, "dev", 0, {})
    reference = EvaluatedModel(
        kept=(1,), params=1, ratio_total=1, ratio_layers=1, value=1.0, interval=(1, 1), retention=1.0, losses=(),
        milliseconds=1, speedup=1, seconds=1,
    )  # fmt: skip
    (found,) = measure_alternatives(task, None, None, reference, original, max_length=32, seed=0)
    assert found.name == STATIC
    assert -1 <= found.value < 1
    assert found.retention == found.value
    assert found.vectors
    assert found.params >= found.vectors.width > 1
