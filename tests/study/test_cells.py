"""What a study's settings become, and what is refused."""

from __future__ import annotations

import shlex
import shutil

import pytest

from helpers.studies import settings
from probescale.errors import Problems, UserError
from probescale.pipeline.provenance import command
from probescale.study.cells import build_study
from probescale.study.folder import STUDY_FILE, StudyFolder


def test_every_combination_is_a_cell(model_folder, task_files):
    raw = settings(model_folder, task_files, strategies=["top_k", "bottom_k"], budgets=["k=2", "60%"], seeds=[0, 5])
    raw["study"]["models"] = [str(model_folder("bert")), str(model_folder("roberta"))]
    study = build_study(raw)
    assert len(study.cells) == len({cell.name for cell in study.cells}) == 16
    assert list(study.preparations) == [f"{m}_tiny_seed{s}" for m in ("bert", "roberta") for s in (0, 5)]
    cell = study.cells[-1]
    assert cell.name == "roberta_tiny_bottom_k_60pct_seed5"
    assert cell.config.selection.budget == "60%"
    assert cell.config.selection.strategy == "bottom_k"
    assert cell.config.seed == 5
    assert cell.config.compare == ()
    assert {cell.config.selection.k for cell in study.cells} == {2, None}


def test_models_and_tasks_of_the_run_are_the_default(model_folder, task_files):
    raw = settings(model_folder, task_files, strategies=["top_k"], seeds=[0])
    raw["study"].pop("budgets")
    raw["selection"] = {"k": 3, "keep": [1]}
    [cell] = build_study(raw).cells
    assert (cell.model, cell.task, cell.budget) == ("bert", "tiny", "k=3")
    assert cell.config.selection.keep == (1,)


@pytest.mark.parametrize(
    ("study", "says"),
    [
        ({"strategies": []}, "study.strategies"),
        ({"strategies": ["top_j"]}, 'study.strategies.0.*"top_j".*top_k'),
        ({"seeds": [-1]}, "study.seeds.0"),
        ({"engine": "slurm"}, "study.engine"),
        ({"worker": 2}, "study.worker: unknown key. Did you mean"),
        ({"budgets": ["lots"]}, "selection.budget.*lots"),
        ({"budgets": ["1%"]}, "selection.budget"),
        ({"budgets": ["k=" + "9" * 5000]}, "selection.budget.*is not a budget"),
        ({"seeds": list(range(200)), "budgets": list(range(1, 101))}, "0,000 cells are too many"),
        ({"seeds": [1, 1]}, "two cells would both be called"),
    ],
)
def test_bad_settings_are_named(model_folder, task_files, study, says):
    with pytest.raises((Problems, UserError), match=says):
        build_study(settings(model_folder, task_files, **study))


@pytest.mark.parametrize("section", ["model", "selection"])
@pytest.mark.parametrize("value", ["x", 5, ["x"]])
def test_sections_that_are_none(model_folder, task_files, section, value):
    raw = settings(model_folder, task_files, models=["a/b"], budgets=["5x"]) | {section: value}
    with pytest.raises(Problems, match=f"{section}: input should be"):
        build_study(raw)


@pytest.mark.parametrize("text", ["", "[{}]", "[" * 100_000, '{"settings": {}}', '{"settings": 5, "command": "x"}'])
def test_a_mark_that_is_none(model_folder, task_files, tmp_path, text):
    (tmp_path / STUDY_FILE).write_text(text)
    folder = StudyFolder(tmp_path)
    for work in (folder.study, lambda: folder.open(build_study(settings(model_folder, task_files)))):
        with pytest.raises(UserError, match=r"study\.json (cannot be read|is not the settings file of a study)"):
            work()


def test_the_processes_of_a_study_read_no_data_to_know_their_cells(model_folder, task_files, tmp_path):
    raw = settings(model_folder, task_files)
    raw["task"] |= {"train": str(shutil.copy(task_files.train, tmp_path / "train.csv"))}
    checked = build_study(raw)
    (tmp_path / "train.csv").unlink()
    assert build_study(raw, checked=True) == checked
    with pytest.raises(Problems, match=r"train\.csv"):
        build_study(raw)


def test_a_run_is_no_study(model_folder, task_files):
    raw = settings(model_folder, task_files)
    del raw["study"]
    with pytest.raises(UserError, match="study: required, but missing"):
        build_study(raw)


def test_a_folder_goes_on_with_more_cells_but_not_with_other_settings(model_folder, task_files, tmp_path):
    raw = settings(model_folder, task_files)
    folder = StudyFolder(tmp_path / "out")
    folder.open(build_study(raw))
    more = settings(model_folder, task_files, seeds=[0, 1, 2], workers=1)
    folder.open(build_study(more))
    assert len(folder.study()[0].cells) == len(build_study(more).cells)
    other = settings(model_folder, task_files)
    other["recovery"]["learning_rate"] = 1e-3
    with pytest.raises(UserError, match=r"recovery\.learning_rate differs"):
        folder.open(build_study(other))


def test_the_command_of_a_study_is_its_cells_command():
    """Workers take it from the study's folder; names with spaces stay one word."""
    said = command(["probescale", "study", "my study.yaml", "--set", "seed=1", "--out", "x"])
    assert command(shlex.split(said)) == said == "probescale study 'my study.yaml' --set seed=1"


def test_a_folder_that_is_something_else_is_left_alone(model_folder, task_files, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="not the folder of a study"):
        StudyFolder(tmp_path).open(build_study(settings(model_folder, task_files)))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
