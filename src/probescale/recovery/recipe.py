"""The settings of one training, every value known; and the same in words, as results and reports quote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from probescale.config import ClassWeights, RecoveryConfig
from probescale.utils.files import Record

ORIGINAL_AS_IT_IS = "the original as it is"  # in the words of a recipe: it was not trained


@dataclass(frozen=True)
class Recipe:
    """How one model is trained. Fields are those of `recovery` in the configuration, where their help stands."""

    epochs: int = 3
    learning_rate: float = 3e-5
    texts: int | None = None  # per epoch; None: all
    batch_size: int = 32
    warmup: float = 0.1
    weight_decay: float = 0.01
    dropout: float | None = None  # None: the model's own
    layer_decay: float = 1.0
    validation: float = 0.0
    patience: int = 2
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    class_weights: ClassWeights = "none"
    adapters: Literal["none", "lora"] = "none"
    adapter_rank: int = 32
    save_memory: bool = False
    soft: float = 0.5
    temperature: float = 2.0
    states: float = 0.0
    pairs: float = 0.0
    dimensions: tuple[int, ...] = ()
    healing: int = 0
    tracking: tuple[str, ...] = ()

    def count_steps(self, texts: int) -> int:
        """Steps of a training on this many texts, all epochs together."""
        return self.epochs * -(-texts // self.batch_size)


class Choices(Record):
    """What `auto` settings became: the values that a run trains with."""

    epochs: int
    learning_rate: float
    texts: int | None
    batch_size: int
    dropout: float | None
    augment: int
    original_epochs: int
    original_learning_rate: float
    original_batch_size: int
    original_dropout: float | None
    class_weights: ClassWeights = "none"

    def for_subnetworks(self, settings: RecoveryConfig) -> Recipe:
        """The recipe of every subnetwork."""
        return Recipe(
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            texts=self.texts,
            batch_size=self.batch_size,
            dropout=self.dropout,
            class_weights=self.class_weights,
            **_given(settings),
        )

    def for_original(self, settings: RecoveryConfig) -> Recipe:
        """The recipe of the original."""
        return Recipe(
            epochs=self.original_epochs,
            learning_rate=self.original_learning_rate,
            batch_size=self.original_batch_size,
            dropout=self.original_dropout,
            class_weights=self.class_weights,
            **_given(settings),
        )

    def fill_in(self, settings: RecoveryConfig) -> RecoveryConfig:
        """The settings with these values for `auto`.

        `texts` stays auto where all are read; so does the dropout of subnetworks, which follows from `distil`.
        """
        original = {
            "epochs": self.original_epochs,
            "learning_rate": self.original_learning_rate,
            "batch_size": self.original_batch_size,
            "dropout": "model" if self.original_dropout is None else self.original_dropout,
        }
        values = {
            "epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "texts": "auto" if self.texts is None else self.texts,
            "batch_size": self.batch_size,
            "augment": self.augment,
            "class_weights": self.class_weights,
            "original": settings.original.model_copy(update=original),
        }
        return settings.model_copy(update=values)


def _given(settings: RecoveryConfig) -> dict[str, Any]:
    """The settings that are never chosen automatically."""
    names = (
        "warmup", "weight_decay", "layer_decay", "validation", "patience", "precision",
        "soft", "temperature", "states", "pairs", "dimensions", "healing", "tracking",
        "adapters", "adapter_rank", "save_memory",
    )  # fmt: skip
    return {name: getattr(settings, name) for name in names}


def describe_recipe(chosen: Choices, settings: RecoveryConfig, labelled: int, unlabelled: int, seed: int) -> str:
    """One sentence with every setting that shapes the weights."""
    recipe = chosen.for_subnetworks(settings)
    parts = [
        f"fine-tuning on {labelled:,} examples, epochs {recipe.epochs}, AdamW, learning rate {recipe.learning_rate:g}, "
        f"batch size {recipe.batch_size}, warm-up {recipe.warmup:g}, weight decay {recipe.weight_decay:g}",
        *_original_recipe(chosen),
        *([] if recipe.dropout is None else [f"dropout {recipe.dropout:g}"]),
        *([] if recipe.layer_decay == 1 else [f"layer-wise decay {recipe.layer_decay:g}"]),
        *([f"best epoch on {recipe.validation:.0%} of them"] if recipe.validation else []),
        *([f"LoRA adapters of rank {recipe.adapter_rank}"] if recipe.adapters == "lora" else []),
        *([f"{recipe.class_weights.replace('_', ' ')} class weights"] if recipe.class_weights != "none" else []),
        *(_distillation(recipe, settings, unlabelled) if settings.distil else []),
        f"seed {seed}",
    ]
    return ", ".join(parts)


def _original_recipe(chosen: Choices) -> list[str]:
    if chosen.original_epochs == 0:
        return [ORIGINAL_AS_IT_IS]
    values = {
        "epochs": (chosen.original_epochs, chosen.epochs),
        "learning rate": (chosen.original_learning_rate, chosen.learning_rate),
        "batch size": (chosen.original_batch_size, chosen.batch_size),
    }
    words = [f"{name} {own:g}" for name, (own, shared) in values.items() if own != shared]
    if chosen.original_dropout != chosen.dropout:
        own = chosen.original_dropout
        words.append("its own dropout" if own is None else f"dropout {own:g}")
    return [f"the original with {' and '.join(words)}"] if words else []


def _distillation(recipe: Recipe, settings: RecoveryConfig, unlabelled: int) -> list[str]:
    """What applies to subnetworks alone."""
    teacher = "the fine-tuned original" if settings.teacher is None else settings.teacher
    parts = [f"subnetworks distilled from {teacher} (temperature {recipe.temperature:g}, "
             f"{recipe.soft:.0%} of the loss where there is a label)"]  # fmt: skip
    if settings.start == "teacher":
        parts.append("cut from the fine-tuned original")
    if unlabelled:
        parts.append(f"also on {unlabelled:,} unlabelled texts that it answered")
    if recipe.states:
        parts.append(f"its states matched with weight {recipe.states:g}")
    if recipe.dimensions:
        parts.append(f"also the first {' and '.join(map(str, recipe.dimensions))} numbers of every vector")
    if recipe.healing:
        parts.append(f"after {recipe.healing} epochs on its states alone")
    return parts
