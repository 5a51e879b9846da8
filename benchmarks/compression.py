"""Two to ten times smaller, embeddings counted: what is kept, and what each part of the method brings.

    python benchmarks/compression.py                 everything that is not known yet
    python benchmarks/compression.py sst2-gte        one study
    python benchmarks/compression.py sst2-gte --recipe long --ratio 5x       some of its rows
    python benchmarks/compression.py --tables        only docs/results/compression.md's tables, from what is known

Needs $PROBESCALE_REAL (data, gte-small) and `make real-weights`. Hours on two cores; it can be stopped at any time and
goes on from there: benchmarks/compressed.jsonl has a line for every training. What teachers answered, and how
budgets were split, stands in .cache/compression.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import threading
import time
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from compression_rows import (
    BASELINES,
    MAX_LENGTH,
    MEASURED,
    ORDER,
    ROOT,
    STUDIES,
    Job,
    config_of,
    job_of,
    jobs_of,
    known,
    measured,
)
from pages import write_tables
from training import WORKERS

WORK = ROOT / ".cache" / "compression"


@lru_cache(2)
def _ready(name: str, seed: int, recipe: str) -> Any:  # noqa: ANN401 - Workbench, imported late
    """The task and the loaded model of one study and seed."""
    from probescale.pipeline.workbench import prepare

    return prepare(config_of(Job(name, seed, "1x", recipe=recipe)))


def chosen(name: str, ratio: str, recipe: str) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """How the first seed's data split the budget, the same for all strategies, and which layers each of them keeps."""
    from probescale.pipeline.allocation import allocate
    from probescale.pipeline.evaluation import Evaluator
    from probescale.pipeline.evidence import probe_once
    from probescale.pipeline.run import select_all
    from probescale.pipeline.tournament import run_tournament
    from probescale.selection.evidence import Evidence

    folder = WORK / name
    job = Job(name, 0, ratio, STUDIES[name].ours, recipe=recipe)
    config = config_of(job).model_copy(update={"compare": BASELINES})
    bench = replace(_ready(name, 0, recipe), config=config, provenance={"seed": 0}, costs={})
    scores = probe_once(bench, folder / "scores.json")
    shrinks = allocate(bench, scores, folder / f"allocation-{ratio}.json")
    evaluator = Evaluator(bench, folder, shrinks[0], shared=_work(job))
    ask_teacher(job, evaluator)
    tournament = None
    if bench.strategy.reads == "tournament":
        path = folder / f"tournament-{ratio}-{recipe}.json"
        tournament = run_tournament(bench, evaluator, shrinks, Evidence.from_scores(scores), path)
        print(f"{name} {ratio}: {tournament.summary()}", flush=True)
    shrink = tournament.winner.shrink if tournament else shrinks[0]
    return shrink, {one.strategy: one.kept for one in select_all(bench, scores, shrink, tournament)}


def train(job: Job) -> dict[str, Any]:
    import torch

    from probescale.models.saving import describe_cut, save_model
    from probescale.models.shrink.shrink_plan import ShrinkPlan
    from probescale.pipeline.evaluation import Evaluator
    from probescale.recovery.predict import predict
    from probescale.utils.files import remove_folder

    torch.set_num_threads(1)
    bench = _ready(job.study, job.seed, job.recipe).with_config(config_of(job))
    task, loaded = bench.task, bench.loaded
    shrink, kept = (ShrinkPlan(), tuple(range(1, loaded.layers + 1))) if job.ratio == "1x" else plan_of(job)
    shrink = shrink if job.shrink else ShrinkPlan()
    started = time.perf_counter()
    own = WORK / job.study / "training" / "-".join(str(value) for value in asdict(job).values())  # for checkpoints
    evaluator = Evaluator(bench, own, shrink, shared=_work(job))
    if job.distil and job.ratio != "1x":
        ask_teacher(job, evaluator)
    model, _ = evaluator.fine_tune(str(job), kept, is_original=job.ratio == "1x")
    value = task.measure(task.gold, predict(model, task.dev, max_length=MAX_LENGTH))
    if job == Job(job.study, 0, job.ratio, recipe=job.recipe) and job.ratio != "1x":  # for benchmarks/inference.py
        record = describe_cut(evaluator.source_model, kept, model) | {"params": evaluator.parameters.of(kept)}
        save_model(model, record, WORK / job.study / f"model-{job.ratio}", overwrite=True)
    remove_folder(own)
    found = {"accuracy": round(value, 6), "kept": kept, "made_smaller": str(shrink)}
    if job.ratio != "1x":  # which may be trained anew, and differ, before the next row
        found["original"] = known()[Job(job.study, job.seed, "1x")]["accuracy"]
    params = evaluator.shrinker.original.total if job.ratio == "1x" else evaluator.parameters.of(kept)
    return asdict(job) | found | {"params": params, "seconds": round(time.perf_counter() - started, 1)}


