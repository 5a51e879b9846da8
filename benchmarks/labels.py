"""Several labels per text on real data: which kinds of entities a sentence of CoNLL-2003 names.

A task built from a real one, as no table with several labels per text is at hand: the labels of a sentence are the
types of its entities (PER, LOC, ORG, MISC), and a fifth of the sentences have none. `python benchmarks/labels.py`
writes the table, runs `compress` on gte-small at 5x, and appends what is kept to labels.jsonl. An interrupted run
resumes with the same command; one that is measured is not repeated. Needs $PROBESCALE_REAL (data, gte-small).
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from pathlib import Path
from typing import Any

from probescale.deploy.compressed import Compressed
from probescale.pipeline.compress import Request, build_config
from probescale.pipeline.run import run
from probescale.tasks.readers import read_conll
from real import DATA, ROOT, weights

MEASURED = Path(__file__).with_name("labels.jsonl")
TYPES = ("PER", "LOC", "ORG", "MISC")
DEV_ROWS = 3250


def write_table(source: Path, out: Path, most: int) -> Path:
    """A CSV file with one column per type, of `most` sentences of at least five words."""
    if out.exists():
        return out
    columns = read_conll(source)
    rows = {
        " ".join(words): [int(any(tag.endswith(kind) for tag in tags)) for kind in TYPES]
        for words, tags in zip(columns["1"], columns["4"], strict=True)
        if len(words) >= 5
    }
    drawn = random.Random(0).sample(sorted(rows.items()), min(most, len(rows)))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", *TYPES])
        writer.writerows([text, *flags] for text, flags in drawn)
    return out


def measure(asked: argparse.Namespace, source: str, budget: str, folder: Path) -> dict[str, Any]:
    """Compress once, as a user would, and read the run's own files."""
    train = write_table(DATA / "conll2003" / "train.txt", folder / "train.csv", asked.rows)
    dev = write_table(DATA / "conll2003" / "valid.txt", folder / "dev.csv", min(asked.rows, DEV_ROWS))
    out = folder / budget
    if not (out / "metrics.json").exists():
        request = Request(source, str(train), str(dev), budget=budget, settings={"time": asked.time})
        run(build_config(request, folder / "inputs", asked.set)[0], out)
    small = Compressed(out)
    small.report()
    result = small.result
    return {
        "metric": result.metric,
        "original": round(result.original.value, 4),
        "small": round(result.subnetwork.value, 4),
        "retention": result.retention and round(result.retention, 4),
        "interval": result.retention_interval,
        "failure": result.failure,
        "params": result.subnetwork.params,
        "smaller": round(result.original.params / result.subnetwork.params, 2),
        "kept": result.subnetwork.kept,
        "thresholds": result.subnetwork.thresholds,
        "alternatives": {one.name: round(one.value, 4) for one in result.alternatives},
        "examples": result.examples,
        "recipe": result.recipe,
    }


def known() -> list[dict[str, Any]]:
    return [json.loads(line) for line in MEASURED.read_text().splitlines()] if MEASURED.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="gte-small", help="name of real weights, or a folder")
    parser.add_argument("--budget", nargs="*", default=["5x"])
    parser.add_argument("--rows", type=int, default=14_041)
    parser.add_argument("--time", help="how long it may take, such as 30m")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the run, such as recovery.epochs=4")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "labels", help="folder for the runs")
    asked = parser.parse_args()
    source = asked.model if Path(asked.model).is_dir() else str(weights(asked.model))
    for budget in asked.budget:
        key = {"model": Path(source).name, "budget": budget, "rows": asked.rows, "time": asked.time}
        key["settings"] = asked.set
        if any(key.items() <= row.items() for row in known()):
            continue
        described = (key["model"], asked.rows, *([asked.time] if asked.time else []), *asked.set)
        folder = asked.out / "-".join(map(str, described))
        row = key | measure(asked, source, budget, folder)
        with MEASURED.open("a", encoding="utf-8") as lines:
            print(json.dumps(row), file=lines)
    for row in known():
        print(json.dumps(row))


if __name__ == "__main__":
    main()
