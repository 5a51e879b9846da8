"""The smallest subnetwork that keeps a share of the original's metric: a measured model, never only a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probescale.config import RunConfig
from probescale.errors import UserError
from probescale.models.loading import LoadedModel
from probescale.models.parameters import Parameters
from probescale.models.shrink.shrinker import ShrinkPlan
from probescale.pipeline.allocation import options
from probescale.pipeline.evaluation import Measurer
from probescale.pipeline.folder import check_run_folder, work_folder
from probescale.pipeline.provenance import provenance
from probescale.pipeline.run import prepare, scores_of, shrinker_of, write_result
from probescale.probing.scores import ProbeScores
from probescale.probing.stitched import Prober
from probescale.recovery.result import EvaluatedModel
from probescale.recovery.smallest import SearchStep, SmallestSearch
from probescale.selection.bracket import find_smallest
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.result import Selection, describe
from probescale.selection.scaling import fit_law, held_out_error
from probescale.selection.select import select
from probescale.selection.strategies import STRATEGIES
from probescale.selection.structure import Structure
from probescale.tasks.task import Task
from probescale.utils.resources import report_shortage

FEWEST = 4  # sizes, to fit a law


def parse_share(text: str) -> float:
    """
    >>> parse_share("97%"), parse_share("0.97")
    (0.97, 0.97)
    """
    try:
        share = float(text.strip().removesuffix("%")) / 100 if text.strip().endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UserError(f'"{text}" is not a share of the original', field="--keep", hint="write 97% or 0.97")
    return share


def smallest(config: RunConfig, keep: float, out: Path | str, *, overwrite: bool = False) -> SmallestSearch:
    """Train as few subnetworks as it takes; the run folder `out` holds the answer, its model and the search.

    Sizes are numbers of layers; which layers, says the configured strategy. Its budget and k count nothing here.
    """
    if STRATEGIES[config.selection.strategy].reads == "trials":
        raise UserError(
            "tried trains candidates of one size, and this search goes through all of them",
            field="selection.strategy",
            hint="use stitched",
        )
    out = check_run_folder(out, overwrite=overwrite)
    config = config.model_copy(
        update={"selection": config.selection.model_copy(update={"budget": "100%", "k": None}), "compare": ()}
    )
    task, loaded = prepare(config)
    made = provenance(loaded, task, config.seed)
    with work_folder(out, config, made, keep=keep) as work, report_shortage(work):
        shrinker = shrinker_of(loaded, task, config)
        shrink = _one_way(options(shrinker, config.shrink))
        parameters = shrinker.count_parameters(shrink)
        scores = scores_of(work, loaded, task, config, made, parameters)
        candidates = _candidates(scores, parameters, config, made)
        points = _points(candidates, scores, loaded, task, config)
        law = fit_law(list(points.values())) if len(points) >= FEWEST else None
        # The law evens out the noise of single probes.
        cheap = {k: law.predict(size) if law else value for k, (size, value) in points.items()}
        measurer = Measurer(work, shrinker, shrink, task, config)
        best, tried = _search(measurer, candidates, cheap, keep)
        original, *_ = found = [one for one, _ in tried]
        chosen, below = candidates[best], [k for k in candidates if k < best]
        search = SmallestSearch(
            keep=keep,
            wanted=keep * original.value,
            trials=tuple(_trial(one, expected, keep * original.value) for one, expected in tried),
            answer=chosen.kept,
            bracketed=not below or candidates[max(below)].kept in [one.kept for one in found],
            law=law,
            held_out_error=held_out_error(list(points.values())) if law else {},
            provenance=made,
        )
        search.save(work / "smallest.json")
        measurer.save(chosen)
        answer = next(one for one in found if one.kept == chosen.kept)
        others = {f"k={len(one.kept)}": one for one in found if one not in (original, answer)}
        write_result(measurer, scores, chosen, original, answer, others, made)
    return search


def _one_way(ways: list[ShrinkPlan]) -> ShrinkPlan:
    if len(ways) > 1:
        raise UserError(
            "auto shares a budget between layers and embeddings, and this search has none",
            field="shrink",
            hint="give numbers, such as --set shrink.vocabulary=8000, or leave it out",
        )
    return ways[0]


def _search(
    measurer: Measurer, candidates: dict[int, Selection], cheap: dict[int, float], keep: float
) -> tuple[int, list[tuple[EvaluatedModel, float | None]]]:
    """The smallest number of layers that keeps enough; all that was trained, with what was expected of it."""
    tried: list[tuple[EvaluatedModel, float | None]] = []
    full = max(candidates)

    def measure(k: int, expected: float | None) -> float:
        original = tried[0][0] if tried else None
        name = "original" if k == full else f"k={k}"
        enough = keep * original.value if original else 0.0
        found = measurer.measure(name, candidates[k].kept, original, hold=lambda one: one.value >= enough)
        if original is None and found.value <= 0:
            raise UserError(
                f"the original reaches {measurer.task.metric} {found.value:.4f}: there is no share of it to keep",
                field="--keep",
                hint="train it for longer (recovery.epochs), or choose another task.metric",
            )
        tried.append((found, expected))
        return found.value

    sizes = [k for k in candidates if k < full]
    best, _ = find_smallest(sizes, full, cheap, measure, lambda value: keep * value)
    return best, tried


def _candidates(
    scores: ProbeScores, parameters: Parameters, config: RunConfig, made: dict[str, Any]
) -> dict[int, Selection]:
    """What the strategy keeps at every number of layers that has the wished structure; and all of them."""
    structure, evidence = Structure.from_config(config.selection), Evidence.from_scores(scores)
    every, name = tuple(parameters.all_layers), config.selection.strategy
    sizes = structure.with_kept(parameters.fixed).sizes(scores.layers)
    found = {
        k: select(evidence, Constraints(parse_budget(k=k), parameters, structure=structure), name, provenance=made)
        for k in sizes
        if k < scores.layers
    }
    whole = describe(every, scores.relevance, Constraints(parse_budget(k=scores.layers), parameters), name, made)
    return {**found, scores.layers: whole}


def _points(
    candidates: dict[int, Selection], scores: ProbeScores, loaded: LoadedModel, task: Task, config: RunConfig
) -> dict[int, tuple[float, float]]:
    """Parameters of every candidate, and the accuracy of probes at its end: known from the selection, or measured."""
    probed = scores.subnetworks
    accuracy = dict(zip(probed.subsets, probed.accuracy, strict=True)) if probed else {}
    prober = Prober(loaded, task, config)
    prober.score([one.kept for one in candidates.values() if one.kept not in accuracy])
    accuracy |= {subset: found.accuracy for subset, found in prober.found.items()}
    return {k: (float(one.params or 0), accuracy[one.kept]) for k, one in candidates.items()}


def _trial(one: EvaluatedModel, expected: float | None, wanted: float) -> SearchStep:
    return SearchStep(
        kept=one.kept,
        params=one.params,
        expected=expected,
        value=one.value,
        retention=one.retention,
        enough=one.value >= wanted,
    )
