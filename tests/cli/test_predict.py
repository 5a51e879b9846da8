"""`predict` reads the columns that the model was trained on, also where only one of them is named."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from probescale.api import predict

QUESTIONS = ["what was the film like", "what was dull"]
SENTENCES = ["the film was lovely", "a hero so dull and cold"]


@pytest.fixture
def pairs_model(tmp_path, model_folder) -> Path:
    """A model that was trained on the columns question and passage."""
    folder = Path(shutil.copytree(model_folder("bert"), tmp_path / "model"))
    columns = {"text": "question", "pair": "passage", "header": True}
    (folder / "probescale.json").write_text(json.dumps({"kind": "class", "max_length": 64, "columns": columns}))
    return folder


@pytest.fixture
def expected(pairs_model) -> list[float]:
    """What the model says of the pairs."""
    return [answer.record()["probability"] for answer in predict(pairs_model, QUESTIONS, SENTENCES)]


def write(path: Path, first: str, second: str) -> Path:
    rows = [{first: one, second: other} for one, other in zip(QUESTIONS, SENTENCES, strict=True)]
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text("\n".join([f"{first},{second}", *(",".join(row.values()) for row in rows)]) + "\n")
    return path


def probabilities(out: str) -> list[float]:
    return [json.loads(line)["probability"] for line in out.splitlines()]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (("question", "passage"), ()),
        (("text", "passage"), ()),
        (("query", "passage"), ("--text", "query")),
        (("question", "found"), ("--pair", "found")),
        (("query", "found"), ("--text", "query", "--pair", "found")),
    ],
    ids=["as in training", "usual", "text", "pair", "both"],
)
def test_a_column_that_is_not_named_is_that_of_training(tmp_path, cli, pairs_model, expected, suffix, columns, options):
    done = cli("predict", pairs_model, write(tmp_path / f"in{suffix}", *columns), *options, "--format", "jsonl")
    assert done.code == 0, done.err
    assert probabilities(done.out) == pytest.approx(expected, abs=1e-5)


def test_a_table_without_the_second_column_is_refused(tmp_path, cli, pairs_model):
    table = write(tmp_path / "in.csv", "query", "found")
    done = cli("predict", pairs_model, table, "--text", "query", "--out", tmp_path / "out.jsonl")
    assert (done.code, done.out) == (2, "")
    assert '--pair: there is no column "passage"' in done.err
    assert "use one of: query, found" in done.err
    done = cli("predict", pairs_model, table, "--text", "found", "--pair", "found", "--out", tmp_path / "out.jsonl")
    assert done.code == 2
    assert '"found" would be read as the text and as the second text' in done.err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("options", [(), ("--text", "query")], ids=["plain", "text"])
def test_plain_lines_are_refused_by_a_model_of_pairs(tmp_path, cli, monkeypatch, pairs_model, options):
    (tmp_path / "in.txt").write_text("\n".join(QUESTIONS) + "\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(QUESTIONS[0].encode())))
    for file in (tmp_path / "in.txt", "-"):
        done = cli("predict", pairs_model, file, *options, "--out", tmp_path / "out.jsonl")
        assert (done.code, done.out) == (2, "")
        assert "was trained on pairs of texts, and plain lines have no second text" in done.err
        assert f'with the columns "{"query" if options else "question"}" and "passage"' in done.err
        assert not (tmp_path / "out.jsonl").exists()


def test_a_field_that_is_null_in_every_line_is_no_second_text(tmp_path, cli, pairs_model):
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps({"question": one, "passage": None}) + "\n" for one in QUESTIONS))
    done = cli("predict", pairs_model, file, "--format", "jsonl")
    assert done.code == 1
    assert [json.loads(line)["fault"] for line in done.out.splitlines()] == ["no second text"] * 2


def test_models_of_single_texts_take_no_second_column(tmp_path, cli, model_folder, encoder):
    table = write(tmp_path / "in.csv", "text", "other")
    for folder in (model_folder("t5"), encoder):
        assert cli("predict", folder, table, "--format", "jsonl").code == 0
        done = cli("predict", folder, table, "--pair", "other", "--format", "jsonl")
        assert (done.code, done.out) == (2, "")
        assert "--pair: " in done.err
        assert "reads one text at a time" in done.err
