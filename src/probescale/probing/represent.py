"""One forward pass: the output of every layer, pooled on the way out.

Outputs are taken at the blocks themselves. The model's own `hidden_states` would put the final norm on the last layer
of a pre-norm model (T5) alone, which makes that layer not comparable with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers import BatchEncoding

from probescale.models.batching import encode, padded_batches
from probescale.models.families import backbone
from probescale.models.loading import LoadedModel
from probescale.progress import progress, waiting
from probescale.tasks.data import Examples, TaggedSentences

Pooler = Callable[[Tensor], np.ndarray]


@dataclass(frozen=True)
class Inputs:
    """Tokenised inputs, and for each the token positions whose states are wanted (None: the mean of all)."""

    encoded: BatchEncoding
    positions: list[list[int]] | None

    def __len__(self) -> int:
        return len(self.encoded["input_ids"])

    @property
    def rows(self) -> np.ndarray:
        """Where each input's first feature goes; the last entry is the number of features."""
        counts = [len(wanted) for wanted in self.positions] if self.positions is not None else [1] * len(self)
        return np.concatenate([[0], np.cumsum(counts)])


def sentence_inputs(loaded: LoadedModel, examples: Examples, pooling: str, max_length: int) -> Inputs:
    """One feature per example: the first token, the separator between two texts, or the mean of all tokens."""
    encoded = encode(loaded.tokenizer, examples, max_length)
    if pooling == "mean":
        return Inputs(encoded, None)
    if pooling == "sep":
        return Inputs(encoded, [[separator(encoded.sequence_ids(i))] for i in range(len(examples))])
    return Inputs(encoded, [[0]] * len(examples))


def word_inputs(
    loaded: LoadedModel, sentences: TaggedSentences, max_length: int
) -> tuple[Inputs, np.ndarray, np.ndarray]:
    """One feature per word, taken at its first piece; also the tags, and the sentence each word is in.

    Words are joined by blanks and found again by their characters: the pieces are then the ones the model was trained
    on, whatever kind of tokenizer it has. Words beyond the length limit are left out.
    """
    texts = [" ".join(words) for words in sentences.words]
    with waiting("tokenising"):
        encoded = loaded.tokenizer(texts, truncation=True, max_length=max_length)
    positions: list[list[int]] = []
    tags: list[int] = []
    owners: list[int] = []
    for i, (words, word_tags) in enumerate(zip(sentences.words, sentences.tags, strict=True)):
        ends = np.cumsum([len(word) + 1 for word in words]) - 1
        spans = zip(ends - [len(word) for word in words], ends, strict=True)
        found = [(_first_piece(encoded, i, *span), tag) for span, tag in zip(spans, word_tags, strict=True)]
        here = [(position, tag) for position, tag in found if position is not None]
        positions.append([position for position, _ in here])
        tags.extend(tag for _, tag in here)
        owners.extend([i] * len(here))
    return Inputs(encoded, positions), np.array(tags), np.array(owners)


def represent(loaded: LoadedModel, inputs: Inputs, batch_tokens: int, title: str = "representations") -> np.ndarray:
    """Features of every layer, (layers, features, hidden), in the order of the inputs."""
    model, rows = backbone(loaded.model), inputs.rows
    features = np.empty((loaded.layers, rows[-1], model.config.hidden_size), np.float32)
    with torch.inference_mode(), progress(title, len(inputs)) as advance:
        for batch, padded in padded_batches(loaded.tokenizer, inputs.encoded, batch_tokens):
            padded = padded.to(model.device)
            target = np.concatenate([np.arange(rows[i], rows[i + 1]) for i in batch])
            pool = _pooler([inputs.positions[i] for i in batch] if inputs.positions else None, padded["attention_mask"])
            with _at_each_block(loaded, partial(_store, features, target, pool)):
                model(**padded)
            advance(len(batch))
    return features


def _store(features: np.ndarray, target: np.ndarray, pool: Pooler, layer: int, output: Tensor) -> None:
    features[layer, target] = pool(output)


@contextmanager
def _at_each_block(loaded: LoadedModel, receive: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Call `receive(layer index, output)` whenever a block has run."""

    def hook(layer: int) -> Callable[..., None]:
        return lambda _module, _args, output: receive(layer, output[0] if isinstance(output, tuple) else output)

    handles = [block.register_forward_hook(hook(i)) for i, block in enumerate(loaded.family.stack(loaded.model))]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _pooler(positions: list[list[int]] | None, mask: Tensor) -> Pooler:
    """From a block's output (batch, tokens, hidden) to the wanted features (features, hidden)."""
    if positions is None:
        weights = mask.unsqueeze(-1).float()  # (batch, tokens, 1)
        return lambda h: ((h * weights).sum(1) / weights.sum(1)).cpu().numpy()
    row = torch.tensor([r for r, wanted in enumerate(positions) for _ in wanted], dtype=torch.long)
    column = torch.tensor([c for wanted in positions for c in wanted], dtype=torch.long)
    column = column + mask.argmax(1).cpu()[row]  # where padding is on the left, count from the first real token
    return lambda h: h[row, column].cpu().numpy()


def separator(sequence_ids: list[int | None]) -> int:
    """Position of the special token that ends the first text.

    >>> separator([None, 0, 0, None, None, 1, None])  # <s> a b </s> </s> c </s>
    3
    """
    if 0 not in sequence_ids:  # a text without any token: the special token before the second text
        return max(sequence_ids.index(1) - 1, 0) if 1 in sequence_ids else len(sequence_ids) - 1
    return len(sequence_ids) - sequence_ids[::-1].index(0)


def _first_piece(encoded: BatchEncoding, row: int, start: int, end: int) -> int | None:
    """Where a word begins. A piece that is only the blank before the word (T5 has it) says nothing of the word."""
    first, last = encoded.char_to_token(row, int(start)), encoded.char_to_token(row, int(end) - 1)
    if first is not None and last is not None and first < last and not encoded.tokens(row)[first].strip("▁Ġ "):
        return first + 1
    return first
