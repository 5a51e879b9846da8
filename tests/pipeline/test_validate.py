"""Settings that do not fit the task or the model are refused before any work."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.data import TinyTask, labelled_rows
from probescale.config import OtherModel
from probescale.errors import Problems, UserError
from probescale.pipeline.prepare import prepare, prepare_other
from probescale.pipeline.validate import check, parse


def settings(model: object, task: dict[str, Any], recovery: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A run with two of the layers."""
    return {"model": {"source": str(model)}, "task": task, "selection": {"k": 2}, "recovery": recovery, **more}


@pytest.fixture
def tables(tmp_path, task_files: TinyTask) -> dict[str, dict[str, Any]]:
    """A task of every kind."""
    rows = list(enumerate(text for text, _ in labelled_rows(60)))
    (tmp_path / "labels.csv").write_text("text,a,b\n" + "\n".join(f'"{text}",{n % 2},{n % 3 % 2}' for n, text in rows))
    (tmp_path / "numbers.csv").write_text("text,label\n" + "\n".join(f'"{text}",{n / 7}' for n, text in rows))
    (tmp_path / "text.txt").write_text("\n\n".join(text for _, text in rows))
    tagged = (" ".join(text.split()).split() for _, text in rows)
    (tmp_path / "tags.conll").write_text("\n\n".join("\n".join(f"{w}\t{'AB'[len(w) > 4]}" for w in s) for s in tagged))
    several = {"source": str(tmp_path / "labels.csv"), "text": "text", "label": ["a", "b"]}
    return {
        "class": {"train": str(task_files.train)},
        "labels": {"train": several, "kind": "labels"},
        "number": {"train": str(tmp_path / "numbers.csv"), "kind": "number"},
        "tags": {"train": {"source": str(tmp_path / "tags.conll"), "text": 1, "label": 2}, "kind": "tags"},
        "embedding": {"train": str(tmp_path / "text.txt"), "kind": "embedding"},
    }


@pytest.mark.parametrize("kind", ["labels", "number", "embedding"])
@pytest.mark.parametrize("weights", ["balanced", "square_root"])
def test_class_weights_need_one_class_per_row(model_folder, tables, kind, weights):
    with pytest.raises(Problems) as refused:
        check(settings(model_folder("bert"), tables[kind], {"class_weights": weights}))
    (problem,) = refused.value.problems
    assert problem.field == "recovery.class_weights"
    assert f"{weights} is for tasks where every row has one class, and this one is of kind {kind}" in str(problem)


@pytest.mark.parametrize(
    ("kind", "weights"), [("class", "balanced"), ("tags", "square_root"), ("labels", "none"), ("number", "auto")]
)
def test_class_weights_that_fit_are_taken(model_folder, tables, kind, weights):
    config = check(settings(model_folder("bert"), tables[kind], {"class_weights": weights}))
    assert config.recovery.class_weights == weights


def test_states_are_computed_twice_only_where_transformers_can(model_folder, task_files):
    task, asked = {"train": str(task_files.train)}, {"save_memory": True}
    raw = settings(model_folder("mpnet"), task, asked)
    with pytest.raises(Problems) as refused:
        check(raw)
    (problem,) = refused.value.problems
    assert problem.field == "recovery.save_memory"
    assert "transformers cannot compute the states of MPNetForSequenceClassification twice" in str(problem)
    assert "leave it out" in problem.hint
    unchecked = parse(raw)
    with pytest.raises(UserError, match="cannot compute the states of MPNet"):
        prepare(unchecked)
    assert not check(settings(model_folder("mpnet"), task, {})).recovery.save_memory


def test_nor_those_of_a_compared_model(model_folder, task_files):
    task, other = {"train": str(task_files.train)}, {"model": str(model_folder("mpnet"))}
    raw = settings(model_folder("bert"), task, {"save_memory": True})
    assert check(raw).recovery.save_memory
    with pytest.raises(Problems, match="cannot compute the states of MPNetForSequenceClassification twice"):
        check(raw | {"compare": [other]})
    bench = prepare(check(raw))
    with pytest.raises(UserError, match="cannot compute the states of MPNet"):  # one of the hub, fetched by the run
        prepare_other(bench, OtherModel.model_validate(other))
