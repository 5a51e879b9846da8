"""One forward pass per data set: the states of every site, pooled on the way out and written to disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor
from transformers import BatchEncoding

from probescale.config import Granularity
from probescale.errors import MachineError, UserError, first_line
from probescale.models.batching import Tokens, padded_batches
from probescale.models.family import backbone
from probescale.models.loading import LoadedModel
from probescale.models.memory import BatchSplitter, release_memory
from probescale.models.subsets import Subset
from probescale.models.tokenizers import tokenizer_fingerprint
from probescale.probing.cache import Features, Store, Writer
from probescale.probing.sites import Site, sites_of, states_at
from probescale.probing.subnetworks import ends_of, run_subnetworks
from probescale.probing.views import View, tokenise
from probescale.tasks.data import Data
from probescale.utils.distributed import (
    in_shared_call,
    is_main_process,
    map_over_processes,
    move_to_own_device,
    run_on_all,
)
from probescale.utils.progress import progress
from probescale.utils.resources import DISK_ERRORS, find_errno, find_shortage

BATCHES_KEPT = 8  # after so many, freed memory is given back
Reader = Callable[[dict[str, Tensor], Callable[[int, Tensor], None]], None]  # (inputs, receive(site's number, state))
Written = tuple[str, np.ndarray]  # a site, and rows of it
FORMAT = 1  # of what is stored; a change makes older entries unused


@dataclass(frozen=True)
class Request:
    """States of this data under this pooling (not auto)."""

    data: Data
    pooling: str


def represent(
    loaded: LoadedModel,
    requests: Sequence[Request],
    store: Store,
    *,
    max_length: int = 128,
    batch_tokens: int = 2048,
    granularity: Sequence[Granularity] = ("layer",),
    subnetworks: Sequence[Subset] = (),
    title: str = "representations",
) -> list[Features]:
    """Features for every request, from the store where they are known; requests on the same inputs share a pass.

    With `subnetworks`, the sites are their ends, each run as if it had been cut out.
    """
    sites = ends_of(loaded, subnetworks) if subnetworks else sites_of(loaded, granularity)
    read = partial(run_subnetworks, loaded, subnetworks) if subnetworks else partial(_run_hooked, loaded, sites)
    keys = [key_of(loaded, request, max_length, sites) for request in requests]
    found = {key: store.find(key) for key in dict.fromkeys(keys)}
    missing = {key: request for key, request in zip(keys, requests, strict=True) if found[key] is None}
    for shared in _by_inputs(missing):
        with store.locked(list(shared)):
            found |= {key: store.find(key) for key in shared}  # another process may have been first
            if wanted := {key: request for key, request in shared.items() if found[key] is None}:
                _run(loaded, wanted, sites, read, store, max_length, batch_tokens, title)
                found |= {key: store.find(key) for key in wanted}
    features = [found[key] for key in keys]
    if any(one is None for one in features):
        raise UserError(f"{store.root} does not give back what was written to it", hint="check the disk")
    return [one for one in features if one is not None]


def key_of(loaded: LoadedModel, request: Request, max_length: int, sites: Sequence[Site]) -> str:
    """Everything that a feature depends on. The batch size is not among it."""
    data = request.data
    by_word = [[labelled for _, labelled in data.words_in(number)] for number in range(len(data))]
    covered = [
        FORMAT,
        loaded.fingerprint,
        tokenizer_fingerprint(loaded.tokenizer),
        inputs_fingerprint(data),
        by_word if data.per_word else None,
        request.pooling,
        max_length,
        [(site.name, site.width) for site in sites],
        [version(name) for name in ("torch", "transformers")],
    ]
    return hashlib.sha256(json.dumps(covered).encode()).hexdigest()[:32]


def inputs_fingerprint(data: Data) -> str:
    """Of what the model reads: the same for data that differ in their labels only."""
    return hashlib.sha256(json.dumps(data.content).encode()).hexdigest()


def _by_inputs(requests: dict[str, Request]) -> list[dict[str, Request]]:
    groups: dict[str, dict[str, Request]] = {}
    for key, request in requests.items():
        groups.setdefault(inputs_fingerprint(request.data), {})[key] = request
    return list(groups.values())


def _run(
    loaded: LoadedModel,
    requests: dict[str, Request],
    sites: Sequence[Site],
    read: Reader,
    store: Store,
    max_length: int,
    batch_tokens: int,
    title: str,
) -> None:
    """The pass itself. It goes on where an interrupted one stopped."""
    wanted = [(request.data, request.pooling) for request in requests.values()]
    tokens, views = tokenise(loaded.tokenizer, wanted[0][0], wanted, max_length)
    order = tokens.by_length
    views = [view.in_order(order) for view in views]
    widths = {site.name: site.width for site in sites}
    writers = [store.writer(key, widths, view.inputs, view.words) for key, view in zip(requests, views, strict=True)]
    ends = [_rows_behind(view, order) for view in views]
    done = min(
        int(np.searchsorted(end, writer.progress(), side="right")) for writer, end in zip(writers, ends, strict=True)
    )
    with ExitStack() as stack:
        for writer in writers:
            stack.callback(writer.close)
        try:
            run_on_all(_pass, loaded, tokens, views, ends, writers, sites, read, done, batch_tokens, title)
            for (key, request), writer in zip(requests.items(), writers, strict=True):
                about = {"model": loaded.source, "pooling": request.pooling, "inputs": f"{len(order):,} inputs"}
                writer.finish(store.root / key, about)
            release_memory()
        except OSError as error:
            hint = short.hint if (short := find_shortage(error)) else "check its permissions"
            raise MachineError(
                f"representations cannot be written to {store.root}: {error.strerror or first_line(error)}",
                hint=f"{hint}, or {store.elsewhere}" if find_errno(error) in DISK_ERRORS else hint,
            ) from error


def _pass(
    loaded: LoadedModel,
    tokens: Tokens,
    views: Sequence[View],
    ends: Sequence[np.ndarray],
    writers: Sequence[Writer],
    sites: Sequence[Site],
    read: Reader,
    done: int,
    batch_tokens: int,
    title: str,
) -> None:
    """Every process runs its share of the batches; the first one writes everything, in order."""
    move_to_own_device(loaded.model)
    if is_main_process():
        for writer, end in zip(writers, ends, strict=True):
            writer.resume(int(end[done - 1]) if done else 0)
    batches = _placed(padded_batches(loaded.tokenizer, tokens, batch_tokens, first=done), done)
    targets, portions = list(zip(views, writers, ends, strict=True)), BatchSplitter()
    work = partial(_batch, loaded, sites, read, targets, portions)
    with torch.inference_mode(), progress(title, len(tokens)) as advance:
        advance(done)
        for number, (size, written) in enumerate(map_over_processes(work, batches), 1):
            if is_main_process():
                for writer, (sites_rows, count) in zip(writers, written, strict=True):
                    for site, rows in sites_rows:
                        writer.write(site, rows)
                    writer.advance(count)
            advance(size)
            if number % BATCHES_KEPT == 0:
                release_memory()


def _placed(
    batches: Iterable[tuple[np.ndarray, BatchEncoding]], place: int
) -> Iterator[tuple[int, np.ndarray, BatchEncoding]]:
    """Every batch with its place in the order of the pass."""
    for batch, padded in batches:
        yield place, batch, padded
        place += len(batch)


def _batch(
    loaded: LoadedModel,
    sites: Sequence[Site],
    read: Reader,
    targets: list[tuple[View, Writer, np.ndarray]],
    portions: BatchSplitter,
    placed: tuple[int, np.ndarray, BatchEncoding],
) -> tuple[int, list[tuple[list[Written], int]]]:
    """How many inputs, and by writer what is still to be written of them, and how many rows they have.

    Alone, states are written as they come, which takes less memory; of several processes, only the first one writes.
    """
    place, batch, padded = placed
    kept: list[list[Written]] = [[] for _ in targets]
    counts = [int(end[place + len(batch) - 1]) - (int(end[place - 1]) if place else 0) for _, _, end in targets]

    def work(part: slice) -> None:
        fields = {name: tensor[part] for name, tensor in padded.items()}
        _part(loaded, sites, read, targets, kept, (place + part.start, batch[part], fields))

    def undo() -> None:
        for rows, (_, writer, _) in zip(kept, targets, strict=True):
            rows.clear()
            writer.undo()

    portions.run(batch, padded["input_ids"].shape[1], work, undo)
    return len(batch), list(zip(kept, counts, strict=True))


def _part(
    loaded: LoadedModel,
    sites: Sequence[Site],
    read: Reader,
    targets: list[tuple[View, Writer, np.ndarray]],
    kept: list[list[Written]],
    placed: tuple[int, np.ndarray, dict[str, Tensor]],
) -> None:
    place, batch, fields = placed
    inputs = {name: tensor.to(loaded.model.device) for name, tensor in fields.items()}
    first_token = fields["attention_mask"].argmax(1)
    poolers = []
    for (view, writer, end), later in zip(targets, kept, strict=True):
        rows = np.arange(end[place - 1] if place else 0, end[place + len(batch) - 1])
        if len(rows):
            write = (lambda *row, later=later: later.append(row)) if in_shared_call() else writer.write
            seen = view.take(rows)
            poolers.append((seen.pooler(batch, first_token), seen.inputs, write))
    read(inputs, partial(_receive, sites, poolers))


def _run_hooked(
    loaded: LoadedModel, sites: Sequence[Site], inputs: dict[str, Tensor], receive: Callable[[int, Tensor], None]
) -> None:
    with states_at(sites, receive):
        backbone(loaded.model)(**inputs)


def _receive(sites: Sequence[Site], poolers: list, number: int, states: Tensor) -> None:
    for pool, inputs, write in poolers:
        rows = pool(states)
        if not np.isfinite(rows).all():
            wrong = int(inputs[np.argmin(np.isfinite(rows).all(1))]) + 1
            raise UserError(
                f"the states at {sites[number].name} are not finite numbers for example {wrong}",
                field="model.source",
                hint="the weights may be damaged, or made for another number format; `probescale doctor` looks at them",
            )
        write(sites[number].name, rows)


def _rows_behind(view: View, order: np.ndarray) -> np.ndarray:
    """How many rows there are after each input, in the order of the pass."""
    return np.cumsum(np.bincount(view.inputs, minlength=len(order))[order])