def _work(job: Job) -> Path:
    """Where the teacher stands, with its answers to what a recipe asks about."""
    return WORK / job.study / (f"seed-{job.seed}" + ("" if job.recipe == "short" else f"-{job.recipe}"))


def _still_there(job: Job) -> bool:
    """An original that was measured elsewhere cannot teach here."""
    from probescale.pipeline.evaluation import TEACHER
    from probescale.pipeline.folder import INNER

    return not STUDIES[job.study].ratios or (_work(job) / INNER / TEACHER).exists()


def ask_teacher(job: Job, evaluator: Any) -> None:  # noqa: ANN401 - Evaluator, imported late
    """The teacher has answered the texts of the short recipe; those of another one it is asked when they are needed."""
    from filelock import FileLock

    from probescale.pipeline.evaluation import TEACHER
    from probescale.pipeline.folder import INNER
    from probescale.recovery.teacher import load_teacher

    with FileLock(WORK / job.study / "asking.lock"):
        if not (_work(job) / INNER / TEACHER).exists():
            own = _work(replace(job, recipe="short")) / INNER / TEACHER
            evaluator._record_answers(load_teacher(evaluator.loaded, own))


def plan_of(job: Job) -> tuple[Any, tuple[int, ...]]:
    from probescale.models.shrink.shrink_plan import ShrinkPlan

    stored = json.loads(_plan_path(job).read_text())
    return ShrinkPlan(**stored["shrink"]), tuple(stored["kept"])


def _plan_path(job: Job) -> Path:
    return WORK / job.study / f"plan-{job.ratio}-{job.recipe}-{job.strategy}.json"


def make_plans(jobs: list[Job]) -> None:
    """Before the workers start: which layers and which split every row has."""
    missing = (job for job in jobs if job.ratio != "1x" and not _plan_path(job).exists())
    for name, ratio, recipe in dict.fromkeys((job.study, job.ratio, job.recipe) for job in missing):
        shrink, found = chosen(name, ratio, recipe)
        for strategy, kept in found.items():
            path = _plan_path(Job(name, 0, ratio, strategy, recipe=recipe))
            path.write_text(json.dumps({"shrink": shrink.model_dump(), "kept": kept}))
        print(f"{name} {ratio} {recipe}: {shrink}, {found}", flush=True)


def train_all(jobs: list[Job], workers: int) -> None:
    """Teachers, then students; strategies that keep the same layers are trained once."""
    for stage in (True, False):
        wanted = [job for job in jobs if (job.ratio == "1x") == stage]
        stored = {job: found for job, found in known().items() if not stage or _still_there(job)}
        make_plans([job for job in wanted if job not in stored])
        done = {_what(job): found for job, found in stored.items() if job in wanted}
        twins: dict[Any, list[Job]] = {}
        for job in wanted:
            if job not in stored:
                twins.setdefault(_what(job), []).append(job)
        missing = [several[0] for what, several in twins.items() if what not in done]
        print(f"{len(missing)} trainings to do", flush=True)
        with multiprocessing.get_context("spawn").Pool(workers, _end_with_the_benchmark) as pool:
            for what, several in twins.items():
                if what in done:
                    _note(done[what], several)
            for found in pool.imap_unordered(train, missing):
                _note(found, twins[_what(job_of(found))])


def _end_with_the_benchmark() -> None:
    """Nothing trains on when it is killed."""
    whole = multiprocessing.parent_process()
    assert whole
    threading.Thread(target=lambda: (whole.join(), os._exit(1)), daemon=True).start()


