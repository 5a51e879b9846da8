"""Lines that are no good are told one by one, whatever is wrong with them."""

from __future__ import annotations

import datetime
import gzip
import io
import json

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet
from transformers import RobertaForTokenClassification

from helpers.data import labelled_rows
from helpers.models import tiny_model
from probescale.deploy.evaluation import predict_dataset
from probescale.deploy.open_model import open_model
from probescale.deploy.predict import predict_lines
from probescale.deploy.texts import Format, Line, detect_format, open_texts, read_texts, read_whole_table
from probescale.errors import UserError
from probescale.tasks.data import TaggedSentences
from probescale.tasks.kinds import KINDS


def read(data: bytes, kind: Format, pair: str | None = None) -> list[Line]:
    return list(read_texts(io.BytesIO(data), kind, "text", pair))


def test_a_row_that_is_no_csv_is_told_and_the_others_go_on():
    good, bad, last = read(b"text\na\nb\rc\nd\n", "csv")
    assert (good.text, last.text, last.number) == ("a", "d", 4)
    assert bad.fault.startswith("new-line character seen in unquoted field;")


@pytest.mark.parametrize("data", [b"te\rxt\na\n", "text\na\n".encode("utf-16"), b"t\xe9xt\na\n"])
def test_a_first_line_that_cannot_be_read(data):
    with pytest.raises(UserError, match=r"^FILE: line 1: (new-line|not UTF-8)"):
        read(data, "csv")


@pytest.mark.parametrize(
    ("kind", "data"), [("csv", "text\na\nb\n"), ("lines", "a\nb\n"), ("jsonl", '{"text": "a"}\n{"text": "b"}\n')]
)
def test_a_byte_order_mark_is_no_part_of_the_first_line(kind, data):
    assert [line.text for line in read(data.encode("utf-8-sig"), kind)] == ["a", "b"]


def test_a_text_of_a_megabyte_in_a_table():
    assert [len(line.text) for line in read(b"text\n" + b"a" * 1_000_000 + b"\n", "csv")] == [1_000_000]


def test_bad_bytes_in_the_second_line_of_a_row():
    bad, good = read(b'text\n"one\n\xff two"\nthree\n', "csv")
    assert (bad.number, good.text) == (2, "three")
    assert bad.fault.startswith("not UTF-8")


def test_half_of_a_character():
    bad, good = read(b'{"text": "\\ud800"}\n{"text": "a"}', "jsonl")
    assert bad.fault.startswith("half of a character")
    assert good.text == "a"
    assert read(b'{"text": "a", "pair": "\\udfff"}', "jsonl", "pair")[0].fault
    assert read(b'{"text": "\\ud83d\\ude00"}', "jsonl")[0].text == "😀"


def test_the_other_columns_of_a_row_are_kept():
    first, short = read(b"id,text,,\n1,a,x,y\n2\n", "csv")
    assert first.row == {"id": "1", "text": "a", "": "x", ".4": "y"}
    assert (short.row["id"], short.row["text"], bool(short.fault)) == ("2", "", True)
    assert read(b'{"text": "a", "n": [1, null]}', "jsonl")[0].row == {"text": "a", "n": [1, None]}
    assert read(b"a\n", "lines")[0].row == {}


PAIRS = [("q", "a"), ("r", None), ("s", " "), ("t", 3), ("u", "b")]
NO_SECOND = [(2, "no second text"), (3, "no second text"), (4, "the second text is no string")]


def test_a_row_without_its_second_text_is_told_and_the_others_go_on(tmp_path):
    rows = [{"text": text, "pair": pair} for text, pair in PAIRS]
    as_json = "".join(json.dumps(row) + "\n" for row in rows).encode()
    found = read(as_json, "jsonl", "pair")
    assert [(line.number, line.fault) for line in found if line.fault] == NO_SECOND
    assert [(line.text, line.pair) for line in found if not line.fault] == [("q", "a"), ("u", "b")]
    assert found[1].row == {"text": "r", "pair": None}
    assert [line.fault for line in read(as_json, "jsonl")] == [""] * 5, "nobody asked for it"
    table = read(b"text,pair\nq,a\nr,\ns, \nu,b\n", "csv", "pair")
    assert [(line.number, line.pair, line.fault) for line in table] == [
        (2, "a", ""), (3, None, "no second text"), (4, None, "no second text"), (5, "b", "")
    ]  # fmt: skip
    texts = [{**row, "pair": None if row["pair"] == 3 else row["pair"]} for row in rows]
    parquet.write_table(pa.Table.from_pylist(texts), tmp_path / "pairs.parquet")
    whole = list(read_whole_table(tmp_path / "pairs.parquet", "text", "pair"))
    assert [line.fault for line in whole] == ["", *["no second text"] * 3, ""]
    assert [line.pair for line in whole] == ["a", None, None, None, "b"]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_row_without_its_second_text_does_not_stop_the_answers(tmp_path, model_folder, cli, suffix):
    rows, file = [{"text": "a film", "pair": pair} for pair in ("a story", None, "a plot")], tmp_path / f"in.{suffix}"
    if suffix == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        parquet.write_table(pa.Table.from_pylist(rows), file)
    done = cli("predict", model_folder("bert"), file, "--pair", "pair", "--format", "jsonl")
    assert (done.code, done.err.splitlines()[-2:]) == (
        1, ["line 2: no second text", "1 line could not be answered"]
    )  # fmt: skip
    said = [json.loads(line) for line in done.out.splitlines()]
    assert [(one["line"], "label" in one, one["pair"]) for one in said] == [
        (1, True, "a story"), (2, False, None), (3, True, "a plot")
    ]  # fmt: skip
    assert said[0]["probabilities"] != said[2]["probabilities"], "the second text is read"


