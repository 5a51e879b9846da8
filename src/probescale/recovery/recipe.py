"""The training recipe in words, as results and reports quote it."""

from __future__ import annotations

from probescale.config import RecoveryConfig


def describe_recipe(recipe: RecoveryConfig, labelled: int, unlabelled: int, seed: int) -> str:
    """One sentence with every setting that shapes the weights."""
    parts = [
        f"fine-tuning on {labelled:,} examples, epochs {recipe.epochs}, AdamW, learning rate {recipe.learning_rate:g}, "
        f"batch size {recipe.batch_size}, warm-up {recipe.warmup:g}, weight decay {recipe.weight_decay:g}",
        *_original_recipe(recipe),
        *([] if recipe.dropout is None else [f"dropout {recipe.dropout:g}"]),
        *([] if recipe.layer_decay == 1 else [f"layer-wise decay {recipe.layer_decay:g}"]),
        *([f"best epoch on {recipe.validation:.0%} of them"] if recipe.validation else []),
        *(_distillation(recipe, unlabelled) if recipe.distil else []),
        f"seed {seed}",
    ]
    return ", ".join(parts)


def _original_recipe(recipe: RecoveryConfig) -> list[str]:
    settings = recipe.original.model_dump(exclude_none=True)
    words = [
        f"{name.replace('_', ' ')} {value:g}" for name, value in settings.items() if value != getattr(recipe, name)
    ]
    return [f"the original with {' and '.join(words)}"] if words else []


def _distillation(recipe: RecoveryConfig, unlabelled: int) -> list[str]:
    """What applies to subnetworks alone: the original is their teacher."""
    parts = [f"subnetworks distilled from the fine-tuned original (temperature {recipe.temperature:g}, "
             f"{recipe.soft:.0%} of the loss where there is a label)"]  # fmt: skip
    if recipe.start == "teacher":
        parts.append("cut from it")
    if unlabelled:
        parts.append(f"also on {unlabelled:,} unlabelled texts that it answered")
    if recipe.states:
        parts.append(f"its states matched with weight {recipe.states:g}")
    if recipe.healing:
        parts.append(f"after {recipe.healing} epochs on its states alone")
    return parts
