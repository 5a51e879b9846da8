"""Several processes on one command, as torchrun (on CPUs) or `accelerate launch` (on GPUs) start them.

The first process runs the command. The others wait for work that can be shared, do their part of it, and leave when the
first one is done. If the first one fails, its launcher ends them all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from probescale.errors import UserError

if TYPE_CHECKING:
    from torch import nn

P = ParamSpec("P")
Given = TypeVar("Given")
Found = TypeVar("Found")
TIMEOUT = timedelta(days=30)  # the others wait while the first one probes, or reads its data
_joined = False  # this process leads or follows; a program of others that was launched so does neither
_sharing = False


def world_size() -> int:
    """How many processes the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_count() -> int:
    """How many processes work together."""
    return world_size() if _joined else 1


def is_main_process() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def in_shared_call() -> bool:
    """Whether all processes are in the same call, which run_on_all() began."""
    return _sharing


def run_on_all(function: Callable[P, Found], *given: P.args, **named: P.kwargs) -> Found:
    """Call it in all processes at once; in the first one, what its call gives. Functions of modules only."""
    global _sharing
    if process_count() == 1 or _sharing:
        return function(*given, **named)
    _tell((function, given, named))
    _sharing = True
    try:
        return function(*given, **named)
    finally:
        _sharing = False


def map_over_processes(work: Callable[[Given], Found], items: Iterable[Given]) -> Iterator[Found]:
    """work(item) for every item, in order; in a shared call every process does its part, and all get everything."""
    if not _sharing:
        yield from map(work, items)
        return
    from accelerate.utils import gather_object

    own, rest = int(os.environ["RANK"]), iter(items)
    while group := list(islice(rest, process_count())):
        yield from gather_object([work(group[own])] if own < len(group) else [])


def broadcast_from_main(said: bool) -> bool:
    """In a shared call, what the first process says, in all of them."""
    if not _sharing:
        return said
    from accelerate.utils import broadcast_object_list

    heard = [said]
    broadcast_object_list(heard)
    return heard[0]


def move_to_own_device(model: nn.Module) -> None:
    """What came from another process is where that one had it."""
    if _sharing:
        model.to(_state().device)


@contextmanager
def main_process() -> Iterator[None]:
    """Around the first process's command: at its good end the others may go."""
    global _joined
    code: object = 0
    _joined = True
    if process_count() > 1:
        _state()  # before a library makes one that knows of this process alone
    try:
        yield
    except SystemExit as ended:
        code = ended.code
        raise
    except BaseException:
        code = 1
        raise
    finally:
        if process_count() > 1 and not code:
            _tell(None)
        _joined = False


def serve_main_process() -> None:
    """Do one's part of whatever the first process shares, until it is done."""
    global _joined, _sharing
    from accelerate.utils import broadcast_object_list

    from probescale.utils.progress import console

    console.quiet = True  # one voice is enough
    _joined = True
    _state()
    while True:
        heard: list[Any] = [None]
        broadcast_object_list(heard)
        if heard[0] is None:
            return
        function, given, named = heard[0]
        _sharing = True
        function(*given, **named)
        _sharing = False


def _tell(what: object) -> None:
    from accelerate.utils import broadcast_object_list

    _state()
    broadcast_object_list([what])


def _state():  # noqa: ANN202 - accelerate's, imported when it is needed
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available(), timeout=TIMEOUT)
    if state.num_processes != process_count():
        raise UserError(
            f"{process_count()} processes were started, and {state.num_processes} found each other",
            hint="start them with torchrun on CPUs, with `accelerate launch` on GPUs",
        )
    return state
