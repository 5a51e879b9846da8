"""The original's embeddings of texts, computed once for each text and kept in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probescale.models.loading import LoadedModel
from probescale.recovery.inputs import build_inputs
from probescale.recovery.predict import compute_logits
from probescale.tasks.passages import Passages


class Embedder:
    """Embeds texts with one sentence encoder."""

    def __init__(self, loaded: LoadedModel, max_length: int) -> None:
        self.loaded, self.max_length = loaded, max_length
        self.known: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, width) embeddings."""
        new = tuple(dict.fromkeys(text for text in texts if text not in self.known))
        if new:
            inputs = build_inputs(self.loaded.tokenizer, Passages(new), self.max_length)
            vectors = compute_logits(self.loaded, inputs, title="the original's embeddings")
            self.known.update(zip(new, vectors, strict=True))
        return np.stack([self.known[text] for text in texts])
