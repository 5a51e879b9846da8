"""Representations of data under a pooling: from the cache where they are known, else from one forward pass."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

import numpy as np
from torch import Tensor

from probescale.config import Granularity
from probescale.errors import MachineError, UserError, first_line
from probescale.models.family import backbone
from probescale.models.loading import LoadedModel
from probescale.models.memory import release_memory
from probescale.models.subsets import Subset
from probescale.models.tokenizers import tokenizer_fingerprint
from probescale.probing.cache import Features, Store
from probescale.probing.forward import ForwardPass, Output, run_pass
from probescale.probing.sites import Site, hook_sites, list_sites
from probescale.probing.subnetworks import list_subnetwork_sites, run_subnetworks
from probescale.probing.views import View, tokenize_with_views
from probescale.tasks.data import Data
from probescale.utils.distributed import run_on_all
from probescale.utils.resources import DISK_ERRORS, find_errno, find_shortage

FORMAT = 1  # of cache entries; after a change, older entries are no longer used


@dataclass(frozen=True)
class Request:
    """Data whose states are wanted, and how they are pooled (not auto)."""

    data: Data
    pooling: str


@dataclass(frozen=True)
class PassSettings:
    """Where states are taken, and how inputs are cut and batched.

    With `subnetworks`, the sites are the ends of these subnetworks, each run as if it had been cut out.
    """

    max_length: int = 128
    batch_tokens: int = 2048
    granularity: Sequence[Granularity] = ("layer",)
    subnetworks: Sequence[Subset] = ()
    title: str = "representations"  # of the progress bar

    def list_sites(self, loaded: LoadedModel) -> list[Site]:
        if self.subnetworks:
            return list_subnetwork_sites(loaded, self.subnetworks)
        return list_sites(loaded, self.granularity)


DEFAULTS = PassSettings()


def represent(
    loaded: LoadedModel, requests: Sequence[Request], store: Store, settings: PassSettings = DEFAULTS
) -> list[Features]:
    """Features for every request, from the store where they are known. Requests on the same inputs share a pass."""
    sites = settings.list_sites(loaded)
    keys = [compute_key(loaded, request, settings.max_length, sites) for request in requests]
    known = {key: store.find(key) for key in dict.fromkeys(keys)}
    missing = {key: request for key, request in zip(keys, requests, strict=True) if known[key] is None}
    for group in _group_by_inputs(missing):
        with store.locked(list(group)):
            known |= {key: store.find(key) for key in group}  # another process may have been first
            if wanted := {key: request for key, request in group.items() if known[key] is None}:
                _compute(loaded, wanted, store, settings, sites)
                known |= {key: store.find(key) for key in wanted}
    features = [entry for key in keys if (entry := known[key]) is not None]
    if len(features) < len(keys):
        raise UserError(f"what was written to {store.root} cannot be read back", hint="check the disk")
    return features


def compute_key(loaded: LoadedModel, request: Request, max_length: int, sites: Sequence[Site]) -> str:
    """Hash of everything that features depend on. The batch size is not part of it."""
    data = request.data
    labelled_words = [[labelled for _, labelled in data.words_in(number)] for number in range(len(data))]
    covered = [
        FORMAT,
        loaded.fingerprint,
        tokenizer_fingerprint(loaded.tokenizer),
        fingerprint_inputs(data),
        labelled_words if data.per_word else None,
        request.pooling,
        max_length,
        [(site.name, site.width) for site in sites],
        [version(name) for name in ("torch", "transformers")],
    ]
    return hashlib.sha256(json.dumps(covered).encode()).hexdigest()[:32]


def fingerprint_inputs(data: Data) -> str:
    """Hash of what the model reads: equal for data that differ only in their labels."""
    return hashlib.sha256(json.dumps(data.content).encode()).hexdigest()


def _group_by_inputs(requests: dict[str, Request]) -> list[dict[str, Request]]:
    groups: dict[str, dict[str, Request]] = {}
    for key, request in requests.items():
        groups.setdefault(fingerprint_inputs(request.data), {})[key] = request
    return list(groups.values())


def _compute(
    loaded: LoadedModel, requests: dict[str, Request], store: Store, settings: PassSettings, sites: Sequence[Site]
) -> None:
    """Run one forward pass for requests on the same inputs, and save its entries. Resumes an interrupted pass."""
    wanted = [(request.data, request.pooling) for request in requests.values()]
    tokens, views = tokenize_with_views(loaded.tokenizer, wanted[0][0], wanted, settings.max_length)
    order = tokens.by_length
    widths = {site.name: site.width for site in sites}
    outputs = []
    for key, unordered in zip(requests, views, strict=True):
        view = unordered.in_order(order)
        outputs.append(Output(view, store.writer(key, widths, view.inputs, view.words), _count_rows(view, order)))
    run_model = (
        partial(run_subnetworks, loaded, settings.subnetworks)
        if settings.subnetworks
        else partial(_run_with_hooks, loaded, sites)
    )
    job = ForwardPass(loaded, sites, run_model, tokens, outputs, settings.batch_tokens, settings.title)
    done = job.count_done()
    with ExitStack() as stack:
        for output in outputs:
            stack.callback(output.writer.close)
        try:
            run_on_all(run_pass, job, done)
            for (key, request), output in zip(requests.items(), outputs, strict=True):
                about = {"model": loaded.source, "pooling": request.pooling, "inputs": f"{len(order):,} inputs"}
                output.writer.finish(store.root / key, about)
            release_memory()
        except OSError as error:
            hint = short.hint if (short := find_shortage(error)) else "check its permissions"
            raise MachineError(
                f"representations cannot be written to {store.root}: {error.strerror or first_line(error)}",
                hint=f"{hint}, or {store.disk_hint}" if find_errno(error) in DISK_ERRORS else hint,
            ) from error


def _count_rows(view: View, order: np.ndarray) -> np.ndarray:
    """(inputs,) Number of rows up to and including each input, in the order of the pass."""
    return np.cumsum(np.bincount(view.inputs, minlength=len(order))[order])


def _run_with_hooks(
    loaded: LoadedModel, sites: Sequence[Site], inputs: dict[str, Tensor], receive: Callable[[int, Tensor], None]
) -> None:
    with hook_sites(sites, receive):
        backbone(loaded.model)(**inputs)
