"""What a run found, as its report, its page and its model card show it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probescale.models.parameters import Parameters
from probescale.probing.score_files import load_scores
from probescale.probing.scores import ProbeScores
from probescale.recovery.bias import Bias
from probescale.recovery.generation import Generation
from probescale.recovery.ladder import LadderResult
from probescale.recovery.regressions import Regressions
from probescale.recovery.result import RunResult
from probescale.recovery.smallest import SmallestSearch
from probescale.selection.result import Selection
from probescale.tasks.metrics import METRICS


@dataclass(frozen=True)
class RunFindings:
    """The results of a run that are shown to people: probe scores, selection, metrics, and what changed."""

    scores: ProbeScores
    selection: Selection
    result: RunResult
    parameters: Parameters | None = None  # of the model that layers are removed from, its other parts shrunk
    regressions: Regressions | None = None
    bias: Bias | None = None
    search: SmallestSearch | None = None  # how the size was found, where it was searched for
    contradictions: str = ""  # in the data, as a sentence; empty where there are none
    ladder: LadderResult | None = None  # every size of the run, where it made several
    generation: Generation | None = None  # what both models write, where they write

    @classmethod
    def load(cls, folder: Path, records: Path | None = None) -> RunFindings:
        """The findings of a finished run, from its folder. `records`: the folder of one rung of a ladder."""
        records = records or folder
        changed, bias, written = (records / f"{name}.json" for name in ("regressions", "bias", "generation"))
        search, ladder = (folder / f"{name}.json" for name in ("smallest", "ladder"))
        return cls(
            load_scores(folder / "scores.json"),
            Selection.load(records / "selection.json"),
            RunResult.load(records / "metrics.json"),
            regressions=Regressions.load(changed) if changed.is_file() else None,
            bias=Bias.load(bias) if bias.is_file() else None,
            search=SmallestSearch.load(search) if search.is_file() else None,
            ladder=LadderResult.load(ladder) if ladder.is_file() else None,
            generation=Generation.load(written) if written.is_file() else None,
        )

    @property
    def dev_sentence(self) -> str:
        """What the dev set was used for."""
        decided = self.result.subnetwork.validation
        size = (
            f"The size was decided on a part of train that nothing learned from, where this model reaches "
            f"{METRICS[self.result.metric].show(decided)}. "
            if decided is not None
            else ""
        )
        return f"{size}The dev set was not used for probing, selection or training."
