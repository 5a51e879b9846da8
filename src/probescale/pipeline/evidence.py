"""Collect what the strategies decide by: probe scores, how states change through the layers, probed subnetworks."""

from __future__ import annotations

from pathlib import Path

from probescale.models.fast_float32 import fast_float32
from probescale.models.subsets import all_contiguous_blocks
from probescale.pipeline.workbench import Workbench
from probescale.probing.flow import measure_flow
from probescale.probing.probe import probe
from probescale.probing.score_files import load_scores
from probescale.probing.scores import ProbeScores
from probescale.probing.subnetwork_prober import SubnetworkProber
from probescale.selection.search import beam_search, beam_width, enumerate_subsets
from probescale.selection.strategies import Reads
from probescale.tasks.sampling import sample
from probescale.utils.progress import console

FLOW_TEXTS = 500  # states are averaged over all of their tokens
SUBNETWORKS: set[Reads] = {"blocks", "search", "all subsets"}  # what is read off probed subnetworks


@fast_float32()
def probe_task(bench: Workbench) -> ProbeScores:
    """Scores of every layer, with all that the configured strategies decide by."""
    return collect_evidence(probe(bench.loaded, bench.task, bench.config, bench.provenance), bench)


def probe_once(bench: Workbench, path: Path) -> ProbeScores:
    """As `probe_task`, kept in a file: what it already holds is not measured again."""
    if not path.exists():
        probe(bench.loaded, bench.task, bench.config, bench.provenance).save(path)
    named = {"task": bench.task.name, "provenance": bench.provenance}  # an interrupted run may have had another name
    collect_evidence(load_scores(path).model_copy(update=named), bench).save(path)
    return load_scores(path)


def best_task_probe(bench: Workbench, scores: ProbeScores) -> float | None:
    """The score of the best layer's probe for the task's own labels; None where no probe learns them."""
    own = [probe.name for probe in bench.config.task.probes if probe.data is None and probe.property is None]
    curves = [scores.probes[name].measures.get("accuracy") for name in own if name in scores.probes]
    return max((max(curve.values) for curve in curves if curve), default=None)


def collect_evidence(scores: ProbeScores, bench: Workbench) -> ProbeScores:
    """The scores, with what the strategies need beyond them."""
    needs = bench.needs
    if "flow" in needs and scores.flow is None:
        texts = sample(bench.task.calibration, FLOW_TEXTS, bench.config.seed)
        length, batch = bench.config.model.max_length, bench.config.probing.batch_tokens
        measured = measure_flow(bench.loaded, texts, max_length=length, batch_tokens=batch)
        scores = scores.model_copy(update={"flow": measured})
    if needs & SUBNETWORKS and scores.subnetworks is None:
        scores = scores.model_copy(update={"subnetworks": _probe_subnetworks(bench, needs).scores()})
    return scores


def _probe_subnetworks(bench: Workbench, needs: set[Reads]) -> SubnetworkProber:
    """Probe the subnetworks that the strategies choose among, wired as they are after the cut."""
    loaded, passes = bench.loaded, bench.config.selection.passes
    layers, most = loaded.layers, bench.most_layers()
    structure = bench.structure.with_kept(loaded.family.fixed(loaded.model.config))
    prober = SubnetworkProber(loaded, bench.task, bench.config)
    if "blocks" in needs:
        prober.score(all_contiguous_blocks(layers, layers, structure.keep))
    if "all subsets" in needs:
        prober.score(enumerate_subsets(layers, most, passes, structure))
    if "search" in needs:
        width = beam_width(layers, most, passes, structure)
        console.print(f"searching with a beam of {width}: at most {passes:g} passes through the model")
        beam_search(layers, most, structure, prober.score, width)
    return prober
