"""Training: it learns, repeats itself, learns from a teacher, and stops at the best epoch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.data import labelled_rows
from probescale.config import RecoveryConfig
from probescale.models.loading import load_classifier
from probescale.models.precision import choose_precision
from probescale.models.surgery import keep_layers
from probescale.recovery.automatic import Situation, choose_recipe
from probescale.recovery.fine_tuning import fine_tune
from probescale.recovery.inputs import build_inputs
from probescale.recovery.predict import compute_logits, predict
from probescale.recovery.recipe import Recipe, describe_recipe
from probescale.recovery.short_training import train_briefly
from probescale.recovery.teacher import TeacherOutputs, record_teacher_outputs
from probescale.recovery.training_set import build_training_set
from probescale.tasks.data import TaggedSentences, load_rows
from probescale.tasks.unlabelled import changed_copies

RECIPE = Recipe(epochs=3, learning_rate=3e-3, batch_size=16, dropout=0.0)
ROWS = labelled_rows(200)
TRAIN, DEV, MORE = load_rows(ROWS[:80]), load_rows(ROWS[80:120]), load_rows(ROWS[120:])


@pytest.fixture(scope="module")
def parent(model_folder):
    return load_classifier(str(model_folder("bert")), None, TRAIN.names, 0)


@pytest.fixture(scope="module")
def teacher(parent):
    model = keep_layers(parent, (1, 2, 3, 4))
    fine_tune(model, TRAIN, replace(RECIPE, epochs=6), max_length=32)
    return model


def right(model, data):
    return float((predict(model, data, max_length=32) == np.array(data.labels)).mean())


def apart(model, teacher, data):
    """How differently two models answer."""
    mine, theirs = (compute_logits(one, build_inputs(one.tokenizer, data, 32)) for one in (model, teacher))
    softmax = [np.exp(each) / np.exp(each).sum(-1, keepdims=True) for each in (mine, theirs)]
    return float(np.abs(softmax[0] - softmax[1]).mean())


@pytest.mark.slow
def test_it_learns(teacher):
    assert right(teacher, DEV) > 0.8


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights(parent):
    found = []
    for seed in (0, 0, 1):
        model = keep_layers(parent, (1, 3))
        fine_tune(model, TRAIN, RECIPE, max_length=32, seed=seed)
        found.append(model.fingerprint)
    assert found[0] == found[1] != found[2]


@pytest.mark.slow
def test_a_student_comes_near_its_teacher_on_texts_that_nobody_labelled(parent, teacher, tmp_path):
    outputs = record_teacher_outputs(teacher, TRAIN, MORE, tmp_path / "lessons", max_length=32)
    assert outputs.logits.shape == (160, 2)
    assert outputs.states is None
    plain, taught = keep_layers(parent, (1, 2)), keep_layers(parent, (1, 2))
    fine_tune(plain, TRAIN, RECIPE, max_length=32)
    fine_tune(taught, TRAIN, RECIPE, teacher=outputs, max_length=32)
    assert apart(taught, teacher, DEV) < apart(plain, teacher, DEV)


@pytest.mark.slow
def test_wrong_labels_on_unlabelled_texts_mean_nothing(parent, teacher, tmp_path):
    """They have label numbers in their data type, which must not be learned."""
    found = []
    for number, labels in enumerate([(0,) * len(MORE), (1,) * len(MORE)]):
        outputs = record_teacher_outputs(
            teacher, TRAIN, replace(MORE, labels=labels), tmp_path / str(number), max_length=32
        )
        model = keep_layers(parent, (1,))
        fine_tune(model, TRAIN, RECIPE, teacher=outputs, max_length=32)
        found.append(model.fingerprint)
    assert found[0] == found[1]


@pytest.mark.slow
def test_states_come_near_the_teachers(parent, teacher, tmp_path):
    """The student's last layer stands for the teacher's last."""
    outputs = record_teacher_outputs(teacher, TRAIN, None, tmp_path / "lessons", states=True, max_length=32)
    assert outputs.states is not None
    assert outputs.states.shape == (80, 4, 32)
    wanted = outputs.states_for((1, 3))
    assert wanted is not None
    assert np.array_equal(wanted, outputs.states[:, [0, 3]])
    distance = {}
    for weight in (0.0, 5.0):
        model = keep_layers(parent, (1, 3))
        recipe = replace(RECIPE, states=weight, healing=1 if weight else 0)
        fine_tune(model, TRAIN, recipe, teacher=outputs, kept=(1, 3), max_length=32)
        own = record_teacher_outputs(model, TRAIN, None, tmp_path / f"{weight}", states=True, max_length=32).states
        assert own is not None
        distance[weight] = float(((own - wanted) ** 2).mean())
    assert distance[5.0] < 0.5 * distance[0.0]


@pytest.mark.slow
def test_the_best_epoch_is_kept(parent, monkeypatch):
    """Set-aside rows decide; training stops when they have not improved for a while."""
    losses = iter([0.5, 0.4, 0.6, 0.7, 0.1])
    weights = []

    def loss(_, loaded):
        weights.append({name: value.clone() for name, value in loaded.model.state_dict().items()})
        return next(losses)

    monkeypatch.setattr("probescale.recovery.training_set.TrainingSet.held_out_loss", loss)
    model = keep_layers(parent, (1, 2))
    fine_tune(model, TRAIN, replace(RECIPE, epochs=5, validation=0.25, patience=2), max_length=32)
    assert len(weights) == 4
    assert all(torch.equal(value, weights[1][name]) for name, value in model.model.state_dict().items())
    assert not all(torch.equal(value, weights[3][name]) for name, value in model.model.state_dict().items())


@pytest.mark.slow
def test_rows_set_aside_are_not_learned_from(parent):
    """With labels turned round in the part that is set aside, the same model comes out of a single epoch."""
    from probescale.tasks.sampling import split_rows

    recipe = replace(RECIPE, epochs=1, validation=0.25)
    _, held = split_rows(TRAIN.labels, 0.25, 0)
    turned = replace(TRAIN, labels=tuple(label if n not in held else 1 - label for n, label in enumerate(TRAIN.labels)))
    # The same rows are set aside only if the split sees the same labels: give it those.
    found = []
    for data in (TRAIN, turned):
        model = keep_layers(parent, (1,))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("probescale.recovery.training_set.split_rows", lambda *_: ([], held))
            fine_tune(model, data, recipe, max_length=32)
        found.append(model.fingerprint)
    assert found[0] == found[1]


@pytest.mark.parametrize("texts", [None, 1, 79, 80, 81, 110, 159, 160, 10_000])
def test_a_limit_leaves_every_labelled_text(parent, texts):
    outputs = TeacherOutputs(MORE, np.zeros((160, 2), np.float32), None)
    everything, _ = build_training_set(parent, TRAIN, RECIPE, 32, outputs)
    used = list(everything.limit(texts, len(TRAIN)).used)
    assert used[:80] == list(range(80)), "the labelled ones come first"
    assert used == list(range(160 if texts is None else min(max(texts, 80), 160))), "then the first of the others"
    assert list(everything.limit(texts, len(TRAIN)).limit(None, len(TRAIN)).used) == used


@pytest.mark.slow
def test_texts_beyond_the_limit_are_not_learned_from(parent, teacher, tmp_path):
    """With other answers of the teacher to them, the same model comes out."""
    outputs = record_teacher_outputs(teacher, TRAIN, MORE, tmp_path / "lessons", max_length=32)
    recipe = replace(RECIPE, texts=100, epochs=1)
    used = build_training_set(parent, TRAIN, recipe, 32, outputs)[0].limit(100, len(TRAIN)).used
    turned = outputs.logits.copy()
    left_out = np.setdiff1d(np.arange(160), used)
    turned[left_out] *= -1
    found = []
    for logits in (outputs.logits, turned):
        model = keep_layers(parent, (1,))
        fine_tune(model, TRAIN, recipe, teacher=replace(outputs, logits=logits), max_length=32, seed=5)
        found.append(model.fingerprint)
    assert len(left_out) == 60
    assert found[0] == found[1]


@pytest.mark.slow
def test_lower_layers_can_learn_more_slowly(parent):
    moved = {}
    for decay in (1.0, 0.1):
        model = keep_layers(parent, (1, 2, 3, 4))
        before = {name: value.clone() for name, value in model.model.state_dict().items()}
        fine_tune(model, TRAIN, replace(RECIPE, epochs=1, layer_decay=decay), max_length=32)
        name = "bert.encoder.layer.0.output.dense.weight"
        moved[decay] = (model.model.state_dict()[name] - before[name]).abs().mean().item()
    assert 0 < moved[0.1] < 0.05 * moved[1.0]


def test_words_are_answered_at_their_first_piece(model_folder):
    loaded = load_classifier(str(model_folder("roberta")), None, "ab", 0)
    data = TaggedSentences((("the", "unbelievably", "good"), ("film",)), ((0, -1, 1), (1,)), ("a", "b"))
    inputs = build_inputs(loaded.tokenizer, data, 32)
    assert inputs.rows == 4
    batch = inputs.collate(loaded.tokenizer, [inputs[0], inputs[1]])
    rows = batch["rows"]
    assert sorted(rows[rows >= 0].tolist()) == [0, 1, 2, 3]
    for line, column in torch.nonzero(rows >= 0).tolist():
        word = [word for words in data.words for word in words][rows[line, column]]
        piece = str(loaded.tokenizer.decode([int(batch["input_ids"][line, column])])).strip()
        assert piece
        assert word.startswith(piece)
    short = build_inputs(loaded.tokenizer, data, 4)
    assert len(short.places[0]) < 3  # what lies beyond the limit is not answered


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 1000.0])
def test_quantities_of_any_size_are_learned_and_answered_in_their_units(model_folder, factor):
    loaded = load_classifier(str(model_folder("bert")), None, (), 0, head="regression")
    values = tuple(factor * (5 + label) for label in TRAIN.labels)
    train = replace(TRAIN, labels=values, names=(), target="number", kind="number")
    fine_tune(loaded, train, RECIPE, max_length=32)
    found = predict(loaded, replace(DEV, target="number", kind="number", names=()), max_length=32)
    assert np.corrcoef(found, DEV.labels)[0, 1] > 0.7
    assert 5 * factor < found.mean() < 6 * factor


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 1000.0])
def test_a_model_cut_from_one_that_answers_in_units_learns_as_well(model_folder, tmp_path, factor):
    """The cut model begins with a head that answers in the units of the data, and learns in standard units."""
    train = replace(
        TRAIN, labels=tuple(factor * (5 + label) for label in TRAIN.labels), names=(), target="number", kind="number"
    )
    loaded = load_classifier(str(model_folder("bert")), None, (), 0, head="regression")
    assert not loaded.head_is_trained
    fine_tune(loaded, train, replace(RECIPE, epochs=6), max_length=32)
    assert loaded.head_is_trained
    outputs = record_teacher_outputs(loaded, train, None, tmp_path / "lessons", max_length=32)
    small, brief = keep_layers(loaded, (1, 2)), keep_layers(loaded, (1, 2))
    fine_tune(small, train, RECIPE, teacher=outputs, max_length=32)
    found = predict(small, train, max_length=32)
    error = ((found - np.array(train.labels)) ** 2).mean() / np.var(train.labels)
    assert error < 0.2
    held_out = frozenset(range(20))
    short = train_briefly(brief, train, RECIPE, texts=160, teacher=outputs, held_out=held_out, max_length=32)
    assert short.loss < 0.5 * short.constant, "both in standard units"
    assert short.seconds > 0


def test_the_original_can_have_a_recipe_of_its_own():
    given = {"epochs": 1, "learning_rate": 3e-5, "batch_size": 32, "dropout": "model"}
    situation = Situation(768, 1.0, 10, 0, 20.0)
    settings = RecoveryConfig.model_validate(given | {"original": {"epochs": 3, "learning_rate": 5e-5}})
    chosen = choose_recipe(settings, situation)
    original, small = chosen.for_original(settings), chosen.for_subnetworks(settings)
    assert (original.epochs, original.learning_rate) == (3, 5e-5)
    assert (small.epochs, small.learning_rate) == (1, 3e-5)
    assert original.batch_size == small.batch_size
    assert "the original with epochs 3 and learning rate 5e-05" in describe_recipe(chosen, settings, 10, 0, 0)
    alike = RecoveryConfig.model_validate(given)
    assert "the original with" not in describe_recipe(choose_recipe(alike, situation), alike, 10, 0, 0)


def test_changed_copies_of_a_script_without_spaces_are_other_texts():
    subjects, verbs = ("演员", "故事", "音乐"), ("喜欢", "记得")
    texts = tuple(f"这部电影的{a}很{b}我们都{c}它" for a in subjects for b in ("好", "差") for c in verbs)
    data = load_rows([(text, "a" if "好" in text else "b") for text in texts])
    copies = changed_copies(data, 3, seed=0)
    assert sum(copy in texts for copy in copies.texts) < len(copies) / 4
    assert {letter for copy in copies.texts for letter in copy} <= {letter for text in texts for letter in text}
    assert max(map(len, copies.texts)) <= max(map(len, texts))


def test_changed_copies_are_other_texts_of_known_and_made_up_words():
    copies = changed_copies(TRAIN, 2, seed=0)
    assert len(copies) == 160
    assert copies == changed_copies(TRAIN, 2, seed=0)
    assert copies != changed_copies(TRAIN, 2, seed=1)
    words = {word for text in TRAIN.texts for word in text.split()}
    halves = {first[: len(first) // 2] + second[len(second) // 2 :] for first in words for second in words}
    drawn = {word for text in copies.texts for word in text.split()}
    assert drawn <= words | halves
    assert drawn - words, "new texts have words that no known text has"
    assert sum(text in TRAIN.texts for text in copies.texts) < 16


def test_copies_of_pairs_get_second_texts_that_share_words_with_the_first():
    things = [f"thing{number}" for number in range(12)]
    texts = tuple(f"what is {thing} ?" for thing in things for _ in range(5))
    pairs = tuple(f"{thing} is number {n}" for thing in things for n in range(5))
    copies = changed_copies(replace(TRAIN, texts=texts, pairs=pairs, labels=(0,) * 60), 2, seed=0)
    assert copies.pairs is not None
    made = list(zip(copies.texts, copies.pairs, strict=True))
    exchanged = [(text, pair) for text, pair in made if text in texts and pair in pairs]
    assert 40 < len(exchanged) < 90
    assert all(text.split()[2] == pair.split()[0] for text, pair in exchanged)
    assert any(pair != pairs[texts.index(text)] for text, pair in exchanged)


def test_copies_of_pairs_in_two_scripts_stay_in_their_scripts():
    texts, pairs = ("how large is the moon ?", "where is the sun ?"), ("月亮很大很远", "太阳在天上")
    data = replace(TRAIN, texts=texts, pairs=pairs, labels=(0, 0))
    for first, second in ((texts, pairs), (pairs, texts)):
        copies = changed_copies(replace(data, texts=first, pairs=second), 20, seed=0)
        assert copies.pairs is not None
        for original, changed in ((first, copies.texts), (second, copies.pairs)):
            assert all(text.isascii() == original[0].isascii() for text in changed)
            assert set(changed) - set(original)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")
def test_a_precision_that_the_machine_lacks_is_not_used():
    assert choose_precision("auto") == choose_precision("float32") == choose_precision("float16") == "float32"
    assert choose_precision("bfloat16") in ("float32", "bfloat16")


def test_the_models_own_dropout_is_back_after_training(parent):
    model = keep_layers(parent, (1, 3))
    before = [module.p for module in model.model.modules() if isinstance(module, torch.nn.Dropout)]
    fine_tune(model, TRAIN, replace(RECIPE, epochs=1), max_length=32)
    assert max(before) > 0
    assert [module.p for module in model.model.modules() if isinstance(module, torch.nn.Dropout)] == before


@pytest.mark.slow
def test_metrics_go_to_tensorboard_where_that_is_asked_for(parent, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model, recipe = keep_layers(parent, (1, 3)), replace(RECIPE, epochs=8, tracking=("tensorboard",))
    losses = fine_tune(model, TRAIN, recipe, max_length=32, tracked=tmp_path / "tracked")
    [events] = (tmp_path / "tracked").rglob("events.out.tfevents.*")
    told = EventAccumulator(str(events.parent)).Reload()
    curve = [event.value for event in told.Scalars("train/loss")]
    steps = len(curve) // recipe.epochs
    assert len(losses) == recipe.epochs
    assert losses[0] == pytest.approx(sum(curve[:steps]) / steps, abs=1e-3)
    assert losses[-1] < losses[0]
    assert [path for path in (tmp_path / "tracked").rglob("*") if path.is_file()] == [events]
