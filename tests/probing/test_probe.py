from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from helpers.data import labelled_rows, write_csv
from helpers.models import LAYERS
from probescale.config import ProbingConfig
from probescale.errors import ProbeScaleError, UserError
from probescale.models.loading import load_as_saved
from probescale.pipeline.prepare import prepare
from probescale.pipeline.validate import check
from probescale.probing.cache import Features
from probescale.probing.controls import _prove_randomness, with_random_weights
from probescale.probing.fitting import LabelledRows, score_property
from probescale.probing.parts import check_parts, split_parts
from probescale.probing.probe import probe
from probescale.probing.score_files import load_scores
from probescale.probing.scores import ProbeResult, ProbeScores, compute_relevance
from probescale.probing.sites import Site
from probescale.probing.targets import ProbeLabels
from probescale.selection.evidence import Evidence

NAMES = ("a", "b", "c")


class InMemory(Features):
    """Features from an array (layers, rows, hidden)."""

    def __init__(self, layers):
        rows = np.arange(layers.shape[1])
        super().__init__(None, rows, rows, rows, {f"layer-{n:03d}": layers.shape[2] for n in range(1, 9)})  # type: ignore[arg-type]
        object.__setattr__(self, "layers", layers.astype(np.float32))

    def load(self, site, rows, columns=slice(None)):
        return self.layers[int(site[-3:]) - 1][rows][:, columns]  # type: ignore[attr-defined]


def score(layers, values, seed=0, groups=None, **settings):
    target = ProbeLabels("class", values, NAMES[: values.max() + 1])
    parts = check_parts("p", target, split_parts(target, groups, 0.2, seed), groups)
    texts = [(str(n),) for n in range(len(target))]
    groups = np.arange(len(target)) if groups is None else groups
    rows = LabelledRows("p", target, texts, groups, parts, "cls", seed)
    sites = [Site("layer", n, layers.shape[2], None) for n in range(1, len(layers) + 1)]  # type: ignore[arg-type]
    scores = score_property(rows, InMemory(layers), sites, ProbingConfig(**settings))
    return [scores.sites[f"layer-{n:03d}"] for n in range(1, len(layers) + 1)], scores


