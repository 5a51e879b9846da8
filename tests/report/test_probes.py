"""What people see of probing."""

from __future__ import annotations

import xml.dom.minidom

import pytest

from probescale.probing.scores import Curve, ProbeResult, ProbeScores
from probescale.report.figure import write_figure
from probescale.report.probes import parts_table, probe_notes, probe_table


def curve(*values: float, spread: float | None = None) -> Curve:
    spreads = None if spread is None else (spread,) * len(values)
    low, high = tuple(v - 0.05 for v in values), tuple(v + 0.05 for v in values)
    return Curve(values=values, low=low, high=high, spread=spreads)


@pytest.fixture
def scores():
    pos = ProbeResult(
        scores=(0.7, 0.9, 0.8),
        weight=0.5,
        measures={"accuracy": curve(0.7, 0.9, 0.8, spread=0.01), "selectivity": curve(0.3, 0.4, 0.2)},
        embeddings={"accuracy": 0.6, "selectivity": 0.1},
        floors={"majority": 0.2, "bag of words": 0.5, "embeddings": 0.6},
        random_weights=curve(0.5, 0.4, 0.3),
        heads=((0.3, 0.6), (0.5, 0.2), (0.4, 0.4)),
        train=80,
        validation=20,
        classes=45,
        seeds=3,
        pooling="token",
        steps=(9, 12, 10),
        gaps=(1e-7, 9e-7, 1e-8),
        converged=(True, True, False),
    )
    plain = ProbeResult(scores=(0.5, 0.6, 0.7), weight=0.5)
    return ProbeScores(task="tiny", layers=3, probes={"pos": pos, "given": plain})


def test_the_table_shows_layers_floors_and_intervals(scores):
    table = probe_table("pos", scores.probes["pos"])
    text = table.markdown()
    assert [row[0] for row in table.rows] == ["majority", "bag of words", "embeddings", "1", "2", "3"]
    assert table.strong == {4}, "the best layer"
    assert "0.850-0.950" in text
    assert r"0.8000\*" in text, "not converged"
    assert "±0.0100" in text
    assert table.rows[4][3] == "████████"
    assert table.rows[0][3].strip() == ""
    assert [row[-1] for row in table.rows[3:]] == ["0.5000", "0.4000", "0.3000"], "random weights"
    assert table.rows[2][4] == "0.1000", "the embeddings' selectivity"


def test_inside_the_layers(scores):
    table = parts_table("pos", scores.probes["pos"])
    assert table is not None
    assert table.rows[0][1:] == ("▃█", "0.6000", "2")
    assert parts_table("given", scores.probes["given"]) is None


def test_notes_say_how_it_was_measured(scores):
    pos, given = probe_notes(scores)
    assert "80 training and 20 validation rows" in pos
    assert "not converged at layer 3" in pos
    assert "mean of 3 draws" in pos
    assert given == "`given`: scores as given."


def test_the_figure_is_written_twice_alike(scores, tmp_path):
    first, again = write_figure(scores, tmp_path / "a"), write_figure(scores, tmp_path / "b")
    assert [path.name for path in first] == ["a.svg", "a.png"]
    assert first[0].read_bytes() == again[0].read_bytes()
    assert first[1].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    svg = first[0].read_text()
    assert len(xml.dom.minidom.parseString(svg).getElementsByTagName("svg")) == 1
    marginal = scores.model_copy(update={"probes": {"pos": scores.probes["pos"]}, "contribution": "marginal"})
    assert write_figure(marginal, tmp_path / "c")[0].read_text() != svg
