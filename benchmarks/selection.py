"""Every strategy at k = 2, 4, 6 on gte-small, SST-2 and QNLI: what it chooses, and what that is worth after training.

    python benchmarks/selection.py                   everything that is not known yet, then docs/selection.md's tables
    python benchmarks/selection.py sst2              one task
    python benchmarks/selection.py --tables          only the tables, from what is known

Needs ../shared (data, gte-small). Hours on two cores; it can be stopped at any time and goes on from there:
benchmarks/trained.jsonl has a line for every training, benchmarks/evidence/ what the strategies decided by.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from training import DEV, LAYERS, MODEL, TASKS, TRAIN, Job, Kept, data, measured, train_all

KS = (2, 4, 6)
SEEDS = (0, 1)
RANDOM_DRAWS = 2
SETTINGS = {"k": max(KS), "sample": 750, "passes": 20}
EVIDENCE = Path(__file__).with_name("evidence")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], default=[])
    parser.add_argument("--tables", action="store_true", help="train nothing")
    asked = parser.parse_args()
    tasks = asked.tasks or list(TASKS)
    jobs = [job for task in tasks for job in jobs_of(task)] if not asked.tables else []
    if jobs:
        train_all(jobs)


def evidence_path(task: str) -> Path:
    return EVIDENCE / f"{task}.json"


def evidence(task: str) -> Any:  # noqa: ANN401 - ProbeScores, imported late
    """Probe scores, flow and probed subnetworks, from the first seed's training examples; computed once."""
    from probescale.probing.scores import load_scores

    path = evidence_path(task)
    if not path.exists():
        _gather(task).save(path)
    return load_scores(path)


def _gather(task: str) -> Any:  # noqa: ANN401
    from probescale.config import RunConfig
    from probescale.models.loading import load_classifier
    from probescale.probing.flow import flow
    from probescale.probing.probe import probe
    from probescale.probing.stitched import Prober
    from probescale.selection.search import all_subsets, beam_search, beam_width
    from probescale.selection.structure import Structure
    from probescale.subsets import every_block
    from probescale.tasks.data import sample
    from probescale.tasks.task import Task

    rows, plain = data(task, "train", TRAIN, 0), Structure()
    loaded = load_classifier(MODEL, None, rows.names, 0)
    work = Task(task, "accuracy", rows, data(task, "dev", DEV, 0), "dev", 0, {"task": rows})
    about = {"train": "unused.csv", "probes": [{"name": "task"}]}
    config = RunConfig.model_validate({"model": {"source": MODEL}, "task": about, "selection": SETTINGS})
    scores = probe(loaded, work, config, {"seed": 0})
    prober = Prober(loaded, work, config)
    prober.score(every_block(LAYERS, LAYERS))
    sweep = prober.passes
    prober.score(all_subsets(LAYERS, 2, 10, plain))
    width = beam_width(LAYERS, max(KS), config.selection.passes, plain)
    beam_search(LAYERS, max(KS), plain, prober.score, width)
    print(f"{task}: {sweep} passes for all blocks, {prober.passes - sweep:.1f} for pairs and a beam of {width}")
    return scores.model_copy(
        update={"flow": flow(loaded, sample(rows, 500, 0)), "subnetworks": prober.scores(), "task": task}
    )


def choices(task: str) -> dict[tuple[str, int], list[Kept]]:
    """What every strategy keeps; several draws of `random`, and `exhaustive` where it was affordable."""
    from dataclasses import replace

    from probescale.selection.budget import parse_budget
    from probescale.selection.evidence import evidence_of
    from probescale.selection.select import select
    from probescale.selection.strategies import STRATEGIES

    seen, found = evidence_of(evidence(task)), {}
    for name in STRATEGIES:
        for k in KS if name != "exhaustive" else KS[:1]:
            seeds = range(RANDOM_DRAWS) if name == "random" else (0,)
            drawn = [select(replace(seen, seed=seed), parse_budget(k=k), strategy=name).kept for seed in seeds]
            found[name, k] = drawn
    return found


def jobs_of(task: str) -> list[Job]:
    """All trainings of a task: the original, and every subset that a strategy chose, once a seed."""
    subsets = dict.fromkeys(kept for several in choices(task).values() for kept in several)
    return [Job(task, seed, kept) for seed in SEEDS for kept in [*subsets, tuple(range(1, LAYERS + 1))]]


if __name__ == "__main__":
    main()
