"""What people add takes one file: here, each addition is defined in the test and then works like the built-in ones."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.data import BAD, GOOD, THINGS, write_csv
from probescale.config import DataConfig
from probescale.errors import Problems
from probescale.tasks.data import Data
from probescale.tasks.kinds import KINDS, Kind, Rendered, task_kind
from probescale.tasks.kinds.losses import CrossEntropy
from probescale.tasks.labelled import load_examples, read_labelled
from probescale.tasks.metrics import METRICS, metric


@pytest.fixture
def grades() -> Iterator[Kind]:
    """A kind of task: one grade per text, of which some are nearer to each other than others."""
    import torch

    class Ordinal(CrossEntropy):
        """Cross-entropy, and the squared distance of the expected grade."""

        def of_labels(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            expected = logits.softmax(-1) @ torch.arange(logits.shape[1], dtype=logits.dtype)
            distance = (expected - labels.nan_to_num()) ** 2
            return super().of_labels(logits, labels) + torch.where(labels.isnan(), 0.0, distance)

    @metric("grade", lower_is_better=True)
    def distance(rows: np.ndarray) -> float:
        """Mean distance of the predicted from the right grade."""
        return float(np.abs(rows[:, 0] - rows[:, 1]).mean())

    @task_kind("grade")
    class Grades(Kind):
        head = "sentence"
        loss = Ordinal()
        metrics = ("accuracy",)
        pipeline_tag = "text-classification"
        values_called = "grades"

        def load(
            self,
            data: DataConfig,
            *,
            field: str,
            rename: Mapping[str, str] | None = None,
            names: tuple[str, ...] | None = None,
        ) -> Data:
            return replace(load_examples(data, field=field, rename=rename, names=names), kind=self.name)

        def check_rows(self, data: DataConfig, *, field: str) -> object:
            return read_labelled(data, field=field)

        def default_metric(self, names: tuple[str, ...]) -> str:
            return "distance"

        def decode(self, logits: np.ndarray, starts: np.ndarray) -> np.ndarray:
            shares = np.exp(logits - logits.max(1, keepdims=True))
            expected = (shares / shares.sum(1, keepdims=True)) @ np.arange(logits.shape[1])
            return np.rint(expected).astype(np.int64)

        def show(self, prediction: Any, names: tuple[str, ...]) -> str:
            return f"grade {names[prediction]}"

        def render(self, logits: np.ndarray, names: tuple[str, ...], text: str) -> Rendered:
            grade = names[int(self.decode(logits, np.arange(2))[0])]
            return Rendered({"grade": grade}, grade, f"grade {grade}")

        def pipeline_call(self, names: tuple[str, ...]) -> str:
            return 'grade = pipeline("text-classification", model="model")'

    yield KINDS["grade"]
    del KINDS["grade"], METRICS["distance"]


def graded_rows(count: int) -> list[tuple[str, str]]:
    """Sentences with two opinions; the grade is the number of good ones, and one more."""
    rng, rows = random.Random(0), dict[str, str]()
    while len(rows) < count:
        good = len(rows) % 3
        words = [*rng.sample(GOOD, good), *rng.sample(BAD, 2 - good)]
        rows[f"the {rng.choice(THINGS)} was {words[0]} and the {rng.choice(THINGS)} {words[1]} ."] = str(good + 1)
    return list(rows.items())


def grading_config(model: Path, folder: Path, **task: object) -> dict[str, Any]:
    rows = graded_rows(200)
    train, dev = write_csv(folder / "train.csv", rows[:150]), write_csv(folder / "dev.csv", rows[150:])
    return {
        "model": {"source": str(model), "max_length": 32},
        "task": {"name": "opinions", "kind": "grade", "train": str(train), "dev": str(dev), **task},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"k": 2, "strategy": "contiguous", "sample": 100},
        "compare": [],
        "recovery": {"epochs": 6, "learning_rate": 3e-3, "batch_size": 16},
    }


@pytest.mark.slow
def test_a_kind_of_task(grades, model_folder, tmp_path):
    from probescale.deploy.open_model import open_model
    from probescale.deploy.predict import predict_lines
    from probescale.deploy.texts import Line
    from probescale.pipeline.run import run
    from probescale.pipeline.validate import check

    out = tmp_path / "out"
    result = run(check(grading_config(model_folder("bert"), tmp_path)), out)
    assert result.metric == "distance"
    assert result.subnetwork.value < 0.4, "always the middle grade: 0.67"
    expected = METRICS["distance"].retention(result.subnetwork.value, result.original.value)
    assert result.retention == expected
    with (out / "predictions.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["right"] for row in rows} == {"grade 1", "grade 2", "grade 3"}
    assert "distance" in (out / "report.html").read_text(encoding="utf-8")
    assert grades.pipeline_call(()) in (out / "report.md").read_text(encoding="utf-8")
    assert "pipeline_tag: text-classification" in (out / "model" / "README.md").read_text(encoding="utf-8")
    assert json.loads((out / "regressions.json").read_text(encoding="utf-8"))["slices"][0]["rows"] == 50
    assert not (out / "bias.json").exists()

    model = open_model(str(out))
    assert model.kind is grades
    texts = [text for text, _ in graded_rows(200)[150:]]
    answers = predict_lines(model, [Line(number, text) for number, text in enumerate(texts, 1)])
    found = [f"grade {answer.record()['grade']}" for answer in answers]
    assert found == [row["contiguous"] for row in rows]


def test_a_kind_of_task_is_known_to_the_configuration(grades, model_folder, tmp_path):
    from probescale.pipeline.validate import check

    raw = grading_config(model_folder("bert"), tmp_path)
    assert check(raw).task.kind == "grade"
    assert check(grading_config(model_folder("bert"), tmp_path, metric="accuracy")).task.metric == "accuracy"
    with pytest.raises(Problems, match=r"task\.metric: .* kind number, and this one is of kind grade") as error:
        check(grading_config(model_folder("bert"), tmp_path, metric="r2"))
    assert "use one of: accuracy, distance" in str(error.value)
    with pytest.raises(Problems) as error:
        check(grading_config(model_folder("bert"), tmp_path, kind="grades"))
    assert str(error.value) == (
        'task.kind: "grades" is not known. Did you mean "grade"?\n  next: use one of: class, grade, number, tags'
    )
