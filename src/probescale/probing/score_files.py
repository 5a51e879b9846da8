"""Read probe scores from a scores.json or a CSV, and check that their lists fit together."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from probescale.errors import UserError
from probescale.probing.scores import LARGEST, MOST_LAYERS, ProbeResult, ProbeScores
from probescale.utils.files import read_json

Expected = tuple[str, Sequence[object], int, str]  # name, list, expected length, what it has one value for


def load_scores(path: Path) -> ProbeScores:
    """Scores from the scores.json of a run, or from a CSV with the columns layer, probe, score."""
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises on names that are too long
        raise UserError(
            f'"{path}" does not exist',
            field="SCORES",
            hint="give a scores.json or a CSV of layer,probe,score",
        )
    try:
        return _from_csv(path) if path.suffix.lower() == ".csv" else _from_json(path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read: {error}", field="SCORES") from error


def is_scores_file(path: Path) -> bool:
    """Whether a file can only be one that `probescale probe` wrote."""
    try:
        return path.suffix.lower() != ".csv" and bool(load_scores(path).provenance)
    except UserError:
        return False


def _from_json(path: Path) -> ProbeScores:
    try:
        scores = ProbeScores.model_validate(read_json(path, field="SCORES"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path} is not a scores file: {where}: {first['msg']}", field="SCORES") from error
    if wrong := find_mismatch(scores):
        raise UserError(f"{path}: {wrong}", field="SCORES", hint="write it again with `probescale probe`")
    return scores


def _from_csv(path: Path) -> ProbeScores:
    table: dict[str, dict[int, float]] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        if missing := {"layer", "probe", "score"} - set(reader.fieldnames or []):
            raise UserError(
                f"{path} has no column {', '.join(sorted(missing))}",
                field="SCORES",
                hint="columns: layer, probe, score",
            )
        for number, row in enumerate(reader, 2):
            try:
                layer, score = int(row["layer"]), float(row["score"])
            except (TypeError, ValueError) as error:
                raise UserError(f"{path}, line {number}: layer and score must be numbers", field="SCORES") from error
            if not abs(score) <= LARGEST:
                raise UserError(
                    f"{path}, line {number}: the score is {score}", field="SCORES", hint="give finite scores"
                )
            if not 1 <= layer <= MOST_LAYERS or not row["probe"]:
                raise UserError(
                    f"{path}, line {number}: layer {layer} of probe {row['probe']!r}",
                    field="SCORES",
                    hint=f"layers are numbered from 1, at most {MOST_LAYERS}; probes need a name",
                )
            if layer in table.setdefault(row["probe"], {}):
                raise UserError(
                    f'{path}, line {number}: layer {layer} of "{row["probe"]}" appears twice', field="SCORES"
                )
            table[row["probe"]][layer] = score
    if not table:
        raise UserError(f"{path} is empty: it has no rows", field="SCORES")
    layers = max(max(by_layer) for by_layer in table.values())
    for name, by_layer in table.items():
        if gaps := sorted(set(range(1, layers + 1)) - set(by_layer)):
            raise UserError(
                f'{path}: probe "{name}" lacks layer {gaps[0]}',
                field="SCORES",
                hint=f"give layers 1 to {layers}",
            )
    probes = {
        name: ProbeResult(scores=tuple(by_layer[layer] for layer in range(1, layers + 1)), weight=1 / len(table))
        for name, by_layer in table.items()
    }
    return ProbeScores(task=path.stem, layers=layers, probes=probes)


def find_mismatch(scores: ProbeScores) -> str | None:
    """A message about the first list of the wrong length or with layers the model does not have; None if all fit."""
    for name, values, expected, what in _list_expected(scores):
        if len(values) != expected:
            return f"{name} has {len(values)} values for {expected} {what}"
    subsets = scores.subnetworks.subsets if scores.subnetworks else ()
    fixed = scores.parameters.fixed if scores.parameters else ()
    for kept in (*subsets, fixed):
        if list(kept) != sorted(set(kept)) or not all(1 <= layer <= scores.layers for layer in kept):
            return f"{kept} are not layers of a model that has {scores.layers}, in ascending order"
    return None


def _list_expected(scores: ProbeScores) -> Iterator[Expected]:
    layers = scores.layers
    if scores.parameters:
        yield "parameters.layers", scores.parameters.layers, layers, "layers"
    for name, probe in scores.probes.items():
        label = f'probe "{name}"'
        yield label, probe.scores, layers, "layers"
        for draw in probe.draws or ():
            yield f"a draw of {label}", draw, layers, "layers"
        for measure, curve in probe.measures.items():
            for values in (curve.values, curve.low, curve.high, *([curve.spread] if curve.spread else [])):
                yield f"{measure} of {label}", values, layers, "layers"
    if scores.flow:
        yield "flow.influence", scores.flow.influence, layers, "layers"
        yield "flow.angles", scores.flow.angles, layers + 1, "embeddings and layers"
        for row in scores.flow.angles:
            yield "a row of flow.angles", row, layers + 1, "embeddings and layers"
    if probed := scores.subnetworks:
        for name, values in (("values", probed.values), ("accuracy", probed.accuracy), ("draws", probed.draws)):
            if values or name != "draws":
                yield f"subnetworks.{name}", values, len(probed.subsets), "subsets"
        for draws in probed.draws:
            yield "a row of subnetworks.draws", draws, len(probed.draws[0]), "draws"
