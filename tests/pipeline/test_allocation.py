"""Runs that also shrink embeddings, vocabulary and feed-forward layers: within the budget, loadable, reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from helpers.data import labelled_rows, write_csv
from helpers.sweeps import sweep
from probescale.config import RunConfig
from probescale.errors import Problems, UserError
from probescale.models.counting import count_parameters
from probescale.models.loading import LoadedModel, load_as_saved
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.shrink.shrinker import Shrinker
from probescale.pipeline import allocation
from probescale.pipeline.allocation import Allocations, _information_lost, _stays_lost, least_lost
from probescale.pipeline.prepare import prepare
from probescale.pipeline.run import run
from probescale.pipeline.smallest import smallest
from probescale.pipeline.validate import check
from probescale.probing.subnetwork_prober import SubnetworkProber
from probescale.tasks.data import Data
from probescale.tasks.task import Task

pytestmark = pytest.mark.slow


def _parts(loaded):
    return loaded.model, loaded.family


def settings(model_folder, task_files, family="bert", **more):
    raw = {
        "model": {"source": str(model_folder(family)), "max_length": 32},
        "task": {"train": {"source": str(task_files.train)}, "dev": {"source": str(task_files.dev)}},
        "selection": {"strategy": "bottom_k", "budget": "50%"},
        "shrink": "none",
        "recovery": {"epochs": 1, "learning_rate": 1e-3, "batch_size": 32, "augment": 0},
        "compare": ["top_k"],
    }
    for key, value in more.items():
        raw[key] = raw[key] | value if isinstance(raw.get(key), dict) and isinstance(value, dict) else value
    return check(raw)


@pytest.mark.parametrize("family", sweep(["roberta", "t5"], always=["roberta"]))
def test_given_sizes_are_met_and_the_folder_loads(model_folder, task_files, tmp_path, family):
    rank = {"rank": 12} if family == "roberta" else {}
    tokens = {"roberta": 300, "t5": 55}[family]
    asked = {"vocabulary": tokens, "units": 32, **rank}
    result = run(
        settings(model_folder, task_files, family, shrink=asked, selection={"budget": None, "k": 2}), tmp_path / "out"
    )
    folder = tmp_path / "out" / "model"
    loaded = load_as_saved(str(folder))
    assert count_parameters(loaded.model, loaded.family).total == result.subnetwork.params
    original = load_as_saved(str(model_folder(family)))
    two_layers = count_parameters(original.model, original.family).of([1, 2])
    assert result.subnetwork.params == result.compared["top_k"].params < two_layers  # every strategy shrinks alike
    assert loaded.model.config.vocab_size <= tokens
    assert len(AutoTokenizer.from_pretrained(folder)) <= tokens
    assert loaded.layers == 2
    record = json.loads((folder / "probescale.json").read_text())
    assert record["shrink"] == asked
    assert record["params"] == result.subnetwork.params
    assert f"{tokens:,} tokens" in result.recipe
    if rank:
        assert AutoModelForSequenceClassification.from_pretrained(folder).config.embedding_size == 12


def test_auto_meets_a_budget_that_layers_alone_cannot(model_folder, task_files, tmp_path):
    plain = settings(model_folder, task_files)
    whole = run(plain.model_copy(update={"compare": ()}), tmp_path / "whole").original.params
    most = load_as_saved(str(model_folder("bert")))
    counted = count_parameters(most.model, most.family)
    wanted = counted.of([]) + min(counted.layers) // 2  # less than one layer and the embeddings
    with pytest.raises(Problems, match="shrink: auto"):
        settings(model_folder, task_files, selection={"budget": wanted})
    config = settings(model_folder, task_files, selection={"budget": wanted}, shrink="auto")
    result = run(config, tmp_path / "small")
    assert result.original.params == whole
    assert result.subnetwork.params <= wanted
    assert result.compared["top_k"].params <= wanted
    ranked = Allocations.load(tmp_path / "small" / "allocation.json")
    assert ranked.best.kept == result.subnetwork.kept
    expected = [allocation.expected for allocation in ranked.allocations]
    assert expected == sorted(expected, reverse=True)
    assert all(allocation.params <= wanted for allocation in ranked.allocations)
    assert ranked.compared > 1
    assert len(ranked.allocations) == min(ranked.compared, 10)


def test_megabytes_count_what_shrinking_saves(model_folder, task_files):
    """A size that layers alone cannot meet: embeddings and units become smaller as well."""
    whole = count_parameters(*_parts(load_as_saved(str(model_folder("bert"))))).total * 4e-6
    wanted = f"{1000 * whole / 4:.0f}kB"
    with pytest.raises(Problems, match="the embeddings and the head already have"):
        settings(model_folder, task_files, selection={"budget": wanted})
    bench = prepare(settings(model_folder, task_files, selection={"budget": wanted}, shrink="auto"))
    bench = bench.with_costs(Path("not measured"))
    bench.check_budget()
    constraints = bench.constraints(bench.smallest_shrink)
    assert constraints.allow([1])
    assert constraints.known_costs["megabytes"].of([1]) < whole / 4


def test_operations_count_what_narrower_layers_save(model_folder, task_files, tmp_path):
    """Operations that two layers of full width would take are enough for more layers of fewer feed-forward units."""
    by_layers = {"budget": "1GFLOPs", "length": 32}
    bench = prepare(settings(model_folder, task_files, selection=by_layers)).with_costs(tmp_path / "costs.json")
    cost = bench.constraints(ShrinkPlan()).known_costs["gflops"]
    wanted = {"budget": f"{1.001 * cost.of([1, 2]):.9f}GFLOPs", "length": 32}
    bench = prepare(settings(model_folder, task_files, selection=wanted, shrink="auto"))
    bench = bench.with_costs(tmp_path / "costs of both.json")
    assert bench.constraints(ShrinkPlan()).allow([1, 2])
    assert not bench.constraints(ShrinkPlan()).allow([1, 2, 3])
    assert bench.constraints(bench.smallest_shrink).allow([1, 2, 3])
    assert bench.most_layers() >= 3


def test_a_budget_below_the_smallest_model_is_refused(model_folder, task_files, tmp_path):
    with pytest.raises(Problems, match=r"500 parameters") as caught:
        settings(model_folder, task_files, shrink="auto", selection={"budget": 500})
    assert "shrink: auto" not in str(caught.value), "it is there already"
    config = settings(model_folder, task_files, shrink="auto", selection={"budget": 3000})
    with pytest.raises(UserError, match=r"3,000 parameters"):  # shows when the texts are read
        run(config, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.long
def test_smallest_shares_every_budget_out(model_folder, task_files, tmp_path):
    """Half of the metric is what one answer to all reaches, so the smallest size of all is enough."""
    search = smallest(settings(model_folder, task_files, shrink="auto"), 0.5, tmp_path / "out")
    original, *others = search.trials
    loaded = load_as_saved(str(model_folder("bert")))
    one_layer = count_parameters(loaded.model, loaded.family).of([1])
    answer = next(trial for trial in others if trial.budget == search.answer)
    assert answer.params == min(trial.params for trial in others) < one_layer, "layers alone are not so small"
    for trial in others:
        assert trial.params <= original.params / float(trial.budget.removesuffix("x"))
    record = json.loads((tmp_path / "out" / "model" / "probescale.json").read_text())
    assert record["shrink"]
    assert record["params"] == answer.params
    assert not (tmp_path / "out" / ".work").exists()


def test_a_family_that_cannot_store_narrow_embeddings_is_refused(model_folder, task_files, tmp_path):
    with pytest.raises(UserError, match="factorised"):
        run(settings(model_folder, task_files, "mpnet", shrink={"rank": 12}), tmp_path / "out")


def test_unlabelled_texts_are_trained_on_and_reported(model_folder, task_files, tmp_path):
    rows = [text for text, _ in labelled_rows(300, seed=5)]
    source = tmp_path / "more.txt"
    source.write_text("\n".join([*rows, "", rows[0]]) + "\n")
    train = {text for text, _ in labelled_rows(160)}
    config = settings(
        model_folder, task_files, task={"unlabelled": str(source)}, selection={"budget": None, "k": 1}, compare=[]
    )
    result = run(config, tmp_path / "out")
    count = len(set(rows) - train)
    assert f"{count:,} unlabelled texts" in result.recipe
    assert "unlabelled" in result.provenance["data_sha256"]
    assert not (tmp_path / "out" / "teacher").exists()


def test_unlabelled_pairs_need_a_pair_column(model_folder, task_files, tmp_path):
    path = write_csv(tmp_path / "pairs.csv", [("a text", "b")], header="text,other")
    with pytest.raises(Problems, match="unlabelled"):
        settings(model_folder, task_files, task={"unlabelled": {"source": str(path), "pair": "other"}})


def test_a_missing_token_weighs_more_than_a_narrower_part():
    """Training wins a part of the latter back."""
    assert _stays_lost(ShrinkPlan(vocabulary=100), 0.2) == 0.2
    assert _stays_lost(ShrinkPlan(rank=8), 0.2) == _stays_lost(ShrinkPlan(units=8), 0.2) == pytest.approx(0.1)


def test_what_smaller_parts_lose_is_measured_on_texts_that_did_not_choose_them(model_folder, task_files, monkeypatch):
    """Tokens and units are chosen by some texts; what they do without is only missed on others."""
    probed, chosen_by = [], []

    class Recorded(SubnetworkProber):
        def __init__(self, loaded: LoadedModel, task: Task, config: RunConfig) -> None:
            super().__init__(loaded, task, config)
            probed.append([set(data.texts) for data in task.probe_data.values()])

    class Chosen(Shrinker):
        def __init__(self, loaded: LoadedModel, texts: Data, *, max_length: int = 128) -> None:
            super().__init__(loaded, texts, max_length=max_length)
            chosen_by.append(set(texts.texts))

    monkeypatch.setattr(allocation, "SubnetworkProber", Recorded)
    monkeypatch.setattr(allocation, "Shrinker", Chosen)
    own = {"name": "other", "data": {"source": str(task_files.train)}}
    bench = prepare(settings(model_folder, task_files, task={"probes": [{"name": "label"}, own]}))
    _information_lost(bench, [ShrinkPlan(units=8)], (1, 2))
    [old] = chosen_by
    assert [len(of_probes) for of_probes in probed] == [2, 2], "two probes, before and after"
    assert all(texts and texts.isdisjoint(old) for of_probes in probed for texts in of_probes)


def test_tokens_are_chosen_without_the_texts_that_judge_them(model_folder, task_files):
    shrinker = prepare(settings(model_folder, task_files, shrink="auto")).shrinker
    texts = shrinker.texts.texts
    fewer = shrinker.without(frozenset({0, 3}))
    assert fewer.texts.texts == (*texts[1:3], *texts[4:])
    assert sum(fewer.token_counts.values()) < sum(shrinker.token_counts.values())
    assert fewer.unit_moments is shrinker.unit_moments, "these are measured once"
    assert shrinker.without(frozenset({0, 3})) is fewer
    assert shrinker.without(frozenset()) is shrinker


def test_what_probes_do_not_see_is_counted_nevertheless(model_folder, task_files):
    """The fewer tokens stay whole and the narrower the embeddings are, the more is lost; units have no such floor."""
    shrinker = prepare(settings(model_folder, task_files, shrink="auto")).shrinker
    tokens = [ShrinkPlan(vocabulary=size) for size in (40, 60, 100)]
    widths = [ShrinkPlan(rank=rank) for rank in (4, 16, 32)]
    least = least_lost(shrinker, [*tokens, *widths, ShrinkPlan(units=8)])
    for parts in (tokens, widths):
        shares = [least[part] for part in parts]
        assert 1 > shares[0] > shares[1] >= shares[2] >= -1e-6
    assert least[ShrinkPlan(rank=32)] == pytest.approx(0, abs=1e-9), "the full width loses nothing"
    assert least[ShrinkPlan(units=8)] == 0
    t5 = prepare(settings(model_folder, task_files, "t5", shrink="auto")).shrinker
    assert list(least_lost(t5, [ShrinkPlan(vocabulary=60)])) == [ShrinkPlan(vocabulary=60)]
