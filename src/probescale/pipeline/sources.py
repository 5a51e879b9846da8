"""What a rung of a ladder is cut from: the original, or the rung above, whichever learns more in a short training.

Both are judged by texts that no rung has learned from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scipy.optimize import linear_sum_assignment

from probescale.models.loading import load_classifier, load_encoder
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.subsets import Subset, format_layers
from probescale.pipeline.evaluation import Evaluator
from probescale.pipeline.training import LargerRung
from probescale.pipeline.workbench import Workbench
from probescale.recovery.result import ORIGINAL
from probescale.selection.structure import Structure
from probescale.utils.files import Record

COST = 0.03  # of both short trainings, as a share of the texts that the final training reads
FEWEST = 200  # texts of each


@dataclass(frozen=True)
class SavedRung:
    """A rung that is complete: its name, its folder, and what it keeps of the original."""

    name: str
    folder: Path
    kept: Subset
    shrink: ShrinkPlan

    def load(self, bench: Workbench) -> LargerRung:
        """The rung as it was saved, to cut others from it."""
        task = bench.task
        if task.kind.encodes:
            return LargerRung(self.name, self.kept, self.shrink, load_encoder(str(self.folder), None))
        model = load_classifier(
            str(self.folder),
            None,
            task.train.names,
            bench.config.seed,
            head=task.kind.head,
            problem_type=task.kind.problem_type,
            keep_head=True,
        )
        return LargerRung(self.name, self.kept, self.shrink, model)


class Source(Record):
    """A model that a rung can be cut from, and the loss of the rung after a short training."""

    name: str
    kept: Subset
    loss: float
    seconds: float


class SourceChoice(Record):
    """The original first, then the rung above where it holds all that the rung needs. Saved as source.json."""

    texts: int  # of each short training
    sources: tuple[Source, ...]

    @property
    def winner(self) -> Source:
        return min(self.sources, key=lambda source: source.loss)

    def describe(self) -> str:
        """The comparison in a sentence; empty where there was none."""
        if len(self.sources) < 2:
            return ""
        lost = max(self.sources, key=lambda source: source.loss)
        return (
            f"Cut from {_say(self.winner.name)}: after {self.texts:,} texts its loss on texts that nothing had learned "
            f"from was {self.winner.loss:.4f}, and {lost.loss:.4f} when cut from {_say(lost.name)}."
        )


def count_source_texts(read: int) -> int:
    """Texts of each short training, before a final training that reads this many.

    >>> count_source_texts(128_000), count_source_texts(1000)
    (1920, 200)
    """
    return max(round(COST * read / 2), FEWEST)


def choose_source(
    bench: Workbench, evaluator: Evaluator, kept: Subset, above: SavedRung | None, texts: int, path: Path
) -> tuple[SourceChoice, LargerRung | None]:
    """The better source of a rung that would keep these layers, and its model where it is the rung above."""
    structure = bench.structure.with_kept(bench.loaded.family.fixed(bench.loaded.model.config))
    nested = find_nested(kept, evaluator.shrink, above, structure) if above else None
    start = above.load(bench) if above and nested else None
    if start is None or nested is None:
        return SourceChoice(texts=0, sources=(Source(name=ORIGINAL, kept=kept, loss=0.0, seconds=0.0),)), None
    if not path.exists():
        starts = ((ORIGINAL, kept, None), (start.name, nested, start))
        tried = tuple(_try(evaluator, *candidate, texts=texts) for candidate in starts)
        SourceChoice(texts=texts, sources=tried).save(path)
    choice = SourceChoice.load(path)
    return choice, start if choice.winner.name != ORIGINAL else None


def _try(evaluator: Evaluator, name: str, kept: Subset, start: LargerRung | None, *, texts: int) -> Source:
    title = f"{evaluator.bench.rung} cut from {name}, layers {format_layers(kept)}"
    found = evaluator.training.with_start(start).train_briefly(title, kept, texts)
    return Source(name=name, kept=kept, loss=round(found.loss, 6), seconds=round(found.seconds, 1))


def find_nested(kept: Subset, shrink: ShrinkPlan, above: SavedRung, structure: Structure) -> Subset | None:
    """The layers of the rung above that lie nearest to these; None where it does not hold all that is needed."""
    sizes = zip(shrink.model_dump().values(), above.shrink.model_dump().values(), strict=True)
    if any(there is not None and (here is None or here > there) for here, there in sizes):
        return None  # a part would have to grow
    if set(kept) <= set(above.kept):
        return kept
    if len(kept) > len(above.kept):
        return None
    _, places = linear_sum_assignment([[abs(layer - other) for other in above.kept] for layer in kept])
    nested = tuple(sorted(above.kept[place] for place in places))
    return nested if structure.allows(nested) else None


def _say(name: str) -> str:
    return f"the {name}" if name == ORIGINAL else f"the trained {name} model"
