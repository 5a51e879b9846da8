"""Complete runs of strategies that need more than layer probes: their evidence, their selection, what is refused."""

from __future__ import annotations

import json

import pytest
from ruamel.yaml import YAML

from helpers.models import LAYERS
from helpers.sweeps import sweep
from probescale.models.subsets import all_contiguous_blocks, count_passes
from probescale.pipeline import run as pipeline
from probescale.pipeline.evidence import collect_evidence
from probescale.pipeline.prepare import prepare
from probescale.pipeline.validate import check
from probescale.probing.probe import probe
from probescale.probing.score_files import load_scores

pytestmark = pytest.mark.slow

BY_FLOW = ("block_influence", "angular")
BY_SUBNETWORKS = ("stitched", "stitched_search", "exhaustive")
RUNS = {
    "stitched": "marginal",
    "exhaustive": "stitched_search",
    "block_influence": "angular",
}  # strategy: compared with


def raw_config(folder, task_files, **selection):
    return {
        "model": {"source": str(folder), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "relevance": {"metric": "information"},  # of so few rows, accuracies may all be equal
        "selection": {"k": 2, "strategy": "stitched", **selection},
        "shrink": "none",
        "compare": [],
        "recovery": {"epochs": 0},  # which layers are chosen does not depend on the training
        "seed": 3,
    }


@pytest.fixture(scope="module")
def run_of(tmp_path_factory, model_folder, task_files):
    """Give a function from a strategy to the folder of a run that uses or compares it."""
    made = {}

    def run(strategy):
        chosen = next(first for first, other in RUNS.items() if strategy in (first, other))
        if chosen not in made:
            made[chosen] = tmp_path_factory.mktemp(chosen) / "out"
            raw = raw_config(model_folder("bert"), task_files, strategy=chosen)
            pipeline.run(check(raw | {"compare": [RUNS[chosen]]}), made[chosen])
        return made[chosen]

    return run


@pytest.fixture
def config(tmp_path, model_folder, task_files):
    path = tmp_path / "config.yaml"
    YAML().dump(raw_config(model_folder("bert"), task_files), path)
    return path


@pytest.mark.parametrize("strategy", sweep(list(RUNS), always=["stitched"]))
def test_evidence_of_a_run_and_its_certainty(run_of, strategy):
    out = run_of(strategy)
    scores, selection = load_scores(out / "scores.json"), json.loads((out / "selection.json").read_text())
    assert (scores.flow is not None) == (strategy in BY_FLOW)
    assert (scores.subnetworks is not None) == (strategy in BY_SUBNETWORKS)
    assert (selection["strategy"], selection["k"]) == (strategy, 2)
    if strategy in BY_FLOW:
        assert selection["certainty"] is None, "nothing was held out"
    else:
        sure = selection["certainty"]
        assert sum(sure["layers"]) == pytest.approx(2)
        assert 0 <= sure["same"] <= sure["same"] + sure["other_share"] <= 1 + 1e-9
    assert strategy in (out / "report.md").read_text()


@pytest.mark.parametrize("strategy", [*BY_SUBNETWORKS, *BY_FLOW, "marginal"])
def test_select_on_the_scores_of_a_run_repeats_its_selection(cli, run_of, strategy):
    out = run_of(strategy)
    metrics = json.loads((out / "metrics.json").read_text())
    measured = metrics["subnetwork"] if strategy in RUNS else metrics["compared"][strategy]
    found = cli("select", out / "scores.json", "--strategy", strategy, "--k", 2, "--json")
    assert found.code == 0, found.err
    again = json.loads(found.out)
    assert again["kept"] == measured["kept"]
    assert (again["certainty"] is None) == (strategy in BY_FLOW)
    if strategy in RUNS:
        stored = json.loads((out / "selection.json").read_text())
        assert (again["kept"], again["certainty"]) == (stored["kept"], stored["certainty"])


def test_stitched_probes_every_block_and_takes_the_best(run_of):
    out = run_of("stitched")
    scores, selection = load_scores(out / "scores.json"), json.loads((out / "selection.json").read_text())
    probed = scores.subnetworks
    assert probed is not None
    assert set(all_contiguous_blocks(LAYERS, 2)) <= set(probed.subsets) <= set(all_contiguous_blocks(LAYERS, LAYERS))
    assert probed.passes == count_passes(probed.subsets, LAYERS)
    values = dict(zip(probed.subsets, probed.values, strict=True))
    assert values[tuple(selection["kept"])] == max(value for subset, value in values.items() if len(subset) == 2)
    assert len({len(row) for row in probed.draws}) == 1
    assert len(probed.draws) == len(probed.accuracy) == len(probed.subsets)
    assert all(0 <= accuracy <= 1 for accuracy in probed.accuracy)


def test_exhaustive_probes_all_subsets_and_agrees_with_the_blocks(run_of):
    found = {}
    for strategy in ("stitched", "exhaustive"):
        probed = load_scores(run_of(strategy) / "scores.json").subnetworks
        assert probed is not None
        found[strategy] = dict(zip(probed.subsets, probed.values, strict=True))
    assert len(found["exhaustive"]) == 4 + 6
    for subset in all_contiguous_blocks(LAYERS, 2):
        assert found["stitched"][subset] == pytest.approx(found["exhaustive"][subset], abs=1e-3)
    kept = tuple(json.loads((run_of("exhaustive") / "selection.json").read_text())["kept"])
    assert found["exhaustive"][kept] == max(v for subset, v in found["exhaustive"].items() if len(subset) == 2)


def test_block_influence_and_angular_follow_their_scores(run_of):
    flow = load_scores(run_of("block_influence") / "scores.json").flow
    assert flow is not None
    metrics = json.loads((run_of("block_influence") / "metrics.json").read_text())
    assert metrics["subnetwork"]["kept"] == sorted(
        sorted(range(1, LAYERS + 1), key=lambda layer: -flow.influence[layer - 1])[:2]
    )
    turns = {first: flow.angles[first - 1][first + 1] for first in (1, 2, 3)}  # a chunk of two begins here
    least = min(turns, key=turns.__getitem__)
    assert metrics["compared"]["angular"]["kept"] == sorted({1, 2, 3, 4} - {least, least + 1})


@pytest.mark.long
def test_a_required_layer_is_kept(cli, config, tmp_path):
    options = ["--set", "selection.strategy=stitched", "--set", "selection.keep=[1]"]
    options += ["--set", "recovery={epochs: 6, learning_rate: 3e-3, batch_size: 16}"]  # untrained, it would end with 1
    found = cli("run", config, "--out", tmp_path / "out", *options)
    assert found.code == 0, found.err
    kept = json.loads((tmp_path / "out" / "selection.json").read_text())["kept"]
    assert kept[0] == 1
    assert len(kept) == 2
    probed = load_scores(tmp_path / "out" / "scores.json").subnetworks
    assert probed is not None
    assert all(1 in subset for subset in probed.subsets), "nothing else is worth probing"


def test_the_search_respects_the_gap(cli, config, tmp_path):
    options = ["--set", "selection.strategy=stitched_search", "--set", "selection.gap=2"]
    found = cli("probe", config, "--out", tmp_path / "scores.json", *options)
    assert found.code == 0, found.err
    probed = load_scores(tmp_path / "scores.json").subnetworks
    assert probed is not None
    assert set(probed.subsets) == {(1,), (2,), (3,), (4,), (1, 3), (1, 4), (2, 4)}
    chosen = cli("select", tmp_path / "scores.json", "--strategy", "stitched_search", "--k", 2, "--gap", 2, "--json")
    assert chosen.code == 0, chosen.err
    first, second = json.loads(chosen.out)["kept"]
    assert second - first >= 2


def test_evidence_of_all_compared_strategies_is_gathered_once(model_folder, task_files):
    config = check(
        raw_config(model_folder("bert"), task_files, strategy="stitched") | {"compare": ["angular", "top_k"]}
    )
    bench = prepare(config)
    scores = probe(bench.loaded, bench.task, config)
    assert scores.flow is None
    assert scores.parameters is not None
    gathered = collect_evidence(scores, bench)
    assert gathered.flow is not None
    assert gathered.flow.texts == len(bench.task.train)
    assert gathered.subnetworks is not None
    again = collect_evidence(gathered, bench)
    assert again is gathered, "what is known is not measured again"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["selection.strategy=contiguous", "selection.gap=2"],
            "selection.gap: contiguous keeps neighbouring layers, which a gap of 2 forbids",
        ),
        (["selection.strategy=stitched", "selection.gap=2"], "keeps neighbouring layers"),
        (["selection.strategy=angular", "selection.gap=2", "selection.neighbours=true"], "contradict each other"),
        (["selection.strategy=exhaustive", "selection.keep=[9]"], "layer 9 does not exist"),
        (
            ["selection.strategy=exhaustive", "selection.keep=[1,2,3]"],
            "selection.k: k=2, but the required structure allows 3 to 4 layers",
        ),
        (
            ["selection.strategy=exhaustive", "selection.gap=4"],
            "selection.k: k=2, but the required structure allows 1 to 1 layers",
        ),
        (["selection.strategy=marginal", "selection.keep=[1,2]", "selection.gap=2"], "closer than the gap of 2"),
        (["selection.strategy=stiched"], 'Did you mean "stitched"'),
        (["selection.gap=0"], "selection.gap"),
        (["selection.passes=-1"], "selection.passes"),
    ],
)
def test_contradicting_settings_are_refused(cli, config, tmp_path, settings, says):
    options = [word for setting in settings for word in ("--set", setting)]
    for command in (["run", config, "--out", tmp_path / "out"], ["validate", config]):
        found = cli(*command, *options)
        assert found.code == 2, found.out
        assert says in found.err
        assert "Traceback" not in found.err
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(
    "settings", [["selection.strategy=stitched"], ["compare=[stitched]", "selection.strategy=angular"]]
)
def test_the_strategy_that_is_refused_is_named(cli, config, settings):
    options = [word for setting in [*settings, "selection.gap=2"] for word in ("--set", setting)]
    found = cli("validate", config, *options)
    assert "stitched keeps neighbouring layers" in found.err
    assert "such as stitched_search" in found.err


@pytest.mark.parametrize("strategy", ["stitched_search", "exhaustive"])
def test_too_few_passes_leave_nothing_behind(cli, config, tmp_path, strategy):
    options = ["--set", f"selection.strategy={strategy}", "--set", "selection.passes=1.5"]
    found = cli("run", config, "--out", tmp_path / "out", *options)
    assert found.code == 2
    assert "selection.passes" in found.err
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("strategy", ["stitched_search", "exhaustive"])
def test_validate_reports_too_few_passes(cli, config, strategy):
    options = ["--set", f"selection.strategy={strategy}", "--set", "selection.passes=1.5"]
    assert cli("validate", config, *options).code == 2
