"""Where the model is in a run's folder; in that of a ladder, where the model of each rung is."""

from __future__ import annotations

from pathlib import Path

from probescale.errors import UserError
from probescale.recovery.ladder import LadderResult, LadderRung

LADDER = "ladder.json"


def find_model_folder(folder: Path, rung: str | None = None) -> Path:
    """The folder of the model in a run's folder; any other folder itself.

    `rung`: a size of a ladder, such as 5x; by default the one that its report recommends.
    """
    if (folder / LADDER).is_file():
        return folder / find_rung(folder, rung).folder
    if rung:
        raise UserError(f"{folder} has one model, not a ladder of them", field="--rung", hint="leave it out")
    return folder / "model" if (folder / "model" / "config.json").is_file() else folder


def list_models(source: str) -> list[str]:
    """The models of every rung of a ladder; of anything else, the source itself."""
    folder = Path(source)
    if not (folder / LADDER).is_file():
        return [source]
    return [str(folder / rung.folder) for rung in LadderResult.load(folder / LADDER).alive]


def find_rung(folder: Path, name: str | None = None) -> LadderRung:
    """One size of a ladder: the named one, or the one that its report recommends."""
    ladder = LadderResult.load(folder / LADDER)
    if not ladder.alive:
        raise UserError(f"no size of {folder} learned the task, so no model was kept", field="MODEL")
    rung = ladder.find(name or ladder.answer)
    named = ", ".join(each.name for each in ladder.alive)
    if rung is None:
        raise UserError(f'"{name}" is no rung of {folder}', field="--rung", hint=f"its rungs are {named}")
    if not rung.alive:
        raise UserError(
            f"{rung.name} did not learn the task, so its model was not kept ({rung.model.failure})",
            field="--rung",
            hint=f"rungs that learned it: {named}",
        )
    return rung
