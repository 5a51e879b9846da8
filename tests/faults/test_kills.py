"""Work killed with SIGKILL at any moment: no partial file passes for a complete one, and the same command, run again,
ends with the same numbers.

The sweeps kill after some of the completed files; PROBESCALE_KILLS=30: after every one, and at 30 random moments.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.data import THINGS, labelled_rows
from helpers.decoders import save_decoder, write_corpus, write_other_text
from helpers.killing import Change, read_contents, run_forked
from helpers.sweeps import sweep
from probescale.cli import app
from probescale.deploy.export import export
from probescale.pipeline import run as pipeline
from probescale.pipeline.cut import cut_to_folder
from probescale.pipeline.folder import INNER
from probescale.pipeline.validate import check
from probescale.recovery import checkpoints
from probescale.utils.yaml_files import to_yaml

pytestmark = pytest.mark.slow
POINTS = int(os.environ.get("PROBESCALE_KILLS", "0"))
SPREAD = 8  # kills of a sweep, where PROBESCALE_KILLS does not ask for all
WORKS = sweep(["run", "tried", "extract", "export", "embedding", "labels", "text"], always=["run", "extract"])


@pytest.fixture(scope="module")
def settings(model_folder, task_files):
    return check(
        {
            "model": {"source": str(model_folder("bert")), "max_length": 32},
            "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
            "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
            "selection": {"budget": "60%"},
            "compare": ["top_k"],
            "shrink": "auto",
            "recovery": {"epochs": 1, "learning_rate": 3e-3, "batch_size": 16, "distil": True},
        }
    )


def with_tournament(settings):
    """The same settings, with short trainings of candidates before the selection."""
    selection = settings.selection.model_copy(update={"strategy": "tried", "trial": 100})
    return settings.model_copy(update={"selection": selection})


def with_kind(settings, kind: str, train: Path):
    """The same settings for a task of another kind, whose dev is a part of train."""
    raw = settings.model_dump(mode="json", exclude_unset=True)
    columns = {"text": "text", "label": ["praise", "blame"]} if kind == "labels" else {}
    raw["task"] = {"name": kind, "kind": kind, "train": {"source": str(train), **columns}}
    return check(raw)


def write_texts(path: Path) -> Path:
    path.write_text("\n".join(text for text, _ in labelled_rows(150)) + "\n", encoding="utf-8")
    return path


def write_flags(path: Path) -> Path:
    """Whether a text praises, blames, or does neither: it is about things alone."""
    rows = [f"{text.replace(',', '')},{int(label == 'positive')},{int(label != 'positive')}"
            for text, label in labelled_rows(150)]  # fmt: skip
    rows += [f"the {one} of the {other} .,0,0" for one in THINGS for other in THINGS[:3]]
    path.write_text("\n".join(["text,praise,blame", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def text_settings(tmp_path_factory):
    """A generative model: removals, the teacher's tokens and what is written are kept in files of their own."""
    folder = tmp_path_factory.mktemp("decoder")
    model, corpus = save_decoder(folder / "model", steps=20), write_corpus(folder, 300)
    second = write_other_text(folder / "second.txt")
    return check(
        {
            "model": {"source": model, "max_length": 64},
            "task": {"name": "tales", "kind": "text", "train": str(corpus), "second": str(second)},
            "selection": {"k": 2},
            "compare": ["plain_loss"],
            "recovery": {"epochs": 1, "learning_rate": 3e-3},
        }
    )


class Sandbox:
    """A folder with an output folder and a cache for one piece of work."""

    def __init__(self, root: Path, work: Callable[[Path], object]) -> None:
        self.root, self.work, self.out = root, work, root / "outputs" / "out"
        self.out.parent.mkdir(parents=True)

    def run(self, kill_at: int | None = None) -> tuple[int, list[Change]]:
        return run_forked(self._work, self.root, self.root.with_suffix(".log"), kill_at)

    def _work(self) -> None:
        os.environ["PROBESCALE_CACHE"] = str(self.root / "cache")
        checkpoints.SECONDS_BETWEEN = checkpoints.SECONDS_AT_END = 0  # this process is a fork: nobody else sees it
        self.work(self.out)

    def check(self, complete: dict[str, object]) -> None:
        """Assert that the output is complete and equal, and that nothing else is left."""
        assert read_contents(self.out) == complete
        assert [path.name for path in self.out.parent.iterdir()] == ["out"]


