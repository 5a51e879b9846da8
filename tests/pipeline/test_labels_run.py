"""A run with several labels per text, from a table with one column per label to a stock model that gives them."""

from __future__ import annotations

import csv
import json
import random
from typing import Any

import pytest

from helpers.data import BAD, GOOD, THINGS
from probescale.api import compress

pytestmark = pytest.mark.slow
SETTINGS = {
    "model.max_length": 32,
    "probing.penalties": [0.01],
    "probing.selectivity": False,
    "probing.code_length": False,
    "selection.strategy": "uniform_k",
    "selection.k": 2,
    "shrink": "none",
    "recovery.epochs": 12,
    "recovery.learning_rate": 1e-3,
    "recovery.batch_size": 16,
    "recovery.augment": 0,
}


def write_table(path, count):
    """Sentences with a good word, a bad word, both or none, and whether they are about music."""
    rng, rows = random.Random(0), {}
    while len(rows) < count:
        good, bad, thing = rng.random() < 0.5, rng.random() < 0.3, rng.choice(THINGS)
        said = [*([rng.choice(GOOD)] if good else []), *([rng.choice(BAD)] if bad else []), f"so {rng.choice(THINGS)}"]
        rows[f"the {thing} was {' and '.join(said)} ."] = (good, bad, "music" in (thing, said[-1][3:]))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "praise", "blame", "music"])
        writer.writerows([text, *map(int, flags)] for text, flags in rows.items())
    return path


def test_from_columns_to_a_stock_pipeline(tmp_path, model_folder):
    from transformers import pipeline

    table = write_table(tmp_path / "views.csv", 400)
    small = compress(str(model_folder("bert")), table, budget="60%", out=tmp_path / "run", settings=SETTINGS)
    result = small.result
    assert result.metric == "micro_f1"
    assert result.failure is None
    assert min(result.original.value, result.subnetwork.value) > 0.8
    assert result.subnetwork.thresholds is not None
    assert set(result.subnetwork.thresholds) == {"praise", "blame", "music"}
    record = json.loads((tmp_path / "run" / "model" / "probescale.json").read_text(encoding="utf-8"))
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text(encoding="utf-8"))
    assert record["thresholds"] == result.subnetwork.thresholds
    assert config["problem_type"] == "multi_label_classification"
    assert "Thresholds" in (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert (tmp_path / "run" / "regressions.json").exists()
    assert (tmp_path / "run" / "bias.json").exists()

    texts = ["the plot was lovely and awful and so music .", "the plot was so hero ."]
    found = [answer.record() for answer in small.predict(texts)]
    assert {"music", "praise"} <= set(found[0]["labels"])
    assert len(found[1]["labels"]) < len(found[0]["labels"])
    classify: Any = pipeline("text-classification", model=str(tmp_path / "run" / "model"), top_k=None)
    for text, answer in zip(texts, found, strict=True):
        scores = {entry["label"]: entry["score"] for entry in classify([text])[0]}
        assert {label for label, score in scores.items() if score > 0.5} == set(answer["labels"])
        assert scores == pytest.approx(answer["probabilities"], abs=1e-4)
