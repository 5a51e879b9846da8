"""How long one text takes, from the text to the answer: a simple model and the original, in turn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from probescale.models.loading import LoadedModel
from probescale.models.speed import PASSES, WARM_UP, Speed, compare_speed
from probescale.tasks.data import Data


def compare_times(
    answer: Callable[[Data], object], loaded: LoadedModel, dev: Data, max_length: int, seed: int
) -> Speed:
    """How fast a simple model answers one text of dev, beside the transformer with its tokenizer.

    Both get the same texts, alternately: other load slows both of them.
    """
    drawn = np.random.default_rng(seed).integers(len(dev), size=WARM_UP + PASSES).tolist()
    texts = [dev.take([number]) for number in drawn]
    return compare_speed(
        lambda number: _answer(loaded, texts[number], max_length), lambda number: answer(texts[number])
    )


def tokenize_one(loaded: LoadedModel, one: Data, max_length: int) -> dict[str, Tensor]:
    """The tokens of a single input, as tensors on the model's device."""
    text, pair = (*one.inputs[0], None)[:2]
    encoded = loaded.tokenizer(text, pair, truncation=True, max_length=max_length, return_tensors="pt")
    return {name: tensor.to(loaded.model.device) for name, tensor in encoded.items()}


def _answer(loaded: LoadedModel, one: Data, max_length: int) -> np.ndarray:
    with torch.inference_mode():
        return loaded.model(**tokenize_one(loaded, one, max_length))[0].float().cpu().numpy()
