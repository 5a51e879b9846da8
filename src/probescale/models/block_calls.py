"""Record how a model calls its blocks, and call them again one by one: runs a subnetwork without cutting it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

Call = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments


@dataclass(frozen=True)
class BlockCalls:
    """The calls of all blocks of a stack during one forward pass."""

    blocks: Sequence[nn.Module]
    calls: tuple[Call, ...]
    outputs: tuple[Tensor, ...]  # hidden states, (batch, tokens, hidden) each; empty unless they were recorded
    tails: tuple[tuple[Any, ...] | None, ...] = ()  # what blocks return after the state; None: the state alone

    @property
    def embedded(self) -> Tensor:
        """The hidden states that enter the first block."""
        return input_state(self.calls[0])

    def run_block(self, layer: int, state: Tensor) -> Tensor:
        """The output of a layer (numbered from 1) for this input state, with its recorded other arguments."""
        args, kwargs = self.calls[layer - 1]
        block = self.blocks[layer - 1]
        return output_state(block(state, *args[1:], **kwargs) if args else block(**kwargs | {"hidden_states": state}))

    def without_states(self) -> BlockCalls:
        """The same calls, without the states that blocks were called with: only the first is needed again."""
        first, *others = self.calls
        stripped = [
            ((None, *args[1:]), kwargs) if args else ((), kwargs | {"hidden_states": None}) for args, kwargs in others
        ]
        return replace(self, calls=(first, *stripped), outputs=())

    @contextmanager
    def returning(self, state: Tensor) -> Iterator[None]:
        """Inside this context, every block returns this state without computing anything: the model's head reads it."""
        for block, tail in zip(self.blocks, self.tails, strict=True):
            output = state if tail is None else (state, *tail)
            block.forward = lambda *_, output=output, **__: output
        try:
            yield
        finally:
            for block in self.blocks:
                del block.forward  # the class has its own


def record_calls(blocks: Sequence[nn.Module], run: Callable[[], object], *, outputs: bool = False) -> BlockCalls:
    """Run the model once and record how it calls its blocks; with `outputs`, also their outputs."""
    calls: dict[nn.Module, Call] = {}
    states: dict[nn.Module, Tensor] = {}
    tails: dict[nn.Module, tuple[Any, ...] | None] = {}

    def notice(block: nn.Module, _args: object, output: Any) -> None:  # noqa: ANN401 - a state or a tuple with it
        tails[block] = output[1:] if isinstance(output, tuple) else None
        if outputs:
            states[block] = output_state(output)

    handles: list[Any] = []
    for block in blocks:
        handles.append(block.register_forward_pre_hook(lambda b, a, k: calls.update({b: (a, k)}), with_kwargs=True))
        handles.append(block.register_forward_hook(notice))
    with removing_hooks(handles):
        run()
    every = (calls, states if outputs else {}, tails)
    recorded, found, rest = (tuple(part[block] for block in blocks if block in part) for part in every)
    return BlockCalls(blocks, recorded, found, rest)  # type: ignore[arg-type]


@contextmanager
def removing_hooks(handles: Sequence[Any]) -> Iterator[None]:
    """Remove these hooks at the end of the context."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def input_state(call: Call) -> Tensor:
    """The hidden states that a block was called with."""
    args, kwargs = call
    return args[0] if args else kwargs["hidden_states"]


def output_state(output: Any) -> Tensor:  # noqa: ANN401 - a tensor, or a tuple that begins with it
    """The hidden states that a block returned."""
    return output[0] if isinstance(output, tuple) else output
