"""Work killed with SIGKILL at any moment: no partial file passes for a complete one, and the same command, run again,
ends with the same numbers.

PROBESCALE_KILLS=30 adds that many random moments to the sweeps, which otherwise kill after every completed file.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.killing import Change, attempt, facts
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
WORKS = sweep(["run", "tried", "extract", "export"], always=["run", "extract"])


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


def tried(settings):
    """The same, with short trainings before the choice."""
    selection = settings.selection.model_copy(update={"strategy": "tried", "trial": 100})
    return settings.model_copy(update={"selection": selection})


class Place:
    """A folder of its own for some work and the cache."""

    def __init__(self, root: Path, work: Callable[[Path], object]) -> None:
        self.root, self.work, self.out = root, work, root / "made" / "out"
        self.out.parent.mkdir(parents=True)

    def go(self, kill_at: int | None = None) -> tuple[int, list[Change]]:
        return attempt(self._work, self.root, self.root.with_suffix(".log"), kill_at)

    def _work(self) -> None:
        os.environ["PROBESCALE_CACHE"] = str(self.root / "cache")
        checkpoints.SECONDS_BETWEEN = checkpoints.SECONDS_AT_END = 0  # this process is a fork: nobody else sees it
        self.work(self.out)

    def check(self, whole: dict[str, object]) -> None:
        """It is complete and the same, and nothing else is left."""
        assert facts(self.out) == whole
        assert [path.name for path in self.out.parent.iterdir()] == ["out"]


@pytest.fixture(scope="module", params=WORKS)
def unharmed(request, tmp_path_factory, settings, model_folder):
    """Some work, how it changes files, and what it gives."""
    works = {
        "run": lambda out: pipeline.run(settings, out),
        "tried": lambda out: pipeline.run(tried(settings), out),
        "extract": lambda out: cut_to_folder(str(model_folder("bert")), (2, 3), out),
        "export": lambda out: export(str(model_folder("bert")), out, int8=True),
    }
    works["extract"](tmp_path_factory.mktemp("first") / "out")  # starts what proofs run in, for all forks
    place = Place(tmp_path_factory.mktemp("unharmed") / "place", works[request.param])
    code, changes = place.go()
    assert code == 0
    return place.work, changes, facts(place.out)


def test_work_that_is_killed_again_and_again_ends_with_the_same_numbers(unharmed, tmp_path):
    work, changes, whole = unharmed
    place, rng = Place(tmp_path / "place", work), random.Random(5)
    for _ in range(2):
        code, _ = place.go(kill_at=rng.randint(2, len(changes) // 2))
        assert code == -signal.SIGKILL
    assert place.go()[0] == 0
    place.check(whole)


def points_in(changes: list[Change]) -> list[int]:
    """Every boundary, and seeded random points."""
    boundaries = {number + 1 for number, change in enumerate(changes, 1) if change.boundary and number < len(changes)}
    return sorted(boundaries | set(random.Random(0).sample(range(1, len(changes) + 1), min(POINTS, len(changes)))))


def tell(done: list[Change]) -> None:
    print(f"killed before {done[-1].kind.removeprefix('os.')} {done[-1].path}", flush=True)


@pytest.mark.timeout(3 * 3600)
@pytest.mark.long
def test_killed_at_every_boundary_and_at_random_points(unharmed, tmp_path):
    """A killed process has lost nothing that was complete, and left nothing that looks so."""
    work, changes, whole = unharmed
    for point in points_in(changes):
        place = Place(tmp_path / f"at-{point}", work)
        code, done = place.go(kill_at=point)
        assert code == -signal.SIGKILL
        tell(done)
        if place.out.exists() and not (place.out / INNER).exists():
            assert facts(place.out) == whole
            continue
        assert place.go()[0] == 0
        place.check(whole)


@pytest.mark.timeout(3 * 3600)
@pytest.mark.long
def test_probe_killed_at_every_boundary_and_at_random_points(settings, tmp_path):
    """Scores and figures are three files: each of them is whole or not there."""
    config = tmp_path / "config.yaml"
    config.write_text(to_yaml(settings))

    def work(out: Path) -> None:
        sys.argv = ["probescale", "probe", str(config), "--out", str(out / "scores.json")]
        app(standalone_mode=False)

    unharmed = Place(tmp_path / "unharmed", work)
    code, changes = unharmed.go()
    assert code == 0
    whole = facts(unharmed.out)
    for point in points_in(changes):
        place = Place(tmp_path / f"at-{point}", work)
        code, done = place.go(kill_at=point)
        assert code == -signal.SIGKILL
        tell(done)
        there = {name: said for name, said in facts(place.out).items() if not name.endswith(".tmp")}
        assert there == {name: whole[name] for name in there}
        assert place.go()[0] == 0
        place.check(whole)
