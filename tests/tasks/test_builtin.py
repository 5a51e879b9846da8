"""Built-in tasks: columns and splits of the published data sets, and each runs end to end on a few rows."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from helpers.data import BAD, GOOD, THINGS, sentence
from helpers.sweeps import sweep
from probescale.pipeline import run as pipeline
from probescale.pipeline.validate import check
from probescale.tasks.builtin import builtin_tasks

# As the cards of the data sets on the hub describe them: columns, then splits.
PAIR = ("sentence1", "sentence2", "label", "idx")
SPLITS = ("train", "validation", "test")
PUBLISHED = {
    "nyu-mll/glue:cola": (("sentence", "label", "idx"), SPLITS),
    "nyu-mll/glue:sst2": (("sentence", "label", "idx"), SPLITS),
    "nyu-mll/glue:mrpc": (PAIR, SPLITS),
    "nyu-mll/glue:qqp": (("question1", "question2", "label", "idx"), SPLITS),
    "nyu-mll/glue:stsb": (PAIR, SPLITS),
    "nyu-mll/glue:mnli": (
        ("premise", "hypothesis", "label", "idx"),
        ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"),
    ),
    "nyu-mll/glue:qnli": (("question", "sentence", "label", "idx"), SPLITS),
    "nyu-mll/glue:rte": (PAIR, SPLITS),
    "lhoestq/conll2003": (("id", "tokens", "pos_tags", "chunk_tags", "ner_tags"), SPLITS),
    "universal-dependencies/universal_dependencies:en_ewt": (
        ("sent_id", "text", "tokens", "lemmas", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"),
        ("train", "dev", "test"),
    ),
}
# Class numbers become these names when the hub's copy is read.
NAMES = {
    "cola": ("unacceptable", "acceptable"),
    "sst2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
    "mnli": ("entailment", "neutral", "contradiction"),
    "qnli": ("entailment", "not_entailment"),
    "rte": ("entailment", "not_entailment"),
}
METRICS = {"cola": "matthews", "mrpc": "f1", "qqp": "f1", "stsb": "spearman", "ner": "entity_f1"}
TASKS = builtin_tasks()


def data_sections(task: dict[str, Any]) -> list[dict[str, Any]]:
    return [task["train"], task["dev"], *(probe["data"] for probe in task["probes"] if "data" in probe)]


@pytest.mark.parametrize("name", TASKS)
def test_columns_and_splits_are_those_of_the_published_data(name):
    for data in data_sections(TASKS[name]):
        columns, splits = PUBLISHED[data["source"]]
        assert {data["text"], data["label"], data.get("pair", data["text"])} <= set(columns)
        assert data["split"] in splits
    assert TASKS[name]["train"]["split"] == "train"
    assert not TASKS[name]["dev"]["split"].startswith("test"), "labels of GLUE's test sets are not published"


@pytest.mark.parametrize("name", TASKS)
def test_metric_and_labels(name):
    task = TASKS[name]
    assert task["metric"] == METRICS.get(name, "accuracy")
    if "labels" in task:
        assert task["labels"] == {str(number): label for number, label in enumerate(NAMES[name])}
    assert task.get("positive", NAMES.get(name, ("",))[-1]) == NAMES.get(name, ("",))[-1]


@pytest.mark.parametrize("name", TASKS)
def test_probes_add_up_to_one_and_the_file_says_why(name):
    weights = [probe.get("weight") for probe in TASKS[name]["probes"]]
    assert weights == [None] * 3 if name == "ner" else sum(weights) == 1
    text = (Path(pipeline.__file__).parents[1] / "tasks" / "builtin" / f"{name}.yaml").read_text()
    assert text.startswith("# ")


def write_rows(folder: Path, task: dict[str, Any], name: str) -> dict[str, Any]:
    """The task with files of the published columns in place of the hub's data."""
    rng, made = random.Random(1), {}
    for number, data in enumerate(data_sections(task)):
        path = folder / f"{number}.jsonl"
        words = data["text"] == "tokens"
        rows = [tagged(rng, data["label"]) if words else labelled(rng, i, data, name) for i in range(60)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        made[id(data)] = {**data, "source": str(path), "split": None}
    probes = [{**p, "data": made[id(p["data"])]} if "data" in p else p for p in task["probes"]]
    return {"builtin": name, "train": made[id(task["train"])], "dev": made[id(task["dev"])], "probes": probes}


def tagged(rng: random.Random, label: str) -> dict[str, Any]:
    thing, word = rng.choice(THINGS), rng.choice(GOOD + BAD)
    tags = {"ner_tags": "B-MISC", "chunk_tags": "B-NP"}.get(label, "NN")
    return {"tokens": ["the", thing, "was", word], label: ["O", tags, "O", "O"]}


def labelled(rng: random.Random, number: int, data: dict[str, Any], name: str) -> dict[str, Any]:
    names = NAMES.get(name)
    label = number % len(names) if names else None
    row = {data["text"]: f"{sentence(rng, number % 2 == 0)} {number}"}
    row |= {data["pair"]: sentence(rng, label == 0)} if "pair" in data else {}
    return row | {data["label"]: names[label] if names and label is not None else number % 7}


@pytest.mark.slow
@pytest.mark.parametrize("name", sweep(list(TASKS), always=["ner"]))
def test_it_runs_end_to_end(name, model_folder, tmp_path):
    raw = {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": write_rows(tmp_path, TASKS[name], name),
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"strategy": "contiguous", "k": 2},
        "shrink": "none",
        "recovery": {"epochs": 1, "learning_rate": 3e-3, "batch_size": 16, "distil": False},
    }
    result = pipeline.run(check(raw), tmp_path / "out")
    assert result.metric == METRICS.get(name, "accuracy")
    assert result.subnetwork.kept[1] - result.subnetwork.kept[0] == 1
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert list(scores["probes"]) == [probe["name"] for probe in TASKS[name]["probes"]]