def _what(job: Job) -> tuple[Any, ...]:
    """What is really trained."""
    return (
        job.study,
        job.seed,
        job.distil,
        job.shrink,
        job.recipe,
        *((None, None) if job.ratio == "1x" else plan_of(job)),
    )


def _note(found: dict[str, Any], jobs: list[Job]) -> None:
    with MEASURED.open("a") as lines:
        for job in jobs:
            print(json.dumps(found | asdict(job)), file=lines, flush=True)
    print(found, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", choices=[*STUDIES, []], default=[])
    parser.add_argument("--recipe", choices=["short", "long"], help="only rows of this recipe, and the originals")
    parser.add_argument(
        "--ratio", choices=["1x", *ORDER], nargs="*", help="only rows of these sizes, and the originals"
    )
    parser.add_argument("--seed", type=int, nargs="*", help="only rows of these seeds")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--tables", action="store_true", help="train nothing")
    asked = parser.parse_args()
    jobs = [job for name in asked.studies or STUDIES for job in jobs_of(name)]
    jobs = [job for job in jobs if asked.seed is None or job.seed in asked.seed]
    if not asked.tables:
        train_all([job for job in jobs if job.ratio == "1x" or _asked_for(job, asked)], asked.workers)
    write_tables("results/compression.md", "compression.py", tables())


def _asked_for(job: Job, asked: argparse.Namespace) -> bool:
    return asked.recipe in (None, job.recipe) and (not asked.ratio or job.ratio in asked.ratio)


def tables() -> str:
    found = known()
    there = {job.study for job in found}
    return "\n\n".join(table(name, found) for name, study in STUDIES.items() if study.ratios and name in there)


def table(name: str, found: dict[Job, dict[str, Any]]) -> str:
    """One row a model: what it is made of, how large it is, what it is right about, and how much of the original's."""
    from probescale.models.subsets import format_layers

    study, rows = STUDIES[name], dict[Job, list[dict[str, Any]]]()
    for other in (name, *study.beside):
        for job in sorted((job for job in found if job.study == other), key=lambda job: job.seed):
            rows.setdefault(replace(job, seed=0), []).append(found[job])
    whole = [each for each in measured() if job_of(each) == Job(name, each["seed"], "1x")]
    if not whole:
        return ""
    by_seed = {each["seed"]: each["accuracy"] for each in whole}
    rows[Job(name, 0, "1x")] = whole  # each time that it was trained
    lines = ["| model | layers | other parts | parameters | smaller | accuracy | kept |", "|" + " --- |" * 7]
    for job, several in sorted(rows.items(), key=lambda row: _order(row[0], row[1])):
        one, right = several[0], [100 * each["accuracy"] for each in several]
        seeds = ", ".join(f"{each:.1f}" for each in right)
        originals = [each.get("original", by_seed[each["seed"]]) for each in several]
        kept = np.mean(right) / np.mean([each["accuracy"] for each in whole] if several is whole else originals)
        lines.append(
            f"| {_title(job)} | {format_layers(one['kept'])} | {one['made_smaller']} | {one['params'] / 1e6:.2f}M | "
            f"{whole[0]['params'] / one['params']:.1f}x | {np.mean(right):.2f} ({seeds}) | {kept:.1f} % |"
        )
    return f"### {study.task}, {study.model}\n\n" + "\n".join(lines)


def _order(job: Job, several: list[dict[str, Any]]) -> tuple[Any, ...]:
    """By size as asked for, ours first, then the others by what they are right about."""
    wanted = 1.0 if job.ratio == "1x" else float(job.ratio.removesuffix("x"))
    return (
        wanted,
        not (job.is_ours and job.distil and job.shrink),
        job.recipe,
        job.is_ours,
        -np.mean([each["accuracy"] for each in several]),
    )


def _title(job: Job) -> str:
    if job.ratio == "1x":
        return f"{STUDIES[job.study].model}, fine-tuned"
    without = [name for name, there in (("distillation", job.distil), ("shrinking", job.shrink)) if not there]
    ours = f"ProbeScale {job.ratio}" if job.is_ours else f"{job.strategy} {job.ratio}"
    ours += ", trained for long" if job.recipe == "long" else ""
    return f"{ours} without {' or '.join(without)}" if without else f"**{ours}**" if ours[0] == "P" else ours


if __name__ == "__main__":
    main()
