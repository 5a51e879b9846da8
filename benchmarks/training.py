"""Fine-tuned subsets of gte-small, each trained once and kept: what every selection is measured by.

Needs $PROBESCALE_REAL (data, gte-small). A line of benchmarks/trained.jsonl is one training; what stands there is not
done again, so that the work can be stopped at any time and goes on with the next subset.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from real import DATA, weights

MODEL = str(weights("gte-small"))
MEASURED = Path(__file__).with_name("trained.jsonl")
LAYERS = 12
TRAIN = 1500  # drawn anew by every seed, like the head and the order of the batches
DEV = 1500  # at most; the same for all
RECIPE = {"epochs": 3, "learning_rate": 2e-4, "batch_size": 32, "dropout": 0.0}
WORKERS = 2  # one thread each: together they train more than one process on both cores
TASKS = {
    "sst2": {"train": "sst2/train.tsv", "dev": "sst2/dev.tsv", "text": "sentence"},
    "qnli": {"train": "qnli/train_subset.tsv", "dev": "qnli/dev.tsv", "text": "question", "pair": "sentence"},
}
Kept = tuple[int, ...]


@dataclass(frozen=True)
class Job:
    task: str
    seed: int
    kept: Kept


def data(task: str, part: str, most: int, seed: int) -> Any:  # noqa: ANN401 - Examples, imported late
    """Rows of a task: of train without repeats, and without what stands in dev."""
    from probescale.config import DataConfig
    from probescale.tasks.labelled import load_examples
    from probescale.tasks.sampling import sample, without_repeats

    def read(which: str) -> Any:  # noqa: ANN401
        about = TASKS[task]
        source = DataConfig(source=str(DATA / about[which]), text=about["text"], pair=about.get("pair"))
        return load_examples(source, field=which)

    rows = read("dev") if part == "dev" else without_repeats(read("train"), read("dev"))
    return sample(rows, most, seed)


@lru_cache(2)
def _ready(task: str, seed: int) -> tuple[Any, Any, Any]:
    from probescale.models.loading import load_classifier

    train, dev = data(task, "train", TRAIN, seed), data(task, "dev", DEV, 0)
    return load_classifier(MODEL, None, train.names, seed), train, dev


def train(job: Job) -> dict[str, Any]:
    """One subset on one task with one seed."""
    import torch

    from probescale.models.surgery import keep_layers
    from probescale.recovery.fine_tuning import fine_tune
    from probescale.recovery.predict import predict
    from probescale.recovery.recipe import Recipe

    torch.set_num_threads(1)
    parent, rows, dev = _ready(job.task, job.seed)
    started = time.perf_counter()
    model = keep_layers(parent, job.kept)
    fine_tune(model, rows, Recipe(**RECIPE), seed=job.seed)
    right = predict(model, dev) == np.array(dev.labels)
    found = {"task": job.task, "seed": job.seed, "kept": job.kept, "accuracy": round(float(right.mean()), 6)}
    return found | {"seconds": round(time.perf_counter() - started, 1)}


def measured() -> dict[Job, float]:
    if not MEASURED.exists():
        return {}
    lines = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    return {Job(one["task"], one["seed"], tuple(one["kept"])): one["accuracy"] for one in lines}


def train_all(jobs: Iterable[Job]) -> dict[Job, float]:
    """What is known of these, and all that is not yet."""
    known = measured()
    missing = [job for job in dict.fromkeys(jobs) if job not in known]
    if missing:
        print(f"{len(missing)} trainings to do", flush=True)
        with multiprocessing.get_context("spawn").Pool(WORKERS) as pool, MEASURED.open("a") as lines:
            for found in pool.imap_unordered(train, missing):
                print(json.dumps(found), file=lines, flush=True)
                print(found, flush=True)
    return measured()
