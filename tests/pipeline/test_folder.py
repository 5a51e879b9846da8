"""The work folder of a run: what resumes it, what is refused, and whose files it never touches."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helpers.damage import snapshot
from probescale.config import RunConfig
from probescale.errors import UserError
from probescale.pipeline.folder import MARK, check_run_folder, work_folder
from probescale.pipeline.seals import SEALS
from probescale.utils.files import write_text

PROVENANCE = {
    "model": "m",
    "model_sha256": "1",
    "tokenizer_sha256": "2",
    "versions": {"torch": "2"},
    "data_sha256": {"train": "3"},
}


@pytest.fixture
def config():
    def make(**changes):
        raw = {"model": {"source": "m"}, "task": {"name": "tiny", "train": "train.csv"}, "selection": {"k": 2}}
        return RunConfig.model_validate(raw | changes)

    return make


class Interrupted(BaseException):
    """Ends work as a signal does."""


def work(out: Path, config, *, until: type[BaseException] | None = None, overwrite: bool = False, **extra) -> None:
    """Scores, then an interruption or the end."""
    out = check_run_folder(out, config.list_sources(), overwrite=overwrite)
    with work_folder(out, config, PROVENANCE, overwrite=overwrite, **extra) as folder:
        if not (folder / "scores.json").exists():
            write_text(folder / "scores.json", f"{config.recovery.epochs}")
        if until:
            raise until("stopped")


@pytest.fixture
def unfinished(tmp_path, config):
    with pytest.raises(Interrupted):
        work(tmp_path / "out", config(), until=Interrupted)
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("changes", "extra", "says"),
    [
        ({"recovery": {"epochs": 9}}, {}, "recovery.epochs (auto there, 9 here)"),
        ({"compare": ["top_k"]}, {}, "compare ([] there, ['top_k'] here)"),
        ({}, {"keep": 0.97}, "keep (nothing there, 0.97 here)"),
    ],
)
def test_other_work_is_refused_and_says_what_differs(unfinished, config, changes, extra, says):
    before = snapshot(unfinished.parent)
    with pytest.raises(UserError) as refused:
        work(unfinished, config(**changes), **extra)
    assert says in refused.value.message
    assert "--overwrite" in refused.value.hint
    assert snapshot(unfinished.parent) == before
    work(unfinished, config(**changes), overwrite=True, **extra)
    assert (unfinished / "scores.json").read_text() == str(changes.get("recovery", {}).get("epochs", "auto"))


def test_the_same_content_under_other_names_is_the_same_work(unfinished, config, capsys):
    (unfinished.with_name("out.partial") / "notes.md").write_text("mine")
    work(unfinished, config(model={"source": "copy of m"}, task={"name": "renamed", "train": "copy.csv"}))
    said = capsys.readouterr().err
    assert "task.name is now renamed (was tiny), with the same content" in said
    assert "task.train.source is now copy.csv" in said
    assert "model.source is now copy of m" in said
    assert "resuming" in said
    assert (unfinished / "notes.md").read_text() == "mine"


def test_files_of_the_user_survive_everything(unfinished, config):
    partial = unfinished.with_name("out.partial")
    (partial / "notes.md").write_text("mine")
    (partial / ".work" / "deep").mkdir()
    (partial / ".work" / "deep" / "notes.md").write_text("mine")
    with pytest.raises(UserError, match=r"did not write.*\.work/deep/notes\.md, notes\.md"):
        work(unfinished, config(compare=["top_k"]), overwrite=True)
    work(unfinished, config())
    for name in ("notes.md", ".work/deep/notes.md"):
        assert (unfinished / name).read_text() == "mine"
    assert sorted(path.name for path in unfinished.parent.iterdir()) == ["out"]
    before = snapshot(unfinished)
    with pytest.raises(UserError, match=r"did not write"):
        work(unfinished, config(), overwrite=True)
    assert snapshot(unfinished) == before


def test_files_that_were_added_while_it_worked_survive(unfinished, config):
    work(unfinished, config())
    out = check_run_folder(unfinished, (), overwrite=True)
    with (
        pytest.raises(UserError, match=r"did not write.*notes\.md"),
        work_folder(out, config(), PROVENANCE, overwrite=True),
    ):
        (out / "notes.md").write_text("added meanwhile")
    assert (out / "notes.md").read_text() == "added meanwhile"
    assert (out.with_name("out.partial") / ".work").is_dir(), "the new work is kept"
    (out / "notes.md").unlink()
    work(out, config(), overwrite=True)


@pytest.mark.parametrize(("field", "kept"), [("", True), ("SCORES", True), ("recovery.learning_rate", False)])
def test_an_error_keeps_the_work_unless_its_settings_can_never_succeed(unfinished, config, field, kept):
    with (
        pytest.raises(UserError, match="wrong"),
        work_folder(unfinished.resolve(), config(), PROVENANCE, overwrite=False),
    ):
        raise UserError("something is wrong", field=field)
    assert (unfinished.with_name("out.partial") / "scores.json").is_file() is kept


def test_work_that_nobody_can_tell_is_left_alone(unfinished, config):
    partial = unfinished.with_name("out.partial")
    shutil.rmtree(partial / SEALS)
    (partial / MARK).write_text("")
    before = snapshot(partial)
    with pytest.raises(UserError, match="is damaged, so nobody can tell"):
        work(unfinished, config())
    assert snapshot(partial) == before


def test_a_run_never_replaces_what_it_reads(config, unfinished, tmp_path):
    work(unfinished, config())
    (unfinished / "model").mkdir()
    with pytest.raises(UserError, match="which the command reads"):
        check_run_folder(unfinished, [str(unfinished / "model")], overwrite=True)
