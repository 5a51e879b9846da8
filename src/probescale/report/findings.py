"""What a run found, as its report, its page and its model card show it."""

from __future__ import annotations

from dataclasses import dataclass

from probescale.models.parameters import Parameters
from probescale.probing.scores import ProbeScores
from probescale.recovery.bias import Bias
from probescale.recovery.regressions import Regressions
from probescale.recovery.result import RunResult
from probescale.selection.result import Selection


@dataclass(frozen=True)
class RunFindings:
    scores: ProbeScores
    selection: Selection
    result: RunResult
    parameters: Parameters | None = None  # of the model that layers are removed from, its other parts shrunk
    regressions: Regressions | None = None
    bias: Bias | None = None
