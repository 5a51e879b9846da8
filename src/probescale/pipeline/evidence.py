"""Measure what the chosen strategies decide by, beyond the probe scores of the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from probescale.config import RunConfig
from probescale.models.cost import Cost
from probescale.models.loading import LoadedModel
from probescale.models.parameters import Parameters
from probescale.models.subsets import all_contiguous_blocks
from probescale.probing.flow import flow
from probescale.probing.scores import ProbeScores
from probescale.probing.stitched import Prober
from probescale.selection.budget import Unit, parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.search import beam_search, beam_width, enumerate_subsets
from probescale.selection.select import largest_k
from probescale.selection.strategies import STRATEGIES
from probescale.selection.structure import Structure
from probescale.tasks.sampling import sample
from probescale.tasks.task import Task
from probescale.utils.progress import console

FLOW_TEXTS = 500  # states are averaged over every token of them


def strategies_of(config: RunConfig) -> list[str]:
    """The configured strategy, then those it is compared with."""
    return list(dict.fromkeys((config.selection.strategy, *config.compare)))


def most_layers(
    layers: int, parameters: Parameters, config: RunConfig, costs: Mapping[Unit, Cost] | None = None
) -> int:
    """The most that any of the strategies can keep; without costs, as far as the parameters allow."""
    budget = parse_budget(config.selection.budget, config.selection.k)
    if costs is None:
        budget = replace(budget, limits=tuple(limit for limit in budget.limits if limit.unit == "parameters"))
    constraints = Constraints(budget, parameters, costs or {}, Structure.from_config(config.selection))
    return max(largest_k(layers, constraints, name) for name in strategies_of(config))


def gather(
    scores: ProbeScores, loaded: LoadedModel, task: Task, config: RunConfig, parameters: Parameters
) -> ProbeScores:
    """The scores with all that the configured strategies need to choose; the parameters say how much they can keep."""
    needs = {STRATEGIES[name].reads for name in strategies_of(config)}
    needs |= {"flow", "blocks"} if "trials" in needs else set()  # some of the rules that propose
    most = most_layers(loaded.layers, parameters, config)
    if "flow" in needs and scores.flow is None:
        texts = sample(task.train, FLOW_TEXTS, config.seed)
        found = flow(loaded, texts, max_length=config.model.max_length, batch_tokens=config.probing.batch_tokens)
        scores = scores.model_copy(update={"flow": found})
    if needs & {"blocks", "search", "all subsets"} and scores.subnetworks is None:
        prober = Prober(loaded, task, config)
        fixed = loaded.family.fixed(loaded.model.config)
        structure = Structure.from_config(config.selection).with_kept(fixed)
        layers, passes = loaded.layers, config.selection.passes
        if "blocks" in needs:
            prober.score(all_contiguous_blocks(layers, layers, structure.keep))
        if "all subsets" in needs:
            prober.score(enumerate_subsets(layers, most, passes, structure))
        if "search" in needs:
            width = beam_width(layers, most, passes, structure)
            console.print(f"searching with a beam of {width}: at most {passes:g} passes through the model")
            beam_search(layers, most, structure, prober.score, width)
        scores = scores.model_copy(update={"subnetworks": prober.scores()})
    return scores
