"""Fuzz texts and labels, from the file to the split that probes are trained on."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import strategies as st

from helpers.fuzzing import RNG, fuzz, json_bytes, result_or_error
from probescale.config import DataConfig, ProbeConfig, TaskConfig
from probescale.tasks.task import load_task

TEXTS = [
    "",
    " ",
    "a",
    "A",
    "\0",
    "a\0b",
    "😀",
    "😀" * 50,
    "שלום עולם",
    "\u202eabc",
    "\x85",
    "é" * 9,
    "1",
    "1.5",
    "x " * 500,
]
LABELS = [0, 1, "1", 1.0, " 1 ", "a", "b", "", None, True, -1, "-1", "NaN", "9" * 5000, "😀", "\0", [], 0.5]


def rows_of(rng: Random) -> list[dict[str, object]]:
    """Rows with few or many classes, balanced or not, and an odd text or label now and then."""
    classes = rng.choice((1, 2, 2, 3, 10, 1000))
    first = rng.choice((0.5, 0.01, 0.99))
    rows = []
    for number in range(rng.choice((1, 9, 12, 40, 200))):
        label: object = "first" if rng.random() < first else f"c{number % classes}"
        text: object = f"text {number} {rng.choice(TEXTS)}"
        odd = rng.random() < 0.02
        rows.append({"text": rng.choice(TEXTS) if odd else text, "label": rng.choice(LABELS) if odd else label})
    return rows


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("texts") / "train.jsonl"


@fuzz("texts and labels", 60, rng=RNG, kind=st.sampled_from(["class", "number"]))
def test_texts_and_labels(file, rng, kind):
    file.write_bytes(b"\n".join(map(json_bytes, rows_of(rng))))
    data = DataConfig(source=str(file))
    task = TaskConfig(kind=kind, train=data, probes=(ProbeConfig(name="task"),), max_train=rng.choice((None, 10, 50)))
    if loaded := result_or_error(lambda: load_task(task, 0)):
        assert len(loaded.train) >= 10
        assert set(loaded.train.inputs).isdisjoint(loaded.dev.inputs)
        assert loaded.fingerprints
