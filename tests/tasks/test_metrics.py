from __future__ import annotations

import numpy as np
import pytest
import seqeval.metrics
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef, r2_score

from probescale.errors import UserError
from probescale.tasks.data import tuple_rows
from probescale.tasks.intervals import interval
from probescale.tasks.kinds import KINDS
from probescale.tasks.metrics import METRICS


@pytest.mark.parametrize(
    ("name", "value"), [("accuracy", 0.75), ("macro_f1", (2 / 3 + 4 / 5) / 2), ("matthews", 0.577)]
)
def test_values_worked_out_by_hand(name, value):
    gold, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    assert METRICS[name](gold, predicted) == pytest.approx(value, abs=1e-3)


def test_metrics_of_classes_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    for classes in (2, 5):
        gold = rng.integers(0, classes, 300)
        predicted = np.where(rng.random(300) < 0.6, gold, rng.integers(-1, classes, 300))  # -1: not answered
        assert METRICS["macro_f1"](gold, predicted) == pytest.approx(f1_score(gold, predicted, average="macro"))
        assert METRICS["matthews"](gold, predicted) == pytest.approx(matthews_corrcoef(gold, predicted))
    gold, predicted = (rng.random((2, 300)) < 0.1).astype(int)
    names = ("ham", "spam")
    for positive, number in (("ham", 0), ("spam", 1)):
        found = METRICS["f1"].for_names(names, positive)
        assert found(gold, predicted) == pytest.approx(f1_score(gold, predicted, pos_label=number))
        low, high = interval(found, gold, predicted, seed=0)
        assert low <= found(gold, predicted) <= high
    assert METRICS["f1"](gold, predicted) == METRICS["f1"].for_names(names, "spam")(gold, predicted)
    assert METRICS["f1"](np.zeros(3, int), np.zeros(3, int)) == 0
    assert METRICS["matthews"](gold, np.zeros(300, int)) == 0


def number_rows(count=200):
    rng = np.random.default_rng(0)
    gold = rng.normal(size=count)
    return gold, gold + rng.normal(size=count)


def test_metrics_of_numbers_are_those_of_scipy_and_scikit_learn():
    gold, predicted = number_rows()
    assert METRICS["pearson"](gold, predicted) == pytest.approx(pearsonr(gold, predicted)[0])
    ties = predicted.round()
    assert METRICS["spearman"](gold, ties) == pytest.approx(spearmanr(gold, ties)[0])
    assert METRICS["r2"](gold, predicted) == pytest.approx(r2_score(gold, predicted))
    assert METRICS["r2"](gold, -predicted) < 0


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_what_does_not_vary_correlates_with_nothing(name):
    gold, _ = number_rows(50)
    assert METRICS[name](gold, np.full(50, 0.1)) == 0
    assert METRICS[name](1e9 + gold, gold) == pytest.approx(1)


NAMES = ("B-LOC", "B-PER", "I-PER", "O")
GOLD = tuple_rows([(1, 2, 3), (0, 3, -1), (3, 3, 1)])
PREDICTED = tuple_rows([(1, 2, 3), (0, 0, 0), (3, 3, -1)])  # one span too many, one beyond the length limit


def test_metrics_of_tags_worked_out_by_hand():
    assert METRICS["tag_accuracy"](GOLD, PREDICTED) == pytest.approx(6 / 8)
    assert METRICS["entity_f1"].for_names(NAMES)(GOLD, PREDICTED) == pytest.approx(2 * 2 / (3 + 3))
    assert METRICS["entity_f1"].for_names(NAMES)(tuple_rows([(3, 3)]), tuple_rows([(3, 3)])) == 0


def test_entity_f1_is_seqevals():
    rng = np.random.default_rng(0)
    gold = tuple_rows([tuple(rng.integers(0, 4, length)) for length in rng.integers(1, 9, 300)])
    predicted = tuple_rows([tuple(np.where(rng.random(len(tags)) < 0.7, tags, 3)) for tags in gold])
    words = [[[NAMES[tag] for tag in tags] for tags in rows] for rows in (gold, predicted)]
    assert METRICS["entity_f1"].for_names(NAMES)(gold, predicted) == pytest.approx(seqeval.metrics.f1_score(*words))


def test_answers_that_do_not_fit_the_words_are_no_figure():
    with pytest.raises(ValueError, match="zip"):
        METRICS["tag_accuracy"](tuple_rows([(0, 1)]), tuple_rows([(0,)]))


@pytest.mark.parametrize(
    ("kind", "names", "usual"),
    [
        ("class", ("a", "b"), "accuracy"),
        ("number", (), "spearman"),
        ("tags", NAMES, "entity_f1"),
        ("tags", ("NN", "VB"), "tag_accuracy"),
    ],
)
def test_the_usual_metric(kind, names, usual):
    assert KINDS[kind].choose_metric(None, names) == usual


def test_metrics_that_do_not_go_with_the_task():
    with pytest.raises(UserError, match="use one of: tag_accuracy, entity_f1"):
        KINDS["tags"].check_metric("accuracy")
    with pytest.raises(UserError, match="use one of: pearson, spearman, r2"):
        KINDS["number"].check_metric("entity_f1")
    with pytest.raises(UserError, match="use tag_accuracy"):
        KINDS["tags"].choose_metric("entity_f1", ("NN", "VB"))
