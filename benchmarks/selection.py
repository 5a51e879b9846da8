"""Every strategy at k = 2, 4, 6 on gte-small, SST-2 and QNLI: what it chooses, and what that is worth after training.

    python benchmarks/selection.py                   missing results, then the tables of docs/results/selection.md
    python benchmarks/selection.py sst2              one task
    python benchmarks/selection.py --tables          only the tables, from what is known

Needs $PROBESCALE_REAL (data, gte-small). Hours on two cores; it can be stopped at any time and goes on from there:
benchmarks/trained.jsonl has a line for every training, benchmarks/evidence/ what the strategies decided by.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pages import write_tables
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
    write_tables("results/selection.md", "selection.py", tables())


def evidence_path(task: str) -> Path:
    return EVIDENCE / f"{task}.json"


def evidence(task: str) -> Any:  # noqa: ANN401 - ProbeScores, imported late
    """Probe scores, flow and probed subnetworks, from the first seed's training examples; computed once."""
    from probescale.probing.score_files import load_scores

    path = evidence_path(task)
    if not path.exists():
        _gather(task).save(path)
    return load_scores(path)


def prober_of(task: str) -> Any:  # noqa: ANN401 - SubnetworkProber, imported late
    """Probes subnetworks with the first seed's training examples."""
    from probescale.config import RunConfig
    from probescale.models.loading import load_classifier
    from probescale.probing.subnetwork_prober import SubnetworkProber
    from probescale.tasks.task import Task

    rows = data(task, "train", TRAIN, 0)
    loaded = load_classifier(MODEL, None, rows.names, 0)
    work = Task(task, "accuracy", rows, data(task, "dev", DEV, 0), "dev", 0, {"task": rows})
    about = {"train": "unused.csv", "probes": [{"name": "task"}]}
    config = RunConfig.model_validate({"model": {"source": MODEL}, "task": about, "selection": SETTINGS})
    return SubnetworkProber(loaded, work, config)


def _gather(task: str) -> Any:  # noqa: ANN401
    from probescale.models.subsets import all_contiguous_blocks
    from probescale.probing.flow import measure_flow
    from probescale.probing.probe import probe
    from probescale.selection.search import beam_search, beam_width, enumerate_subsets
    from probescale.selection.structure import Structure
    from probescale.tasks.sampling import sample

    prober, plain = prober_of(task), Structure()
    loaded, config, rows = prober.loaded, prober.config, prober.task.train
    scores = probe(loaded, prober.task, config, {"seed": 0})
    prober.score(all_contiguous_blocks(LAYERS, LAYERS))
    sweep = prober.passes
    prober.score(enumerate_subsets(LAYERS, 2, 10, plain))
    width = beam_width(LAYERS, max(KS), config.selection.passes, plain)
    beam_search(LAYERS, max(KS), plain, prober.score, width)
    print(f"{task}: {sweep} passes for all blocks, {prober.passes - sweep:.1f} for pairs and a beam of {width}")
    # Without the resampled values: the tables need none, and they would be most of the file.
    probes = {name: one.model_copy(update={"draws": None}) for name, one in scores.probes.items()}
    subnetworks = prober.scores().model_copy(update={"draws": ()})
    turned = measure_flow(loaded, sample(rows, 500, 0))
    return scores.model_copy(update={"flow": turned, "subnetworks": subnetworks, "probes": probes, "task": task})


def choices(task: str) -> dict[tuple[str, int], list[Kept]]:
    """What every strategy keeps; several draws of `random`, and `exhaustive` where it was affordable."""
    from dataclasses import replace

    from probescale.selection.budget import parse_budget
    from probescale.selection.constraints import Constraints
    from probescale.selection.evidence import Evidence
    from probescale.selection.select import select
    from probescale.selection.strategies import STRATEGIES

    seen, found = Evidence.from_scores(evidence(task)), {}
    for name in (name for name, known in STRATEGIES.items() if known.reads != "tournament"):
        for k in KS if name != "exhaustive" else KS[:1]:
            seeds = range(RANDOM_DRAWS) if name == "random" else (0,)
            allowed = Constraints(parse_budget(k=k))
            drawn = [select(replace(seen, seed=seed), allowed, name).kept for seed in seeds]
            found[name, k] = drawn
    return found


