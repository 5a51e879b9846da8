"""Selection: every strategy, under budgets and structures."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from probescale.errors import UserError
from probescale.models.cost import Cost
from probescale.models.parameters import Parameters
from probescale.models.subsets import all_contiguous_blocks
from probescale.selection.budget import Unit, parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import Evidence, combine_evidence
from probescale.selection.search import beam_search, enumerate_subsets
from probescale.selection.select import select
from probescale.selection.strategies import STRATEGIES, sum_relevance
from probescale.selection.structure import Structure

PAPER = Path(__file__).parents[2] / "docs" / "concepts" / "paper_probes.csv"


@pytest.mark.parametrize(
    ("weights", "k", "first", "last"),
    [
        (["sst2=1"], 6, 18, 23),
        (["sst2=1"], 4, 19, 22),
        (["qnli=0.5", "pos=0.5"], 6, 16, 21),
        (["qnli=0.5", "pos=0.5"], 4, 16, 19),
    ],
)
def test_the_papers_table_gives_the_papers_blocks(cli, weights, k, first, last):
    options = [word for weight in weights for word in ("--weight", weight)]
    found = cli("select", PAPER, "--k", k, *options, "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["kept"] == list(range(first, last + 1))


def test_ties_go_to_the_lower_start():
    assert select([0.5] * 7 + [0.1], Constraints(parse_budget(k=3)), "contiguous").kept == (1, 2, 3)
    # 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit when added naively
    assert select([0.1, 0.2, 0.3, 0.2, 0.1], Constraints(parse_budget(k=2)), "contiguous").kept == (2, 3)


@pytest.mark.parametrize(
    ("layers", "k", "kept"),
    [(24, 6, (4, 8, 12, 16, 20, 24)), (24, 4, (6, 12, 18, 24)), (12, 5, (2, 5, 7, 10, 12)), (6, 4, (2, 3, 5, 6))],
)
def test_uniform_layers_are_evenly_spaced(layers, k, kept):
    assert select([0.0] * layers, Constraints(parse_budget(k=k)), "uniform_k").kept == kept


@st.composite
def problems(draw, most=48):
    layers = draw(st.integers(1, most))
    numbers = st.lists(st.floats(0, 1, width=16), min_size=layers, max_size=layers)
    angles = np.random.default_rng(draw(st.integers(0, 99))).random((layers + 1, layers + 1)).tolist()
    sizes = draw(st.lists(st.integers(1, 1000), min_size=layers, max_size=layers))
    parameters = Parameters(embeddings=draw(st.integers(0, 5000)), layers=tuple(sizes), rest=draw(st.integers(0, 50)))
    return Evidence(draw(numbers), 0.1, draw(numbers), angles, seed=draw(st.integers(0, 9))), parameters


@st.composite
def structures(draw, layers):
    """Requirements that some subset meets."""
    keep = draw(st.sampled_from([(), (1,), (1, layers)]))
    gap = draw(st.integers(1, max(1, min(4, layers - 1))))
    return Structure(tuple(sorted(set(keep))), 1 if draw(st.booleans()) else gap, gap == 1 and draw(st.booleans()))


def with_subnetworks(evidence, strategy, structure):
    """The evidence with a random score for every subnetwork that the strategy uses."""
    layers, draw = evidence.layers, np.random.default_rng(len(evidence.relevance))
    if strategy == "stitched":
        subsets = all_contiguous_blocks(layers, layers, structure.keep)
    elif strategy == "stitched_search":
        score = lambda several: {subset: float(draw.random()) for subset in several}  # noqa: E731
        return replace(evidence, subnetworks=beam_search(layers, layers, structure, score, 1))
    else:
        subsets = enumerate_subsets(layers, layers, 1e9, structure)
    return replace(evidence, subnetworks={subset: float(draw.random()) for subset in subsets})


def prepare(problem, strategy, structure):
    """The problem with the evidence that the strategy needs; problems without an answer are skipped."""
    evidence, parameters = problem
    reads = STRATEGIES[strategy].reads
    assume(reads not in ("all subsets", "tournament") or evidence.layers <= 8)
    assume(not (STRATEGIES[strategy].contiguous and structure.gap > 1))
    assume(len(set(evidence.relevance)) > 1 or evidence.layers == 1)
    assume(len(set(evidence.influence)) > 1 or evidence.layers == 1)
    if reads == "tournament":
        subsets = enumerate_subsets(evidence.layers, evidence.layers, 1e9, structure)
        order = np.random.default_rng(evidence.seed).permutation(len(subsets))
        return replace(evidence, tournament=[subsets[place] for place in order]), parameters
    if reads == "removals":
        order = np.random.default_rng(evidence.seed).permutation(evidence.layers)[1:] + 1
        evidence = replace(evidence, removals=order.tolist())
    if reads in ("blocks", "search", "all subsets"):
        evidence = with_subnetworks(evidence, strategy, structure)
    return evidence, parameters


@settings(max_examples=100, deadline=None)
@given(problems(), st.sampled_from(sorted(STRATEGIES)), st.floats(0.01, 1), st.data())
def test_every_strategy_keeps_every_budget_and_structure(problem, strategy, share, data):
    structure = data.draw(structures(problem[0].layers))
    evidence, parameters = prepare(problem, strategy, structure)
    layers = evidence.layers
    times = data.draw(st.lists(st.floats(0.1, 9), min_size=layers, max_size=layers))
    costs: dict[Unit, Cost] = {"milliseconds": Cost(fixed=data.draw(st.floats(0, 5)), layers=tuple(times))}
    most_ms = round(data.draw(st.floats(0.2, 1)) * costs["milliseconds"].total, 6)
    most_k = data.draw(st.sampled_from(structure.sizes(layers)))
    budget = parse_budget([f"{share:.4%}", f"{most_ms:.6f}ms"], most_k)
    most = budget.limits[0].most(parameters.total)

    def fits(kept):
        return parameters.of(kept) <= most and costs["milliseconds"].of(kept) <= budget.limits[1].most(0)

    choose = STRATEGIES[strategy].choose
    try:
        found = select(evidence, Constraints(budget, parameters, costs, structure), strategy)
    except UserError:
        assert not any(fits(kept) for kept in choose(evidence, structure.sizes(layers)[0], structure))
        return
    assert fits(found.kept)
    assert structure.allows(found.kept) or STRATEGIES[strategy].contiguous
    assert set(structure.keep) <= set(found.kept)
    assert len(found.kept) == found.k <= most_k
    assert list(found.kept) == sorted(set(found.kept))
    assert sorted({*found.kept, *found.dropped}) == list(range(1, layers + 1))
    assert found.costs["milliseconds"] == pytest.approx(costs["milliseconds"].of(found.kept), abs=1e-5)
    if found.k < most_k:
        assert not any(fits(kept) for kept in choose(evidence, found.k + 1, structure)), "a larger k would have fitted"
    assert found.kept == next(kept for kept in choose(evidence, found.k, structure) if fits(kept))


@settings(deadline=None)
@given(problems(8), st.sampled_from(["best_scores", "marginal", "block_influence"]), st.data())
def test_strategies_by_value_are_the_best_of_all_subsets(problem, strategy, data):
    structure = data.draw(structures(problem[0].layers))
    evidence, _ = prepare(problem, strategy, structure)
    k = data.draw(st.sampled_from(structure.sizes(evidence.layers)))
    values = {
        "best_scores": evidence.relevance,
        "marginal": np.diff([evidence.embeddings_relevance, *evidence.relevance]).tolist(),
        "block_influence": evidence.influence,
    }[strategy]
    every = [s for s in itertools.combinations(range(1, evidence.layers + 1), k) if structure.allows(s)]
    best = max(sum(values[layer - 1] for layer in subset) for subset in every)
    found = select(evidence, Constraints(parse_budget(k=k), structure=structure), strategy).kept
    assert sum(values[layer - 1] for layer in found) == pytest.approx(best)


@settings(deadline=None)
@given(problems(8), st.data())
def test_exhaustive_is_brute_force(problem, data):
    structure = data.draw(structures(problem[0].layers))
    evidence, _ = prepare(problem, "exhaustive", structure)
    k = data.draw(st.sampled_from(structure.sizes(evidence.layers)))
    every = [s for s in itertools.combinations(range(1, evidence.layers + 1), k) if structure.allows(s)]
    found = select(evidence, Constraints(parse_budget(k=k), structure=structure), "exhaustive").kept
    assert evidence.subnetworks[found] == max(evidence.subnetworks[subset] for subset in every)


@pytest.mark.parametrize("strategy", [n for n, s in STRATEGIES.items() if s.reads in ("nothing", "relevance", "flow")])
def test_few_subsets_are_examined_among_a_hundred_layers(strategy, monkeypatch):
    draw = np.random.default_rng(0)
    evidence = Evidence(draw.random(100).tolist(), 0.0, draw.random(100).tolist(), draw.random((101, 101)).tolist())
    parameters = Parameters(embeddings=1000, layers=tuple(draw.integers(10, 90, 100).tolist()), rest=1)
    structure = Structure(keep=(1,), gap=1 if STRATEGIES[strategy].contiguous else 2)
    known, examined = STRATEGIES[strategy], []

    def choose(*given):
        for subset in known.choose(*given):
            examined.append(subset)
            yield subset

    monkeypatch.setitem(STRATEGIES, strategy, replace(known, choose=choose))
    found = select(evidence, Constraints(parse_budget("40%"), parameters, structure=structure), strategy)
    # At most one swap of every kept layer with every other one, for each of at most 100 sizes: never all 2^100 subsets.
    assert len(examined) <= 100 * (1 + 50 * 50)
    assert examined[-1] == found.kept
    assert parameters.of(found.kept) <= 0.4 * parameters.total


@pytest.mark.parametrize(
    ("layers", "strategy", "k", "kept"),
    [
        (12, "bottom_k", 4, (1, 2, 3, 4)),
        (12, "alternate", 6, (1, 3, 5, 7, 9, 11)),
        (12, "alternate", 8, (1, 2, 3, 4, 5, 7, 9, 11)),
        (12, "alternate", 2, (1, 5)),
        (24, "top_k", 4, (21, 22, 23, 24)),
    ],
)
def test_strategies_without_scores(layers, strategy, k, kept):
    assert select([0.0] * layers, Constraints(parse_budget(k=k)), strategy).kept == kept


def test_random_depends_on_the_seed():
    drawn = {
        select(Evidence([0.0] * 12, seed=seed), Constraints(parse_budget(k=4)), "random").kept for seed in range(9)
    }
    assert len(drawn) > 5
    again = select(Evidence([0.0] * 12, seed=3), Constraints(parse_budget(k=4)), "random").kept
    assert again == select(Evidence([0.5] * 12, seed=3), Constraints(parse_budget(k=4)), "random").kept


def test_angular_drops_the_block_that_turns_least():
    angles = np.abs(np.subtract.outer(range(7), range(7))) / 10
    angles[2, 5] = 0.01  # layers 3 to 5 hardly change the hidden states
    evidence = Evidence([0.0] * 6, angles=angles.tolist())
    assert select(evidence, Constraints(parse_budget(k=3)), "angular").kept == (1, 2, 6)


def test_marginal_keeps_the_layers_with_the_largest_gain():
    evidence = Evidence([0.5, 0.8, 0.81, 0.9, 0.85, 0.86], embeddings_relevance=0.45)
    assert select(evidence, Constraints(parse_budget(k=3)), "marginal").kept == (1, 2, 4)


@pytest.mark.parametrize(
    ("evidence", "strategy", "structure", "k", "says"),
    [
        (Evidence([0.5, math.nan, 0.1]), "contiguous", Structure(), 2, "layer 2 is nan"),
        (Evidence([0.5] * 6), "contiguous", Structure(), 2, "all of them are 0.5"),
        (Evidence([0.5] * 6), "best_scores", Structure(), 2, "use bottom_k"),
        (Evidence([1, 2, 3], influence=[0.1] * 3), "block_influence", Structure(), 2, "all of them are 0.1"),
        (Evidence([1, 2, 3]), "block_influence", Structure(), 2, "selection.strategy=block_influence"),
        (Evidence([1, 2, 3]), "angular", Structure(), 2, "how texts flow"),
        (Evidence([1, 2, 3]), "marginal", Structure(), 2, "score of the embeddings"),
        (Evidence([1, 2, 3]), "stitched", Structure(), 2, "none of layers 1, 2"),
        (Evidence([1, 2, 3]), "stitched_search", Structure(), 2, "probes of subnetworks"),
        (Evidence([1, 2, 3]), "exhaustive", Structure(), 2, "probes of subnetworks"),
        (Evidence([1, 2, 3]), "contiguous", Structure(gap=2), 2, "use a gap of 1"),
        (Evidence([1, 2, 3]), "best_scores", Structure(gap=2, contiguous=True), 2, "contradict each other"),
        (Evidence([1, 2, 3]), "best_scores", Structure(gap=2), 3, "allows 1 to 2 layers"),
        (Evidence([1, 2, 3]), "best_scores", Structure(keep=(1, 2)), 1, "allows 2 to 3 layers"),
        (Evidence([1, 2, 3]), "best_scores", Structure(keep=(1, 2), gap=2), 2, "closer than the gap"),
        (Evidence([1, 2, 3]), "best_scores", Structure(keep=(4,)), 2, "layer 4 does not exist"),
    ],
)
def test_impossible_selections_are_refused(evidence, strategy, structure, k, says):
    with pytest.raises(UserError) as error:
        select(evidence, Constraints(parse_budget(k=k), structure=structure), strategy)
    assert says in str(error.value)


def test_the_default_is_stitched_where_all_blocks_were_probed():
    relevance = [0.9, 0.8, 0.1, 0.2]
    blocks = {block: float(block[0]) for block in all_contiguous_blocks(4, 4)}
    for constraints in (Constraints(parse_budget(k=2)), Constraints(parse_budget(k=2), structure=Structure((1,)))):
        assert select(relevance, constraints).strategy == "contiguous", "nothing was probed"
    both = select(Evidence(relevance, subnetworks=blocks), Constraints(parse_budget(k=2)))
    assert (both.strategy, both.kept) == ("stitched", (3, 4))
    searched = Evidence(relevance, subnetworks={(1,): 0.5, (4,): 0.6, (1, 2): 0.6, (1, 4): 0.7})  # by stitched_search
    assert select(searched, Constraints(parse_budget(k=1))).strategy == "contiguous"
    alone = select(searched, Constraints(parse_budget(k=2)))
    assert (alone.strategy, alone.kept) == ("contiguous", (1, 2))
    parameters = Parameters(embeddings=0, layers=(10, 10, 10, 10), rest=0)
    assert select(Evidence(relevance, subnetworks=blocks), Constraints(parse_budget("50%"), parameters)).kept == (3, 4)
    assert select(searched, Constraints(parse_budget("50%"), parameters)).strategy == "contiguous"


def test_certainty_is_the_share_of_equal_selections():
    clear = Evidence([0.1, 0.9, 0.9, 0.1])
    close = [Evidence([0.1, 0.9, 0.9, 0.1])] * 60 + [Evidence([0.9, 0.9, 0.1, 0.1])] * 40
    sure = select(clear, Constraints(parse_budget(k=2)), "contiguous", resamples=[clear] * 20).certainty
    unsure = select(clear, Constraints(parse_budget(k=2)), "contiguous", resamples=close).certainty
    assert sure is not None
    assert unsure is not None
    assert (sure.same, sure.close, sure.layers) == (1.0, False, (0.0, 1.0, 1.0, 0.0))
    assert (unsure.same, unsure.close, unsure.other, unsure.other_share) == (0.6, True, (1, 2), 0.4)
    assert unsure.layers == (0.4, 1.0, 0.6, 0.0)
    assert "Within the noise" in unsure.sentence()
    assert "Stable" in sure.sentence()
    assert select(clear, Constraints(parse_budget(k=2)), "bottom_k", resamples=close).certainty is None


def test_one_subnetwork_for_two_tasks():
    first = Evidence([0.9, 0.1, 0.1], embeddings_relevance=0.0, subnetworks={(1,): 0.9, (2,): 0.1})
    second = Evidence([0.1, 0.1, 0.8], embeddings_relevance=0.2, subnetworks={(1,): 0.1, (3,): 0.1})
    even, tilted = combine_evidence([(first, 1), (second, 1)]), combine_evidence([(first, 1), (second, 3)])
    assert select(even, Constraints(parse_budget(k=1)), "best_scores").kept == (1,)
    assert select(tilted, Constraints(parse_budget(k=1)), "best_scores").kept == (3,)
    assert even.embeddings_relevance == pytest.approx(0.1)
    assert even.subnetworks == {(1,): pytest.approx(0.5)}
    assert even.influence is None
    with pytest.raises(UserError, match="models with 3, 2 layers"):
        combine_evidence([(first, 1), (Evidence([1.0, 2.0]), 1)])
    with pytest.raises(UserError, match="weights are zero"):
        combine_evidence([(first, 0)])


@settings(deadline=None)
@given(problems(), st.data())
def test_contiguous_is_the_best_block(problem, data):
    relevance = problem[0].relevance
    assume(len(set(relevance)) > 1 or len(relevance) == 1)
    k = data.draw(st.integers(1, len(relevance)))
    found = select(relevance, Constraints(parse_budget(k=k)), "contiguous")
    blocks = [tuple(range(s, s + k)) for s in range(1, len(relevance) - k + 2)]
    best = max(sum_relevance(relevance, block) for block in blocks)
    assert found.score == best
    assert found.kept == next(block for block in blocks if sum_relevance(relevance, block) == best)


def test_a_budget_without_known_sizes_is_refused(cli):
    found = cli("select", PAPER, "--budget", "82M")
    assert found.code == 2
    assert "--model" in found.err


def test_a_budget_with_a_model_for_the_sizes(cli, model_folder, tmp_path):
    scores = tmp_path / "scores.csv"
    scores.write_text("layer,probe,score\n" + "\n".join(f"{i},p,0.{i}" for i in range(1, 5)))
    found = cli(
        "select", scores, "--budget", "90%", "--model", model_folder("bert"), "--json", "--out", tmp_path / "s.json"
    )
    assert found.code == 0, found.err
    selection = json.loads((tmp_path / "s.json").read_text())
    assert selection == json.loads(found.out)
    assert selection["kept"][-1] == 4
    assert selection["ratio_total"] <= 0.9
    assert selection["params"] == round(selection["ratio_total"] * selection["params_original"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--k", "25"], "k=25, but the model has 24 layers"),
        (["--k", "0"], "k is 0"),
        ([], "give a budget, k, or both"),
        (["--budget", "20ms"], "needs the ms of the layers"),
        (["--k", "2", "--strategy", "contigous"], 'Did you mean "contiguous"'),
        (["--k", "2", "--weight", "sst=1"], 'Did you mean "sst2"'),
        (["--k", "2", "--weight", "sst2"], "PROBE=NUMBER"),
        (["--k", "2", "--weight", "sst2=-1"], "weights are 0 or more"),
    ],
)
def test_wrong_options_are_refused(cli, options, says):
    found = cli("select", PAPER, *options)
    assert found.code == 2
    assert says in found.err
    assert "Traceback" not in found.err
