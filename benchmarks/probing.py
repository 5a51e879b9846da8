"""What probing costs and how right it is, as ratios within one run. Needs $PROBESCALE_REAL (data, gte-small).

    python benchmarks/probing.py                     everything, about 25 minutes on two cores
    python benchmarks/probing.py cost memory         some of it
    python benchmarks/probing.py --model FOLDER      another model for `cost`

Prints a line per figure and writes all of them to benchmarks/probing.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from probescale.config import DataConfig, RunConfig
from probescale.models.batching import padded_batches, tokenize
from probescale.models.family import backbone
from probescale.models.loading import LoadedModel, load_classifier
from probescale.probing.cache import Features, Store
from probescale.probing.fitting import LabelledRows, score_property
from probescale.probing.parts import split_parts
from probescale.probing.probe import probe
from probescale.probing.represent import Request, represent
from probescale.probing.sites import Site, list_sites
from probescale.probing.targets import ProbeLabels
from probescale.tasks.data import Examples
from probescale.tasks.labelled import load_examples, load_tagged
from probescale.tasks.sampling import sample, without_repeats
from probescale.tasks.task import Task
from real import DATA, weights

GTE = str(weights("gte-small"))
PENALTIES = (0.0001, 0.001, 0.01, 0.1, 1.0)
Figures = Iterator[tuple[str, Any]]


def sst2() -> Examples:
    data = DataConfig(source=str(DATA / "sst2/train.tsv"), text="sentence", label="label")
    return without_repeats(load_examples(data, field="sst2"))


def config(model: str, **probing: object) -> RunConfig:
    task = {"train": "unused.csv", "probes": [{"name": "task"}]}
    return RunConfig.model_validate(
        {"model": {"source": model}, "task": task, "probing": probing, "selection": {"k": 1}}
    )


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


def bare_pass(loaded: LoadedModel, examples: Examples) -> None:
    tokens = tokenize(loaded.tokenizer, examples.texts, None, 128)
    with torch.inference_mode():
        for _, batch in padded_batches(loaded.tokenizer, tokens, 2048):
            backbone(loaded.model)(**batch)


def cost(model: str) -> Figures:
    """Probing 5,000 sentences against a bare, length-sorted, padded forward pass over them."""
    examples = sample(sst2(), 5000, 0)
    loaded = load_classifier(model, None, examples.names, 0)
    task = Task("sst2", "accuracy", examples, examples.take(range(10)), "unused", 0, {"task": examples})
    bare_pass(loaded, examples.take(range(200)))  # warm-up
    plain = config(model, selectivity=False, code_length=False)
    before, _ = timed(lambda: bare_pass(loaded, examples))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PROBESCALE_CACHE"] = folder
        first, _ = timed(lambda: probe(loaded, task, plain))
        again, _ = timed(lambda: probe(loaded, task, plain))
        full, _ = timed(lambda: probe(loaded, task, config(model)))
    after, _ = timed(lambda: bare_pass(loaded, examples))
    bare = (before + after) / 2
    yield "bare forward pass over 5,000 sentences, s", bare
    yield "probing every layer, s (at most 1.25 times the bare pass)", first
    yield "probing / bare pass", first / bare
    yield "from cache, s", again
    yield "first / from cache (at least 20)", first / again
    yield "with control tasks and code lengths too: (first + what they add) / bare pass", (first + full - again) / bare


class InMemory(Features):
    """Features that are already there, to time the probes alone."""

    def __init__(self, layers: np.ndarray) -> None:
        rows = np.arange(layers.shape[1])
        width = int(layers.shape[2])
        super().__init__(Path(), rows, rows, rows, dict.fromkeys(site_names(layers), width))
        object.__setattr__(self, "layers", layers)

    def load(self, site: str, rows: np.ndarray, columns: slice = slice(None)) -> np.ndarray:
        return self.layers[int(site[-3:]) - 1][rows][:, columns]  # type: ignore[attr-defined]


def two_classes(model: str) -> Figures:
    yield from solver(*real_binary())


def many_classes(model: str) -> Figures:
    yield from solver(*real_tags())


def solver(name: str, layers: np.ndarray, labels: np.ndarray) -> Figures:
    """The probes of all layers with their penalty path, against a loop of scikit-learn over layers and penalties."""
    target = ProbeLabels("class", labels, tuple(str(k) for k in range(labels.max() + 1)))
    parts = split_parts(target, None, 0.2, seed=0)
    assert parts is not None
    rows = LabelledRows(name, target, [("x",)] * len(labels), np.arange(len(labels)), parts, "cls", seed=0)
    settings = config(GTE, selectivity=False, code_length=False, penalties=list(PENALTIES)).probing
    features = InMemory(layers)
    sites = [Site("layer", n, layers.shape[2], torch.nn.Identity()) for n in range(1, len(layers) + 1)]
    ours, found = timed(lambda: score_property(rows, features, sites, settings))
    ours_accuracy = [site.measures["accuracy"].value for site in found.sites.values()]
    shape = f"{len(layers)} layers, {layers.shape[1]:,} x {layers.shape[2]:,}, {len(target.names)} classes"
    yield f"{name} ({shape}): ours, s", ours
    with threadpool_limits(1):
        theirs, accuracy = timed(lambda: sklearn_loop(layers, labels, parts))
    yield f"{name}: scikit-learn loop, one BLAS thread, s", theirs
    differences = np.abs(np.array(accuracy) - ours_accuracy)
    yield f"{name}: largest difference in accuracy, points (at most 0.5)", 100 * differences.max()
    some = {}
    for threads in (1, 2):
        with threadpool_limits(threads):
            some[threads], _ = timed(lambda: sklearn_loop(layers[:2], labels, parts))
    yield f"{name}: two layers of it with two BLAS threads / with one", some[2] / some[1]
    yield f"{name}: the faster loop / ours (at least 3)", theirs * min(1, some[2] / some[1]) / ours


def site_names(layers: np.ndarray) -> list[str]:
    return [f"layer-{number:03d}" for number in range(1, len(layers) + 1)]


def sklearn_loop(layers: np.ndarray, labels: np.ndarray, parts: Any) -> list[float]:  # noqa: ANN401 - Parts
    """Per layer: standardise, fit every penalty, choose by log-loss on the tuning rows, fit again on train, score."""
    from sklearn.metrics import log_loss

    train = np.concatenate([parts.fit, parts.tuning])
    accuracy = []
    for layer in layers:
        scaled = StandardScaler().fit(layer[train]).transform(layer)
        fits = {
            c: LogisticRegression(C=c, max_iter=10_000).fit(scaled[parts.fit], labels[parts.fit]) for c in PENALTIES
        }
        losses = {}
        for c, model in fits.items():
            known = np.isin(labels[parts.tuning], model.classes_)
            tuning = parts.tuning[known]
            losses[c] = log_loss(labels[tuning], model.predict_proba(scaled[tuning]), labels=model.classes_)
        best = LogisticRegression(C=min(losses, key=losses.__getitem__), max_iter=10_000)
        accuracy.append(
            float(best.fit(scaled[train], labels[train]).score(scaled[parts.validation], labels[parts.validation]))
        )
    return accuracy


def layers_of(loaded: LoadedModel, request: Request) -> tuple[np.ndarray, Features]:
    with Store.open(keep=False) as store:
        features = represent(loaded, [request], store)[0]
        names = [site.name for site in list_sites(loaded, ("layer",)) if site.layer]
        return np.stack([features.load(name, np.arange(len(features))) for name in names]), features


def real_binary() -> tuple[str, np.ndarray, np.ndarray]:
    """24 layers of 10,000 x 1,024 from real states: three poolings of gte-small side by side, cut to that width."""
    examples = sample(sst2(), 10_000, 0)
    loaded = load_classifier(GTE, None, examples.names, 0)
    with Store.open(keep=False) as store:
        poolings = represent(loaded, [Request(examples, p) for p in ("cls", "mean", "max")], store)
        everything = np.arange(len(examples))
        names = [site.name for site in list_sites(loaded, ("layer",)) if site.layer]
        wide = [np.concatenate([part.load(name, everything) for part in poolings], 1) for name in names]
    return (
        "sst2",
        np.stack([half for one in wide for half in (one[:, :1024], one[:, -1024:])]),
        np.array(examples.labels),
    )


def real_tags() -> tuple[str, np.ndarray, np.ndarray]:
    """12 layers of 20,000 x 384: words of the WSJ sample."""
    data = DataConfig(source=str(DATA / "ptb_wsj_sample/wsj_sample.pos.conll"), text=1, label=2)
    tagged = load_tagged(data, field="pos")
    rare = {next(i for i, tags in enumerate(tagged.tags) if tag in tags): None for tag in range(len(tagged.names))}
    tagged = tagged.take(list(rare | dict.fromkeys(range(len(tagged)))))  # every tag is among the first sentences
    loaded = load_classifier(GTE, None, ("a", "b"), 0)
    layers, features = layers_of(loaded, Request(tagged.take(range(1000)), "token"))
    labels = np.array([tagged.tags[i][w] for i, w in zip(features.inputs, features.words, strict=True)])
    chosen = np.arange(20_000)
    _, labels = np.unique(labels[chosen], return_inverse=True)
    return "pos", layers[:, chosen], labels


def memory(model: str) -> Figures:
    """Peak memory above the loaded model, each size in a process of its own."""
    peaks = {}
    for size in (5000, 60_000):
        said = subprocess.run(
            [sys.executable, __file__, "--peak", str(size)], capture_output=True, text=True, check=True
        )
        peaks[size] = float(said.stdout.split()[-1])
        yield f"peak above the loaded model at {size:,} sentences, MB", peaks[size]
    yield "growth, MB (below 150)", peaks[60_000] - peaks[5000]


def peak(size: int) -> float:
    """MB by which memory rose above what it was with model and data in place."""
    examples = sst2()
    loaded = load_classifier(GTE, None, examples.names, 0)
    task = Task("sst2", "accuracy", examples, examples.take(range(10)), "unused", 0, {"task": examples})
    bare_pass(loaded, examples.take(range(200)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    probe(loaded, task, config(GTE, max_examples=size, cache=False))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000


SECTIONS: dict[str, Callable[[str], Figures]] = {
    section.__name__: section for section in (cost, two_classes, many_classes, memory)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], default=[])
    parser.add_argument("--model", default=GTE)
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.peak:
        print(peak(given.peak))
        return
    path = Path(__file__).with_suffix(".json")
    found = json.loads(path.read_text()) if path.exists() else {}
    found["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}
    for section in given.sections or SECTIONS:
        name = f"{section}: {Path(given.model).name}" if section == "cost" else section
        found[name] = {}
        for label, value in SECTIONS[section](given.model):
            found[name][label] = round(float(value), 3)
            print(f"{name} | {label} | {value:.3f}", flush=True)
            path.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
