"""Before and after every command, files that it did not make are the same to the last byte, in its own folders too."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from helpers.studies import forked_workers, settings
from helpers.sweeps import sweep
from probescale.cli.app import app
from probescale.deploy.export import export
from probescale.pipeline.cut import cut_to_folder
from probescale.pipeline.run import run as run_pipeline
from probescale.pipeline.validate import check

pytest.importorskip("onnxruntime", reason='pip install "probescale[onnx]"')
pytestmark = pytest.mark.slow
NOTE = "written by the user"
RECOVERY = {"epochs": 6, "learning_rate": 3e-3, "batch_size": 16, "augment": 0}  # the tiny model learns its task

# Every command, at places where files of the user stand. Exit codes: 0, or 2 where it must refuse.
COMMANDS: dict[str, tuple[int, list[str]]] = {
    "compress": (0, ["compress", "model", "train.csv", "--out", "new/compress", "--budget", "60%",
                     "--set", "shrink=none", "--set", f"recovery={RECOVERY}"]),
    "run": (0, ["run", "config.yaml", "--out", "new/run"]),
    "run over a run": (2, ["run", "config.yaml", "--out", "run", "--overwrite"]),
    "run over a folder": (2, ["run", "config.yaml", "--out", "mine", "--overwrite"]),
    "run over its model": (2, ["run", "config.yaml", "--out", "model", "--overwrite"]),
    "smallest": (0, ["smallest", "config.yaml", "--keep", "50%", "--out", "new/smallest"]),
    "smallest over a run": (2, ["smallest", "config.yaml", "--keep", "50%", "--out", "run", "--overwrite"]),
    "validate": (0, ["validate", "config.yaml"]),
    "probe": (0, ["probe", "config.yaml", "--out", "new/scores.json"]),
    "probe over its data": (2, ["probe", "config.yaml", "--out", "train.csv", "--overwrite"]),
    "probe over a picture": (2, ["probe", "config.yaml", "--out", "picture.json"]),
    "select": (0, ["select", "run/scores.json", "--k", "2", "--out", "new/selection.json"]),
    "select over a file": (2, ["select", "run/scores.json", "--k", "2", "--out", "config.yaml"]),
    "select over its scores": (2, ["select", "run/scores.json", "--k", "2", "--out", "run/scores.json", "--overwrite"]),
    "calibrate": (0, ["calibrate", "run/scores.json", "measured.csv", "--out", "new/weights.json"]),
    "calibrate over its scores": (2, ["calibrate", "run/scores.json", "measured.csv", "--out", "measured.csv",
                                      "--overwrite"]),
    "study": (0, ["study", "study.yaml", "--out", "new/study"]),
    "study over a folder": (2, ["study", "study.yaml", "--out", "mine"]),
    "study plan": (0, ["study", "plan", "study.yaml"]),
    "plan": (0, ["plan", "model"]),
    "doctor": (0, ["doctor", "model", "--out", "new/start.yaml"]),
    "doctor over a file": (2, ["doctor", "model", "--out", "config.yaml"]),
    "extract": (0, ["extract", "model", "--keep", "1", "--out", "new/cut"]),
    "extract over a cut": (2, ["extract", "model", "--keep", "1", "--out", "cut", "--overwrite"]),
    "extract over its model": (2, ["extract", "model", "--keep", "1", "--out", "model", "--overwrite"]),
    "export": (0, ["export", "run", "--out", "new/onnx"]),
    "export over an export": (2, ["export", "run", "--out", "onnx", "--overwrite"]),
    "bench": (0, ["bench", "run", "--passes", "3", "--length", "8", "--batch-size", "1", "--figure", "new/bench.svg"]),
    "bench over a picture": (2, ["bench", "run", "--figure", "picture.svg"]),
    "predict": (0, ["predict", "run", "texts.txt", "--out", "new/answers.jsonl"]),
    "predict over its input": (2, ["predict", "run", "texts.txt", "--out", "texts.txt", "--overwrite"]),
    "predict over a file": (2, ["predict", "run", "texts.txt", "--out", "notes.md"]),
    "push": (0, ["push", "run", "owner/name", "--dry-run"]),
    "list": (0, ["list", "strategies"]),
    "cache list": (0, ["cache", "list"]),
    "cache clear": (0, ["cache", "clear"]),
}  # fmt: skip
ALWAYS = [name for name, (code, _) in COMMANDS.items() if code == 2]
ALWAYS += ["validate", "select", "calibrate", "plan", "extract", "predict", "push", "list", "cache clear"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, model_folder, task_files):
    """A folder with inputs and outputs of every kind, and notes of the user in all of them."""
    root = tmp_path_factory.mktemp("place")
    for name, source in {"train.csv": task_files.train, "dev.csv": task_files.dev}.items():
        (root / name).write_bytes(source.read_bytes())
    (root / "model").symlink_to(model_folder("bert"))
    (root / "texts.txt").write_text("the film was good\n")
    (root / "measured.csv").write_text("layers,value\n1-2,0.8\n2-3,0.7\n3-4,0.9\n1-4,0.6\n1-3,0.65\n")
    for name in ("notes.md", "picture.svg", "picture.png"):
        (root / name).write_text(NOTE)
    raw = settings(model_folder, task_files) | {"selection": {"k": 2, "strategy": "stitched"}, "shrink": "none"}
    raw["model"]["source"], raw["task"] = "model", {"name": "tiny", "train": "train.csv", "dev": "dev.csv"}
    YAML().dump(raw, root / "study.yaml")
    raw.pop("study")
    YAML().dump(raw | {"recovery": RECOVERY}, root / "config.yaml")
    with working_in(root):
        config = check(json.loads(json.dumps(YAML(typ="safe").load(root / "config.yaml"))))
        run_pipeline(config, "run")
        cut_to_folder("model", (1, 2), "cut")
        export("cut", Path("onnx"))
    folders = ["run", "run/model", "cut", "onnx", "mine", "new", "cache/features/mine", "cache/pypi/mine"]
    folders += [str(path.relative_to(root)) for path in (root / "cache" / "features").iterdir() if path.is_dir()]
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "notes.md").write_text(NOTE)
    return root


@contextmanager
def working_in(root: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("PROBESCALE_CACHE", str(root / "cache"))
        patch.setenv("PROBESCALE_CACHE_LIMIT", "0")
        patch.setattr("probescale.utils.cache.IN_USE", 0)  # no entry is spared
        yield


def files_of_the_user(root: Path) -> dict[str, bytes]:
    """Everything that stands there before a command, except for entries of the cache and locks, which it may remove."""
    paths = [Path(place) / name for place, _, names in os.walk(root, followlinks=True) for name in names]
    ours = {root / "cache"} | {path for path in paths if path.suffix == ".lock"}
    own = [path for path in paths if path.name != "notes.md" and (ours & {path, *path.parents})]
    return {str(path): path.read_bytes() for path in paths if path not in own}


def test_every_command_is_here():
    groups = {group.name for group in app.registered_groups}
    names = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands} | groups
    assert {words[0] for _, words in COMMANDS.values()} == names


@pytest.mark.parametrize("name", sweep(COMMANDS, always=ALWAYS))
def test_files_of_the_user_stay_as_they_are(cli, place, name):
    code, words = COMMANDS[name]
    before = files_of_the_user(place)
    with working_in(place), forked_workers():
        done = cli(*words)
    assert done.code == code, done.err
    assert code == 0 or done.err.count("error:") == 1
    after = files_of_the_user(place)
    assert {path: after.get(path) for path in before} == before
