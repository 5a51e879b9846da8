"""The folder of a study: its settings, what cells share, the cells, and what is known of each of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from probescale.errors import UserError
from probescale.pipeline.folder import INNER
from probescale.pipeline.provenance import command
from probescale.study.cells import Study, build_study
from probescale.utils.files import read_json, write_json, write_text

STUDY_FILE = "study.json"


class StudyFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, study: Study) -> None:
        """Begin here, or go on: then with the same settings, but for more cells and another engine."""
        mark = self.path / STUDY_FILE
        if mark.is_file():
            if changed := _first_difference(_fixed_settings(self._stored()["settings"]), _fixed_settings(study.raw)):
                raise UserError(
                    f'"{self.path}" holds a study with other settings: {changed} differs',
                    field="--out",
                    hint="choose another folder; only the lists and the engine under `study` may change",
                )
        elif self.path.exists() and any(self.path.iterdir()):
            raise UserError(f'"{self.path}" is not the folder of a study', field="--out", hint="choose another folder")
        write_json(mark, {"command": command(sys.argv), "settings": study.raw})

    def study(self) -> tuple[Study, str]:
        """What was asked for here, and the command that did."""
        stored = self._stored()
        return build_study(stored["settings"]), stored["command"]

    def _stored(self) -> dict[str, Any]:
        stored = read_json(self.path / STUDY_FILE, field="--out")
        settings = stored.get("settings") if isinstance(stored, dict) else None
        if not isinstance(settings, dict) or not isinstance(stored.get("command"), str):
            raise UserError(
                f"{self.path / STUDY_FILE} is not the mark of a study", field="--out", hint="choose another folder"
            )
        return stored

    def preparation(self, name: str) -> Path:
        return self.path / "shared" / name

    def cell(self, name: str) -> Path:
        return self.path / "cells" / name

    def log(self, job: str) -> Path:
        folder = self.path / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{job}.log"

    def is_done(self, job: str) -> bool:
        """Both are written when all the rest is."""
        return (self.cell(job) / "metrics.json").is_file() or (
            self.preparation(job) / INNER / "measured" / "original.json"
        ).is_file()

    def record_failure(self, job: str, why: str) -> None:
        write_text(self._failure_file(job), why)

    def read_failure(self, job: str) -> str | None:
        """Why a job that is not done was given up."""
        path = self._failure_file(job)
        return path.read_text(encoding="utf-8") if path.is_file() and not self.is_done(job) else None

    def clear_failures(self) -> None:
        for path in (self.path / "failed").glob("*.txt"):
            path.unlink()

    def _failure_file(self, job: str) -> Path:
        return self.path / "failed" / f"{job}.txt"


def _fixed_settings(raw: dict[str, Any]) -> dict[str, Any]:
    """Settings that all cells have in common: another value would make other figures of the same name."""
    selection = raw.get("selection")
    if isinstance(selection, dict):
        selection = {k: v for k, v in selection.items() if k not in ("strategy", "budget", "k")}
    return {k: v for k, v in raw.items() if k not in ("study", "compare", "seed")} | {"selection": selection}


def _first_difference(one: dict[str, Any], other: dict[str, Any], path: str = "") -> str | None:
    """The first setting that is not the same in both."""
    for key in one.keys() | other.keys():
        here = f"{path}{key}"
        a, b = one.get(key), other.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            if found := _first_difference(a, b, f"{here}."):
                return found
        elif a != b:
            return here
    return None
