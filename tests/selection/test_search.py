"""Beam search finds the best subsets, keeps the required structure, and never exceeds its passes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from probescale.errors import UserError
from probescale.models.subsets import count_passes
from probescale.selection.search import WIDEST, beam_passes, beam_search, beam_width, enumerate_subsets
from probescale.selection.structure import Structure

STRUCTURES = [
    Structure(),
    Structure(keep=(1,)),
    Structure(keep=(3,)),
    Structure(keep=(2, 7)),
    Structure(gap=2),
    Structure(keep=(4,), gap=2),
    Structure(keep=(2, 8), gap=3),
    Structure(contiguous=True),
    Structure(keep=(4,), contiguous=True),
]


class Additive:
    """A score function, the sum over the layers, that also records the scored subsets."""

    def __init__(self, values):
        self.values = values
        self.scored = []

    def of(self, subset):
        return sum(self.values[layer - 1] for layer in subset)

    def __call__(self, subsets):
        self.scored.append(list(subsets))
        return {subset: self.of(subset) for subset in subsets}


def every(layers, k, structure):
    return [subset for subset in itertools.combinations(range(1, layers + 1), k) if structure.allows(subset)]


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_a_wide_beam_finds_the_best_of_all_subsets(structure):
    layers, wide = 8, math.comb(8, 4)
    for seed, k in itertools.product(range(3), structure.sizes(layers)):
        score = Additive(np.random.default_rng(seed).random(layers).tolist())
        found = beam_search(layers, k, structure, score, wide)
        answers = [subset for subset in found if len(subset) == k and structure.allows(subset)]
        assert max(answers, key=score.of) == max(every(layers, k, structure), key=score.of)


def test_a_wide_beam_for_all_sizes_finds_the_best_of_each():
    """As for `smallest`: one search up to all layers."""
    score = Additive(np.random.default_rng(0).random(8).tolist())
    found = beam_search(8, 8, Structure(), score, width=math.comb(8, 4))
    for k in range(1, 9):
        best = max((subset for subset in found if len(subset) == k), key=score.of)
        assert best == max(every(8, k, Structure()), key=score.of)


def test_a_narrow_beam_is_greedy():
    score = Additive([0.1, 0.5, 0.2, 0.9])
    assert set(beam_search(4, 2, Structure(), score, width=1)) == {(1,), (2,), (3,), (4,), (2, 3), (2, 4)}


@st.composite
def searches(draw):
    layers = draw(st.integers(1, 14))
    keep = tuple(sorted(draw(st.sets(st.integers(1, layers), max_size=2))))
    contiguous = draw(st.booleans())
    nearest = min((b - a for a, b in itertools.pairwise(keep)), default=4)
    gap = 1 if contiguous else draw(st.integers(1, min(nearest, 4)))
    structure = Structure(keep, gap, contiguous)
    sizes = structure.sizes(layers)
    most = draw(st.integers(sizes[0], sizes[-1]))
    values = np.random.default_rng(draw(st.integers(0, 10**6))).normal(size=layers).tolist()
    return layers, most, structure, Additive(values), draw(st.integers(1, WIDEST))


@settings(deadline=None)
@given(searches())
def test_a_search_keeps_the_structure_and_the_number_of_passes(search):
    layers, most, structure, score, width = search
    found = beam_search(layers, most, structure, score, width)
    assert found == {subset: score.of(subset) for level in score.scored for subset in level}
    for size, level in enumerate(score.scored, 1):
        assert len(set(level)) == len(level)
        assert all(len(subset) == size for subset in level)
        assert len({subset[:-1] for subset in level}) <= width
    for subset in found:
        steps = [after - before for before, after in itertools.pairwise(subset)]
        assert all(step >= structure.gap for step in steps)
        assert not structure.contiguous or all(step == 1 for step in steps)
        assert set(range(1, subset[-1] + 1)) & set(structure.keep) <= set(subset), "one that has to stay is in it"
    cost = sum(count_passes(level, layers) for level in score.scored)
    assert cost <= beam_passes(layers, most, width) + 1e-9


def answered(layers, most, structure, score, width):
    """Sizes for which the search found a subset with the required structure."""
    found = beam_search(layers, most, structure, score, width)
    return sorted({len(subset) for subset in found if structure.allows(subset)})


@settings(deadline=None)
@given(searches())
def test_every_size_has_an_answer(search):
    layers, most, structure, _, _ = search
    assume(structure.keep in ((), (1,)))
    assert answered(*search) == list(range(structure.sizes(layers)[0], most + 1))


@pytest.mark.parametrize(
    ("layers", "k", "structure", "values"),
    [
        (4, 2, Structure(keep=(2, 4)), [0.9, 0.1, 0.1, 0.1]),
        (8, 2, Structure(keep=(7, 8)), [0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]),
        (3, 2, Structure(keep=(3,), contiguous=True), [0.9, 0.1, 0.1]),
    ],
)
def test_required_layers_are_reached(layers, k, structure, values):
    assert k in answered(layers, k, structure, Additive(values), width=1)


@given(st.integers(1, 48), st.data())
def test_the_beam_is_the_widest_within_the_passes(layers, data):
    most = data.draw(st.integers(1, layers))
    least = beam_passes(layers, most, 1)
    passes = data.draw(st.floats(least, 20 * least))
    width = beam_width(layers, most, passes, Structure())
    assert 1 <= width <= WIDEST
    assert beam_passes(layers, most, width) <= passes
    assert width == WIDEST or beam_passes(layers, most, width + 1) > passes


def test_too_few_passes_for_any_search_are_refused():
    with pytest.raises(UserError) as error:
        beam_width(12, 6, 11.5, Structure())
    assert "up to 12 passes through the model, and 11.5 are allowed" in str(error.value)
    assert error.value.field == "selection.passes"
    assert "allow 12" in (error.value.hint or "")
    assert beam_width(12, 6, 12, Structure()) == 1


def test_too_many_subsets_for_exhaustive_are_refused():
    with pytest.raises(UserError) as error:
        enumerate_subsets(12, 6, 30, Structure())
    assert "2,509 subnetworks, about 210 passes through the model, and 30 are allowed" in str(error.value)
    assert error.value.field == "selection.passes"
    assert "stitched_search" in (error.value.hint or "")


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_enumerated_subsets_are_all_that_have_the_structure(structure):
    found = enumerate_subsets(8, 5, 1000, structure)
    assert found == [subset for k in range(1, 6) for subset in every(8, k, structure)]
    assert len(enumerate_subsets(8, 5, 1000, Structure())) == 8 + 28 + 56 + 70 + 56
