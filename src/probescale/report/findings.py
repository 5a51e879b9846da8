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
    """The results of a run that are shown to people: probe scores, selection, metrics, and what changed."""

    scores: ProbeScores
    selection: Selection
    result: RunResult
    parameters: Parameters | None = None  # of the model that layers are removed from, its other parts shrunk
    regressions: Regressions | None = None
    bias: Bias | None = None
    size_chosen_on_dev: bool = False  # by `smallest`; `run` uses dev for no decision

    @property
    def dev_sentence(self) -> str:
        """What the dev set was used for."""
        if self.size_chosen_on_dev:
            return (
                "The number of layers was chosen on the dev set, so the figures are slightly optimistic. The dev set "
                "was not used for probing or training."
            )
        return "The dev set was not used for probing, selection or training."
