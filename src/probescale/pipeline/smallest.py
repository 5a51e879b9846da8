"""Find the smallest subnetwork that keeps a share of the original's metric: evaluated, never only predicted."""

from __future__ import annotations

from pathlib import Path

from probescale.config import RunConfig
from probescale.errors import UserError
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.pipeline.evaluation import Evaluator
from probescale.pipeline.evidence import probe_once
from probescale.pipeline.folder import check_run_folder, work_folder
from probescale.pipeline.outputs import write_outputs
from probescale.pipeline.workbench import Workbench, prepare
from probescale.probing.scores import ProbeScores
from probescale.probing.subnetwork_prober import SubnetworkProber
from probescale.recovery.result import ORIGINAL, EvaluatedModel
from probescale.recovery.smallest import SearchStep, SmallestSearch
from probescale.selection.bracket import find_smallest
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence
from probescale.selection.result import Selection, describe
from probescale.selection.scaling import fit_law, held_out_error
from probescale.selection.select import select
from probescale.selection.strategies import STRATEGIES
from probescale.utils.resources import report_shortage

FEWEST = 4  # sizes, to fit a law


def parse_share(text: str) -> float:
    """The share of the original's metric to keep, between 0 and 1.

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

    Sizes are numbers of layers; the configured strategy says which layers. Its budget and k do not count here.
    """
    _refuse_tournament(config.selection.strategy)
    out = check_run_folder(out, overwrite=overwrite)
    selection = config.selection.model_copy(update={"budget": "100%", "k": None})
    bench = prepare(config.model_copy(update={"selection": selection, "compare": ()}))
    shrink = _only_shrink(bench)
    with work_folder(out, bench.config, bench.provenance, keep=keep) as work, report_shortage(work):
        scores = probe_once(bench, work / "scores.json")
        candidates = _candidates(bench, scores, shrink)
        points = _points(bench, candidates, scores)
        law = fit_law(list(points.values())) if len(points) >= FEWEST else None
        # The law evens out the noise of single probes.
        expected = {k: law.predict(size) if law else value for k, (size, value) in points.items()}
        evaluator = Evaluator(bench, work, shrink)
        best, trained = _search(evaluator, candidates, expected, keep)
        original, *_ = models = [model for model, _ in trained]
        chosen, below = candidates[best], [k for k in candidates if k < best]
        search = SmallestSearch(
            keep=keep,
            wanted=keep * original.value,
            trials=tuple(_step(model, expected, keep * original.value) for model, expected in trained),
            answer=chosen.kept,
            bracketed=not below or candidates[max(below)].kept in [model.kept for model in models],
            law=law,
            held_out_error=held_out_error(list(points.values())) if law else {},
            provenance=bench.provenance,
        )
        search.save(work / "smallest.json")
        evaluator.save(chosen)
        answer = next(model for model in models if model.kept == chosen.kept)
        others = {f"k={len(model.kept)}": model for model in models if model not in (original, answer)}
        evaluated = {ORIGINAL: original, chosen.strategy: answer, **others}
        write_outputs(evaluator, scores, chosen, evaluated, size_chosen_on_dev=True)
    return search


def _refuse_tournament(strategy: str) -> None:
    if STRATEGIES[strategy].decides_allocation:
        raise UserError(
            f"{strategy} trains candidates of one size, and this search goes through all sizes",
            field="selection.strategy",
            hint="use stitched",
        )


def _only_shrink(bench: Workbench) -> ShrinkPlan:
    """The one way of shrinking; settings that need a budget to decide are refused."""
    if len(bench.shrinks) > 1:
        raise UserError(
            "auto shares a budget between layers and embeddings, and this search has none",
            field="shrink",
            hint="give numbers, such as --set shrink.vocabulary=8000, or leave it out",
        )
    return bench.shrinks[0]


def _search(
    evaluator: Evaluator, candidates: dict[int, Selection], expected: dict[int, float], keep: float
) -> tuple[int, list[tuple[EvaluatedModel, float | None]]]:
    """The smallest number of layers that keeps enough; all models that were trained, with what was expected."""
    trained: list[tuple[EvaluatedModel, float | None]] = []
    full = max(candidates)

    def evaluate(k: int, expectation: float | None) -> float:
        original = trained[0][0] if trained else None
        name = ORIGINAL if k == full else f"k={k}"
        enough = keep * original.value if original else 0.0
        model = evaluator.evaluate(name, candidates[k].kept, original, hold=lambda model: model.value >= enough)
        if original is None and model.value <= 0:
            raise UserError(
                f"the original reaches {evaluator.task.metric} {model.value:.4f}: there is no share of it to keep",
                field="--keep",
                hint="train it for longer (recovery.epochs), or choose another task.metric",
            )
        trained.append((model, expectation))
        return model.value

    sizes = [k for k in candidates if k < full]
    best, _ = find_smallest(sizes, full, expected, evaluate, lambda value: keep * value)
    return best, trained


def _candidates(bench: Workbench, scores: ProbeScores, shrink: ShrinkPlan) -> dict[int, Selection]:
    """The strategy's choice at every number of layers that the structure allows; and all layers."""
    parameters, name, structure = bench.shrinker.count_parameters(shrink), bench.strategies[0], bench.structure
    evidence, every = Evidence.from_scores(scores), tuple(parameters.all_layers)
    sizes = structure.with_kept(parameters.fixed).sizes(scores.layers)
    smaller = {
        k: select(
            evidence,
            Constraints(parse_budget(k=k), parameters, structure=structure),
            name,
            provenance=bench.provenance,
        )
        for k in sizes
        if k < scores.layers
    }
    all_layers = Constraints(parse_budget(k=scores.layers), parameters)
    whole = describe(every, scores.relevance, all_layers, name, bench.provenance)
    return {**smaller, scores.layers: whole}


def _points(bench: Workbench, candidates: dict[int, Selection], scores: ProbeScores) -> dict[int, tuple[float, float]]:
    """Parameters of every candidate and the accuracy of probes at its end: known from the selection, or measured."""
    probed = scores.subnetworks
    accuracy = dict(zip(probed.subsets, probed.accuracy, strict=True)) if probed else {}
    prober = SubnetworkProber(bench.loaded, bench.task, bench.config)
    prober.score([candidate.kept for candidate in candidates.values() if candidate.kept not in accuracy])
    accuracy |= {subset: result.accuracy for subset, result in prober.results.items()}
    return {k: (float(candidate.params or 0), accuracy[candidate.kept]) for k, candidate in candidates.items()}


def _step(model: EvaluatedModel, expected: float | None, wanted: float) -> SearchStep:
    return SearchStep(
        kept=model.kept,
        params=model.params,
        expected=expected,
        value=model.value,
        retention=model.retention,
        enough=model.value >= wanted,
    )
