"""Measure what the chosen strategies decide by, beyond the probe scores of the layers."""

from __future__ import annotations

from collections.abc import Iterable

from probescale.config import RunConfig
from probescale.models.loading import LoadedModel
from probescale.probing.flow import flow
from probescale.probing.scores import ProbeScores
from probescale.probing.stitched import Prober
from probescale.progress import console
from probescale.selection.search import all_subsets, beam_search, beam_width
from probescale.selection.strategies import STRATEGIES
from probescale.selection.structure import structure_of
from probescale.subsets import every_block
from probescale.tasks.data import sample
from probescale.tasks.task import Task

FLOW_TEXTS = 500  # states are averaged over every token of them


def gather(
    scores: ProbeScores, loaded: LoadedModel, task: Task, config: RunConfig, strategies: Iterable[str], most: int
) -> ProbeScores:
    """The scores with all that these strategies need to choose at most so many layers."""
    needs = {STRATEGIES[name].reads for name in strategies}
    if "flow" in needs and scores.flow is None:
        texts = sample(task.train, FLOW_TEXTS, config.seed)
        found = flow(loaded, texts, max_length=config.model.max_length, batch_tokens=config.probing.batch_tokens)
        scores = scores.model_copy(update={"flow": found})
    if needs & {"blocks", "search", "all subsets"} and scores.subnetworks is None:
        prober = Prober(loaded, task, config)
        fixed = loaded.family.fixed(loaded.model.config)
        structure = structure_of(config.selection).also(fixed)
        layers, passes = loaded.layers, config.selection.passes
        if "blocks" in needs:
            prober.score(every_block(layers, most, structure.keep))
        if "all subsets" in needs:
            prober.score(all_subsets(layers, most, passes, structure))
        if "search" in needs:
            width = beam_width(layers, most, passes, structure)
            console.print(f"searching with a beam of {width}: at most {passes:g} passes through the model")
            beam_search(layers, most, structure, prober.score, width)
        scores = scores.model_copy(update={"subnetworks": prober.scores()})
    return scores
