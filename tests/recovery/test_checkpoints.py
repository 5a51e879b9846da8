"""Training that was cut off goes on, and ends as if it had not been."""

from __future__ import annotations

import pytest

from helpers.data import labelled_rows
from probescale.models.loading import load_classifier
from probescale.models.surgery import keep_layers
from probescale.recovery import checkpoints
from probescale.recovery.checkpoints import find_newest
from probescale.recovery.fine_tuning import fine_tune
from probescale.recovery.recipe import Recipe
from probescale.recovery.trainer import RecoveryTrainer
from probescale.tasks.data import load_rows

TRAIN = load_rows(labelled_rows(80))  # 5 steps an epoch
RECIPES = {
    "dropout": Recipe(epochs=3, learning_rate=3e-3, batch_size=16, dropout=0.1),
    "the best epoch": Recipe(epochs=3, learning_rate=3e-2, batch_size=16, validation=0.2, layer_decay=0.9),
    "adapters": Recipe(epochs=3, learning_rate=3e-3, batch_size=16, dropout=0.1, adapters="lora", adapter_rank=4),
}


@pytest.fixture(scope="module")
def parent(model_folder):
    return load_classifier(str(model_folder("bert")), None, TRAIN.names, 0)


@pytest.fixture
def at_every_step(monkeypatch):
    for name, value in (("SECONDS_BETWEEN", 0.0), ("SECONDS_AT_END", 0.0), ("CHECK_EVERY", 1)):
        monkeypatch.setattr(checkpoints, name, value)


def train(parent, recipe, folder=None):
    model = keep_layers(parent, (1, 3))
    return fine_tune(model, TRAIN, recipe, max_length=32, checkpoints=folder), model.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("kind", RECIPES)
def test_cut_off_anywhere_it_ends_with_the_same_weights_and_losses(kind, parent, at_every_step, tmp_path, monkeypatch):
    recipe = RECIPES[kind]
    whole = train(parent, recipe)
    compute, left = RecoveryTrainer.compute_loss, 0

    def cut_off(*given, **named):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return compute(*given, **named)

    monkeypatch.setattr(RecoveryTrainer, "compute_loss", cut_off)
    begun = []
    for left in (3, 4, 1, 3):  # steps: within the first epoch, over its end, ...  # noqa: B007 - read in cut_off
        with pytest.raises(KeyboardInterrupt):
            train(parent, recipe, tmp_path)
        begun += [path.name for path in tmp_path.iterdir()]
    left = 100
    assert train(parent, recipe, tmp_path) == whole
    assert begun == ["checkpoint-3", "checkpoint-7", "checkpoint-8", "checkpoint-11"], "one at a time"


@pytest.mark.slow
def test_what_is_trained_is_not_trained_again(parent, at_every_step, tmp_path, monkeypatch):
    whole = train(parent, RECIPES["dropout"], tmp_path)
    monkeypatch.setattr(RecoveryTrainer, "compute_loss", None)
    assert train(parent, RECIPES["dropout"], tmp_path) == whole


@pytest.mark.slow
def test_half_a_checkpoint_is_none(parent, at_every_step, tmp_path):
    whole = train(parent, RECIPES["dropout"], tmp_path)
    last = find_newest(tmp_path)
    assert last is not None
    assert last.name == "checkpoint-15"
    half = tmp_path / "checkpoint-16"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half of it")
    assert find_newest(tmp_path) == last
    assert train(parent, RECIPES["dropout"], tmp_path) == whole


@pytest.mark.slow
def test_short_trainings_write_none(parent, tmp_path):
    train(parent, RECIPES["dropout"], tmp_path)
    assert list(tmp_path.iterdir()) == []