def jobs_of(task: str) -> list[Job]:
    """All trainings of a task: the original, and every subset that a strategy chose, once a seed."""
    subsets = dict.fromkeys(kept for several in choices(task).values() for kept in several)
    return [Job(task, seed, kept) for seed in SEEDS for kept in [*subsets, tuple(range(1, LAYERS + 1))]]


def by_subset(task: str) -> dict[Kept, list[float]]:
    """Accuracy of every subset that was trained, one number a seed."""
    found: dict[Kept, list[float]] = {}
    for job, accuracy in sorted(measured().items(), key=lambda one: one[0].seed):
        if job.task == task:
            found.setdefault(job.kept, []).append(accuracy)
    return found


def spread(task: str) -> float:
    """Standard deviation between seeds, pooled over all subsets: two seeds alone say little."""
    several = [values for values in by_subset(task).values() if len(values) > 1]
    return float(np.sqrt(np.mean([np.var(values, ddof=1) for values in several]))) if several else float("nan")


def tables() -> str:
    done = [task for task in TASKS if evidence_path(task).exists() and by_subset(task)]
    return "\n\n".join([*(strategy_table(task) for task in done), criteria_table(done), law_table(done)])


def strategy_table(task: str) -> str:
    """What every strategy keeps, the accuracy after training, and its rank among the strategies at that k."""
    known, chosen = by_subset(task), choices(task)
    means = {cell: [np.mean(known[kept]) for kept in several if kept in known] for cell, several in chosen.items()}
    value = {cell: float(np.mean(found)) for cell, found in means.items() if found}
    names = list(dict.fromkeys(name for name, _ in chosen))
    every = {name: [value[name, k] for k in KS if (name, k) in value] for name in names}
    names.sort(key=lambda name: -np.mean(every[name]) if len(every[name]) == len(KS) else 0)
    header = ["strategy", *(f"k={k}: layers | accuracy | rank" for k in KS), "mean"]
    lines = [f"| {' | '.join(header)} |", "|" + " --- |" * (3 * len(KS) + 2)]
    for name in names:
        cells = [_cell(name, k, chosen, known, value) for k in KS]
        mean = f"{100 * np.mean(every[name]):.2f}" if len(every[name]) == len(KS) else ""
        lines.append(f"| {name} | {' | '.join(cells)} | {mean} |")
    whole = known.get(tuple(range(1, LAYERS + 1)), [])
    seeds = max(len(values) for values in known.values())
    original = f"{100 * np.mean(whole):.2f}" if whole else "not measured"
    return (
        f"### {task}\n\nAll {LAYERS} layers: {original}. Mean of {seeds} seeds; one of them differs from the next by a "
        f"standard deviation of {100 * spread(task):.2f} points (pooled over {len(known)} subsets).\n\n"
        + "\n".join(lines)
    )


def _cell(name: str, k: int, chosen: dict, known: dict, value: dict) -> str:
    if (name, k) not in chosen:
        return " | too many | "
    layers = "; ".join(",".join(map(str, kept)) for kept in chosen[name, k])
    if (name, k) not in value:
        return f"{layers} | not trained | "
    rivals = [other for (_, size), other in value.items() if size == k]
    seeds = [accuracy for kept in chosen[name, k] for accuracy in known.get(kept, [])]
    shown = f"{100 * value[name, k]:.1f} ({', '.join(f'{100 * one:.1f}' for one in seeds)})"
    return f"{layers} | {shown} | {1 + sum(other > value[name, k] + 1e-9 for other in rivals)}"


