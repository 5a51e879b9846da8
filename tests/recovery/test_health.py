"""Whether a training worked: found by answers to training texts, whatever the loss says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.data import labelled_rows
from probescale.models.loading import load_classifier
from probescale.models.surgery import keep_layers
from probescale.recovery.fine_tuning import fine_tune, prepare_training
from probescale.recovery.health import BELOW_PROBE, Health, check_original, check_subnetwork, logits_on
from probescale.recovery.label_scale import find_output_layer
from probescale.recovery.recipe import Recipe
from probescale.recovery.teacher import TeacherOutputs, record_teacher_outputs
from probescale.tasks.data import Examples, TaggedSentences, load_rows

RECIPE = Recipe(epochs=5, learning_rate=3e-3, batch_size=16, dropout=0.0)
TRAIN, MORE = load_rows(labelled_rows(100)), load_rows(labelled_rows(60, seed=9))
NUMBERS = replace(
    TRAIN, labels=tuple(700.0 + 50 * label for label in TRAIN.labels), names=(), target="number", kind="number"
)


def examples(labels, classes: int = 2) -> Examples:
    texts = tuple(f"text {number}" for number in range(len(labels)))
    return Examples(texts, None, tuple(labels), tuple(f"class {number}" for number in range(classes)))


def logits_for(labels, strength: float = 5.0, classes: int = 2) -> np.ndarray:
    """Logits that give these labels."""
    return (strength * np.eye(classes)[list(labels)]).astype(np.float32)


# The original


@pytest.mark.parametrize("answer", [0, 1])
@pytest.mark.parametrize("common", [0.5, 0.9])
def test_one_answer_for_all_is_found(answer, common):
    """Also where that answer is right most of the time."""
    labels = [int(number >= 100 * common) for number in range(100)]
    found = check_original(logits_for([answer] * 100, 0.5), examples(labels), None)
    assert not found.learned
    assert found.constant_score == pytest.approx(max(common, 1 - common))
    assert f"one and the same answer for all would reach {found.constant_score:.2f}" in found.describe()


def test_a_constant_predictor_has_the_loss_of_a_constant_predictor():
    labels = [0] * 70 + [1] * 30
    constant = np.tile(np.log([0.7, 0.3]), (100, 1)).astype(np.float32)
    found = check_original(constant, examples(labels), None)
    assert found.loss_share == pytest.approx(1.0, abs=1e-3)
    assert found.score == found.constant_score == pytest.approx(0.7)
    assert not found.learned


def test_rows_count_as_they_did_in_training():
    """With class weights a model may answer the rare label too often: worse than a constant one in plain accuracy."""
    labels = [0] * 95 + [1] * 5
    answers = [0] * 80 + [1] * 15 + [1] * 5
    assert not check_original(logits_for(answers, 3.0), examples(labels), None).learned
    weighed = check_original(logits_for(answers, 3.0), examples(labels), 0.95, "balanced")
    assert weighed.learned
    assert weighed.score == pytest.approx((80 / 95 + 1) / 2)
    assert weighed.constant_score == pytest.approx(0.5)
    assert not check_original(logits_for([0] * 100, 0.5), examples(labels), None, "balanced").learned


def test_a_perfect_classifier_is_healthy_whatever_its_loss():
    labels = [number % 3 for number in range(90)]
    sure = check_original(logits_for(labels, 9.0, 3), examples(labels, 3), None)
    assert sure.learned
    assert sure.loss_share < 0.01
    unsure = check_original(logits_for(labels, 0.05, 3), examples(labels, 3), 0.9)
    assert unsure.loss_share > 0.95
    assert unsure.score == 1.0
    assert unsure.learned


def test_a_few_errors_of_great_certainty_are_no_failure():
    """The loss is above that of a constant predictor, while nine of ten answers are right."""
    labels = [number % 2 for number in range(100)]
    answers = [1 - label if number < 10 else label for number, label in enumerate(labels)]
    found = check_original(logits_for(answers, 40.0), examples(labels), None)
    assert found.loss_share > 1
    assert found.score == pytest.approx(0.9)
    assert found.learned


def test_rare_answers_that_are_right_show_in_the_loss():
    """One class in fifty: accuracy hardly says whether anything was learned."""
    labels = [int(number % 50 == 0) for number in range(500)]
    useful = np.tile(np.array([[6.0, 0.0]], np.float32), (500, 1))
    useful[np.array(labels) == 1] = [3.0, 1.5]  # still the common answer, but less certain
    never = np.tile(np.log(np.array([[0.98, 0.02]], np.float32)), (500, 1))
    found, useless = (check_original(logits, examples(labels), None) for logits in (useful, never))
    assert found.score == useless.score == found.constant_score
    assert found.learned
    assert not useless.learned


@pytest.mark.parametrize(("probe", "learned"), [(None, True), (0.80, True), (0.82, True), (0.84, False), (0.95, False)])
def test_below_its_own_probe_is_not_healthy(probe, learned):
    labels = [number % 2 for number in range(100)]
    answers = [1 - label if number < 20 else label for number, label in enumerate(labels)]
    found = check_original(logits_for(answers), examples(labels), probe)
    assert found.score == pytest.approx(0.8)
    assert found.learned == learned
    assert ("a linear probe of the model" in found.describe()) == (probe is not None)
    assert 0 < BELOW_PROBE < 0.05


def test_numbers_are_judged_by_the_share_of_their_variance():
    rng = np.random.default_rng(0)
    values = rng.normal(1000, 200, 300)
    data = Examples(tuple(map(str, range(300))), None, tuple(values), (), "number", "number")
    good, poor = values + rng.normal(0, 50, 300), np.full(300, values.mean())
    shifted = values - 900
    found = {
        name: check_original(answers[:, None].astype(np.float32), data, None)
        for name, answers in {"good": good, "constant": poor, "shifted": shifted}.items()
    }
    assert found["good"].learned
    assert found["good"].score == pytest.approx(1 - 50**2 / 200**2, abs=0.05)
    assert found["constant"].score == pytest.approx(0, abs=1e-3)
    assert not found["constant"].learned
    assert not found["shifted"].learned, "right in order, wrong in value"
    assert not replace(found["good"], best_probe=0.99).learned


def test_words_without_a_tag_and_beyond_the_limit_do_not_count():
    data = TaggedSentences((("a", "b", "c"), ("d", "e")), ((0, -1, 1), (1, 0)), ("x", "y"))
    logits = logits_for([0, 0, 1, 1, 0])
    logits[1] = [-50, 50]  # has no tag
    perfect = check_original(logits, data, None)
    assert (perfect.score, perfect.constant_score) == (1.0, 0.5)
    logits[4] = np.nan  # was not read
    assert check_original(logits, data, None).score == 1.0


def test_a_loss_of_zero_divides_nothing():
    found = check_original(logits_for([0] * 20), examples([0] * 20), None)
    assert np.isfinite(found.loss_share)
    assert found.learned, "there is nothing to miss"
    assert Health(1.0, 1.0, 1.0).learned
    assert not Health(0.99, 0.99, 1.0).learned


# A subnetwork


@pytest.fixture(scope="module")
def parent(model_folder):
    return load_classifier(str(model_folder("bert")), None, TRAIN.names, 0)


@pytest.fixture(scope="module")
def original(parent):
    model = keep_layers(parent, (1, 2, 3, 4))
    fine_tune(model, TRAIN, RECIPE, max_length=32)
    return model


@pytest.fixture(scope="module")
def outputs(original, tmp_path_factory):
    return record_teacher_outputs(original, TRAIN, MORE, tmp_path_factory.mktemp("lessons") / "out", max_length=32)


def check_small(model, data, teacher, recipe=RECIPE, seed=0):
    learned, scale = prepare_training(model, data, recipe, teacher=teacher, max_length=32, seed=seed)
    return check_subnetwork(model, learned, seed, scale)


@pytest.mark.slow
def test_a_trained_original_is_healthy(original):
    found = check_original(logits_on(original, TRAIN, 32), TRAIN, 0.9)
    assert found.score > 0.9
    assert found.learned


@pytest.mark.slow
@pytest.mark.parametrize("taught", [True, False])
def test_a_trained_subnetwork_is_healthy_and_an_untrained_one_is_not(parent, outputs, taught):
    teacher = outputs if taught else None
    small = keep_layers(parent, (1, 2))
    before = check_small(small, TRAIN, teacher)
    fine_tune(small, TRAIN, RECIPE, teacher=teacher, max_length=32)
    after = check_small(small, TRAIN, teacher)
    assert not before.learned
    assert after.learned
    assert after.score > before.score + 0.3
    assert (after.largest_loss < 0.95) == taught, "where there is a teacher, it has to come halfway near"


@pytest.mark.slow
def test_a_subnetwork_that_gives_one_answer_is_found(parent, original, outputs):
    small = keep_layers(original, (1, 2, 3, 4))
    assert check_small(small, TRAIN, outputs).learned, "the teacher itself"
    head = find_output_layer(small.model)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([3.0, -3.0]))
    found = check_small(small, TRAIN, outputs)
    assert not found.learned
    assert found.score <= found.constant_score + 0.1


@pytest.mark.slow
def test_a_subnetwork_that_knows_the_labels_better_than_its_teacher_is_healthy(parent):
    """A teacher that has learned next to nothing is no measure of what its student learned."""
    poor = np.random.default_rng(0).normal(0, 0.1, (100, 2)).astype(np.float32)
    teacher = TeacherOutputs(None, poor, None)
    small = keep_layers(parent, (1, 2))
    fine_tune(small, TRAIN, RECIPE, max_length=32)
    found = check_small(small, TRAIN, teacher)
    assert found.learned
    assert found.score > 0.9


@pytest.mark.slow
def test_numbers_in_any_units(model_folder, tmp_path):
    """The set has its labels in standard units, and the trained model answers in those of the data."""
    loaded = load_classifier(str(model_folder("bert")), None, (), 0, head="regression")
    fine_tune(loaded, NUMBERS, replace(RECIPE, epochs=8), max_length=32)
    assert check_original(logits_on(loaded, NUMBERS, 32), NUMBERS, None).score > 0.7
    teacher = record_teacher_outputs(loaded, NUMBERS, None, tmp_path / "lessons", max_length=32)
    small = keep_layers(loaded, (1, 2))
    fine_tune(small, NUMBERS, RECIPE, teacher=teacher, max_length=32)
    found = check_small(small, NUMBERS, teacher)
    assert found.learned
    assert 0.7 < found.score <= 1
    untrained = load_classifier(str(model_folder("bert")), None, (), 0, head="regression")
    assert not check_small(keep_layers(untrained, (1, 2)), NUMBERS, teacher).learned


@pytest.mark.slow
def test_only_texts_that_were_learned_are_asked(original, outputs, monkeypatch):
    """With a limit, others were never seen."""
    recipe, asked = replace(RECIPE, texts=120), []
    small = keep_layers(original, (1, 2))
    real = check_subnetwork.__globals__["run_on_all"]

    def remember(work, loaded, some):
        asked.append(list(some.held_out))
        return real(work, loaded, some)

    monkeypatch.setitem(check_subnetwork.__globals__, "run_on_all", remember)
    for seed in (4, 4, 5):
        check_small(small, TRAIN, outputs, recipe, seed)
    used = prepare_training(small, TRAIN, recipe, teacher=outputs, max_length=32, seed=4)[0].used
    assert asked == [sorted(used)] * 3
    assert len(used) == 120
    monkeypatch.setitem(check_subnetwork.__globals__, "CHECKED_TEXTS", 50)
    for seed in (4, 4, 5):
        check_small(small, TRAIN, outputs, recipe, seed)
    assert asked[3] == asked[4] != asked[5], "of many texts, some are drawn with the seed"
    assert set(asked[3]) < set(used)
    assert len(asked[3]) == 50
