from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probescale.errors import UserError
from probescale.models.cost import Cost
from probescale.models.parameters import Parameters
from probescale.selection.budget import Unit, parse_budget
from probescale.selection.select import select
from probescale.selection.strategies import STRATEGIES, score_of

PAPER = Path(__file__).parents[2] / "docs" / "paper_probes.csv"
NEEDS_NO_MODEL = sorted(STRATEGIES)


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
    assert select([0.5] * 8, parse_budget(k=3)).kept == (1, 2, 3)
    # 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit when added naively
    assert select([0.1, 0.2, 0.3, 0.2, 0.1], parse_budget(k=2)).kept == (2, 3)


@pytest.mark.parametrize(
    ("layers", "k", "kept"),
    [(24, 6, (4, 8, 12, 16, 20, 24)), (24, 4, (6, 12, 18, 24)), (12, 5, (2, 5, 7, 10, 12)), (6, 4, (2, 3, 5, 6))],
)
def test_uniform(layers, k, kept):
    assert select([0.0] * layers, parse_budget(k=k), strategy="uniform_k").kept == kept


def test_top():
    assert select([0.0] * 24, parse_budget(k=4), strategy="top_k").kept == (21, 22, 23, 24)


@st.composite
def problems(draw):
    layers = draw(st.integers(1, 48))
    relevance = draw(st.lists(st.floats(0, 1), min_size=layers, max_size=layers))
    sizes = draw(st.lists(st.integers(1, 1000), min_size=layers, max_size=layers))
    return relevance, Parameters(
        embeddings=draw(st.integers(0, 5000)), layers=tuple(sizes), rest=draw(st.integers(0, 50))
    )


@given(problems(), st.sampled_from(NEEDS_NO_MODEL), st.floats(0.01, 1))
def test_every_strategy_keeps_every_budget(problem, strategy, share):
    relevance, parameters = problem
    budget = parse_budget(f"{share:.4%}")
    limit = budget.limits[0].most(parameters.total)
    try:
        found = select(relevance, budget, parameters, strategy)
    except UserError:
        assert all(parameters.of(kept) > limit for kept in STRATEGIES[strategy](relevance, 1))
        return
    assert found.params is not None
    assert parameters.of(found.kept) == found.params <= limit
    assert sorted({*found.kept, *found.dropped}) == list(range(1, len(relevance) + 1))
    assert list(found.kept) == sorted(set(found.kept))
    larger = itertools.chain.from_iterable(
        STRATEGIES[strategy](relevance, k) for k in range(found.k + 1, len(relevance) + 1)
    )
    assert all(parameters.of(kept) > limit for kept in larger), "a larger k would have fitted"


@given(problems(), st.sampled_from(NEEDS_NO_MODEL), st.data())
def test_several_limits_and_a_layer_that_stays_hold_together(problem, strategy, data):
    """Exactly, with layers of different sizes: nothing larger of the strategy's own subsets would have fitted."""
    relevance, sizes = problem
    layers = len(relevance)
    parameters = sizes.model_copy(update={"fixed": data.draw(st.sampled_from([(), (1,)]))})
    times = data.draw(st.lists(st.floats(0.1, 9), min_size=layers, max_size=layers))
    costs: dict[Unit, Cost] = {"milliseconds": Cost(fixed=data.draw(st.floats(0, 5)), layers=tuple(times))}
    most_k = data.draw(st.integers(1, layers))
    most_ms = round(data.draw(st.floats(0.1, 1)) * costs["milliseconds"].total, 6)
    budget = parse_budget([f"{data.draw(st.floats(0.1, 1)):.4%}", f"{most_ms:.6f}ms"], most_k)
    most = budget.limits[0].most(parameters.total)

    def fits(kept):
        return parameters.of(kept) <= most and costs["milliseconds"].of(kept) <= budget.limits[1].most(0)

    def subsets(k):
        if not parameters.fixed:
            return STRATEGIES[strategy](relevance, k)
        others = [()] if k == 1 else STRATEGIES[strategy](relevance[1:], k - 1)
        return ((1, *(layer + 1 for layer in chosen)) for chosen in others)

    try:
        found = select(relevance, budget, parameters, strategy, costs=costs)
    except UserError:
        assert not any(fits(kept) for k in range(1, most_k + 1) for kept in subsets(k))
        return
    assert fits(found.kept)
    assert len(found.kept) == found.k <= most_k
    assert set(parameters.fixed) <= set(found.kept)
    assert found.costs["milliseconds"] == pytest.approx(costs["milliseconds"].of(found.kept), abs=1e-5)
    assert not any(fits(kept) for k in range(found.k + 1, most_k + 1) for kept in subsets(k))
    assert found.kept == next(kept for kept in subsets(found.k) if fits(kept))


@given(problems(), st.data())
def test_contiguous_is_the_best_block(problem, data):
    relevance, _ = problem
    k = data.draw(st.integers(1, len(relevance)))
    found = select(relevance, parse_budget(k=k))
    blocks = [tuple(range(s, s + k)) for s in range(1, len(relevance) - k + 2)]
    best = max(score_of(relevance, block) for block in blocks)
    assert found.score == best
    assert found.kept == next(block for block in blocks if score_of(relevance, block) == best)


def test_a_budget_needs_sizes(cli):
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
def test_wrong_options(cli, options, says):
    found = cli("select", PAPER, *options)
    assert found.code == 2
    assert says in found.err
    assert "Traceback" not in found.err
