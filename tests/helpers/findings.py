"""Findings of runs that end differently: a clear success, a dead model, a busy machine, and doubts of several kinds.

The figures are made up in the shape of real ones; the layers are what the program would choose.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from probescale.models.parameters import Parameters
from probescale.models.speed import SpeedSpread
from probescale.probing.scores import Curve, ProbeResult, ProbeScores, SubnetworkScores
from probescale.recovery.regressions import Example, Regressions, Slice
from probescale.recovery.result import Alternative, EvaluatedModel, RunResult
from probescale.recovery.smallest import SearchStep, SmallestSearch
from probescale.report.findings import RunFindings
from probescale.selection.certainty import Certainty
from probescale.selection.result import Selection

LAYERS, EMBEDDINGS, LAYER, REST = 12, 11_917_000, 1_774_000, 150_000
SIZES = Parameters(embeddings=EMBEDDINGS, layers=(LAYER,) * LAYERS, rest=REST)
VALUES = (0.745, 0.776, 0.803, 0.826, 0.848, 0.861, 0.868, 0.872, 0.877, 0.875, 0.871, 0.859)
FREE = SpeedSpread(low=1.94, high=2.11, waited=0.01)
BUSY = SpeedSpread(low=0.62, high=5.4, waited=0.47)
CERTAIN = Certainty(draws=100, layers=(1.0,) * 4 + (0.0,) * 8, same=1.0)
UNCERTAIN = Certainty(draws=100, layers=(0.5,) * 12, same=0.41, other=(1, 2, 4, 6), other_share=0.33)
DEAD = (
    "The small model did not learn the task: it answers one class for 99 % of the training texts. Next: choose a "
    "larger budget, give more texts, or more time."
)


def evaluated(
    kept: tuple[int, ...], value: float, speedup: float, spread: SpeedSpread, **changes: Any
) -> EvaluatedModel:
    """A model with these layers of the twelve."""
    params = SIZES.of(kept)
    return EvaluatedModel(
        kept=kept,
        params=params,
        megabytes=params * 4 / 1e6,
        ratio_total=params / SIZES.total,
        ratio_layers=len(kept) / LAYERS,
        value=value,
        interval=(value - 0.015, value + 0.015),
        retention=value / 0.902,
        losses=(0.5, 0.3),
        milliseconds=41.2 / speedup,
        speedup=speedup,
        spread=spread,
        seconds=300.0,
    ).model_copy(update=changes)


def probe_scores() -> ProbeScores:
    """A probe at every layer, with floors, and probes of a few subnetworks."""
    low, high = (tuple(round(value + apart, 4) for value in VALUES) for apart in (-0.02, 0.02))
    probe = ProbeResult(
        scores=VALUES,
        weight=1.0,
        measures={"accuracy": Curve(values=VALUES, low=low, high=high)},
        floors={"majority": 0.557, "bag of words": 0.781},
    )
    subsets = ((1, 2, 3, 4), (1, 2, 4, 6), (9, 10, 11, 12))
    probed = SubnetworkScores(
        subsets=subsets,
        values=(0.83, 0.82, 0.7),
        accuracy=(0.83, 0.82, 0.7),
        metric="accuracy",
        examples=2000,
        passes=3,
    )
    return ProbeScores(task="reviews", layers=LAYERS, probes={"task": probe}, parameters=SIZES, subnetworks=probed)


def clear_success(**changes: Any) -> RunFindings:
    """Everything went well; `changes` are of the RunResult."""
    small = evaluated((1, 2, 3, 4), 0.889, 2.02, FREE)
    original = evaluated(tuple(range(1, LAYERS + 1)), 0.902, 1.0, SpeedSpread(low=0.97, high=1.04, waited=0.01))
    words = Alternative(
        name="bag of words", value=0.812, interval=(0.794, 0.829), retention=0.812 / 0.902, params=180_000,
        milliseconds=0.2, speedup=190.0, spread=SpeedSpread(low=150, high=240, waited=0),
    )  # fmt: skip
    provenance = {
        "command": "probescale compress my-model reviews.csv --budget 2x", "model": "my-model",
        "model_sha256": "5eed" * 16, "data_sha256": {"train": "ab" * 32, "dev": "cd" * 32}, "seed": 0,
        "versions": {"probescale": "0.1.0", "torch": "2.12"},
    }  # fmt: skip
    result = RunResult(
        task="reviews",
        metric="accuracy",
        split="dev",
        examples=2000,
        recipe="3 epochs, distilled from the original",
        strategy="stitched",
        original=original,
        subnetwork=small,
        compared={"top_k": evaluated((9, 10, 11, 12), 0.851, 2.01, FREE)},
        alternatives=(words,),
        retention=small.retention,
        retention_interval=(0.974, 0.997),
        provenance=provenance,
    ).model_copy(update=changes)
    return RunFindings(probe_scores(), selection(CERTAIN), result, SIZES, regressions())


def selection(certainty: Certainty, kept: tuple[int, ...] = (1, 2, 3, 4)) -> Selection:
    dropped = tuple(layer for layer in range(1, LAYERS + 1) if layer not in kept)
    return Selection(
        strategy="stitched", budget="2x", k=len(kept), kept=kept, dropped=dropped, score=3.15, certainty=certainty
    )


def regressions() -> Regressions:
    slices = (
        Slice(name="all", rows=2000, original=0.902, small=0.889, newly_wrong=61, newly_right=35),
        Slice(name="short (at most 9 words)", rows=702, original=0.921, small=0.915, newly_wrong=14, newly_right=10),
        Slice(name="with a negation", rows=288, original=0.861, small=0.823, newly_wrong=19, newly_right=8),
    )
    texts = ("not quite the disaster that its trailer promised", "you would be hard pressed to dislike it")
    examples = tuple(
        Example(row=17 + number, text=text, right="positive", original="positive", small="negative")
        for number, text in enumerate(texts)
    )
    return Regressions(agreement=0.952, newly_wrong=61, newly_right=35, slices=slices, examples=examples)


def replace_model(findings: RunFindings, **changes: Any) -> RunFindings:
    """The same findings with other figures of the small model."""
    result = findings.result
    small = result.subnetwork.model_copy(update=changes)
    return change(findings, result=result.model_copy(update={"subnetwork": small, "retention": small.retention}))


def change(findings: RunFindings, **changes: Any) -> RunFindings:
    """The same with other parts."""
    return replace(findings, **changes)


def dead_model() -> RunFindings:
    """A model that answers one class."""
    found = clear_success()
    small = evaluated((1, 2, 3, 4), 0.557, 2.02, FREE, retention=None)
    update = {"subnetwork": small, "retention": None, "retention_interval": None, "failure": DEAD, "compared": {}}
    update["original"] = found.result.original.model_copy(update={"retention": None})
    update["alternatives"] = tuple(one.model_copy(update={"retention": None}) for one in found.result.alternatives)
    return change(found, result=found.result.model_copy(update=update))


def busy_machine() -> RunFindings:
    """Other work took half of the processor while speed was measured."""
    return replace_model(clear_success(), speedup=1.31, spread=BUSY)


def uncertain_choice() -> RunFindings:
    """Resampled rows lead to other layers as often, and a compared strategy is as good."""
    found = clear_success()
    rival = evaluated((1, 2, 4, 6), 0.892, 2.02, FREE)
    result = found.result.model_copy(update={"compared": {"uniform_k": rival}})
    return change(found, result=result, selection=selection(UNCERTAIN))


def few_examples() -> RunFindings:
    """The dev set is too small to tell whether enough is kept."""
    found = clear_success()
    result = found.result.model_copy(update={"examples": 120, "retention_interval": (0.931, 1.021)})
    every = Slice(name="all", rows=120, original=0.902, small=0.889, newly_wrong=4, newly_right=2)
    changed = Regressions(agreement=0.95, newly_wrong=4, newly_right=2, slices=(every,), examples=())
    return change(found, result=result, regressions=changed)


def searched() -> RunFindings:
    """A search for the smallest model that keeps 97 %, one of whose guesses was far off."""
    found = clear_success()
    whole = found.result.original

    def step(budget: str, kept: tuple[int, ...], expected: float | None, value: float) -> SearchStep:
        return SearchStep(
            budget=budget, kept=kept, params=SIZES.of(kept), expected=expected, value=value, retention=value / 0.9,
            enough=value >= 0.97 * 0.9,
        )  # fmt: skip

    trials = (
        step("1x", whole.kept, None, 0.9),
        step("3x", (1, 2), 0.88, 0.82),
        step("2x", (1, 2, 3, 4), 0.884, 0.886),
    )
    search = SmallestSearch(
        metric="accuracy", keep=0.97, wanted=0.873, trials=trials, answer="2x", bracketed=True, examples=1200
    )
    return change(found, result=found.result.model_copy(update={"wanted": 0.97}), search=search)
