"""What a search pays for an encoder: the size of its vectors, and how many texts it embeds per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from probescale.models.loading import LoadedModel
from probescale.recovery.inputs import build_inputs
from probescale.recovery.predict import compute_logits
from probescale.recovery.result import VectorCost
from probescale.tasks.passages import Passages
from probescale.tasks.sampling import spread

TIMED, WARM_UP = 200, 8  # texts


def measure_vector_cost(embed: Callable[[Sequence[str]], np.ndarray], texts: Sequence[str]) -> VectorCost:
    """Time an encoder on some of these texts, all in one call, after a few to warm up."""
    some = [texts[place] for place in spread(len(texts), TIMED)]
    width = embed(some[:WARM_UP]).shape[1]
    started = time.perf_counter()
    embed(some)
    taken = max(time.perf_counter() - started, 1e-6)
    return VectorCost(width=width, texts_per_second=round(len(some) / taken, 1))


def embed_texts(
    loaded: LoadedModel, texts: Sequence[str], max_length: int, title: str = "texts per second"
) -> np.ndarray:
    """(texts, width) embeddings, tokenized and computed anew."""
    inputs = build_inputs(loaded.tokenizer, Passages(tuple(texts)), max_length)
    return compute_logits(loaded, inputs, title=title)
