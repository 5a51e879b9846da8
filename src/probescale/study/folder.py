"""The folder of a study: its settings, what cells share, the cells, and what is known of each of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from probescale.errors import UserError
from probescale.pipeline.folder import INNER
from probescale.pipeline.provenance import command
from probescale.study.cells import Study, study_of
from probescale.utils.files import read_json, write_json, write_text

MARK = "study.json"


class StudyFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, study: Study) -> None:
        """Begin here, or go on: then with the same settings, but for more cells and another engine."""
        mark = self.path / MARK
        if mark.is_file():
            if changed := _difference(_lasting(self._stored()["settings"]), _lasting(study.raw)):
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
        return study_of(stored["settings"]), stored["command"]

    def _stored(self) -> dict[str, Any]:
        stored = read_json(self.path / MARK, field="--out")
        settings = stored.get("settings") if isinstance(stored, dict) else None
        if not isinstance(settings, dict) or not isinstance(stored.get("command"), str):
            raise UserError(
                f"{self.path / MARK} is not the mark of a study", field="--out", hint="choose another folder"
            )
        return stored

    def ground(self, name: str) -> Path:
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
            self.ground(job) / INNER / "measured" / "original.json"
        ).is_file()

    def fail(self, job: str, why: str) -> None:
        write_text(self._fault(job), why)

    def fault(self, job: str) -> str | None:
        """Why a job that is not done was given up."""
        path = self._fault(job)
        return path.read_text(encoding="utf-8") if path.is_file() and not self.is_done(job) else None

    def forget_faults(self) -> None:
        for path in (self.path / "failed").glob("*.txt"):
            path.unlink()

    def _fault(self, job: str) -> Path:
        return self.path / "failed" / f"{job}.txt"


def _lasting(raw: dict[str, Any]) -> dict[str, Any]:
    """Settings that all cells have in common: another value would make other figures of the same name."""
    selection = raw.get("selection")
    if isinstance(selection, dict):
        selection = {k: v for k, v in selection.items() if k not in ("strategy", "budget", "k")}
    return {k: v for k, v in raw.items() if k not in ("study", "compare", "seed")} | {"selection": selection}


def _difference(one: dict[str, Any], other: dict[str, Any], path: str = "") -> str | None:
    """The first setting that is not the same in both."""
    for key in one.keys() | other.keys():
        here = f"{path}{key}"
        a, b = one.get(key), other.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            if found := _difference(a, b, f"{here}."):
                return found
        elif a != b:
            return here
    return None
