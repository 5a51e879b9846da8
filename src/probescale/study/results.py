"""Results of a study: one row per trained model, read from the run folders of its cells."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from probescale.errors import ProbeScaleError
from probescale.models.subsets import Subset
from probescale.probing.score_files import load_scores
from probescale.recovery.result import ORIGINAL, EvaluatedModel, RunResult
from probescale.selection.evidence import Evidence
from probescale.selection.result import Selection
from probescale.study.cells import Cell, Study
from probescale.study.folder import StudyFolder
from probescale.study.settings import PublishedRow
from probescale.utils.files import atomic_file


class ResultRow(BaseModel):
    """One fine-tuned model, as in results.csv. Except for times, the same study gives the same rows."""

    model_config = ConfigDict(frozen=True)

    cell: str
    model: str
    task: str
    strategy: str  # ORIGINAL for a fine-tuned original, its name for another model
    budget: str  # empty for a model that was not cut
    seed: int
    k: int
    layers: str  # kept layers, such as 1 2 5
    params: int
    megabytes: float | None = None  # of the weights on disk
    ratio_total: float
    ratio_layers: float
    criterion: float | None  # of the paper: sum of the kept layers' relevance
    probed: float | None  # accuracy of the probe at the end of this subnetwork before training, if it was probed
    metric: str
    value: float
    low: float
    high: float
    retention: float | None
    retention_low: float | None = None  # 95 % interval, both models on the same resampled dev examples
    retention_high: float | None = None
    examples: int = 0  # in the dev set
    agreement: float  # share of dev rows on which it agrees with the original
    milliseconds: float  # of one forward pass, as in metrics.json
    speedup: float  # over the original; both are timed alternately
    speed_low: float | None = None  # the middle 80 % of single measurements
    speed_high: float | None = None
    busy: bool = False  # other work disturbed the timing
    seconds: float
    published_as: str = ""  # the row of a published table that it repeats
    published: float | None = None  # its figure there

    @property
    def is_subnetwork(self) -> bool:
        """Whether it was cut from the original: neither the original nor another model that it is compared with."""
        return bool(self.budget)

    @property
    def kept(self) -> Subset:
        """The kept layers as numbers."""
        return tuple(int(layer) for layer in self.layers.split())


@dataclass(frozen=True)
class Results:
    """The rows of all finished cells, and the cells without model."""

    rows: tuple[ResultRow, ...]
    failed: dict[str, str]  # cells that failed, or whose folder cannot be read, and why
    missing: tuple[str, ...]  # cells that have not run yet

    @property
    def complete(self) -> bool:
        """Whether every cell has a row."""
        return not self.failed and not self.missing


def read_results(folder: StudyFolder, study: Study) -> Results:
    """Read the rows of all cells, those of the originals first. A cell that cannot be read counts as failed."""
    whole: dict[tuple[str, str], ResultRow] = {}  # originals and other models, by preparation and name
    rows: list[ResultRow] = []
    failed: dict[str, str] = {}
    missing: list[str] = []
    for cell in study.cells:
        path = folder.cell(cell.name)
        why = folder.read_failure(cell.name) or folder.read_failure(cell.preparation)
        if why is not None:
            failed[cell.name] = why
        elif not path.exists():
            missing.append(cell.name)
        else:
            try:
                result, predicted = RunResult.load(path / "metrics.json"), read_predictions(path)
                selection, scores = Selection.load(path / "selection.json"), load_scores(path / "scores.json")
                probed = Evidence.from_scores(scores).subnetworks.get(selection.kept)
                for name, model in {ORIGINAL: result.original, **result.other_models}.items():
                    whole[cell.preparation, name] = _row(cell, result, model, predicted, name)
                rows.append(_row(cell, result, result.subnetwork, predicted, result.strategy, selection.score, probed))
            except (ProbeScaleError, OSError, ValueError, KeyError) as error:
                failed[cell.name] = _describe_error(error)
    known = tuple(_with_published(row, study.settings.published) for row in (*whole.values(), *rows))
    return Results(known, failed, tuple(missing))


def _with_published(row: ResultRow, published: tuple[PublishedRow, ...]) -> ResultRow:
    """The row with the figure of the published one that it repeats, if there is one."""
    for other in published:
        if (other.method, str(other.budget or "")) == (row.strategy, row.budget) and row.task in other.values:
            return row.model_copy(update={"published_as": other.name, "published": other.values[row.task] / 100})
    return row


def _row(
    cell: Cell,
    result: RunResult,
    model: EvaluatedModel,
    predicted: dict[str, list[str]],
    strategy: str,
    criterion: float | None = None,
    probed: float | None = None,
) -> ResultRow:
    same = [a == b for a, b in zip(predicted[ORIGINAL], predicted[strategy], strict=True)]
    is_whole = strategy == ORIGINAL or strategy in result.other_models
    sure = (model.retention,) * 2 if strategy == ORIGINAL else result.retention_interval or (None, None)
    sure = (None, None) if strategy in result.other_models else sure
    return ResultRow(
        cell=cell.preparation if is_whole else cell.name,
        model=cell.model,
        task=cell.task,
        strategy=strategy,
        budget="" if is_whole else cell.budget,
        seed=cell.seed,
        k=len(model.kept),
        layers=" ".join(map(str, model.kept)),
        params=model.params,
        megabytes=model.megabytes,
        ratio_total=model.ratio_total,
        ratio_layers=model.ratio_layers,
        criterion=criterion,
        probed=probed,
        metric=result.metric,
        value=model.value,
        low=model.interval[0],
        high=model.interval[1],
        retention=model.retention,
        retention_low=sure[0],
        retention_high=sure[1],
        examples=result.examples,
        agreement=sum(same) / len(same),
        milliseconds=model.milliseconds,
        speedup=model.speedup,
        speed_low=model.spread.low if model.spread else None,
        speed_high=model.spread.high if model.spread else None,
        busy=model.spread is not None and model.spread.busy,
        seconds=model.seconds,
    )


def read_predictions(run: Path) -> dict[str, list[str]]:
    """The columns of a run's predictions.csv, by name."""
    with (run / "predictions.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _describe_error(error: Exception) -> str:
    """One line for an error while reading a run folder."""
    if isinstance(error, ValidationError):
        return f"{error.title} cannot be read: {error.errors()[0]['msg']}"
    return str(error) if isinstance(error, ProbeScaleError) else f"{type(error).__name__}: {error}"


def write_results(folder: Path, results: Results) -> None:
    """Write results.csv, and the same as results.parquet."""
    import pandas as pd

    table = pd.DataFrame([row.model_dump() for row in results.rows], columns=list(ResultRow.model_fields))
    with atomic_file(folder / "results.csv") as partial:
        table.to_csv(partial, index=False, lineterminator="\n")
    with atomic_file(folder / "results.parquet") as partial:
        table.to_parquet(partial, index=False)
