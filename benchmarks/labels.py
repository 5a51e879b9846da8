"""Several labels per text on real data: which kinds of entities a sentence of CoNLL-2003 names.

A task built from a real one, as no table with several labels per text is at hand: the labels of a sentence are the
types of its entities (PER, LOC, ORG, MISC), and a fifth of the sentences have none. `python benchmarks/labels.py MODEL`
writes the table, runs `compress` at 5x and appends what was kept to labels.jsonl; run it again to resume.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
from pathlib import Path

from probescale.api import compress
from probescale.tasks.readers import read_conll

HERE = Path(__file__).parent
TYPES = ("PER", "LOC", "ORG", "MISC")


def write_table(source: Path, out: Path, most: int) -> Path:
    """A CSV file with one column per type, of `most` sentences of at least five words."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="model folder")
    parser.add_argument("--budget", default="5x")
    parser.add_argument("--rows", type=int, default=14_041)
    parser.add_argument("--time", help="how long it may take, such as 30m")
    parser.add_argument("--out", type=Path, default=Path("runs/labels"))
    chosen = parser.parse_args()
    data = Path(os.environ["PROBESCALE_REAL"]) / "data" / "conll2003"
    train = write_table(data / "train.txt", Path(f"{chosen.out}-data/train.csv"), chosen.rows)
    dev = write_table(data / "valid.txt", Path(f"{chosen.out}-data/dev.csv"), min(chosen.rows, 3250))
    small = compress(chosen.model, train, chosen.budget, dev=dev, time=chosen.time, out=chosen.out)
    small.report()
    result = small.result
    row = {
        "model": Path(chosen.model).name,
        "rows": chosen.rows,
        "budget": chosen.budget,
        "time": chosen.time,
        "metric": result.metric,
        "original": round(result.original.value, 4),
        "small": round(result.subnetwork.value, 4),
        "retention": result.retention and round(result.retention, 4),
        "interval": result.retention_interval,
        "params": result.subnetwork.params,
        "recipe": result.recipe,
    }
    with (HERE / "labels.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
