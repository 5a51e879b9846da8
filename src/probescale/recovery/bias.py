"""Does a prediction depend on what should not matter? Both models answer pairs of texts that differ in nothing else.

Removing layers can cause such a bias while the metric stays the same. So the difference between both models is
reported, with its interval.
"""

from __future__ import annotations

import numpy as np

from probescale.models.loading import LoadedModel
from probescale.recovery.inputs import build_inputs
from probescale.recovery.predict import compute_logits
from probescale.tasks.data import Data
from probescale.tasks.intervals import paired_interval
from probescale.tasks.kinds import find_kind
from probescale.tasks.swaps import Swaps
from probescale.utils.files import Record

ALL = "all pairs"


class SwapAnswers(Record):
    """How the answers of one model differ within every pair."""

    changed: tuple[bool, ...]  # different labels
    shift: tuple[float, ...]  # distance of the two predictions, 0 to 1: total variation, or mean change of labels


class SwapEffect(Record):
    """How often and how far predictions of both models change when only one thing changes."""

    group: str  # what changes
    pairs: int
    original_changed: float  # share of pairs with different labels
    small_changed: float
    original_shift: float  # mean total variation distance
    small_shift: float
    more_changed: tuple[float, float]  # 95 % interval of the difference, smaller model minus original
    more_shift: tuple[float, float]


class Bias(Record):
    """How predictions of both models depend on what should not matter. Saved as bias.json."""

    source: str  # the user's own pairs; empty: the sentences that come with ProbeScale
    total: SwapEffect
    groups: tuple[SwapEffect, ...]


def answer_swaps(loaded: LoadedModel, swaps: Swaps, like: Data, *, max_length: int = 128) -> SwapAnswers:
    """What a model makes of every pair. `like`: data of the task, as a template."""
    texts = tuple(pair.one for pair in swaps.pairs) + tuple(pair.other for pair in swaps.pairs)
    firsts = 2 * tuple(pair.first for pair in swaps.pairs)
    data = like.with_texts(texts, None) if like.pairs is None else like.with_texts(firsts, texts)
    title = "your pairs" if swaps.source else "names and pronouns"
    logits = compute_logits(loaded, build_inputs(loaded.tokenizer, data, max_length), title=title)
    kind = find_kind(like.kind)
    changed, shift = kind.compare(*np.split(kind.mean(logits), 2))
    return SwapAnswers(changed=tuple(changed.tolist()), shift=tuple(shift.tolist()))


def compare_swaps(swaps: Swaps, original: SwapAnswers, small: SwapAnswers) -> Bias:
    """Both models over all pairs, and over those of every group."""
    groups = np.array([pair.group for pair in swaps.pairs])
    everything = np.ones(len(groups), dtype=bool)
    return Bias(
        source=swaps.source,
        total=_compare(ALL, swaps, original, small, everything),
        groups=tuple(_compare(name, swaps, original, small, groups == name) for name in dict.fromkeys(groups.tolist())),
    )


def _compare(group: str, swaps: Swaps, original: SwapAnswers, small: SwapAnswers, rows: np.ndarray) -> SwapEffect:
    sentences = np.array([pair.sentence for pair in swaps.pairs])[rows]
    (whole_changed, whole_shift), (cut_changed, cut_shift) = (
        (np.array(answers.changed, dtype=float)[rows], np.array(answers.shift)[rows]) for answers in (original, small)
    )
    return SwapEffect(
        group=group,
        pairs=int(rows.sum()),
        original_changed=float(whole_changed.mean()),
        small_changed=float(cut_changed.mean()),
        original_shift=float(whole_shift.mean()),
        small_shift=float(cut_shift.mean()),
        more_changed=paired_interval(cut_changed, whole_changed, sentences),
        more_shift=paired_interval(cut_shift, whole_shift, sentences),
    )
