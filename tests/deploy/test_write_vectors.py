"""`predict` of a sentence encoder writes vectors; of a model with several labels per text, labels and probabilities."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from pyarrow import parquet

from helpers.models import tiny_model
from probescale.deploy import write_vectors as writing
from probescale.models.loading import load_encoder
from probescale.recovery.embedder import Embedder

TEXTS = ["the plot was lovely", "a hero so dull and cold", "the music was boring and the cast funny"]


@pytest.fixture
def lines(tmp_path):
    file = tmp_path / "in.jsonl"
    rows = [{"text": TEXTS[0]}, {"text": 3}, {"text": TEXTS[1]}, {"text": TEXTS[2]}]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_vectors_have_a_row_per_line(tmp_path, monkeypatch, cli, encoder, lines, chunk):
    monkeypatch.setattr(writing, "CHUNK", chunk)
    wanted = Embedder(load_encoder(str(encoder), None), 32)(TEXTS)
    done = cli("predict", encoder, lines, "--out", tmp_path / "out.npy")
    assert done.code == 1, "a line has no text"
    vectors = np.load(tmp_path / "out.npy")
    assert vectors.shape == (4, wanted.shape[1])
    assert vectors.dtype == np.float32
    assert np.isnan(vectors[1]).all()
    assert vectors[[0, 2, 3]] == pytest.approx(wanted, abs=1e-5)
    assert cli("predict", encoder, lines, "--out", tmp_path / "out.parquet").code == 1
    table = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["line"] == [1, 2, 3, 4]
    assert [table["text"][place] for place in (0, 2, 3)] == TEXTS
    assert table["embedding"][1] is None
    assert np.array([table["embedding"][place] for place in (0, 2, 3)]) == pytest.approx(wanted, abs=1e-5)


def test_a_file_without_lines_has_an_empty_matrix(tmp_path, cli, encoder):
    (tmp_path / "none.txt").write_text("")
    assert cli("predict", encoder, tmp_path / "none.txt", "--out", tmp_path / "out.npy").code == 0
    assert np.load(tmp_path / "out.npy").shape == (0, 32)


@pytest.fixture(scope="module")
def labeller(tmp_path_factory):
    """A stock model that gives any number of labels."""
    from transformers import BertForSequenceClassification

    model, tokenizer = tiny_model("bert")
    folder, names = tmp_path_factory.mktemp("labeller"), {0: "praise", 1: "blame", 2: "music"}
    model.config.update(
        {
            "id2label": names,
            "label2id": {name: n for n, name in names.items()},
            "problem_type": "multi_label_classification",
        }
    )
    BertForSequenceClassification(model.config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_labels_and_the_probability_of_each(tmp_path, cli, labeller, lines):
    assert cli("predict", labeller, lines, "--out", tmp_path / "out.jsonl").code == 1
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert "labels" not in found[1]
    assert "fault" in found[1]
    for answer in (found[0], found[2], found[3]):
        assert set(answer["probabilities"]) == {"praise", "blame", "music"}
        assert answer["labels"] == [name for name, share in answer["probabilities"].items() if share > 0.5]
    assert cli("predict", labeller, lines, "--out", tmp_path / "out.csv").code == 1
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["line", "text", "labels", "probability_praise", "probability_blame", "probability_music"]
    assert rows[1]["labels"] == rows[1]["probability_praise"] == ""
    for row, answer in ((rows[0], found[0]), (rows[3], found[3])):
        assert row["labels"] == "|".join(answer["labels"])
        assert float(row["probability_blame"]) == answer["probabilities"]["blame"]


def test_labels_are_no_vectors(tmp_path, cli, labeller, lines):
    done = cli("predict", labeller, lines, "--out", tmp_path / "out.npy")
    assert done.code == 2
    assert "only embeddings are written as .npy or .parquet" in done.err
    assert not (tmp_path / "out.npy").exists()
