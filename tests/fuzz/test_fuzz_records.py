"""Fuzz the JSON and CSV files that commands read back: scores, selections, results, studies, model records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from helpers.fuzzing import RNG, damaged, damaged_json, fuzz, json_bytes, result_or_error
from probescale.deploy.formats import EXPORTERS
from probescale.deploy.open_model import open_exported
from probescale.models.sentence_encoder import check_modules
from probescale.models.subsets import all_contiguous_blocks, parse_layers
from probescale.probing.score_files import load_scores
from probescale.probing.scores import Curve, Flow, ProbeResult, ProbeScores, SubnetworkScores
from probescale.recovery.result import EvaluatedModel, RunResult
from probescale.report.tables import selection_table
from probescale.selection.budget import parse_budget
from probescale.selection.calibration import calibrate
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import combine_scores
from probescale.selection.measured import load_measured
from probescale.selection.result import Selection
from probescale.selection.select import select
from probescale.selection.strategies import STRATEGIES
from probescale.study.cells import Study, build_study
from probescale.study.folder import STUDY_FILE, StudyFolder
from probescale.study.results import read_results

LAYERS = 3
CURVE = Curve(values=(0.5, 0.7, 0.6), low=(0.4, 0.6, 0.5), high=(0.6, 0.8, 0.7))
PROBE = ProbeResult(
    scores=(0.5, 0.7, 0.6),
    weight=1.0,
    measures={"accuracy": CURVE, "f1": CURVE},
    embeddings={"accuracy": 0.4, "f1": 0.4},
    draws=((0.5, 0.7, 0.6), (0.6, 0.5, 0.7)),
)
SUBSETS = tuple(all_contiguous_blocks(LAYERS, LAYERS))
SCORES: dict[str, Any] = ProbeScores(
    task="tiny",
    layers=LAYERS,
    probes={"task": PROBE},
    parameters={"embeddings": 100, "layers": [10, 11, 12], "rest": 5, "fixed": []},  # type: ignore[arg-type]
    flow=Flow(influence=(0.1, 0.2, 0.3), angles=((0.0, 0.1, 0.2, 0.3),) * 4, texts=5),
    subnetworks=SubnetworkScores(
        subsets=SUBSETS,
        values=tuple(0.5 + 0.01 * n for n in range(len(SUBSETS))),
        accuracy=(0.5,) * len(SUBSETS),
        draws=((0.5, 0.6),) * len(SUBSETS),
        metric="accuracy",
        examples=20,
        passes=2.0,
    ),
    provenance={"seed": 0, "model_sha256": "0"},
).model_dump(mode="json")


def measured(kept: tuple[int, ...], value: float) -> EvaluatedModel:
    return EvaluatedModel(
        kept=kept, params=5, ratio_total=0.5, ratio_layers=0.5, value=value, interval=(0.1, 0.9), retention=0.9,
        losses=(0.5,), milliseconds=1.0, speedup=2.0, seconds=1.0,
    )  # fmt: skip


RESULT: dict[str, Any] = RunResult(
    task="tiny", metric="accuracy", split="dev", examples=10, recipe="", strategy="top_k", retention=0.9,
    original=measured((1, 2, 3), 0.9), subnetwork=measured((1, 2), 0.8),
    compared={"a": measured((2, 3), 0.7), "b": measured((1, 3), 0.6)},
).model_dump(mode="json")  # fmt: skip
SELECTION = Selection(strategy="top_k", budget="k=2", k=2, kept=(1, 2), dropped=(3,), score=1.0).model_dump(mode="json")
PREDICTIONS = b"row,right,original,top_k\n1,a,a,a\n2,b,b,a\n"
STUDY: dict[str, Any] = {
    "command": "probescale study s.yaml",
    "settings": {
        "model": {"source": "owner/model"},
        "task": {"train": "owner/data"},
        "selection": {"k": 2},
        "study": {"strategies": ["top_k"], "seeds": [0]},
    },
}
RECORD = {
    "parent": "x",
    "max_length": 8,
    "onnx": {
        "kind": "class",
        "labels": ["a", "b"],
        "longest": 8,
        "inputs": ["input_ids"],
        "int8": False,
        "largest_difference": 0.0,
    },
}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("records")


def choose(path: Path, strategy: str, budget: str) -> Selection:
    """Read scores and select, as the command does."""
    scores = load_scores(path)
    evidence, resamples = combine_scores([scores], [1.0])
    chosen = select(
        evidence,
        Constraints(parse_budget(budget, where="--"), scores.parameters),
        strategy,
        resamples=resamples,
        provenance=scores.provenance,
    )
    chosen.save(path.with_name("selection.json"))
    selection_table(chosen)
    return chosen


@fuzz("scores.json", 100, rng=RNG, strategy=st.sampled_from(sorted(STRATEGIES)))
def test_scores(folder, rng, strategy):
    path = folder / "scores.json"
    path.write_bytes(damaged_json(rng, SCORES))
    result_or_error(lambda: choose(path, strategy, rng.choice(["99%", "120", "125"])))
    result_or_error(lambda: load_scores(path).with_metric("f1", "marginal").relevance)


TABLE = b"layer,probe,score\n1,pos,0.5\n2,pos,0.6\n3,pos,0.7\n1,ner,0.5\n2,ner,0.6\n3,ner,0.2\n"


@fuzz("scores.csv", 40, rng=RNG)
def test_scores_as_csv(folder, rng):
    path = folder / "scores.csv"
    path.write_bytes(damaged(rng, TABLE))
    result_or_error(lambda: choose(path, "top_k", "120"))


MEASURED = b'layers,value\n1,0.5\n2,0.6\n"1-2",0.7\n"2,3",0.8\n3,0.4\n'


@fuzz("results of runs", 40, rng=RNG)
def test_results_of_runs(folder, rng):
    run, csv = folder / "metrics.json", folder / "measured.csv"
    run.write_bytes(damaged_json(rng, RESULT))
    csv.write_bytes(damaged(rng, MEASURED))
    scores = {"pos": (0.5, 0.6, 0.7)}
    result_or_error(lambda: calibrate(scores, load_measured([run])))
    result_or_error(lambda: calibrate(scores, load_measured([csv])))


@pytest.fixture(scope="module")
def study(folder) -> tuple[StudyFolder, Study]:
    made = StudyFolder(folder / "study")
    wanted = build_study(STUDY["settings"])
    made.cell(wanted.cells[0].name).mkdir(parents=True)
    return made, wanted


@fuzz("marks of studies", 30, rng=RNG)
def test_marks_of_studies(study, rng):
    made, wanted = study
    (made.path / STUDY_FILE).write_bytes(damaged_json(rng, STUDY))
    result_or_error(made.study)
    result_or_error(lambda: made.open(wanted))


@fuzz(
    "cells of studies",
    40,
    rng=RNG,
    name=st.sampled_from(["metrics.json", "selection.json", "predictions.csv", "scores.json"]),
)
def test_cells_of_studies(study, rng, name):
    """A cell that cannot be read is reported as broken; the others are read."""
    made, wanted = study
    cell = made.cell(wanted.cells[0].name)
    for other, sound in {"metrics.json": RESULT, "selection.json": SELECTION, "scores.json": SCORES}.items():
        (cell / other).write_bytes(damaged_json(rng, sound) if other == name else json_bytes(sound))
    (cell / "predictions.csv").write_bytes(damaged(rng, PREDICTIONS) if name == "predictions.csv" else PREDICTIONS)
    assert result_or_error(lambda: read_results(made, wanted)) is not None


@fuzz("records of models", 40, rng=RNG)
def test_records_of_models(folder, rng):
    (folder / "probescale.json").write_bytes(damaged_json(rng, RECORD))
    (folder / "modules.json").write_bytes(damaged_json(rng, MODULES))
    result_or_error(lambda: open_exported(folder, EXPORTERS["onnx"], field="MODEL"))
    result_or_error(lambda: check_modules(folder))


@fuzz(
    "layers and budgets",
    50,
    text=st.text(st.sampled_from("0123456789,- ²٣x"), max_size=12),
    budget=st.text(st.sampled_from("0159.,%xkKMGBmsFLOPs \u00d7²e-+"), max_size=10),
)
def test_layers_and_budgets_in_free_text(text, budget):
    result_or_error(lambda: parse_layers(text))
    result_or_error(lambda: parse_budget(budget))
