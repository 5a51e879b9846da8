"""Rows of the compression table: what each of them is, how it is trained, and what is known of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from real import DATA, weights
from training import TASKS

ROOT = Path(__file__).parents[1]
MEASURED = Path(__file__).with_name("compressed.jsonl")
LABELLED = 3000
LESSONS = {  # what subnetworks learn from beside the labelled rows, and how often they see all of it
    ("sst2", "short"): {"unlabelled": 9_000, "copies": 0, "epochs": 1},
    ("sst2", "long"): {"unlabelled": 60_000, "copies": 0, "epochs": 2},
    ("qnli", "short"): {"unlabelled": 3_700, "copies": 0, "epochs": 1},
    ("qnli", "long"): {"unlabelled": 3_700, "copies": 1, "epochs": 2},
    ("qnli", "long", "10x"): {"unlabelled": 3_700, "copies": 1, "epochs": 4},  # in two, one seed of two learns nothing
}
RECIPE = {
    "learning_rate": 2e-4,
    "batch_size": 32,
    "dropout": 0.0,
    "original": {"epochs": 3, "learning_rate": 5e-5},
}
OURS = "tried"
BASELINES = ("bottom_k", "top_k", "uniform_k", "block_influence", "stitched")  # stitched: ours without trials
TRIAL = {  # texts that a candidate reads, if not as many as usual
    ("qnli", "2x"): 1000,
    ("qnli", "3x"): 1500,
    ("qnli", "5x"): 3000,
    ("qnli", "10x"): 20_000,
}
BUDGET = {"1x": "100%"}
ORDER = ("5x", "10x", "3x", "2x")
MAX_LENGTH = 128


@dataclass(frozen=True)
class Study:
    task: str
    model: str
    seeds: tuple[int, ...]
    ratios: tuple[str, ...] = ("2x", "3x", "5x")
    compared: tuple[str, ...] = ("3x", "5x")  # ratios at which the baselines are trained, too
    longer: tuple[str, ...] = ("5x", "10x")  # ratios at which ours is trained for long
    compared_longer: tuple[str, ...] = ()  # and the baselines with it
    ours: str = OURS
    beside: tuple[str, ...] = ()  # studies of other models that stand in its table

    @property
    def source(self) -> str:
        return str(weights(self.model))


STUDIES = {
    "sst2-gte": Study("sst2", "gte-small", (0, 1), compared_longer=("5x",), beside=("sst2-minilm",)),
    "qnli-gte": Study("qnli", "gte-small", (0, 1), beside=("qnli-minilm",)),
    "sst2-minilm": Study("sst2", "minilm", (0, 1), (), (), ()),
    "qnli-minilm": Study("qnli", "minilm", (0, 1), (), (), ()),
    "sst2-mpnet": Study("sst2", "mpnet", (0,), ("3x",), (), (), ours="stitched"),  # trials would take an hour
    "sst2-t5": Study("sst2", "t5", (0,), ("3x",), (), (), ours="stitched"),
}


@dataclass(frozen=True)
class Job:
    study: str
    seed: int
    ratio: str  # "1x": the original
    strategy: str = OURS
    distil: bool = True
    shrink: bool = True  # without: the same layers, with the embeddings and units that they came with
    recipe: str = "short"  # the same for all rows of a comparison

    @property
    def is_ours(self) -> bool:
        return self.strategy == STUDIES[self.study].ours


def jobs_of(name: str) -> Iterator[Job]:
    """Originals first: they are the teachers."""
    study = STUDIES[name]
    for seed in study.seeds:
        yield Job(name, seed, "1x")
    for ratio in sorted(study.ratios, key=ORDER.index):
        for seed in study.seeds:
            yield Job(name, seed, ratio, study.ours)
            if ratio in study.compared:
                yield from (Job(name, seed, ratio, strategy) for strategy in BASELINES)
            if ratio == "5x":
                yield Job(name, seed, ratio, study.ours, distil=False)
                yield Job(name, seed, ratio, study.ours, shrink=False)
    for ratio in study.longer:
        rules = (study.ours, *(BASELINES if ratio in study.compared_longer else ()))
        yield from (Job(name, seed, ratio, rule, recipe="long") for seed in study.seeds for rule in rules)


def config_of(job: Job) -> Any:  # noqa: ANN401
    from probescale.config import RunConfig

    study = STUDIES[job.study]
    about, usual = TASKS[study.task], LESSONS[study.task, job.recipe]
    lessons = LESSONS.get((study.task, job.recipe, job.ratio), usual)
    columns = {"text": about["text"], **({"pair": about["pair"]} if "pair" in about else {})}
    texts = {"source": str(DATA / about["train"]), **columns}
    recipe = {
        **RECIPE,
        "distil": job.distil and bool(study.ratios),
        "epochs": lessons["epochs"],
        "augment": lessons["copies"],
    }
    if not job.distil:  # on the labelled ones alone, as the original
        recipe |= {"epochs": RECIPE["original"]["epochs"], "augment": 0}
    shrink = {"vocabulary": "auto", "rank": "auto", "units": "auto", "corpus": texts}
    return RunConfig.model_validate(
        {
            "model": {"source": study.source, "max_length": MAX_LENGTH},
            "task": {
                "name": study.task,
                "train": texts,
                "dev": {**texts, "source": str(DATA / about["dev"])},
                "unlabelled": {**texts, "most": lessons["unlabelled"]},
                "max_train": LABELLED,
            },
            "selection": {
                "strategy": job.strategy,
                "budget": BUDGET.get(job.ratio, job.ratio),
                "sample": 750,
                "trial": TRIAL.get((study.task, job.ratio)),
            },
            "shrink": {} if job.ratio == "1x" else shrink,
            "recovery": recipe,
            "seed": job.seed,
        }
    )


def known() -> dict[Job, dict[str, Any]]:
    return {job_of(one): one for one in measured()}


def measured() -> list[dict[str, Any]]:
    return [json.loads(line) for line in MEASURED.read_text().splitlines()] if MEASURED.exists() else []


def job_of(found: dict[str, Any]) -> Job:
    return Job(**{field: found[field] for field in Job.__dataclass_fields__})
