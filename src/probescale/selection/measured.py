"""Measured subnetworks, read from runs and from CSV files."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict, ValidationError

from probescale.errors import UserError
from probescale.models.subsets import Subset, parse_layers

_FIELD = "MEASURED"


class _Measured(BaseModel):
    """The layers and the value of a fine-tuned model; other fields of metrics.json are ignored."""

    model_config = ConfigDict(allow_inf_nan=False)

    kept: Subset
    value: float


class _Run(BaseModel):
    """The measured models of a metrics.json, and what was measured; other fields are ignored."""

    task: str
    metric: str
    split: str
    original: _Measured
    subnetwork: _Measured
    compared: dict[str, _Measured]

    @property
    def values(self) -> dict[Subset, float]:
        """Each subset once: a run trains it once, however many strategies chose it."""
        return {model.kept: model.value for model in (self.original, self.subnetwork, *self.compared.values())}

    @property
    def subject(self) -> str:
        """What was measured: metric, task, split and size of the original."""
        return f"{self.metric} on {self.task} ({self.split}) with {len(self.original.kept)} layers"


def load_measured(paths: Sequence[Path]) -> dict[Subset, float]:
    """The value of every measured subset, from runs (folder or metrics.json) and CSV files (columns layers, value).

    A subset that was measured several times gets the mean.
    """
    measured: dict[Subset, list[float]] = {}
    runs: dict[Path, _Run] = {}
    for path in map(_find_file, paths):
        if path.suffix.lower() == ".csv":
            rows = _read_csv(path)
        else:
            runs[path] = _read_run(path)
            rows = runs[path].values.items()
        for kept, value in rows:
            measured.setdefault(kept, []).append(value)
    _refuse_mixed_runs(runs)
    return {kept: fmean(values) for kept, values in measured.items()}


def describe_measured(paths: Sequence[Path]) -> str:
    """What these values were measured on, as far as the files say it."""
    files = [_find_file(path) for path in paths]
    runs = [_read_run(path).subject for path in files if path.suffix.lower() != ".csv"]
    return runs[0] if runs else "the values of a CSV file"


def _find_file(path: Path) -> Path:
    """The file itself, or the metrics.json of a run folder."""
    for candidate in (path / "metrics.json", path):
        if os.path.isfile(candidate):  # noqa: PTH113 - Path.is_file raises on names that are too long
            return candidate
    raise UserError(
        f'"{path}" is neither a file nor a folder with a metrics.json',
        field=_FIELD,
        hint="give a run folder, its metrics.json or a CSV of layers,value",
    )


def _refuse_mixed_runs(runs: Mapping[Path, _Run]) -> None:
    """Refuse runs that differ in task, metric, split or number of layers: their values cannot be compared."""
    for path, run in runs.items():
        first, other = next(iter(runs.items()))
        if run.subject != other.subject:
            raise UserError(
                f"{path} has {run.subject}, but {first} has {other.subject}", field=_FIELD, hint="give runs of one kind"
            )


def _read_run(path: Path) -> _Run:
    """The models that a run measured, from its metrics.json."""
    try:
        return _Run.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path} is not the result of a run: {where}: {first['msg']}",
            field=_FIELD,
            hint="give the metrics.json that `probescale run` wrote, or a CSV of layers,value",
        ) from error
    except (ValueError, RecursionError) as error:  # neither text nor JSON
        raise UserError(
            f"{path} is not JSON: {error}", field=_FIELD, hint="give a metrics.json, or name a CSV file .csv"
        ) from error


def _read_csv(path: Path) -> list[tuple[Subset, float]]:
    """Subsets and their values, in the order of the file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if missing := {"layers", "value"} - set(reader.fieldnames or []):
                raise UserError(
                    f"{path} has no column {', '.join(sorted(missing))}", field=_FIELD, hint="columns: layers, value"
                )
            rows = [_parse_row(row, f"{path}, line {reader.line_num}") for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read: {error}", field=_FIELD, hint="save it as CSV in UTF-8") from error
    if not rows:
        raise UserError(f"{path} is empty: it has no rows", field=_FIELD, hint='add rows like "1-4,7",0.85')
    return rows


def _parse_row(row: dict[str | None, str | None], where: str) -> tuple[Subset, float]:
    """The subset and the value of one row. Too many cells mean that a list of layers lacks its quotes."""
    if None in row:
        raise UserError(
            f"{where}: there are more cells than columns", field=_FIELD, hint='put layers in quotes: "1,3,5-7",0.85'
        )
    return _parse_subset(row["layers"] or "", where), _parse_value(row["value"], where)


def _parse_value(text: str | None, where: str) -> float:
    """A finite number, or an error that names the line."""
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f'{where}: the value is "{text or ""}"', field=_FIELD, hint="give a finite number")
    return value


def _parse_subset(text: str, where: str) -> Subset:
    """`1-3,7` -> (1, 2, 3, 7), in ascending order."""
    try:
        layers = parse_layers(text, _FIELD)
    except UserError as error:
        raise UserError(f"{where}: {error.message}", field=_FIELD, hint=error.hint) from error
    if min(layers) < 1 or len(set(layers)) < len(layers):
        raise UserError(
            f'{where}: "{text}" are not layers', field=_FIELD, hint="layers count from 1, and each is listed once"
        )
    return tuple(sorted(layers))
