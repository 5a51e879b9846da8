"""What the cells of a study found: a row each, from the run folders that are there."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from probescale.errors import ProbeScaleError
from probescale.probing.score_files import load_scores
from probescale.recovery.result import EvaluatedModel, RunResult
from probescale.selection.evidence import Evidence
from probescale.selection.result import Selection
from probescale.study.cells import Cell
from probescale.study.folder import StudyFolder
from probescale.utils.files import atomic_file

ORIGINAL = "original"  # stands where a row of a subnetwork has its strategy


class ResultRow(BaseModel):
    """One fine-tuned model; results.csv has these columns. Times aside, the same study gives the same rows."""

    model_config = ConfigDict(frozen=True)

    cell: str
    model: str
    task: str
    strategy: str
    budget: str
    seed: int
    k: int
    layers: str  # that were kept, such as 1 2 5
    params: int
    ratio_total: float
    ratio_layers: float
    criterion: float | None  # of the paper: the kept layers' relevance, added up
    probed: float | None  # what probes found at the end of this subnetwork before it was trained, where they looked
    metric: str
    value: float
    low: float
    high: float
    retention: float | None
    agreement: float  # share of dev rows on which it says what the original says
    milliseconds: float  # of one pass, as in metrics.json
    speedup: float  # over the original, both timed in turn
    seconds: float


@dataclass(frozen=True)
class Results:
    rows: tuple[ResultRow, ...]
    broken: dict[str, str]  # cells whose folder cannot be read, or that failed, and why
    missing: tuple[str, ...]  # cells that were not done yet

    @property
    def complete(self) -> bool:
        return not self.broken and not self.missing


def read_results(folder: StudyFolder, cells: tuple[Cell, ...]) -> Results:
    """Every cell's row, the originals' first; a cell that cannot be read is named, not passed over."""
    originals: dict[str, ResultRow] = {}
    rows: list[ResultRow] = []
    broken: dict[str, str] = {}
    missing: list[str] = []
    for cell in cells:
        path = folder.cell(cell.name)
        why = folder.read_failure(cell.name) or folder.read_failure(cell.preparation)
        if why is not None:
            broken[cell.name] = why
        elif not path.exists():
            missing.append(cell.name)
        else:
            try:
                result, said = RunResult.load(path / "metrics.json"), read_predictions(path)
                chosen, scores = Selection.load(path / "selection.json"), load_scores(path / "scores.json")
                probed = Evidence.from_scores(scores).subnetworks.get(chosen.kept)
                originals[cell.preparation] = _row(cell, result, result.original, said, ORIGINAL)
                rows.append(_row(cell, result, result.subnetwork, said, result.strategy, chosen.score, probed))
            except (ProbeScaleError, OSError, ValueError, KeyError) as error:
                broken[cell.name] = _describe_error(error)
    return Results((*originals.values(), *rows), broken, tuple(missing))


def _row(
    cell: Cell,
    result: RunResult,
    one: EvaluatedModel,
    said: dict[str, list[str]],
    strategy: str,
    criterion: float | None = None,
    probed: float | None = None,
) -> ResultRow:
    same = [a == b for a, b in zip(said[ORIGINAL], said[strategy], strict=True)]
    whole = strategy == ORIGINAL
    return ResultRow(
        cell=cell.preparation if whole else cell.name,
        model=cell.model,
        task=cell.task,
        strategy=strategy,
        budget="" if whole else cell.budget,
        seed=cell.seed,
        k=len(one.kept),
        layers=" ".join(map(str, one.kept)),
        params=one.params,
        ratio_total=one.ratio_total,
        ratio_layers=one.ratio_layers,
        criterion=criterion,
        probed=probed,
        metric=result.metric,
        value=one.value,
        low=one.interval[0],
        high=one.interval[1],
        retention=one.retention,
        agreement=sum(same) / len(same),
        milliseconds=one.milliseconds,
        speedup=one.speedup,
        seconds=one.seconds,
    )


def read_predictions(run: Path) -> dict[str, list[str]]:
    """Columns of predictions.csv."""
    with (run / "predictions.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _describe_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return f"{error.title} cannot be read: {error.errors()[0]['msg']}"
    return str(error) if isinstance(error, ProbeScaleError) else f"{type(error).__name__}: {error}"


def write_results(folder: Path, results: Results) -> None:
    """results.csv, and the same as results.parquet."""
    import pandas as pd

    table = pd.DataFrame([row.model_dump() for row in results.rows], columns=list(ResultRow.model_fields))
    with atomic_file(folder / "results.csv") as partial:
        table.to_csv(partial, index=False, lineterminator="\n")
    with atomic_file(folder / "results.parquet") as partial:
        table.to_parquet(partial, index=False)
