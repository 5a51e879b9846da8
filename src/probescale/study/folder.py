"""The folder of a study: its settings, shared preparations, cells, logs and failures."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from probescale.errors import UserError
from probescale.pipeline.folder import EVALUATED
from probescale.pipeline.provenance import command
from probescale.pipeline.seals import INNER, mend
from probescale.study.cells import Study, build_study
from probescale.utils.differences import list_differences
from probescale.utils.files import read_json, write_json, write_text

STUDY_FILE = "study.json"


class StudyFolder:
    """Where everything of a study is stored."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, study: Study) -> None:
        """Start a study here, or resume it: only its lists and its engine may have changed."""
        mark = self.path / STUDY_FILE
        if mark.is_file():
            if changed := list_differences(_fixed_settings(self._stored()["settings"]), _fixed_settings(study.raw)):
                raise UserError(
                    f'"{self.path}" holds a study with other settings: {changed[0][0]} differs',
                    field="--out",
                    hint="choose another folder; only the lists and the engine under `study` may change",
                )
        elif self.path.exists() and any(self.path.iterdir()):
            raise UserError(f'"{self.path}" is not the folder of a study', field="--out", hint="choose another folder")
        write_json(mark, {"command": command(sys.argv), "settings": study.raw})

    def study(self) -> tuple[Study, str]:
        """The study of this folder, and the command that started it."""
        stored = self._stored()
        return build_study(stored["settings"], checked=True), stored["command"]

    def _stored(self) -> dict[str, Any]:
        stored = read_json(self.path / STUDY_FILE, field="--out")
        settings = stored.get("settings") if isinstance(stored, dict) else None
        if not isinstance(settings, dict) or not isinstance(stored.get("command"), str):
            raise UserError(
                f"{self.path / STUDY_FILE} is not the settings file of a study",
                field="--out",
                hint="choose another folder",
            )
        return stored

    def preparation(self, name: str) -> Path:
        """Folder of a shared preparation: scores, and the fine-tuned original."""
        return self.path / "shared" / name

    def mend_preparation(self, name: str) -> None:
        """Restore damaged files of a preparation. If some have to be made again, it counts as not done."""
        if mend(self.preparation(name)):
            self._done_file(name).unlink(missing_ok=True)

    def _done_file(self, preparation: str) -> Path:
        return self.preparation(preparation) / INNER / EVALUATED / "original.json"

    def cell(self, name: str) -> Path:
        """Run folder of a cell."""
        return self.path / "cells" / name

    def log(self, job: str) -> Path:
        """File for everything that a job prints."""
        folder = self.path / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{job}.log"

    def is_done(self, job: str) -> bool:
        """Whether the file that a cell, or a preparation, writes last exists."""
        return (self.cell(job) / "metrics.json").is_file() or self._done_file(job).is_file()

    def record_failure(self, job: str, why: str) -> None:
        """Write down why a job failed."""
        write_text(self._failure_file(job), why)

    def read_failure(self, job: str) -> str | None:
        """Why a job failed, unless it is done by now."""
        path = self._failure_file(job)
        return path.read_text(encoding="utf-8") if path.is_file() and not self.is_done(job) else None

    def clear_failures(self, jobs: Iterable[str]) -> None:
        """Forget the failures of these jobs, so that they run again."""
        for job in jobs:
            self._failure_file(job).unlink(missing_ok=True)

    def _failure_file(self, job: str) -> Path:
        return self.path / "failed" / f"{job}.txt"


def _fixed_settings(raw: dict[str, Any]) -> dict[str, Any]:
    """The settings that all cells share. They must not change: cells of the same name would differ."""
    selection = raw.get("selection")
    if isinstance(selection, dict):
        selection = {k: v for k, v in selection.items() if k not in ("strategy", "budget", "k")}
    return {k: v for k, v in raw.items() if k not in ("study", "compare", "seed")} | {"selection": selection}
