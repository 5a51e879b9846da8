"""One forward pass over all inputs: the states of every site are pooled and written to disk, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import BatchEncoding

from probescale.errors import UserError
from probescale.models.batching import Tokens, padded_batches
from probescale.models.loading import LoadedModel
from probescale.models.memory import BatchSplitter, release_memory
from probescale.probing.cache import Writer
from probescale.probing.sites import Site
from probescale.probing.views import View
from probescale.utils.distributed import in_shared_call, is_main_process, map_over_processes, move_to_own_device
from probescale.utils.progress import progress

RELEASE_EVERY = 8  # batches between two calls that return freed memory to the system

# Runs the model on the inputs and calls receive(index of the site, states) for every site.
RunModel = Callable[[dict[str, Tensor], Callable[[int, Tensor], None]], None]
SiteRows = tuple[str, np.ndarray]  # a site's name, and rows to write there


@dataclass(frozen=True)
class Output:
    """One cache entry that the pass fills: which states it keeps, and where they are written."""

    view: View
    writer: Writer
    row_ends: np.ndarray  # (inputs,) rows up to and including each input, in the order of the pass

    def count_rows(self, inputs: int) -> int:
        """Number of rows that the first `inputs` inputs have."""
        return int(self.row_ends[inputs - 1]) if inputs else 0


class Batch(NamedTuple):
    """Padded inputs, and the position of the first one in the order of the pass."""

    position: int
    inputs: np.ndarray  # indices in the data
    fields: BatchEncoding | dict[str, Tensor]

    @property
    def end(self) -> int:
        return self.position + len(self.inputs)


@dataclass(frozen=True)
class ForwardPass:
    """Everything that a process needs to run its share of the pass."""

    loaded: LoadedModel
    sites: Sequence[Site]
    run_model: RunModel
    tokens: Tokens
    outputs: Sequence[Output]
    batch_tokens: int
    title: str  # of the progress bar

    def count_done(self) -> int:
        """Number of inputs whose rows an interrupted pass wrote to every output."""
        return min(
            int(np.searchsorted(output.row_ends, output.writer.read_progress(), side="right"))
            for output in self.outputs
        )


def run_pass(job: ForwardPass, done: int) -> None:
    """Run all batches after the first `done` inputs. Processes share them; the main one writes all rows in order."""
    move_to_own_device(job.loaded.model)
    if is_main_process():
        for output in job.outputs:
            output.writer.resume(output.count_rows(done))
    padded = padded_batches(job.loaded.tokenizer, job.tokens, job.batch_tokens, first=done)
    run_batch = partial(_run_batch, job, BatchSplitter())
    with torch.inference_mode(), progress(job.title, len(job.tokens)) as advance:
        advance(done)
        for number, (size, results) in enumerate(map_over_processes(run_batch, _with_positions(padded, done)), 1):
            if is_main_process():
                for output, (unwritten, count) in zip(job.outputs, results, strict=True):
                    for site, rows in unwritten:
                        output.writer.write(site, rows)
                    output.writer.advance(count)
            advance(size)
            if number % RELEASE_EVERY == 0:
                release_memory()


def _with_positions(batches: Iterable[tuple[np.ndarray, BatchEncoding]], position: int) -> Iterator[Batch]:
    for inputs, fields in batches:
        yield Batch(position, inputs, fields)
        position += len(inputs)


def _run_batch(job: ForwardPass, splitter: BatchSplitter, batch: Batch) -> tuple[int, list[tuple[list[SiteRows], int]]]:
    """Number of inputs; and for each output, the rows that are still to be written and how many rows there are in all.

    A single process writes states as they come, which takes less memory. Of several processes only the main one writes.
    """
    unwritten: list[list[SiteRows]] = [[] for _ in job.outputs]
    counts = [output.count_rows(batch.end) - output.count_rows(batch.position) for output in job.outputs]

    def run_part(part: slice) -> None:
        fields = {name: tensor[part] for name, tensor in batch.fields.items()}
        _run_part(job, Batch(batch.position + part.start, batch.inputs[part], fields), unwritten)

    def undo() -> None:
        for rows, output in zip(unwritten, job.outputs, strict=True):
            rows.clear()
            output.writer.undo()

    splitter.run(batch.inputs, batch.fields["input_ids"].shape[1], run_part, undo)
    return len(batch.inputs), list(zip(unwritten, counts, strict=True))


class _Receiver(NamedTuple):
    """Turns states into the rows of one output."""

    pool: Callable[[Tensor], np.ndarray]
    inputs: np.ndarray  # (rows,) index of the input that each row comes from
    write: Callable[[str, np.ndarray], None]


def _run_part(job: ForwardPass, part: Batch, unwritten: list[list[SiteRows]]) -> None:
    inputs = {name: tensor.to(job.loaded.model.device) for name, tensor in part.fields.items()}
    first_token = part.fields["attention_mask"].argmax(1)
    receivers = []
    for output, later in zip(job.outputs, unwritten, strict=True):
        rows = np.arange(output.count_rows(part.position), output.count_rows(part.end))
        if len(rows):
            write = (lambda *row, later=later: later.append(row)) if in_shared_call() else output.writer.write
            view = output.view.take(rows)
            receivers.append(_Receiver(view.pooler(part.inputs, first_token), view.inputs, write))
    job.run_model(inputs, partial(_receive, job.sites, receivers))


def _receive(sites: Sequence[Site], receivers: Sequence[_Receiver], index: int, states: Tensor) -> None:
    for receiver in receivers:
        rows = receiver.pool(states)
        if not np.isfinite(rows).all():
            wrong = int(receiver.inputs[np.argmin(np.isfinite(rows).all(1))]) + 1
            raise UserError(
                f"the states at {sites[index].name} are not finite numbers for example {wrong}",
                field="model.source",
                hint="the weights may be damaged, or need another number format; check them with `probescale doctor`",
            )
        receiver.write(sites[index].name, rows)
