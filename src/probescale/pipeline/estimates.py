"""How long each phase of a run takes, by the measured pace of this machine."""

from __future__ import annotations

from probescale.models.shrink.units import count_units
from probescale.pipeline.pace import Pace
from probescale.pipeline.removals import CALIBRATION_TOKENS
from probescale.pipeline.sources import count_source_texts
from probescale.pipeline.tournament_size import count_tournament_texts, has_tournament
from probescale.pipeline.workbench import Workbench, choose_for_others
from probescale.probing.lens import LENS_TOKENS
from probescale.recovery.alternatives.frozen_encoder import MOST_TEXTS
from probescale.recovery.automatic import choose_recipe, count_available, count_read
from probescale.recovery.health import CHECKED_TEXTS
from probescale.recovery.recipe import Choices

FIXED_SECONDS = 20.0  # reading, cutting, proving and writing
PROBE_SECONDS = 0.5  # to fit the probes of one layer, controls included, of at most FEW_CLASSES
BLOCK_SECONDS = 0.25  # to fit the probes of one contiguous block
FEW_CLASSES = 10  # from here on, a probe takes as many times longer as there are classes
UNIT_SECONDS = 0.5  # to rank the feed-forward units of a layer with USUAL_UNITS; more take longer by their cube
USUAL_UNITS = 1536
ALLOCATIONS_PROBED = 11  # smaller parts, each shrunk and probed in half of the layers
ALLOCATION_SECONDS = 2.0  # for each of them
BYTES_PER_TOKEN = 4  # of running text, about


def name_phase(rung: str, what: str) -> str:
    """The name of a phase that every rung of a ladder has.

    >>> name_phase("5x", "training"), name_phase("", "training")
    ('5x: training', 'training')
    """
    return f"{rung}: {what}" if rung else what


def estimate_phases(bench: Workbench, choices: Choices, pace: Pace, effort: float = 1.0) -> dict[str, float]:
    """Seconds of every phase, in the order of the work.

    `effort`: how much is trained, in comparison with the usual amount; the rungs of a ladder get their recipes by it.
    """
    if bench.situation.running_text:
        return estimate_text_phases(bench, choices, pace)
    config, situation, layers = bench.config, bench.situation, bench.loaded.layers
    rows, dev = situation.labelled, len(bench.task.dev)
    probed, sampled = min(rows, config.probing.max_examples), min(rows, config.selection.sample)
    blocks, allocations = layers * (layers + 1) / 2, ALLOCATIONS_PROBED if len(bench.shrinks) > 1 else 0
    # Blocks that begin with the same layer share one pass; an allocation is probed in half of the layers.
    passes = probed + sampled * (blocks / layers + allocations / 2)
    fits = layers * PROBE_SECONDS + blocks * BLOCK_SECONDS + allocations * ALLOCATION_SECONDS
    fits *= max(len(bench.task.train.names) / FEW_CLASSES, 1)
    ranking = _estimate_ranking(bench)
    as_original = _estimate_original(bench, choices, pace)
    phases = {"probing": passes * pace.forward + fits + ranking, "training the original": as_original + ranking}
    if config.recovery.distil:
        answered = count_available(config.recovery, situation, choices.augment)
        phases["training the original"] += min(answered, choices.texts or answered) * pace.forward
    for name, rung in bench.rungs.items():
        own = choose_recipe(config.recovery, rung.situation, effort) if name else choices
        phases |= _estimate_rung(rung, name, count_read(config.recovery, situation, own), pace.for_rung(name))
    others, models = len(bench.strategies) - 1, len(config.other_models)
    if others or models:
        final = count_read(config.recovery, situation, choices) * pace.train_cut
        as_other = _estimate_original(bench, choose_for_others(bench, choices), pace)
        phases["comparison"] = others * (final + dev * pace.forward) + models * as_other
    most = min(MOST_TEXTS, config.probing.max_examples)  # labelled texts of the frozen encoder, and as many others
    encoded = min(rows, most) + min(count_available(config.recovery, situation, choices.augment) - rows, most)
    rungs = len(bench.rungs)
    by_rungs = dev * pace.forward * sum(pace.for_rung(name) for name in bench.rungs) / pace.train
    evaluation = rungs * FIXED_SECONDS + (encoded + dev) * pace.forward + by_rungs
    return phases | {"evaluation": evaluation}


def _estimate_original(bench: Workbench, choices: Choices, pace: Pace) -> float:
    """Seconds to train a model like the original, to check it and to answer dev."""
    rows, step = bench.situation.labelled, pace.for_original(choices.original_dropout)
    return choices.original_epochs * rows * step + (min(rows, CHECKED_TEXTS) + len(bench.task.dev)) * pace.forward


def _estimate_ranking(bench: Workbench) -> float:
    """Seconds to rank the feed-forward units of a whole model, where narrower layers are allowed."""
    if all(way.units is None for way in bench.shrinks):
        return 0.0
    units = count_units(bench.loaded.model, bench.loaded.family)
    return bench.loaded.layers * UNIT_SECONDS * (units / USUAL_UNITS) ** 3


def _estimate_rung(rung: Workbench, name: str, read: int, per_text: float) -> dict[str, float]:
    """Seconds of the phases that every size has; `read`: texts of its final training."""
    phases: dict[str, float] = {}
    if has_tournament(rung, read):
        phases[name_phase(name, "tournament")] = count_tournament_texts(rung, read) * per_text
    compared = 2 * count_source_texts(read) if rung.follows else 0  # cut from the original, and from the rung above
    return phases | {name_phase(name, "training"): (read + compared) * per_text}


def estimate_text_phases(bench: Workbench, choices: Choices, pace: Pace) -> dict[str, float]:
    """The same for running text, whose texts are blocks."""
    situation, layers = bench.situation, bench.loaded.layers
    read = count_read(bench.config.recovery, situation, choices)
    answered = choices.texts or situation.unlabelled
    dev = sum(len(text) for text in bench.task.dev.texts) / BYTES_PER_TOKEN / situation.tokens
    calibration = CALIBRATION_TOKENS / situation.tokens * layers**2 / 12 if "drop_loss" in bench.strategies else 0
    trained = choices.original_epochs * situation.unlabelled * pace.train
    references = bench.config.references
    others, full = len(bench.strategies) - 1 + len(references), "full_model" in references
    return {
        "probing": LENS_TOKENS / situation.tokens * pace.forward,
        "training the original": trained + (dev + answered * bench.config.recovery.distil) * pace.forward,
        "taking out layers": calibration * pace.forward,
        "training": read * pace.train_cut,
        "comparison": others * (read * pace.train_cut + dev * pace.forward) + full * read * pace.train,
        "evaluation": FIXED_SECONDS + dev * pace.forward,
    }
