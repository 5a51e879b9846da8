from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from probescale.config import ProbingConfig
from probescale.errors import UserError
from probescale.probing.linear import Parts, fit_probe
from probescale.probing.probe import LabelledFeatures, check_parts, score_layers, split_parts
from probescale.probing.scores import ProbeResult, ProbeScores, load_scores, relevance
from probescale.tasks.metrics import METRICS


@pytest.fixture(scope="module")
def layers():
    """Three layers: noise, a weak signal, a strong signal at a very different scale."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 900)
    signal = np.eye(3)[labels]
    noise = rng.normal(size=(3, 900, 20))
    noise[1, :, :3] += 1.0 * signal
    noise[2, :, :3] += 4.0 * signal
    return LabelledFeatures((noise * np.array([1, 100, 0.001])[:, None, None]).astype(np.float32), labels)


def test_scores_follow_the_signal_not_the_scale(layers):
    found = score_layers(layers, "p", 1.0, "cls", ProbingConfig(), seed=0)
    noise, weak, strong = found.scores
    assert noise < 0.45 < 0.5 < weak < strong
    assert strong > 0.95
    assert found.converged == (True, True, True)
    assert found.train == 720
    assert found.validation == 180
    assert found.majority is not None
    assert found.majority < 0.45


def test_the_same_seed_gives_the_same_scores_and_another_seed_another_split(layers):
    first, again, other = (score_layers(layers, "p", 1.0, "cls", ProbingConfig(), seed=s) for s in (0, 0, 1))
    assert first == again
    assert first.scores != other.scores


def test_parts_do_not_overlap_and_words_of_a_sentence_stay_together(layers):
    groups = np.arange(900) // 10
    parts = split_parts(layers.labels, groups, 0.2, seed=0)
    assert parts is not None
    assert set(parts.train).isdisjoint(parts.validation)
    assert sorted([*parts.fit, *parts.judge]) == sorted(parts.train)
    assert set(groups[parts.train]).isdisjoint(groups[parts.validation])
    assert set(groups[parts.fit]).isdisjoint(groups[parts.judge])


def test_validation_rows_have_no_part_in_the_fit(layers):
    parts = split_parts(layers.labels, None, 0.2, seed=0)
    assert parts is not None
    spoiled = layers.labels.copy()
    spoiled[parts.validation] = 0
    accuracy = METRICS["accuracy"]
    chosen = [fit_probe(layers.features[1], y, parts, (0.01, 1.0), accuracy).penalty for y in (layers.labels, spoiled)]
    assert chosen[0] == chosen[1]


def test_a_probe_that_runs_out_of_steps_says_so(layers, monkeypatch):
    monkeypatch.setattr("probescale.probing.linear.MAX_STEPS", 2)
    parts = split_parts(layers.labels, None, 0.2, seed=0)
    assert parts is not None
    with pytest.warns(ConvergenceWarning):
        assert not fit_probe(layers.features[1], layers.labels, parts, (1.0,), METRICS["accuracy"]).converged


def test_parts_is_what_fit_probe_uses(layers):
    rows = np.arange(900)
    same = Parts(train=rows, validation=rows, fit=rows, judge=rows)
    assert fit_probe(layers.features[2], layers.labels, same, (1.0,), METRICS["accuracy"]).score > 0.97


def test_relevance_is_equation_1():
    scores = {"a": (0.5, 1.0), "b": (0.25, 0.0)}
    assert relevance(scores, {"a": 0.5, "b": 2.0}) == (0.75, 0.5)


def test_scores_save_and_load(tmp_path):
    probes = {"a": ProbeResult(scores=(0.1, 0.2), weight=0.5), "b": ProbeResult(scores=(0.3, 0.1), weight=0.5)}
    scores = ProbeScores(task="t", layers=2, probes=probes)
    scores.save(tmp_path / "scores.json")
    assert load_scores(tmp_path / "scores.json") == scores
    assert scores.relevance == (0.2, 0.15000000000000002)
    assert scores.weighted({"b": 1.0}).relevance == (0.3, 0.1)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("s.csv", "layer,probe\n1,a\n", "no column score"),
        ("s.csv", "layer,probe,score\n", "no rows"),
        ("s.csv", "layer,probe,score\n1,a,x\n", "line 2: layer and score must be numbers"),
        ("s.csv", "layer,probe,score\n1,a,nan\n", "line 2: the score is nan"),
        ("s.csv", "layer,probe,score\n1,a,0.5\n3,a,0.5\n", "lacks layer 2"),
        ("s.csv", "layer,probe,score\n0,a,0.5\n1,a,0.5\n", "layer 0 of probe"),
        ("s.csv", "layer,probe,score\n1,a,0.5\n1,a,0.6\n", "there twice"),
        ("s.csv", "layer,probe,score\n400000000,a,0.5\n", "layer 400000000 of probe"),
        ("s.csv", "layer,probe,score\n1,,0.5\n", "of probe ''"),
        ("s.csv", "layer,probe,score\n1,a,1e308\n", "the score is 1e"),
        ("s.csv", "layer,probe,score\n1,a,0.5\n1,b,0.6\n2,b,0.6\n", '"a" lacks layer 2'),
        ("s.json", "{", "not JSON"),
        ("s.json", '{"task": "t"}', "not a scores file"),
        (
            "s.json",
            '{"task": "t", "layers": 3, "probes": {"a": {"scores": [0.1], "weight": 1}}}',
            "1 scores for 3 layers",
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
    for sizes, says in [([5, 5], "not those of 1 layers"), ([0], "not a scores file"), ([-5], "not a scores file")]:
        sized = scores | {"parameters": {"embeddings": 1, "layers": sizes, "rest": 1}}
        (tmp_path / "s.json").write_text(json.dumps(sized))
        with pytest.raises(UserError, match=says):
            load_scores(tmp_path / "s.json")


@pytest.mark.parametrize(("rows", "share"), [(2, 0.2), (3, 0.2), (120, 0.999), (120, 0.001)])
def test_too_little_to_split(rows, share):
    labels = np.arange(rows) % 2
    with pytest.raises(UserError, match="too little data"):
        check_parts("p", labels, split_parts(labels, None, share, seed=0))
