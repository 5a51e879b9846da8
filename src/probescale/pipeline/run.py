"""The whole story, top-down: probe, select, cut, fine-tune, measure, write."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from probescale.config import RunConfig
from probescale.defaults import STRATEGY
from probescale.errors import UserError
from probescale.models.budget_costs import Workload, measure_costs
from probescale.models.cost import Cost
from probescale.models.counting import count_parameters
from probescale.models.loading import LoadedModel, load_classifier
from probescale.models.parameters import Parameters
from probescale.models.shrink.shrinker import Shrinker, ShrinkPlan
from probescale.models.subsets import Subset
from probescale.pipeline.allocation import Splits, choose, options, smallest
from probescale.pipeline.evaluation import Measurer
from probescale.pipeline.evidence import gather, most_layers, strategies_of
from probescale.pipeline.folder import check_run_folder, work_folder
from probescale.pipeline.provenance import provenance
from probescale.pipeline.tournament import Attempts, try_out
from probescale.pipeline.validate import check_budget
from probescale.probing.probe import check_probes, probe
from probescale.probing.score_files import load_scores
from probescale.probing.scores import ProbeScores
from probescale.recovery.predictions import write_predictions_csv
from probescale.recovery.regressions import find_regressions
from probescale.recovery.result import EvaluatedModel, RunResult
from probescale.report.card import model_card
from probescale.report.figure import write_figure
from probescale.report.markdown import run_report
from probescale.report.run_page import run_page
from probescale.selection.budget import Unit, parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence, combine_scores
from probescale.selection.result import Selection
from probescale.selection.select import select, select_subset
from probescale.selection.strategies import STRATEGIES
from probescale.selection.structure import Structure
from probescale.tasks.kinds import find_kind
from probescale.tasks.task import Task, load_task
from probescale.tasks.unlabelled import joined, load_unlabelled
from probescale.utils.files import write_json, write_text
from probescale.utils.progress import console
from probescale.utils.resources import report_shortage


def run(config: RunConfig, out: Path | str, *, overwrite: bool = False, ground: Path | None = None) -> RunResult:
    """Everything a configuration asks for, written to the folder `out` when it is complete.

    Until then the work stands in `out.partial`; the same call goes on from there after an interruption. `ground`: a
    folder made by lay_ground(), with the scores and the fine-tuned original that several runs share.
    """
    out = check_run_folder(out, overwrite=overwrite)
    task, loaded = prepare(config)
    made = provenance(loaded, task, config.seed)
    with work_folder(out, config, made) as work, report_shortage(work):
        costs = _costs(work / "costs.json", loaded, config)
        shrinker = shrinker_of(loaded, task, config)
        ways = options(shrinker, config.shrink)
        room = smallest(shrinker, ways)
        most_layers(loaded.layers, room, config, costs)  # a budget that nothing meets shows before the work
        if ground:
            shutil.copyfile(ground / "scores.json", work / "scores.json")
        scores = scores_of(work, loaded, task, config, made, room)
        splits = splits_of(work / "split.json", shrinker, ways, scores, task, config, costs)

        measurer = Measurer(work, shrinker, splits[0], task, config, ground)
        original = measurer.measure("original", measurer.original)
        trials = trials_of(work / "trials.json", measurer, splits, scores, config, costs)
        measurer = measurer.made_smaller(trials.best.shrink) if trials else measurer
        chosen, *others = selections(scores, measurer.parameters, config, costs, made, trials)
        subnetwork = measurer.measure(chosen.strategy, chosen.kept, original, hold=lambda _: True)
        measurer.save(chosen)
        compared = {other.strategy: measurer.measure(other.strategy, other.kept, original) for other in others}

        return write_result(measurer, scores, chosen, original, subnetwork, compared, made)


def lay_ground(configs: Sequence[RunConfig], folder: Path) -> None:
    """What runs share that differ only in strategy and budget: probing, the fine-tuned original and its answers."""
    first = configs[0]
    names = dict.fromkeys(name for config in configs for name in strategies_of(config))
    task, loaded = prepare(first)
    shrinker = shrinker_of(loaded, task, first)
    room = smallest(shrinker, options(shrinker, first.shrink))
    widest = max(configs, key=lambda config: most_layers(loaded.layers, room, config))
    config = widest.model_copy(update={"compare": tuple(names)})
    folder.mkdir(parents=True, exist_ok=True)
    with report_shortage(folder):
        scores_of(folder, loaded, task, config, provenance(loaded, task, first.seed), room)
        measurer = Measurer(folder, shrinker, ShrinkPlan(), task, first)
        measurer.measure("original", measurer.original)


def write_result(
    measurer: Measurer,
    scores: ProbeScores,
    chosen: Selection,
    original: EvaluatedModel,
    subnetwork: EvaluatedModel,
    compared: dict[str, EvaluatedModel],
    made: dict[str, Any],
) -> RunResult:
    """selection.json, metrics.json, the figure and the report, into the folder that the measurer works in."""
    task, work = measurer.task, measurer.work
    result = RunResult(
        task=task.name,
        metric=task.metric,
        split=task.dev_split,
        examples=len(task.dev),
        recipe=measurer.recipe,
        strategy=chosen.strategy,
        original=original,
        subnetwork=subnetwork,
        compared=compared,
        retention=subnetwork.retention,
        provenance=made,
    )
    models = {"original": original, chosen.strategy: subnetwork, **compared}
    said = {name: measurer.answers(one, None if name == "original" else original) for name, one in models.items()}
    write_predictions_csv(work / "predictions.csv", task, said)
    changed = find_regressions(task, said["original"], said[chosen.strategy])
    if changed:
        changed.save(work / "regressions.json")
    bias = measurer.bias(original, subnetwork)
    if bias:
        bias.save(work / "bias.json")
    chosen.save(work / "selection.json")
    result.save(work / "metrics.json")
    write_figure(scores, work / "probes", chosen.kept)
    write_text(work / "report.md", run_report(task, measurer.loaded.family, scores, chosen, result, changed, bias))
    write_text(work / "report.html", run_page(scores, chosen, result, measurer.parameters, changed, bias))
    card = model_card(measurer.loaded, task, chosen, result, changed, bias)
    write_text(work / "model" / "README.md", card)
    return result


def prepare(config: RunConfig) -> tuple[Task, LoadedModel]:
    """Data and model, with everything that can be refused refused now: bad data, an impossible budget."""
    task = load_task(config.task, config.seed)
    check_probes(task, config)
    check_budget(config, len(task.train.names))
    source = config.model
    options = {"head": task.kind.head, "problem_type": task.kind.problem_type, "allow_pickle": source.allow_pickle}
    loaded = load_classifier(source.source, source.revision, task.train.names, config.seed, **options)
    for number, prop in enumerate(config.task.probes):
        if prop.pooling == "cls" and loaded.tokenizer.cls_token_id is None:
            raise UserError(
                "this model's inputs do not begin with a token for the whole text",
                field=f"task.probes.{number}.pooling",
                hint="use mean, or auto",
            )
    return task, loaded


def shrinker_of(loaded: LoadedModel, task: Task, config: RunConfig) -> Shrinker:
    """By all texts that are known, but those of dev."""
    texts = joined(task.train, task.unlabelled)
    if config.shrink.corpus is not None:
        texts = joined(
            texts, load_unlabelled(config.shrink.corpus, texts, task.dev, config.seed, field="shrink.corpus")
        )
    return Shrinker(loaded, texts, max_length=config.model.max_length)


def scores_of(
    work: Path, loaded: LoadedModel, task: Task, config: RunConfig, made: dict[str, Any], room: Parameters
) -> ProbeScores:
    """Probe scores with all that the strategies decide by. `room`: where the budget leaves most layers."""
    path = work / "scores.json"
    if not path.exists():
        probe(loaded, task, config, made).save(path)
    gather(load_scores(path), loaded, task, config, room).save(path)
    return load_scores(path)


def selections(
    scores: ProbeScores,
    parameters: Parameters,
    config: RunConfig,
    costs: dict[Unit, Cost],
    made: dict[str, Any],
    trials: Attempts | None = None,
) -> list[Selection]:
    """The run's own, then those it is compared with."""
    budget = parse_budget(config.selection.budget, config.selection.k)
    evidence, resamples = combine_scores([scores], [1.0])
    constraints = Constraints(budget, parameters, costs, Structure.from_config(config.selection))
    if trials:
        evidence = replace(evidence, trials={trials.best.kept: trials.best.loss})
    chosen, *others = (
        select(evidence, constraints, name, resamples=resamples, provenance=made) for name in strategies_of(config)
    )
    return [chosen.model_copy(update={"reason": trials.sentence()}) if trials else chosen, *others]