@pytest.fixture(scope="module", params=WORKS)
def undisturbed(request, tmp_path_factory, settings, text_settings, model_folder, quick_proofs):
    """A piece of work, the changes it makes to files, and its output."""
    data = tmp_path_factory.mktemp("data")
    texts = with_kind(settings, "embedding", write_texts(data / "texts.txt"))
    flags = with_kind(settings, "labels", write_flags(data / "flags.csv"))
    works = {
        "run": lambda out: pipeline.run(settings, out),
        "tried": lambda out: pipeline.run(with_tournament(settings), out),
        "text": lambda out: pipeline.run(text_settings, out),
        "extract": lambda out: cut_to_folder(str(model_folder("bert")), (2, 3), out),
        "export": lambda out: export(str(model_folder("bert")), out, int8=True),
        "embedding": lambda out: pipeline.run(texts, out),
        "labels": lambda out: pipeline.run(flags, out),
    }
    quick_proofs.start()  # for all forks
    sandbox = Sandbox(tmp_path_factory.mktemp("undisturbed") / "sandbox", works[request.param])
    code, changes = sandbox.run()
    assert code == 0
    return sandbox.work, changes, read_contents(sandbox.out)


@pytest.mark.long
def test_work_killed_twice_resumes_to_the_same_output(undisturbed, tmp_path):
    work, changes, complete = undisturbed
    sandbox, rng = Sandbox(tmp_path / "sandbox", work), random.Random(5)
    for _ in range(2):
        code, _ = sandbox.run(kill_at=rng.randint(2, len(changes) // 2))
        assert code == -signal.SIGKILL
    assert sandbox.run()[0] == 0
    sandbox.check(complete)


def choose_kills(changes: list[Change]) -> list[int]:
    """Points after changes that complete a file: SPREAD of them, over the whole work.

    With PROBESCALE_KILLS: after every one of them, and at so many random points.
    """
    after = [number + 1 for number, change in enumerate(changes, 1) if change.completes and number < len(changes)]
    if not POINTS:
        return sorted({after[round(place)] for place in np.linspace(0, len(after) - 1, SPREAD)})
    return sorted({*after, *random.Random(0).sample(range(1, len(changes) + 1), min(POINTS, len(changes)))})


def print_kill(done: list[Change]) -> None:
    print(f"killed before {done[-1].kind.removeprefix('os.')} {done[-1].path}", flush=True)


@pytest.mark.timeout(3 * 3600)
@pytest.mark.long
def test_work_killed_after_any_file_resumes_to_the_same_output(undisturbed, tmp_path):
    """A kill loses no complete file and leaves no partial one under a final name."""
    work, changes, complete = undisturbed
    for point in choose_kills(changes):
        sandbox = Sandbox(tmp_path / f"at-{point}", work)
        code, done = sandbox.run(kill_at=point)
        assert code == -signal.SIGKILL
        print_kill(done)
        if sandbox.out.exists() and not (sandbox.out / INNER).exists():
            assert read_contents(sandbox.out) == complete
            continue
        assert sandbox.run()[0] == 0
        sandbox.check(complete)


@pytest.mark.timeout(3 * 3600)
@pytest.mark.long
def test_probe_killed_after_any_file_resumes_to_the_same_scores(settings, tmp_path):
    """Scores and figures are three files: each is complete or absent."""
    config = tmp_path / "config.yaml"
    config.write_text(to_yaml(settings))

    def work(out: Path) -> None:
        sys.argv = ["probescale", "probe", str(config), "--out", str(out / "scores.json")]
        app(standalone_mode=False)

    undisturbed = Sandbox(tmp_path / "undisturbed", work)
    code, changes = undisturbed.run()
    assert code == 0
    complete = read_contents(undisturbed.out)
    for point in choose_kills(changes):
        sandbox = Sandbox(tmp_path / f"at-{point}", work)
        code, done = sandbox.run(kill_at=point)
        assert code == -signal.SIGKILL
        print_kill(done)
        present = {name: contents for name, contents in read_contents(sandbox.out).items() if not name.endswith(".tmp")}
        assert present == {name: complete[name] for name in present}
        assert sandbox.run()[0] == 0
        sandbox.check(complete)
