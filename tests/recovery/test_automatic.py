"""Recipes that are chosen: by the width of the model, the amount of data and of time; what the user says wins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probescale.config import RecoveryConfig
from probescale.recovery.automatic import Situation, choose_recipe, count_available, count_read
from probescale.recovery.recipe import Choices, describe_recipe

USUAL = Situation(hidden_size=768, rate_factor=1.0, labelled=3000, unlabelled=60_000, tokens=25.0)

situations = st.builds(
    Situation,
    hidden_size=st.sampled_from([128, 384, 768, 1024, 4096]),
    rate_factor=st.sampled_from([0.5, 1.0, 3.0]),
    labelled=st.integers(16, 400_000),
    unlabelled=st.integers(0, 400_000),
    tokens=st.floats(3, 512),
    already_trained=st.booleans(),
)
values = {
    "epochs": st.integers(0, 50),
    "learning_rate": st.sampled_from([1e-6, 3e-5, 3e-3]),
    "batch_size": st.sampled_from([1, 16, 64]),
}
recoveries = st.fixed_dictionaries(
    {},
    optional=values
    | {
        "texts": st.integers(1, 10**6),
        "augment": st.integers(0, 20),
        "dropout": st.sampled_from([0.0, 0.1, "model"]),
        "distil": st.booleans(),
        "original": st.fixed_dictionaries({}, optional=values),
    },
).map(RecoveryConfig.model_validate)
efforts = st.floats(0.05, 3.0)


def chosen(situation: Situation = USUAL, effort: float = 1.0, **settings) -> Choices:
    return choose_recipe(RecoveryConfig.model_validate(settings), situation, effort)


# Rules


def test_rates_fall_with_the_width_of_the_model():
    recipes = [chosen(replace(USUAL, hidden_size=width)) for width in (256, 384, 768, 1024, 4096)]
    for rates in ([one.learning_rate for one in recipes], [one.original_learning_rate for one in recipes]):
        assert rates == sorted(set(rates), reverse=True)
        assert rates[0] / rates[-1] == pytest.approx(16, rel=0.05), "in proportion"
    assert recipes[2].learning_rate > recipes[2].original_learning_rate, "what was cut has to change more"
    family = chosen(replace(USUAL, rate_factor=10.0))
    assert family.learning_rate == pytest.approx(10 * chosen().learning_rate)
    assert chosen(adapters="lora").learning_rate == pytest.approx(5 * chosen().learning_rate)


def test_few_rows_are_read_more_often_in_small_batches():
    few, usual = chosen(replace(USUAL, labelled=500)), chosen(replace(USUAL, labelled=20_000))
    assert (few.original_batch_size, usual.original_batch_size) == (16, 32)
    assert few.original_epochs > usual.original_epochs == 3
    assert chosen(replace(USUAL, labelled=300_000)).original_epochs == 1
    for rows in (20, 100, 640, 3000, 4999):
        recipe = chosen(replace(USUAL, labelled=rows))
        steps = recipe.original_epochs * math.ceil(rows / recipe.original_batch_size)
        assert steps >= 400 or recipe.original_epochs == 20, "enough steps, but no row more than twenty times"


@given(st.integers(16, 10**6), st.integers(16, 10**6))
def test_more_rows_never_mean_more_epochs_of_the_original(one, other):
    few, many = sorted((one, other))
    assert chosen(replace(USUAL, labelled=few)).original_epochs >= chosen(replace(USUAL, labelled=many)).original_epochs


def test_changed_copies_are_added_where_there_are_few_texts():
    assert chosen().augment == 0
    few = replace(USUAL, labelled=500, unlabelled=0)
    assert 0 < chosen(few).augment <= 9
    assert count_available(RecoveryConfig(), few, chosen(few).augment) == 500 * (1 + chosen(few).augment)
    assert chosen(few, distil=False).augment == 0, "nobody would label them"


@given(situations)
def test_long_texts_are_read_less_often(situation):
    short, long = (chosen(replace(situation, tokens=tokens)) for tokens in (10, 400))
    settings = RecoveryConfig()
    assert count_read(settings, situation, short) >= count_read(settings, situation, long)


def test_a_training_with_few_steps_keeps_its_rate():
    """A higher rate for a short training made cuts with many layers worse (docs/results/compression.md)."""
    few = replace(USUAL, labelled=200, unlabelled=0)
    usual, hurried = chosen(few), chosen(few, epochs=1)
    assert hurried.learning_rate == usual.learning_rate == chosen().learning_rate
    assert hurried.original_learning_rate == usual.original_learning_rate


def test_without_a_teacher_labels_are_all_there_is():
    plain, taught = chosen(distil=False), chosen()
    assert (taught.dropout, plain.dropout, plain.original_dropout) == (0.0, None, None), "None: the model's own"
    assert plain.epochs == plain.original_epochs
    assert plain.batch_size == plain.original_batch_size == 16
    settings = RecoveryConfig(distil=False)
    assert count_available(settings, USUAL, 0) == USUAL.labelled
    assert count_read(settings, USUAL, plain) == plain.epochs * USUAL.labelled


@given(situations, recoveries)
def test_a_model_that_was_trained_for_these_labels_is_not_trained_again(situation, settings):
    trained = choose_recipe(settings, replace(situation, already_trained=True))
    untrained = choose_recipe(settings, replace(situation, already_trained=False))
    assert trained.original_epochs == (0 if settings.original.epochs == "auto" else settings.original.epochs)
    subnetworks = {"original_epochs": 0}
    assert trained.model_copy(update=subnetworks) == untrained.model_copy(update=subnetworks), "nothing else changes"
    if settings.epochs == settings.original.epochs == "auto":
        assert untrained.original_epochs > 0


# What the user says


@given(situations, recoveries, efforts)
def test_values_of_the_user_win(situation, settings, effort):
    recipe = choose_recipe(settings, situation, effort)
    for name in ("epochs", "learning_rate", "texts", "batch_size", "augment"):
        given = getattr(settings, name)
        assert given in ("auto", getattr(recipe, name)), name
    small, original = recipe.for_subnetworks(settings), recipe.for_original(settings)
    if settings.dropout != "auto":
        dropout = None if settings.dropout == "model" else settings.dropout
        assert small.dropout == original.dropout == dropout
    assert (small.epochs, small.learning_rate, small.texts) == (recipe.epochs, recipe.learning_rate, recipe.texts)
    assert original.texts is None, "the original reads every label"


@given(situations, recoveries, efforts)
def test_the_original_takes_its_own_values_then_the_common_ones(situation, settings, effort):
    recipe = choose_recipe(settings, situation, effort).for_original(settings)
    for name in ("epochs", "learning_rate", "batch_size"):
        own, common = getattr(settings.original, name), getattr(settings, name)
        if own != "auto":
            assert getattr(recipe, name) == own
        elif common != "auto" and not (name == "epochs" and situation.already_trained):
            assert getattr(recipe, name) == common


def test_other_settings_reach_both_recipes():
    settings = RecoveryConfig(warmup=0.3, weight_decay=0.2, layer_decay=0.9, validation=0.1, soft=0.7, temperature=3.0)
    recipe = choose_recipe(settings, USUAL)
    for each in (recipe.for_subnetworks(settings), recipe.for_original(settings)):
        assert (each.warmup, each.weight_decay, each.layer_decay) == (0.3, 0.2, 0.9)
        assert (each.validation, each.soft, each.temperature) == (0.1, 0.7, 3.0)


@given(situations, recoveries, efforts)
def test_what_was_chosen_is_chosen_again_from_the_settings_that_were_written(situation, settings, effort):
    """config.yaml has the values in the place of every auto, and no effort: running it repeats the recipe."""
    recipe = choose_recipe(settings, situation, effort)
    written = recipe.fill_in(settings)
    assert choose_recipe(written, situation) == recipe
    assert "auto" not in (written.epochs, written.learning_rate, written.batch_size, written.augment)


# Effort


@given(situations, recoveries, efforts, efforts)
def test_more_effort_never_reads_less(situation, settings, one, other):
    less, more = sorted((one, other))
    recipes = [choose_recipe(settings, situation, effort) for effort in (less, more)]
    small, large = (count_read(settings, situation, recipe) for recipe in recipes)
    assert small <= large
    assert recipes[0].original_epochs <= recipes[1].original_epochs
    assert recipes[1].original_epochs <= choose_recipe(settings, situation).original_epochs or more <= 1
    for recipe in recipes:
        available = count_available(settings, situation, recipe.augment)
        assert recipe.texts is None or settings.texts != "auto" or situation.labelled <= recipe.texts < available


@pytest.mark.parametrize("effort", [0.1, 0.5, 2.0, 3.0])
def test_effort_scales_what_is_read(effort):
    settings = RecoveryConfig()
    many = replace(USUAL, unlabelled=400_000)  # more than is read at any effort
    usual, changed = (count_read(settings, many, chosen(many, each)) for each in (1.0, effort))
    assert changed == pytest.approx(effort * usual, rel=0.01)
    assert chosen(many, effort).original_epochs <= chosen(many).original_epochs


# In words, and in a file


def test_choices_are_saved_and_loaded(tmp_path):
    recipe = chosen(texts=5000)
    recipe.save(tmp_path / "recipe.json")
    assert Choices.load(tmp_path / "recipe.json") == recipe


def test_the_recipe_in_words():
    settings = RecoveryConfig()
    recipe = choose_recipe(settings, USUAL)
    words = describe_recipe(recipe, settings, USUAL.labelled, USUAL.unlabelled, 7)
    assert words.startswith("fine-tuning on 3,000 examples, epochs ")
    for part in (
        f"learning rate {recipe.learning_rate:g}, batch size 32",
        f"the original with epochs {recipe.original_epochs}",
        "its own dropout",
        "also on 60,000 unlabelled texts",
        "seed 7",
    ):
        assert part in words
    trained = choose_recipe(settings, replace(USUAL, already_trained=True))
    assert "the original as it is" in describe_recipe(trained, settings, 3000, 0, 0)
    other = RecoveryConfig(teacher="some/teacher")
    assert "subnetworks distilled from some/teacher (" in describe_recipe(recipe, other, 3000, 0, 0)
    plain = RecoveryConfig(distil=False)
    assert "distilled" not in describe_recipe(choose_recipe(plain, USUAL), plain, 3000, 0, 0)


def test_rare_labels_count_more_unless_the_user_says_otherwise():
    rare = replace(USUAL, rare_labels=True)
    chosen = choose_recipe(RecoveryConfig(), rare)
    assert chosen.class_weights == "square_root"
    assert chosen.for_original(RecoveryConfig()).class_weights == "square_root"
    assert chosen.fill_in(RecoveryConfig()).class_weights == "square_root"
    assert "square root class weights" in describe_recipe(chosen, RecoveryConfig(), 100, 0, 0)
    assert choose_recipe(RecoveryConfig(), USUAL).class_weights == "none"
    for given_weights in ("none", "balanced"):
        assert choose_recipe(RecoveryConfig(class_weights=given_weights), rare).class_weights == given_weights