@pytest.fixture(scope="module")
def layers():
    """Three layers: noise, a weak signal, a strong signal at a very different scale."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 900)
    noise = rng.normal(size=(3, 900, 20))
    noise[1, :, :3] += 1.0 * np.eye(3)[labels]
    noise[2, :, :3] += 4.0 * np.eye(3)[labels]
    return noise * np.array([1, 100, 0.001])[:, None, None], labels


def values(sites, name="accuracy"):
    return [site.measures[name].value for site in sites]


def test_scores_follow_the_signal_not_the_scale(layers):
    sites, scores = score(*layers)
    noise, weak, strong = values(sites)
    assert noise < 0.45 < 0.5 < weak < strong
    assert strong > 0.95
    assert all(site.converged for site in sites)
    assert (scores.train, scores.validation) == (720, 180)
    assert scores.baselines["majority"] < 0.45
    assert values(sites, "information") == sorted(values(sites, "information"))
    assert values(sites, "compression") == sorted(values(sites, "compression"))
    assert values(sites, "selectivity")[2] > 0.4


def test_random_labels_carry_no_information_and_intervals_cover_chance():
    rng = np.random.default_rng(1)
    labels = np.arange(2000) % 2
    sites, _ = score(rng.normal(size=(8, 2000, 30)), rng.permutation(labels))
    information = np.array(values(sites, "information"))
    assert np.abs(information).max() < 0.02, information
    covers = [site.measures["accuracy"].low <= 0.5 <= site.measures["accuracy"].high for site in sites]
    assert np.mean(covers) >= 0.8
    assert np.abs(np.array(values(sites, "compression")) - 1).max() < 0.1


def test_the_same_seed_gives_the_same_scores_and_another_seed_another_split(layers):
    first, again, other = (values(score(*layers, seed=seed)[0]) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_parts_do_not_overlap_and_words_of_a_sentence_stay_together(layers):
    target, groups = ProbeLabels("class", layers[1], NAMES), np.arange(900) // 10
    parts = split_parts(target, groups, 0.2, seed=0)
    assert parts is not None
    assert sorted(parts.order) == list(range(900))
    together = [set(groups[rows]) for rows in (parts.fit, parts.tuning, parts.validation)]
    assert sum(map(len, together)) == len(set.union(*together)) == 90
    assert parts.fit.tolist() != sorted(parts.fit), "in random order, for code lengths"


def test_validation_rows_have_no_part_in_the_fit(layers):
    features, labels = layers
    parts = split_parts(ProbeLabels("class", labels, NAMES), None, 0.2, seed=0)
    assert parts is not None
    changed = features.copy()
    changed[:, parts.validation] = 1e3
    for clean, altered in zip(score(features, labels)[0], score(changed, labels)[0], strict=True):
        assert (clean.penalty, clean.steps) == (altered.penalty, altered.steps)
        assert clean.gap == pytest.approx(altered.gap)
        assert clean.measures["code_length"].value == pytest.approx(altered.measures["code_length"].value)


def test_relevance_is_equation_1():
    scores = {"a": (0.5, 1.0), "b": (0.25, 0.0)}
    assert compute_relevance(scores, {"a": 0.5, "b": 2.0}) == (0.75, 0.5)


def test_scores_save_and_load(tmp_path):
    probes = {"a": ProbeResult(scores=(0.1, 0.2), weight=0.5), "b": ProbeResult(scores=(0.3, 0.1), weight=0.5)}
    scores = ProbeScores(task="t", layers=2, probes=probes)
    scores.save(tmp_path / "scores.json")
    assert load_scores(tmp_path / "scores.json") == scores
    assert scores.relevance == (0.2, 0.15000000000000002)
    assert scores.with_weights({"b": 1.0}).relevance == (0.3, 0.1)
    with pytest.raises(UserError, match="no score of the embeddings"):
        _ = scores.with_metric(contribution="marginal").relevance
    with pytest.raises(UserError, match="has no f1"):
        scores.with_metric("f1")


@pytest.fixture(scope="module")
def probed(tmp_path_factory, model_folder):
    """Everything at once on a tiny model: several kinds of probe, two seeds, sublayers, heads, random weights."""
    folder = tmp_path_factory.mktemp("probed")
    rows = labelled_rows(200)
    train = write_csv(folder / "train.csv", rows)
    tagged = "\n\n".join("\n".join(f"{w}\t{'T' if w in 'the and was' else 'W'}" for w in t.split()) for t, _ in rows)
    (folder / "tags.conll").write_text(tagged)
    lines = [json.dumps({"text": t, "label": [x for x in ("film", "plot") if x in t], "n": len(t)}) for t, _ in rows]
    (folder / "more.jsonl").write_text("\n".join(lines))
    config = check(
        {
            "model": {"source": str(model_folder("bert")), "max_length": 32},
            "task": {
                "train": str(train),
                "probes": [
                    {"name": "task", "pooling": "mean"},
                    {"name": "tags", "pooling": "token",
                     "data": {"source": str(folder / "tags.conll"), "text": 1, "label": 2}},
                    {"name": "words", "target": "multi", "pooling": "max", "data": str(folder / "more.jsonl")},
                    {"name": "size", "target": "number", "pooling": "last",
                     "data": {"source": str(folder / "more.jsonl"), "label": "n"}},
                    {"name": "order", "property": "bigram_shift"},
                ],
            },
            "probing": {"max_examples": 400, "seeds": 2, "granularity": ["sublayer", "head"], "random_weights": True},
            "selection": {"k": 2},
        }
    )  # fmt: skip
    bench = prepare(config)
    task, loaded = bench.task, bench.loaded
    return config, task, loaded, probe(loaded, task, config)


@pytest.mark.slow
def test_what_probing_reports(probed, tmp_path):
    _, _, _, scores = probed
    task, tags, words, size, order = (scores.probes[n] for n in ("task", "tags", "words", "size", "order"))
    assert task.scores == task.measures["accuracy"].values
    for result in (task, tags, words, order):
        assert set(result.measures) >= {"accuracy", "f1", "information", "selectivity", "code_length", "compression"}
    assert set(size.measures) == {"accuracy", "information", "selectivity", "control"}
    for result in scores.probes.values():
        assert set(result.floors) == {"majority", "bag of words", "embeddings"}
        curve = result.measures["accuracy"]
        assert len(curve.values) == len(result.scores) == LAYERS
        assert all(low <= value <= high for low, value, high in zip(curve.low, curve.values, curve.high, strict=True))
        assert curve.spread is not None
        assert result.seeds == 2
        assert result.attention is not None
        assert result.feed_forward is not None
        assert result.heads is not None
        assert [len(heads) for heads in result.heads] == [4] * LAYERS
        assert result.random_weights is not None
        assert len(result.random_weights.values) == LAYERS
        assert result.converged == (True,) * LAYERS
    assert size.random_weights.values != size.scores
    assert task.floors["bag of words"] > 0.9
    spread = size.measures["accuracy"].spread
    assert spread is not None
    assert min(spread) > 0, "seeds resample something real"
    assert max(task.scores) > 0.8
    assert max(words.scores) > 0.8
    assert max(size.scores) > 0.5
    assert size.floors["majority"] <= 0
    assert scores.random_weights is not None
    assert scores.random_weights["largest_correlation"] < 0.3
    scores.save(tmp_path / "s.json")
    assert load_scores(tmp_path / "s.json") == scores


@pytest.mark.slow
def test_marginal_credit_is_what_a_layer_adds(probed):
    scores = probed[3]
    marginal = scores.with_metric("selectivity", "marginal").with_weights({"task": 1.0})
    selectivity = scores.probes["task"].measures["selectivity"].values
    below = scores.probes["task"].embeddings["selectivity"]
    assert marginal.relevance[0] == pytest.approx(selectivity[0] - below)
    assert marginal.relevance[2] == pytest.approx(selectivity[2] - selectivity[1])
    assert sum(marginal.relevance) == pytest.approx(selectivity[-1] - below)


@pytest.mark.slow
def test_the_batch_size_changes_nothing(probed):
    config, task, loaded, scores = probed
    less = {"granularity": ("layer",), "random_weights": False, "code_length": False, "cache": False}
    settings = config.probing.model_copy(update=less | {"batch_tokens": 64})
    again = probe(loaded, task, config.model_copy(update={"probing": settings}))
    for name, result in again.probes.items():
        assert result.penalties == scores.probes[name].penalties
        if result.target == "number":
            np.testing.assert_allclose(result.scores, scores.probes[name].scores, atol=1e-5)
        else:
            assert result.scores == scores.probes[name].scores


def test_random_weights_are_random(model_folder):
    loaded = load_as_saved(str(model_folder("bert")))
    random, proof = with_random_weights(loaded, seed=0)
    again, _ = with_random_weights(loaded, seed=0)
    other, _ = with_random_weights(loaded, seed=5)
    assert random.fingerprint == again.fingerprint
    assert len({loaded.fingerprint, random.fingerprint, other.fingerprint}) == 3
    assert proof.matrices > 20
    assert proof.largest_correlation < 0.2
    weights = loaded.model.state_dict()
    with pytest.raises(ProbeScaleError, match="correlate"):
        _prove_randomness(weights, dict(weights))


def raw(model_folder, task_files, **more) -> dict[str, Any]:
    base = {"model": {"source": str(model_folder("bert"))}, "selection": {"k": 2}}
    return base | {"task": {"train": str(task_files.train)}} | more


@pytest.mark.parametrize(
    ("probe_section", "relevance_section", "says"),
    [
        ({"name": "p", "property": "sentence_lenght"}, {}, "did you mean|sentence_length"),
        ({"name": "p", "property": "tense"}, {}, "CoNLL-U"),
        ({"name": "p", "property": "tense", "pooling": "token"}, {}, "another pooling"),
        ({"name": "p", "target": "number"}, {}, "needs data of its own"),
        ({"name": "p"}, {"metric": "accurracy"}, "relevance.metric"),
    ],
)
def test_invalid_probes(model_folder, task_files, probe_section, relevance_section, says):
    settings = raw(model_folder, task_files, relevance=relevance_section)
    settings["task"] = settings["task"] | {"probes": [probe_section]}
    with pytest.raises(UserError, match=says):
        check(settings)


def test_a_metric_that_is_not_defined_for_a_probe(model_folder, task_files, tmp_path):
    rows = [json.dumps({"text": t, "label": len(t)}) for t, _ in labelled_rows(60)]
    (tmp_path / "n.jsonl").write_text("\n".join(rows))
    settings = raw(model_folder, task_files, relevance={"metric": "f1"})
    numbers = {"name": "n", "target": "number", "data": str(tmp_path / "n.jsonl")}
    settings["task"] = settings["task"] | {"probes": [numbers]}
    with pytest.raises(UserError, match="f1 is not defined"):
        check(settings)
    off = raw(model_folder, task_files, relevance={"metric": "compression"}, probing={"code_length": False})
    with pytest.raises(UserError, match=r"compression needs probing\.code_length"):
        check(off)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("s.csv", "layer,probe\n1,a\n", "no column score"),
        ("s.csv", "layer,probe,score\n", "no rows"),
        ("s.csv", "layer,probe,score\n1,a,x\n", "line 2: layer and score must be numbers"),
        ("s.csv", "layer,probe,score\n1,a,nan\n", "line 2: the score is nan"),
        ("s.csv", "layer,probe,score\n1,a,0.5\n3,a,0.5\n", "lacks layer 2"),
        ("s.csv", "layer,probe,score\n0,a,0.5\n1,a,0.5\n", "layer 0 of probe"),
        ("s.csv", "layer,probe,score\n1,a,0.5\n1,a,0.6\n", "appears twice"),
        ("s.csv", "layer,probe,score\n400000000,a,0.5\n", "layer 400000000 of probe"),
        ("s.csv", "layer,probe,score\n1,,0.5\n", "of probe ''"),
        ("s.csv", "layer,probe,score\n1,a,1e308\n", "the score is 1e"),
        ("s.csv", "layer,probe,score\n1,a,0.5\n1,b,0.6\n2,b,0.6\n", '"a" lacks layer 2'),
        ("s.json", "{", "cannot be read"),
        ("s.json", "[" * 100_000, "cannot be read"),
        ("s.json", '{"task": "\\ud800"}', "cannot be read: .*surrogates"),
        ("s.json", '{"task": ' + "9" * 5000 + "}", "cannot be read"),
        ("s.json", '{"task": "t"}', "not a scores file"),
        (
            "s.json",
            '{"task": "t", "layers": 3, "probes": {"a": {"scores": [0.1], "weight": 1}}}',
            "1 values for 3 layers",
        ),
        ("s.json", '{"task": "t", "layers": 1, "probes": {"a": {"scores": [NaN], "weight": 1}}}', "not a scores file"),
    ],
)
def test_scores_that_cannot_be_used(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=says):
        load_scores(tmp_path / name)


def test_sizes_in_a_scores_file_must_fit(tmp_path):
    scores = {"task": "t", "layers": 1, "probes": {"a": {"scores": [0.1], "weight": 1}}}
    for sizes, says in [
        ([5, 5], "2 values for 1 layers"),
        ([0], "not a scores file"),
        ([10**400], "not a scores file"),
    ]:
        sized = scores | {"parameters": {"embeddings": 1, "layers": sizes, "rest": 1}}
        (tmp_path / "s.json").write_text(json.dumps(sized))
        with pytest.raises(UserError, match=says):
            load_scores(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ({"flow": {"influence": [0.1], "angles": [[0, 0, 0]] * 3, "texts": 1}}, "influence has 1 values for 2 layers"),
        (
            {"flow": {"influence": [0.1, 0.2], "angles": [[0, 0, 0], [0], [0, 0, 0]], "texts": 1}},
            "a row of flow.angles",
        ),
        ({"subnetworks": {"subsets": [[1], [2]], "values": [0.5]}}, "values has 1 values for 2 subsets"),
        ({"subnetworks": {"subsets": [[1], [2]], "draws": [[0.5], [0.5, 0.6]]}}, "2 values for 1 draws"),
        ({"subnetworks": {"subsets": [[1], [3]]}}, "(3,) are not layers of a model that has 2"),
        ({"probes": {"a": {"scores": [0.1, 0.2], "weight": 1, "draws": [[0.1]]}}}, '"a" has 1 values for 2 layers'),
        ({"probes": {"a": {"scores": [0.1, 0.2], "weight": 1e308}}}, "not a scores file"),
    ],
)
def test_parts_of_a_scores_file_must_fit(tmp_path, part, says):
    """Nothing else would notice before a strategy uses them."""
    scores = {"task": "t", "layers": 2, "probes": {"a": {"scores": [0.1, 0.2], "weight": 1}}} | part
    if "subnetworks" in part:
        known = {"values": [0.5, 0.6], "accuracy": [0.5, 0.6], "metric": "accuracy", "examples": 9, "passes": 1}
        scores["subnetworks"] = known | part["subnetworks"]
    (tmp_path / "s.json").write_text(json.dumps(scores))
    with pytest.raises(UserError, match=re.escape(says)):
        load_scores(tmp_path / "s.json")


@pytest.mark.parametrize("seed", [-1, "x", [1], None])
def test_an_invalid_seed_is_replaced_by_zero(seed):
    probes = {"a": ProbeResult(scores=(0.1,), weight=1)}
    assert Evidence.from_scores(ProbeScores(task="t", layers=1, probes=probes, provenance={"seed": seed})).seed == 0


@pytest.mark.parametrize(("rows", "share"), [(2, 0.2), (3, 0.2), (120, 0.999), (120, 0.001)])
def test_too_little_to_split(rows, share):
    target = ProbeLabels("class", np.arange(rows) % 2, NAMES[:2])
    with pytest.raises(UserError, match="too little data"):
        check_parts("p", target, split_parts(target, None, share, seed=0))
