"""Find the smallest model that keeps a share of the original's metric: measured, never only predicted.

The sizes are budgets, each shared between layers, vocabulary, embeddings and feed-forward units as in a run. A part of
train is held out to decide on; dev is for the final figures alone.
"""

from __future__ import annotations

import math
from pathlib import Path

from probescale.config import RunConfig
from probescale.errors import UserError
from probescale.models.fast_float32 import fast_float32
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline.allocation import allocate
from probescale.pipeline.compress import refuse_beside_keep
from probescale.pipeline.evaluation import Evaluator
from probescale.pipeline.evidence import best_task_probe, probe_once
from probescale.pipeline.folder import check_run_folder, work_folder
from probescale.pipeline.outputs import write_outputs
from probescale.pipeline.prepare import prepare
from probescale.pipeline.removals import take_out_layers
from probescale.pipeline.rungs import select_all
from probescale.pipeline.workbench import Workbench
from probescale.probing.scores import ProbeScores
from probescale.recovery.result import ORIGINAL, EvaluatedModel
from probescale.recovery.smallest import SearchStep, SmallestSearch
from probescale.selection.bracket import find_smallest
from probescale.selection.result import Selection
from probescale.selection.strategies import STRATEGIES, probing_strategy
from probescale.utils.resources import report_shortage

RUNGS = (20, 14, 10, 7, 5, 4, 3, 2, 1.5)  # times fewer parameters, the smallest model first
VALIDATION = 0.2  # of train: what the search decides on
LOST_PER_HALVING = 0.012  # of the metric, expected until something is measured
LEAST_EXPECTED = 0.01  # share that is kept


def parse_share(text: str) -> float:
    """The share of the original's metric to keep, between 0 and 1.

    >>> parse_share("97%"), parse_share("0.97")
    (0.97, 0.97)
    """
    try:
        share = float(text.strip().removesuffix("%")) / 100 if text.strip().endswith("%") else float(text)
    except ValueError:
        share = -1.0
    check_share(share, text)
    return share


def check_share(share: float, text: str | None = None) -> None:
    """Refuse what is not between 0 and 1. `text`: as the user wrote it."""
    if not 0 < share <= 1:
        shown = share if text is None else f'"{text}"'
        raise UserError(f"{shown} is not a share of the original", field="--keep", hint="write 97% or 0.97")


@fast_float32()
def smallest(config: RunConfig, keep: float, out: Path | str, *, overwrite: bool = False) -> SmallestSearch:
    """Train as few models as it takes; the run folder `out` holds the answer, its model and the search.

    The configured budget and k do not count here. The strategy `tried`, whose short trainings would be repeated for
    every size, gives way to `stitched`.
    """
    check_share(keep)
    refuse_beside_keep(keep, {"time": config.time}, where="")
    out = check_run_folder(out, config.list_sources(), overwrite=overwrite)
    strategy = config.selection.strategy
    if STRATEGIES[strategy].decides_allocation:
        strategy = probing_strategy(config.selection.gap)
    selection = config.selection.model_copy(update={"budget": "100%", "k": None, "ladder": None, "strategy": strategy})
    bench = prepare(config.model_copy(update={"selection": selection, "compare": ()}), VALIDATION)
    opened = work_folder(out, bench.config, bench.provenance, overwrite=overwrite, keep=keep)
    with opened as work, report_shortage(work):
        scores = probe_once(bench, work / "scores.json")
        search = _Search(bench, scores, work, keep)
        answer = search.run()
        found = search.record(answer)
        found.save(work / "smallest.json")
        evaluator, chosen = search.rung(answer)
        evaluator.save(chosen)
        others = {search.budget(size): size for size in search.models if size not in (answer, search.full)}
        sizes = {ORIGINAL: search.full, chosen.strategy: answer, **others}
        models = {name: search.models[size] for name, size in sizes.items()}
        predictions = {name: search.rung(size)[0].predictions(name, models[name]) for name, size in sizes.items()}
        write_outputs(evaluator, scores, chosen, models, predictions=predictions, search=found)
    return found