def trials_of(
    path: Path,
    measurer: Measurer,
    splits: Sequence[ShrinkPlan],
    scores: ProbeScores,
    config: RunConfig,
    costs: dict[Unit, Cost],
) -> Attempts | None:
    """What came of the candidates, where the run's strategy is to try them."""
    if STRATEGIES[config.selection.strategy].reads != "trials":
        return None
    budget = parse_budget(config.selection.budget, config.selection.k)
    evidence, structure = Evidence.from_scores(scores), Structure.from_config(config.selection)

    def propose(shrink: ShrinkPlan, rule: str) -> Subset | None:
        if STRATEGIES[rule].neighbours and structure.gap > 1:
            return None
        return select_subset(
            evidence, Constraints(budget, measurer.shrinker.count_parameters(shrink), costs, structure), rule
        )

    return try_out(path, measurer, splits, propose)


def splits_of(
    path: Path,
    shrinker: Shrinker,
    ways: list[ShrinkPlan],
    scores: ProbeScores,
    task: Task,
    config: RunConfig,
    costs: dict[Unit, Cost],
) -> list[ShrinkPlan]:
    """How the budget can be shared between layers and everything else: the best way for every number of layers, the
    best of all first. Kept, as it takes some passes.
    """
    if len(ways) == 1:
        return ways
    tries = STRATEGIES[config.selection.strategy].reads == "trials"
    if not path.exists():
        budget = parse_budget(config.selection.budget, config.selection.k)
        evidence, structure = Evidence.from_scores(scores), Structure.from_config(config.selection)
        strategy = config.selection.strategy
        if tries:  # the layers come later; here, how many
            strategy = STRATEGY if structure.gap == 1 else "marginal"

        def kept_with(parameters: Parameters) -> Subset | None:
            return select_subset(evidence, Constraints(budget, parameters, costs, structure), strategy)

        choose(shrinker, ways, kept_with, task, config).save(path)
    found = Splits.load(path)
    if not tries:
        console.print(f"the budget goes to {len(found.best.kept)} layers, {found.best.shrink}")
    by_layers: dict[int, ShrinkPlan] = {}
    for one in found.splits:
        by_layers.setdefault(len(one.kept), one.shrink)
    return list(by_layers.values())


def _costs(path: Path, loaded: LoadedModel, config: RunConfig) -> dict[Unit, Cost]:
    """What layers cost in the budget's units. Kept: a time measured twice would not be the same."""
    asked = config.selection
    units = parse_budget(asked.budget, asked.k).units
    if units <= {"parameters"}:
        return {}
    if not path.exists():
        workload = Workload(
            loaded.model.config,
            loaded.family,
            find_kind(config.task.kind).head,
            classes=len(loaded.model.config.id2label or ()),
            length=asked.length,
            batch_size=asked.batch_size,
        )
        costs = measure_costs(units, workload, count_parameters(loaded.model, loaded.family), loaded.model)
        write_json(path, {unit: cost.model_dump() for unit, cost in costs.items()})
    return {unit: Cost(**cost) for unit, cost in json.loads(path.read_text(encoding="utf-8")).items()}
