"""Hidden states after every layer, averaged over the tokens of each text, for a teacher and its students."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from probescale.models.block_calls import output_state, removing_hooks


@contextmanager
def capture_states(blocks: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """A list that holds the output of every block in the latest forward pass, (batch, tokens, hidden) each."""
    captured: list[Tensor] = []

    def capture(block: nn.Module, _inputs: object, output: Any) -> None:  # noqa: ANN401 - a state or a tuple with it
        if block is blocks[0]:
            captured.clear()
        captured.append(output_state(output))

    with removing_hooks([block.register_forward_hook(capture) for block in blocks]):
        yield captured


def mean_over_tokens(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    """(batch, layers, hidden): means over the tokens that are not padding."""
    weights = mask.to(states[0].dtype).unsqueeze(-1)
    return torch.stack([(state * weights).sum(1) / weights.sum(1) for state in states], 1)