def test_a_table_without_header_and_columns_by_number():
    lines = list(read_texts(io.BytesIO(b"7,a\n8,b\n"), "csv", "2", header=False))
    assert [(line.number, line.text, line.row["1"]) for line in lines] == [(1, "a", "7"), (2, "b", "8")]
    assert [line.text for line in read_texts(io.BytesIO(b"id,said\n7,a\n"), "csv", "2")] == ["a"]


@pytest.mark.parametrize(
    ("header", "found"), [("review,text", "a"), ("id,text", "b"), ("text,review", "b")], ids=["both", "usual", "other"]
)
def test_the_column_of_training_is_found_without_being_named(header, found):
    """A model that learned from `review` reads this column, and `text` where there is none."""
    names = header.split(",")
    as_json = json.dumps(dict(zip(names, ("a", "b"), strict=True))).encode()
    files: dict[Format, bytes] = {"csv": f"{header}\na,b\n".encode(), "jsonl": as_json}
    for kind, data in files.items():
        assert [line.text for line in read_texts(io.BytesIO(data), kind, "review", otherwise="text")] == [found]
    with pytest.raises(UserError, match='no column "review"'):
        list(read_texts(io.BytesIO(b"id,said\n7,a\n"), "csv", "review", otherwise="text"))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_table_of_columns(tmp_path, suffix):
    day = datetime.date(2024, 5, 1)
    rows = {"id": [7, 8], "said": ["a", None], "day": [day] * 2, "days": [[day], []]}
    table, path = pa.table(rows), tmp_path / f"texts.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table, path)
    else:
        with ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    first, second = read_whole_table(path, "review", None, otherwise="said")
    assert (first.number, first.text) == (1, "a")
    assert first.row == {"id": 7, "said": "a", "day": "2024-05-01", "days": ["2024-05-01"]}
    assert second.fault == "no text"
    with pytest.raises(UserError, match='no column "review"'):
        list(read_whole_table(path, "review", None))


def test_gzipped_tables_are_unpacked(tmp_path):
    path = tmp_path / "texts.csv.gz"
    path.write_bytes(gzip.compress(b"text\na\n"))
    assert detect_format(path) == "csv"
    with open_texts(path) as stream:
        assert [line.text for line in read_texts(stream, "csv")] == ["a"]
    path.write_bytes(b"no gzip")
    with pytest.raises(UserError, match=r"texts.csv.gz cannot be unpacked"):
        open_texts(path)


def test_what_could_not_be_written_again_is_told():
    deep = b"[" * 400 + b"]" * 400
    for other in (b'"\\ud800"', b"[" * 100_000 + b"]" * 100_000):
        bad, good = read(b'{"text": "a", "other": ' + other + b'}\n{"text": "a", "other": ' + deep + b"}", "jsonl")
        assert (bool(bad.fault), good.fault) == (True, "")


def test_a_wide_header_is_read_at_once():
    names = ",".join(["text", *("x" for _ in range(50_000))])
    assert read(f"{names}\n{names}\n".encode(), "csv")[0].text == "text"


def test_a_tagger_takes_no_pairs(model_folder):
    ready = open_model(str(model_folder("t5")))
    assert ready.kind is KINDS["tags"]
    with pytest.raises(UserError, match="reads one text at a time"):
        list(predict_lines(ready, [Line(1, "a", "b")]))


def test_a_tagger_predicts_what_is_evaluated(tmp_path):
    """Byte-level BPE joins a word and the space before it to one token: words tokenized alone give other tags."""
    classifier, tokenizer = tiny_model("roberta")
    names = ("O", "B-THING", "I-THING")
    classifier.config.id2label = dict(enumerate(names))
    tagger = RobertaForTokenClassification(classifier.config)
    tagger.base_model.load_state_dict(classifier.base_model.state_dict())
    tagger.classifier.weight.data.normal_(0, 1)
    tagger.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "probescale.json").write_text(json.dumps({"kind": "tags", "max_length": 24}))
    model = open_model(str(tmp_path))
    texts = tuple(text for text, _ in labelled_rows(40))
    data = TaggedSentences((), (), names).with_texts(texts, None)
    expected = [KINDS["tags"].show(tags, names).split() for tags in predict_dataset(model, data, 24)]
    assert len({tag for tags in expected for tag in tags}) > 2, "different tags, and words beyond the length limit"
    predicted = list(predict_lines(model, [Line(number, text) for number, text in enumerate(texts, 1)]))
    tags = [[tag or "-" for _, tag in answer.record()["tags"]] for answer in predicted]
    assert tags == expected
