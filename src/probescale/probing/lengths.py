"""Whether the lists of a scores file fit together: one entry a layer, a subset, a place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probescale.probing.scores import ProbeScores

Part = tuple[str, Sequence[object], int, str]  # its name, itself, how long it has to be, of what


def misfit(scores: ProbeScores) -> str | None:
    """The first list that is too long or too short, or names a layer that there is not, in words."""
    for name, found, wanted, what in _parts(scores):
        if len(found) != wanted:
            return f"{name} has {len(found)} values for {wanted} {what}"
    subsets = scores.subnetworks.subsets if scores.subnetworks else ()
    fixed = scores.parameters.fixed if scores.parameters else ()
    for kept in (*subsets, fixed):
        if list(kept) != sorted(set(kept)) or not all(1 <= layer <= scores.layers for layer in kept):
            return f"{kept} are not layers of a model that has {scores.layers}, in ascending order"
    return None


def _parts(scores: ProbeScores) -> Iterator[Part]:
    layers = scores.layers
    if scores.parameters:
        yield "parameters.layers", scores.parameters.layers, layers, "layers"
    for name, probe in scores.probes.items():
        here = f'probe "{name}"'
        yield here, probe.scores, layers, "layers"
        for draw in probe.draws or ():
            yield f"a draw of {here}", draw, layers, "layers"
        for measure, curve in probe.measures.items():
            for values in (curve.values, curve.low, curve.high, *([curve.spread] if curve.spread else [])):
                yield f"{measure} of {here}", values, layers, "layers"
    if scores.flow:
        yield "flow.influence", scores.flow.influence, layers, "layers"
        yield "flow.angles", scores.flow.angles, layers + 1, "places"
        for row in scores.flow.angles:
            yield "a row of flow.angles", row, layers + 1, "places"
    if probed := scores.subnetworks:
        for name, values in (("values", probed.values), ("accuracy", probed.accuracy), ("draws", probed.draws)):
            if values or name != "draws":
                yield f"subnetworks.{name}", values, len(probed.subsets), "subsets"
        for draws in probed.draws:
            yield "a row of subnetworks.draws", draws, len(probed.draws[0]), "draws"
