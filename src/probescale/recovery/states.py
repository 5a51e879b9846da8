"""States behind every layer as one vector a text, for a teacher and its students alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from probescale.models.block_calls import output_state, removing_hooks


@contextmanager
def capture_states(blocks: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """A list that holds what the blocks put out in the last pass, (batch, tokens, hidden) each."""
    seen: list[Tensor] = []

    def take(block: nn.Module, _inputs: object, output: Any) -> None:  # noqa: ANN401 - a state or a tuple with it
        if block is blocks[0]:
            seen.clear()
        seen.append(output_state(output))

    with removing_hooks([block.register_forward_hook(take) for block in blocks]):
        yield seen


def mean_over_tokens(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """(batch, layers, hidden): the mean over the real tokens."""
    weights = mask.to(states[0].dtype).unsqueeze(-1)
    return torch.stack([(state * weights).sum(1) / weights.sum(1) for state in states], 1)
