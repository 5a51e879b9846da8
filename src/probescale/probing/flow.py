"""Flow: how much each layer changes the direction of the hidden states. Needs texts, but no labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from probescale.models.batching import padded_batches, tokenize
from probescale.models.block_calls import record_calls
from probescale.models.family import backbone
from probescale.models.loading import LoadedModel
from probescale.models.proof.child import without_cache
from probescale.probing.scores import Flow
from probescale.tasks.data import Data
from probescale.utils.progress import progress


def measure_flow(loaded: LoadedModel, texts: Data, *, max_length: int = 128, batch_tokens: int = 2048) -> Flow:
    """Influence of every layer and angles between all layers, from one forward pass over the texts."""
    tokens = tokenize(loaded.tokenizer, texts.texts, texts.pairs, max_length)
    with progress("change of states by layer", len(tokens)) as advance:

        def batches() -> Iterator[Mapping[str, Tensor]]:
            for batch, padded in padded_batches(loaded.tokenizer, tokens, batch_tokens):
                yield padded
                advance(len(batch))

        return measure_flow_of_batches(loaded, batches())


@torch.inference_mode()
def measure_flow_of_batches(loaded: LoadedModel, batches: Iterable[Mapping[str, Tensor]]) -> Flow:
    """The flow for inputs that are already tokenized and padded."""
    model, blocks = backbone(loaded.model), list(loaded.family.layers(loaded.model))
    points = len(blocks) + 1  # the embeddings, and the output of every layer
    cosines, half_turns = np.zeros((points, points)), np.zeros((points, points))  # sums over all tokens
    texts, count = 0, 0
    for padded in batches:
        inputs = {name: tensor.to(model.device) for name, tensor in padded.items()}
        recorded = record_calls(blocks, lambda inputs=inputs: model(**inputs, **without_cache(model)), outputs=True)
        real = inputs["attention_mask"].bool()
        states = [state[real].float() for state in (recorded.embedded, *recorded.outputs)]  # (tokens, hidden) each
        unit = torch.stack([torch.nn.functional.normalize(state, dim=-1) for state in states], 1)
        cos = (unit @ unit.transpose(1, 2)).clamp(-1, 1)  # (tokens, points, points)
        cosines += cos.sum(0).cpu().numpy()
        half_turns += (torch.arccos(cos) / torch.pi).sum(0).cpu().numpy()
        texts, count = texts + len(real), count + int(real.sum())
    angles = half_turns / count
    np.fill_diagonal(angles, 0)
    return Flow(
        influence=tuple((1 - np.diagonal(cosines / count, offset=1)).tolist()),
        angles=tuple(tuple(row) for row in angles.tolist()),
        texts=texts,
    )
