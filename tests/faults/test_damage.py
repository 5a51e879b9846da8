"""Files that a failing disk has damaged: the same command ends with the same figures, or says what to do.

PROBESCALE_DAMAGES: how many damaged files are tried at each stage of a run (20); 0: all of them.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from helpers.damage import DAMAGES, damage, run_until, snapshot
from helpers.killing import read_contents
from probescale.errors import UserError
from probescale.pipeline import evaluation, training
from probescale.pipeline import run as pipeline
from probescale.pipeline.folder import MARK
from probescale.pipeline.validate import check
from probescale.recovery import checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.long]
MOST = int(os.environ.get("PROBESCALE_DAMAGES", "20"))
STAGES = {  # where the run is interrupted
    "before the outputs": (pipeline, "write_outputs", 1),
    "in a training": (evaluation, "predict", 2),  # the second model is trained, not evaluated
}


@pytest.fixture(scope="module")
def config(model_folder, task_files):
    return check(
        {
            "model": {"source": str(model_folder("bert")), "max_length": 32},
            "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
            "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
            "selection": {"budget": "60%", "strategy": "stitched"},
            "shrink": "auto",
            "recovery": {"epochs": 1, "learning_rate": 3e-3, "batch_size": 16, "augment": 0},
        }
    )


@pytest.fixture(scope="module")
def complete(config, tmp_path_factory):
    """The folder of an undisturbed run."""
    out = tmp_path_factory.mktemp("complete") / "out"
    pipeline.run(config, out)
    return out


@pytest.fixture(scope="module", params=STAGES)
def unfinished(request, config, tmp_path_factory):
    """A work folder as an interruption leaves it."""
    out = tmp_path_factory.mktemp("unfinished") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "SECONDS_AT_END", 0.0)
        return run_until(*STAGES[request.param], config, out)


def resume_damaged(config, unfinished: Path, folder: Path, name: str, how: str) -> Path:
    """Copy the work, damage one of its files, and give the same command again."""
    shutil.copytree(unfinished, folder / "out.partial")
    damage(folder / "out.partial" / name, how)
    pipeline.run(config, folder / "out")
    return folder / "out"


@pytest.mark.parametrize("unfinished", ["before the outputs"], indirect=True)
def test_a_damaged_record_is_restored_and_nothing_is_trained_again(config, unfinished, complete, tmp_path, monkeypatch):
    """A file of every kind that a resumed run reads: none costs more than itself."""
    monkeypatch.setattr(training, "fine_tune", None)
    names = ["scores.json", "schedule.json", "config.yaml", MARK, ".work/clock.json", "model/probescale.json"]
    names += [str(path.relative_to(unfinished)) for path in (unfinished / ".work" / "evaluated").glob("*.json")]
    shutil.copytree(unfinished, tmp_path / "out.partial")
    for number, name in enumerate(names):
        assert (unfinished / name).is_file()
        damage(tmp_path / "out.partial" / name, DAMAGES[number % len(DAMAGES)])
    pipeline.run(config, tmp_path / "out")
    assert read_contents(tmp_path / "out") == read_contents(complete)


@pytest.mark.long
def test_damaged_weights_of_the_teacher_are_made_again(config, unfinished, complete, tmp_path):
    for name in ("model.safetensors", "logits.npy"):
        out = resume_damaged(config, unfinished, tmp_path / name, f".work/teacher/{name}", "a flipped bit")
        assert read_contents(out) == read_contents(complete)
        assert [path.name for path in out.parent.iterdir()] == ["out"]


def choose(files: list[str]) -> list[tuple[str, str]]:
    """Every file with every damage, or a seeded sample of them."""
    cases = [(name, how) for name in files for how in DAMAGES]
    return random.Random(0).sample(cases, min(MOST, len(cases))) if MOST else cases


@pytest.mark.timeout(3 * 3600)
@pytest.mark.long
def test_any_damaged_file_of_partial_work_leaves_the_figures_as_they_are(config, unfinished, complete, tmp_path):
    for number, (name, how) in enumerate(choose(list(snapshot(unfinished)))):
        print(f"{name}: {how}", flush=True)
        out = resume_damaged(config, unfinished, tmp_path / str(number), name, how)
        assert read_contents(out) == read_contents(complete)
        assert [path.name for path in out.parent.iterdir()] == ["out"]
        shutil.rmtree(out.parent)


def test_any_damaged_file_of_a_finished_run_is_left_as_it_is(config, complete, tmp_path):
    """The same command refuses to replace it, and touches nothing."""
    for number, (name, how) in enumerate((name, how) for name in snapshot(complete) for how in DAMAGES):
        out = tmp_path / str(number) / "out"
        shutil.copytree(complete, out)
        damage(out / name, how)
        before = snapshot(out.parent)
        with pytest.raises(UserError, match="already exists"):
            pipeline.run(config, out)
        assert snapshot(out.parent) == before
        shutil.rmtree(out.parent)
