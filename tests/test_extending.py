"""What people add takes one file: here, each addition is defined in the test and then works like the built-in ones."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import ErnieConfig, ErnieForSequenceClassification

from helpers.data import BAD, GOOD, THINGS, write_csv
from helpers.models import tiny_tokenizer
from probescale.config import DataConfig
from probescale.deploy.export import export
from probescale.deploy.formats import EXPORTERS, Exporter, ExportRecord, exporter
from probescale.deploy.inference import RunBatch, wrap_pytorch
from probescale.deploy.open_model import open_model
from probescale.errors import Problems
from probescale.models.families import FAMILIES, find_family
from probescale.models.family import Family, Stack
from probescale.models.loading import LoadedModel, load_as_saved
from probescale.models.subsets import Subset
from probescale.pipeline.run import run
from probescale.pipeline.validate import check
from probescale.probing.probes import PROBES, Probe, probe
from probescale.probing.targets import ProbeLabels
from probescale.selection.evidence import Evidence
from probescale.selection.strategies import STRATEGIES, strategy
from probescale.selection.structure import Structure
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
@pytest.mark.long
def test_a_kind_of_task(grades, model_folder, tmp_path):
    from probescale.deploy.predict import predict_lines
    from probescale.deploy.texts import Line

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
    raw = grading_config(model_folder("bert"), tmp_path)
    assert check(raw).task.kind == "grade"
    assert check(grading_config(model_folder("bert"), tmp_path, metric="accuracy")).task.metric == "accuracy"
    with pytest.raises(Problems, match=r"task\.metric: .* kind number, and this one is of kind grade") as error:
        check(grading_config(model_folder("bert"), tmp_path, metric="r2"))
    assert "use one of: accuracy, distance" in str(error.value)
    with pytest.raises(Problems) as error:
        check(grading_config(model_folder("bert"), tmp_path, kind="grades"))
    assert str(error.value) == (
        'task.kind: "grades" is not known. Did you mean "grade"?\n'
        "  next: use one of: class, embedding, grade, labels, number, tags, text"
    )


@pytest.fixture(autouse=True)
def registries_as_before() -> Iterator[None]:
    """Remove what a test has registered."""
    registries: list[dict[str, Any]] = [EXPORTERS, FAMILIES, PROBES, STRATEGIES]
    before = [dict(registry) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest.fixture
def settings(model_folder, task_files) -> Callable[..., dict[str, Any]]:
    """Give a function from changed sections to the settings of a short run."""

    def build(**changes: dict[str, Any]) -> dict[str, Any]:
        return {
            "model": {"source": str(model_folder("bert")), "max_length": 32},
            "task": {"train": str(task_files.train), "dev": str(task_files.dev)},
            "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
            "selection": {"k": 2, "strategy": "contiguous"},
            "compare": [],
            "recovery": {"epochs": 1, "learning_rate": 3e-3, "distil": False},
        } | changes

    return build


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@dataclass(frozen=True)
class Centroids:
    """Logits are distances to the mean of each class, two classes as one logit."""

    means: np.ndarray  # (classes, hidden)
    penalty: float
    steps: int = 1
    gap: float = 0.0
    converged: bool = True

    def __call__(self, features: np.ndarray) -> np.ndarray:
        distances = ((features[:, None] - self.means) ** 2).mean(2)  # (rows, classes)
        return distances[:, :1] - distances[:, 1:]


@pytest.mark.slow
def test_a_probe(settings, tmp_path):
    @probe("centroid")
    class NearestCentroid(Probe[Centroids]):
        """The nearest mean of a class."""

        def fit(
            self,
            features: np.ndarray,
            target: ProbeLabels,
            penalty: float,
            start: object = None,
            *,
            rough: bool = False,
        ) -> Centroids:
            return Centroids(np.stack([features[target.values == label].mean(0) for label in (0, 1)]), penalty)

    probing = {"probe": "centroid", "selectivity": False, "penalties": [0.125]}
    run(check(settings(probing=probing)), tmp_path / "run")
    scores = read(tmp_path / "run" / "scores.json")["probes"]["task"]
    assert scores["penalties"] == [0.125] * 4
    assert scores["steps"] == [1] * 4
    assert min(scores["scores"]) > 0.5  # better than a guess
    assert len(scores["measures"]["code_length"]["values"]) == 4


@pytest.mark.slow
def test_a_strategy(settings, tmp_path):
    @strategy("nothing")
    def first_and_last(evidence: Evidence, k: int, structure: Structure) -> Iterator[Subset]:
        """The first layer and the last ones."""
        yield (1, *range(evidence.layers - k + 2, evidence.layers + 1))

    selection = {"k": 2, "strategy": "first_and_last"}
    result = run(check(settings(selection=selection)), tmp_path / "run")
    assert (result.strategy, result.subnetwork.kept) == ("first_and_last", (1, 4))
    assert read(tmp_path / "run" / "selection.json")["kept"] == [1, 4]


@pytest.mark.slow
def test_a_family(settings, tmp_path):
    tokenizer = tiny_tokenizer("bert")
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
    }
    config = ErnieConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes)
    assert find_family(config).detected
    described = Family("toy", ("ernie",), Stack("encoder.layer", "attention.output.dense", "output.dense"))
    FAMILIES["toy"] = replace(described, pooling="max")
    assert find_family(config).name == "toy"
    ErnieForSequenceClassification(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    raw = settings(model={"source": str(tmp_path / "model"), "max_length": 32})
    result = run(check(raw), tmp_path / "run")
    assert len(result.subnetwork.kept) == 2
    assert read(tmp_path / "run" / "scores.json")["probes"]["task"]["pooling"] == "max"
    assert read(tmp_path / "run" / "model" / "config.json")["num_hidden_layers"] == 2


@pytest.mark.slow
def test_an_exporter(model_folder, cli, tmp_path):
    @exporter("folder")
    class FolderExporter(Exporter):
        """The weights in a folder of their own."""

        file = "weights/model.safetensors"
        suffixes = (".safetensors",)
        runtime = "torch"

        def write(self, loaded: LoadedModel, kind: Kind | None, folder: Path, *, int8: bool) -> None:
            loaded.model.save_pretrained(folder / "weights")
            loaded.tokenizer.save_pretrained(folder / "weights")

        def open(self, folder: Path, record: ExportRecord) -> RunBatch:
            return wrap_pytorch(load_as_saved(str(folder / "weights"), field="MODEL")).run

    source = str(model_folder("bert"))
    record = export(source, tmp_path / "out", "folder")
    assert record.largest_difference == 0
    assert (open_model(str(tmp_path / "out")).format, open_model(source).format) == ("folder", "pytorch")
    (tmp_path / "texts.txt").write_text("the film was good\nthe plot was dull\n")
    folders = (tmp_path / "out", source)
    predictions = [cli("predict", folder, tmp_path / "texts.txt", "--format", "csv") for folder in folders]
    assert predictions[0] == predictions[1]
    assert predictions[0].code == 0
    done = cli("export", source, "--to", "folder", "--out", tmp_path / "again")
    assert (done.code, done.out.splitlines()[0].split(":")[1].strip()[:6]) == (0, "FOLDER")
    done = cli("export", source, "--to", "folder", "--int8", "--out", tmp_path / "small")
    assert done.code == 2
    assert "folder has no 8-bit form here" in done.err
    assert not (tmp_path / "small").exists()
