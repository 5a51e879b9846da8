"""Run one command in several processes, as torchrun (on CPUs) or `accelerate launch` (on GPUs) starts them.

The main process runs the command. The others wait for work that can be shared, do their part of it, and exit when the
main process is done. If the main process fails, the launcher ends all of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from probescale.errors import UserError

if TYPE_CHECKING:
    from torch import nn

P = ParamSpec("P")
Item = TypeVar("Item")
Result = TypeVar("Result")
TIMEOUT = timedelta(days=30)  # the others wait while the main process probes, or reads data
_joined = False  # this process is one of ours; a program that only imports us may be launched in the same way
_in_shared_call = False


def world_size() -> int:
    """The number of processes that the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_count() -> int:
    """The number of processes that work together on this command."""
    return world_size() if _joined else 1


def is_main_process() -> bool:
    """Whether this is the only process of a run, or the first of several."""
    return int(os.environ.get("RANK", "0")) == 0


def in_shared_call() -> bool:
    """Whether all processes are in the same call, started by run_on_all()."""
    return _in_shared_call


def run_on_all(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Call a module-level function in all processes at once; returns the result of the main process."""
    global _in_shared_call
    if process_count() == 1 or _in_shared_call:
        return function(*args, **kwargs)
    _broadcast((function, args, kwargs))
    _in_shared_call = True
    try:
        return function(*args, **kwargs)
    finally:
        _in_shared_call = False


def map_over_processes(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """work(item) for every item, in order. In a shared call each process does its part, and all get all results."""
    if not _in_shared_call:
        yield from map(work, items)
        return
    from accelerate.utils import gather_object

    rank, rest = int(os.environ["RANK"]), iter(items)
    while group := list(islice(rest, process_count())):
        yield from gather_object([work(group[rank])] if rank < len(group) else [])


def broadcast_from_main(value: bool) -> bool:
    """In a shared call, the main process's value in all processes."""
    if not _in_shared_call:
        return value
    from accelerate.utils import broadcast_object_list

    received = [value]
    broadcast_object_list(received)
    return received[0]


def move_to_own_device(model: nn.Module) -> None:
    """In a shared call, move a model from the main process's device to that of this process."""
    if _in_shared_call:
        model.to(_state().device)


@contextmanager
def main_process() -> Iterator[None]:
    """Wraps the main process's command: when it ends, with whatever exit code, the other processes may exit.

    After an error they may be in the middle of work, which nobody answers any more: the launcher ends them.
    """
    global _joined
    failed = False
    _joined = True
    if process_count() > 1:
        _state()  # before a library creates one for this process alone
    try:
        yield
    except SystemExit:
        raise
    except BaseException:
        failed = True
        raise
    finally:
        if process_count() > 1 and not failed:
            _broadcast(None)
            _disconnect()
        _joined = False


@contextmanager
def exit_at_once() -> Iterator[None]:
    """Where several processes were launched, end this one without Python's own clean-up, with the same exit code.

    DistributedDataParallel keeps the connection's threads alive; one of them that lets go of a tensor while Python
    cleans up aborts the process.
    """
    if world_size() == 1:
        yield
        return
    code = 0
    try:
        yield
    except SystemExit as end:
        code = int(end.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve_main_process() -> None:
    """Run every function that the main process shares, until it is done."""
    global _joined, _in_shared_call
    from accelerate.utils import broadcast_object_list

    from probescale.utils.progress import console

    console.quiet = True  # only the main process prints
    _joined = True
    _state()
    while True:
        received: list[Any] = [None]
        broadcast_object_list(received)
        if received[0] is None:
            _disconnect()
            return
        function, args, kwargs = received[0]
        _in_shared_call = True
        function(*args, **kwargs)
        _in_shared_call = False


def _broadcast(message: object) -> None:
    from accelerate.utils import broadcast_object_list

    _state()
    broadcast_object_list([message])


def _disconnect() -> None:
    """End the connection between the processes, so that none waits for another."""
    _state().destroy_process_group()


def _state():  # noqa: ANN202 - accelerate's, imported when it is needed
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available(), timeout=TIMEOUT)
    if state.num_processes != process_count():
        raise UserError(
            f"{process_count()} processes were started, but {state.num_processes} are connected",
            hint="start them with torchrun on CPUs, with `accelerate launch` on GPUs",
        )
    return state