class _Search:
    """A search under way. Sizes are numbered from the smallest; the last one is the original."""

    def __init__(self, bench: Workbench, scores: ProbeScores, work: Path, keep: float) -> None:
        self.bench, self.scores, self.work, self.keep = bench, scores, work, keep
        self.rungs = [ratio for ratio in RUNGS if bench.with_budget(f"{ratio:g}x").fits()]
        self.full = len(self.rungs)
        self.models: dict[int, EvaluatedModel] = {}
        self.expected: dict[int, float | None] = {}
        self._evaluators: dict[int, tuple[Evaluator, Selection]] = {}

    def run(self) -> int:
        """The smallest size that keeps enough of what the original reaches on the held-out part of train."""
        cheap = {size: 1 - LOST_PER_HALVING * math.log2(ratio) ** 1.5 for size, ratio in enumerate(self.rungs)}
        cheap[self.full] = 1.0
        best, _ = find_smallest(range(self.full), self.full, cheap, self._measure_share, lambda _original: self.keep)
        return best

    @property
    def original(self) -> EvaluatedModel:
        return self.models[self.full]

    def budget(self, size: int) -> str:
        return f"{self.rungs[size]:g}x" if size < self.full else "1x"

    def rung(self, size: int) -> tuple[Evaluator, Selection]:
        """The evaluator of one size for the run's own folder, and the layers that the strategy keeps there."""
        evaluator, chosen = self._build(size)
        return evaluator.with_work(self.work), chosen

    def _build(self, size: int) -> tuple[Evaluator, Selection]:
        """The evaluator of one size, and the layers that the strategy keeps there."""
        if size not in self._evaluators:
            budget = "100%" if size == self.full else self.budget(size)
            bench, work = self.bench.with_budget(budget), self.work
            shrink = ShrinkPlan()
            if size < self.full:
                work = self.work / ".work" / self.budget(size)
                work.mkdir(parents=True, exist_ok=True)
                shrink = allocate(bench, self.scores, work / "allocation.json")[0]
            evaluator = Evaluator(bench, work, shrink, self.work)
            evaluator.training.best_probe = best_task_probe(bench, self.scores)
            self._evaluators[size] = evaluator, select_all(bench, self.scores, shrink)[0]
        return self._evaluators[size]

    def record(self, answer: int) -> SmallestSearch:
        steps = [self._step(size, model) for size, model in self.models.items()]
        bracketed = answer == 0 or answer - 1 in self.models
        return SmallestSearch(
            keep=self.keep,
            metric=self.bench.task.metric,
            wanted=self._keeping(self.keep),
            trials=tuple(steps),
            answer=self.budget(answer),
            bracketed=bracketed,
            examples=len(self.bench.task.validation or ()),
            provenance=self.bench.provenance,
        )

    def _measure_share(self, size: int, expected: float | None) -> float:
        """The share of the original's metric that a size keeps after training; `expected`: what was thought before."""
        evaluator, chosen = self._build(size)
        if size == self.full:
            self.models[size] = evaluator.evaluate_original()
            self._refuse_nothing_to_keep()
            self._take_out_layers(evaluator)
        else:
            self.models[size] = evaluator.evaluate(
                self.budget(size), chosen.kept, self.original, hold=lambda model: self._share(model) >= self.keep
            )
        self.expected[size] = expected
        return self._share(self.models[size])

    def _refuse_nothing_to_keep(self) -> None:
        if (value := self._value(self.original)) <= 0:
            raise UserError(
                f"the original reaches {self.bench.task.metric} {value:.4f}: there is no share to keep",
                field="--keep",
                hint="give more rows, or choose another task.metric",
            )

    def _take_out_layers(self, evaluator: Evaluator) -> None:
        """Measure which layers can go, down to the smallest size, where the strategy asks for that."""
        if "removals" in self.bench.needs and self.rungs:
            smallest, original = self.bench.with_budget(self.budget(0)), evaluator.training.reload_original()
            self.scores = take_out_layers(smallest, original, self.scores, self.work / "scores.json")

    @staticmethod
    def _value(model: EvaluatedModel) -> float:
        assert model.validation is not None
        return model.validation

    def _share(self, model: EvaluatedModel) -> float:
        return self.bench.task.measure.retention(self._value(model), self._value(self.original)) or 0.0

    def _keeping(self, share: float) -> float:
        """The metric that keeps this share of the original's."""
        return self.bench.task.measure.keeping(share, self._value(self.original))

    def _step(self, size: int, model: EvaluatedModel) -> SearchStep:
        expected = self.expected[size]
        return SearchStep(
            budget=self.budget(size),
            kept=model.kept,
            params=model.params,
            expected=None if expected is None else self._keeping(max(expected, LEAST_EXPECTED)),
            value=self._value(model),
            retention=self.bench.task.measure.retention(self._value(model), self._value(self.original)),
            enough=self._share(model) >= self.keep,
        )
