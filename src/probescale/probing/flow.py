"""How the stream of states turns on its way up: needs texts, but no labels."""

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


def flow(loaded: LoadedModel, texts: Data, *, max_length: int = 128, batch_tokens: int = 2048) -> Flow:
    """One pass over the texts."""
    tokens = tokenize(loaded.tokenizer, texts.texts, texts.pairs, max_length)
    with progress("how states turn", len(tokens)) as advance:

        def batches() -> Iterator[Mapping[str, Tensor]]:
            for batch, padded in padded_batches(loaded.tokenizer, tokens, batch_tokens):
                yield padded
                advance(len(batch))

        return flow_of(loaded, batches())


@torch.inference_mode()
def flow_of(loaded: LoadedModel, batches: Iterable[Mapping[str, Tensor]]) -> Flow:
    """The same for inputs that are tokenised and padded."""
    model, blocks = backbone(loaded.model), list(loaded.family.layers(loaded.model))
    places = len(blocks) + 1
    cosines, turns, texts, count = np.zeros((places, places)), np.zeros((places, places)), 0, 0
    for padded in batches:
        inputs = {name: tensor.to(model.device) for name, tensor in padded.items()}
        wiring = record_calls(blocks, lambda inputs=inputs: model(**inputs, **without_cache(model)), outputs=True)
        real = inputs["attention_mask"].bool()
        states = [state[real].float() for state in (wiring.embedded, *wiring.outputs)]  # (tokens, hidden) each
        unit = torch.stack([torch.nn.functional.normalize(state, dim=-1) for state in states], 1)
        cos = (unit @ unit.transpose(1, 2)).clamp(-1, 1)  # (tokens, places, places)
        cosines += cos.sum(0).cpu().numpy()
        turns += (torch.arccos(cos) / torch.pi).sum(0).cpu().numpy()
        texts, count = texts + len(real), count + int(real.sum())
    angles = turns / count
    np.fill_diagonal(angles, 0)
    return Flow(
        influence=tuple((1 - np.diagonal(cosines / count, offset=1)).tolist()),
        angles=tuple(tuple(row) for row in angles.tolist()),
        texts=texts,
    )
