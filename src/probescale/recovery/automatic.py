"""Choose a recipe by model and data: what `auto` in the settings of `recovery` becomes.

The constants are rules of thumb of the field, checked on several models and tasks (docs/guides/training.md). A rule
only has to come near: short trainings choose the learning rate of cut models among three, and a training that fails is
begun again with other settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from probescale.config import RecoveryConfig
from probescale.recovery.recipe import Choices

# Learning rates fall with the width of the model.
RATE_OF_ORIGINAL = 4e-5  # at WIDTH
RATE_OF_SUBNETWORKS = 1e-4  # at WIDTH; what was cut has to change more than what was not
WIDTH = 768
RATE_OF_ADAPTERS = 5.0  # in comparison with the weights; their product counts double

FEW_ROWS, SMALL_BATCH, BATCH = 5000, 16, 32  # few rows make too few steps of the usual batch
STEPS_OF_ORIGINAL, FEWEST_STEPS_OF_ORIGINAL = 400, 150  # at least; the second where time is short
EPOCHS_OF_ORIGINAL = (3, 20)
LARGE_DATA, HUGE_DATA = 50_000, 200_000  # rows of which the original reads each twice, or once

# Distillation goes on getting better for long; how much is read depends on the length of the texts.
TOKENS = 2_200_000  # read by a subnetwork, all epochs together
STEPS = (2000, 4000)  # fewest and most steps, whatever TOKENS would give
MOST_EPOCHS = 8
ENOUGH_TEXTS, MOST_COPIES = 20_000, 9  # where there are fewer texts, changed copies are added
# Running text, for generative models
HEALING_TOKENS = 1_000_000  # read by a cut model, all epochs together
MOST_READINGS = 4  # of the same text: more adds little (Muennighoff et al., 2305.16264)
TOKENS_PER_STEP = 2048
RATE_OF_TEXT = 3e-4  # at WIDTH


@dataclass(frozen=True)
class Situation:
    """What the choice of a recipe depends on."""

    hidden_size: int
    rate_factor: float  # of the family, in comparison with BERT
    labelled: int  # texts
    unlabelled: int
    tokens: float  # per text, on average
    already_trained: bool = False  # the model was fine-tuned for these labels
    times_smaller: float = 5.0  # the budget: how many times fewer parameters a subnetwork has
    in_ladder: bool = False  # one of several sizes that one run makes
    rare_labels: bool = False  # nearly all rows have one label, and the metric is about the others
    running_text: bool = False  # texts are blocks of it, and what follows in them is the label


def choose_recipe(settings: RecoveryConfig, situation: Situation, effort: float = 1.0) -> Choices:
    """Every value that the settings leave open. `effort`: how much to train, in comparison with the usual amount."""
    if situation.running_text:
        return _choose_for_text(settings, situation, effort)
    distil = settings.distil
    copies = _copies(situation.labelled + situation.unlabelled) if distil else 0
    copies = copies if settings.augment == "auto" else settings.augment
    batch = _value(settings.batch_size, BATCH if distil else _batch_for(situation.labelled))
    available = count_available(settings, situation, copies)
    if settings.texts != "auto":
        available = min(available, max(settings.texts, situation.labelled))
    wanted = effort * _steps(situation.tokens) * batch if distil else effort * _epochs(situation.labelled) * available
    epochs, per_epoch = _share_out(round(wanted), available, situation.labelled)
    if distil:  # the texts stay the same for every size: subnetworks of several sizes can share the teacher's answers
        read = wanted * _patience(situation.times_smaller)
        if situation.in_ladder:  # there, the larger sizes have least to win back, and cost most
            read = min(read, wanted * max(situation.times_smaller / 5, 0.4))
        epochs = min(max(round(read / (per_epoch or available)), 1), MOST_EPOCHS)
    if settings.epochs != "auto":
        epochs, per_epoch = settings.epochs, None
    rate = _rate(RATE_OF_SUBNETWORKS, settings, situation)
    return Choices(
        epochs=epochs,
        learning_rate=_value(settings.learning_rate, rate),
        texts=_value(settings.texts, per_epoch),
        batch_size=batch,
        dropout=_dropout(settings.dropout, 0.0 if distil else None),
        augment=copies,
        # Between the two extremes, of which each is bad for the F1 of some tasks (docs/guides/training.md).
        class_weights=_value(settings.class_weights, "square_root" if situation.rare_labels else "none"),
        **_of_original(settings, situation, effort),
    )


def count_available(settings: RecoveryConfig, situation: Situation, copies: int) -> int:
    """Texts that a subnetwork can learn from: without a teacher, only those with labels."""
    texts = situation.labelled + situation.unlabelled
    return texts * (1 + copies) if settings.distil or situation.running_text else situation.labelled


def count_read(settings: RecoveryConfig, situation: Situation, choices: Choices) -> int:
    """Texts that a subnetwork reads, all epochs together. Labelled texts are read in every epoch."""
    available = count_available(settings, situation, choices.augment)
    per_epoch = available if choices.texts is None else max(min(choices.texts, available), situation.labelled)
    return choices.epochs * per_epoch


def _choose_for_text(settings: RecoveryConfig, situation: Situation, effort: float) -> Choices:
    """Blocks of running text: the original is used as it is, or trained on the same text where that is asked for."""
    batch = _value(settings.batch_size, max(round(TOKENS_PER_STEP / situation.tokens), 1))
    wanted = max(round(effort * HEALING_TOKENS / situation.tokens), 1)
    epochs = min(max(round(wanted / situation.unlabelled), 1), MOST_READINGS)
    per_epoch = max(wanted // epochs, 1)
    epochs, per_epoch = (epochs, per_epoch) if settings.epochs == "auto" else (settings.epochs, situation.unlabelled)
    texts = _value(settings.texts, per_epoch)
    own = settings.original
    return Choices(
        epochs=epochs,
        learning_rate=_value(settings.learning_rate, _rate(RATE_OF_TEXT, settings, situation)),
        texts=None if texts >= situation.unlabelled else texts,
        batch_size=batch,
        dropout=_dropout(settings.dropout, 0.0),
        augment=0,
        original_epochs=_value(own.epochs, 0 if situation.already_trained else 1),
        original_learning_rate=_value(own.learning_rate, _rate(RATE_OF_TEXT / 4, settings, situation)),
        original_batch_size=_value(own.batch_size, batch),
        original_dropout=_dropout(_value(own.dropout, settings.dropout), 0.0),
    )


def _of_original(settings: RecoveryConfig, situation: Situation, effort: float) -> dict[str, Any]:
    """Its own settings first, then what the user says of all models, then the rules."""
    own, rows = settings.original, situation.labelled
    epochs = 0 if situation.already_trained else _epochs_for_effort(rows, effort)
    batch = _value(own.batch_size, _value(settings.batch_size, _batch_for(rows)))
    rate = _rate(RATE_OF_ORIGINAL, settings, situation)
    # Without dropout a step takes three quarters of the time, and few passes do not learn rows by heart.
    hasty = 0 < epochs < _epochs(rows) and own.epochs == settings.epochs == "auto"
    return {
        "original_epochs": _value(own.epochs, 0 if situation.already_trained else _value(settings.epochs, epochs)),
        "original_learning_rate": _value(own.learning_rate, _value(settings.learning_rate, rate)),
        "original_batch_size": batch,
        "original_dropout": _dropout(_value(own.dropout, settings.dropout), 0.0 if hasty else None),
    }


def _share_out(wanted: int, available: int, labelled: int) -> tuple[int, int | None]:
    """Epochs, and texts per epoch (None: all), so that about this many texts are read in total.

    >>> _share_out(130_000, 63_000, 3000), _share_out(40_000, 63_000, 3000), _share_out(90_000, 6000, 3000)
    ((2, None), (1, 40000), (8, None))
    """
    epochs = min(max(round(wanted / available), 1), MOST_EPOCHS)
    per_epoch = max(wanted // epochs, labelled)
    return epochs, per_epoch if per_epoch < available else None


def _steps(tokens: float) -> int:
    fewest, most = STEPS
    return min(max(round(TOKENS / tokens / BATCH), fewest), most)


def _patience(times_smaller: float) -> float:
    """How many times as much a smaller subnetwork reads as one of a fifth: it learns later, and each step costs less.

    >>> round(_patience(10), 2), _patience(5), round(_patience(3), 2)
    (1.41, 1.0, 0.77)
    """
    return min(max(times_smaller / 5, 0.4), 4.0) ** 0.5


def _copies(texts: int) -> int:
    """Changed copies of every text, so that there are enough texts to learn from.

    >>> _copies(63_000), _copies(6700), _copies(640)
    (0, 2, 9)
    """
    return min(max(math.ceil(ENOUGH_TEXTS / texts) - 1, 0), MOST_COPIES)


def _batch_for(rows: int) -> int:
    return SMALL_BATCH if rows < FEW_ROWS else BATCH


def _epochs(rows: int) -> int:
    """Passes of the original over the labelled rows.

    >>> _epochs(640), _epochs(3000), _epochs(67_000)
    (10, 3, 2)
    """
    fewest, most = EPOCHS_OF_ORIGINAL
    if rows > LARGE_DATA:
        return 1 if rows > HUGE_DATA else 2
    return min(max(math.ceil(STEPS_OF_ORIGINAL * _batch_for(rows) / rows), fewest), most)


def _epochs_for_effort(rows: int, effort: float) -> int:
    """The same where there is less time. Shortened less than all else: small models learn what the original learned.

    >>> [_epochs_for_effort(rows, effort) for rows, effort in ((1000, 0.1), (3000, 0.1), (3000, 1.0), (67_000, 0.1))]
    [3, 1, 3, 1]
    """
    fewest = math.ceil(FEWEST_STEPS_OF_ORIGINAL * _batch_for(rows) / rows)
    return min(max(math.ceil(min(effort, 1) ** 0.5 * _epochs(rows)), fewest), _epochs(rows))


def _rate(usual: float, settings: RecoveryConfig, situation: Situation) -> float:
    """The usual rate at this width, to two digits."""
    factor = situation.rate_factor * (RATE_OF_ADAPTERS if settings.adapters == "lora" else 1)
    return float(f"{usual * WIDTH / situation.hidden_size * factor:.1e}")


def _dropout(setting: float | str, usual: float | None) -> float | None:
    """A setting as trainings take it; None: the model's own."""
    if setting == "auto":
        return usual
    return None if setting == "model" else float(setting)


def _value(setting: Any, chosen: Any) -> Any:  # noqa: ANN401 - a number of either type
    """The user's value, or the chosen one."""
    return chosen if setting == "auto" else setting