def criteria(task: str) -> dict[str, dict[Kept, float]]:
    """What every criterion says of every subset that was trained."""
    from probescale.selection.evidence import Evidence

    scores = evidence(task)
    seen = Evidence.from_scores(scores)
    subsets = [kept for kept in by_subset(task) if len(kept) < LAYERS]
    assert seen.embeddings_relevance is not None
    assert seen.influence is not None
    influence, gains = seen.influence, np.diff([seen.embeddings_relevance, *seen.relevance])
    angles = np.array(seen.angles)

    def dropped_angle(kept: Kept) -> float:
        places = [0, *kept, LAYERS + 1]
        return sum(angles[a][b - 1] for a, b in pairwise(places) if b - a > 1)

    found = {
        "relevance, summed (the paper)": {s: sum(seen.relevance[layer - 1] for layer in s) for s in subsets},
        "relevance, mean": {s: float(np.mean([seen.relevance[layer - 1] for layer in s])) for s in subsets},
        "marginal gains, summed": {s: float(sum(gains[layer - 1] for layer in s)) for s in subsets},
        "block influence, summed": {s: sum(influence[layer - 1] for layer in s) for s in subsets},
        "angle over what is dropped, negative": {s: -dropped_angle(s) for s in subsets},
        "low layers first: mean layer, negative": {s: -float(np.mean(s)) for s in subsets},
        "number of layers": {s: float(len(s)) for s in subsets},
    }
    return {**found, **stitched_criteria(task, subsets)}


def stitched_criteria(task: str, subsets: list[Kept]) -> dict[str, dict[Kept, float]]:
    """Probes at the ends of exactly these subnetworks; kept, as it takes minutes."""
    path = EVIDENCE / f"{task}-trained.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    if missing := [kept for kept in subsets if "-".join(map(str, kept)) not in stored]:
        prober = prober_of(task)
        prober.score(missing)
        for kept in missing:
            found = prober.results[kept]
            stored["-".join(map(str, kept))] = [round(found.value, 6), round(found.accuracy, 6)]
        path.write_text(json.dumps(stored, indent=1) + "\n")
    named = {kept: stored["-".join(map(str, kept))] for kept in subsets}
    return {
        "stitched probe, information": {kept: both[0] for kept, both in named.items()},
        "stitched probe, accuracy": {kept: both[1] for kept, both in named.items()},
    }


def criteria_table(tasks: list[str]) -> str:
    from probescale.selection.correlation import rank_correlation

    lines = ["| criterion | " + " | ".join(f"{t}: rho | interval | within k" for t in tasks) + " |"]
    lines.append("|" + " --- |" * (3 * len(tasks) + 1))
    said = {task: criteria(task) for task in tasks}
    accuracy = {task: {s: float(np.mean(v)) for s, v in by_subset(task).items() if len(s) < LAYERS} for task in tasks}
    for name in said[tasks[0]] if tasks else []:
        cells = []
        for task in tasks:
            found = rank_correlation(said[task][name], accuracy[task])
            within = "" if found.within is None else f"{found.within:.2f}"
            cells.append(f"{found.rho:.2f} | {found.low:.2f} to {found.high:.2f} | {within}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    counts = ", ".join(f"{len(accuracy[task])} subsets of {task}" for task in tasks)
    return (
        f"### Criteria\n\nSpearman's rank correlation with the accuracy after training, over {counts}.\n\n"
        + "\n".join(lines)
    )


def law_table(tasks: list[str]) -> str:
    """Laws through the accuracy of the default's subnetworks against their parameters: measured, and from probes."""
    from probescale.selection.scaling import fit_law, held_out_error

    lines = ["| task | points | asymptote | exponent | held-out error: saturating | power | log-linear | mean |"]
    lines.append("|" + " --- |" * 8)
    for task in tasks:
        scores = evidence(task)
        count = scores.parameters.of
        trained = [(float(count(kept)), value) for kept, values in by_subset(task).items() for value in values]
        prefixes = [tuple(range(1, k + 1)) for k in range(1, LAYERS + 1)]
        probed = stitched_criteria(task, prefixes)["stitched probe, accuracy"]
        blocks = [(float(count(kept)), value) for kept, value in probed.items()]
        for name, points in (("trained subsets", trained), ("probes of layers 1 to k", blocks)):
            law, errors = fit_law(points), held_out_error(points)
            low, high = law.intervals["asymptote"]
            shown = " | ".join(f"{100 * error:.2f}" for error in errors.values())
            lines.append(
                f"| {task}, {name} | {len(points)} | {100 * law.asymptote:.1f} ({100 * low:.1f} to {100 * high:.1f}) | "
                f"{law.exponent:.2f} | {shown} |"
            )
    return "### Scaling law\n\n" + "\n".join(lines)


if __name__ == "__main__":
    main()
