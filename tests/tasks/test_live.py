"""Data from Python becomes a JSONL file that the readers read back as it was."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pytest

from probescale.config import DataConfig
from probescale.errors import UserError
from probescale.tasks.columns import Layout, find_layout
from probescale.tasks.labelled import load_examples
from probescale.tasks.live import save_rows
from probescale.tasks.readers import read_jsonl

HARD = ['he said "no"', "two\nlines\r\nand a\ttab", "naïve 你好 👍", "\u2028 and \x85 and \\n", "{}", " blanks "]
LABELS = ["0", "1", "0", "1", "0", "1"]


def saved(rows, tmp_path):
    path = save_rows(rows, tmp_path / "rows.jsonl", field="data")
    assert path == tmp_path / "rows.jsonl"
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]
    return read_jsonl(path)


@pytest.mark.parametrize(
    "rows",
    [
        list(zip(HARD, LABELS, strict=True)),
        [list(row) for row in zip(HARD, LABELS, strict=True)],
        tuple(zip(HARD, LABELS, strict=True)),
        (HARD, LABELS),
        [HARD, LABELS],
        (tuple(HARD), tuple(LABELS)),
        (np.array(HARD), np.array(LABELS)),
        [{"text": text, "label": label} for text, label in zip(HARD, LABELS, strict=True)],
    ],
)
def test_texts_and_labels_survive_a_round_trip(tmp_path, rows):
    assert saved(rows, tmp_path) == {"text": HARD, "label": LABELS}


def test_pairs_and_plain_texts(tmp_path):
    assert saved([("a", "b", 1), ("c", "d", 0)], tmp_path) == {"text": ["a", "c"], "pair": ["b", "d"], "label": [1, 0]}
    assert saved((["a", "c"], ["b", "d"], [1, 0]), tmp_path)["pair"] == ["b", "d"]
    assert saved(HARD, tmp_path) == {"text": HARD}
    assert saved(["one", "two"], tmp_path) == {"text": ["one", "two"]}
    assert saved(("one", "two"), tmp_path) == {"text": ["one", "two"]}


def test_words_and_tags(tmp_path):
    rows = [(["EU", "rejects"], ["B", "O"]), (["No"], ["O"])]
    assert saved(rows, tmp_path) == {"text": [["EU", "rejects"], ["No"]], "label": [["B", "O"], ["O"]]}


def test_the_same_rows_give_the_same_bytes(tmp_path):
    rows = list(zip(HARD, LABELS, strict=True))
    files = [save_rows(rows, tmp_path / name, field="data") for name in ("a.jsonl", "b.jsonl")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert (
        save_rows([("é", 1)], tmp_path / "c.jsonl", field="data").read_bytes() == '{"text": "é", "label": 1}\n'.encode()
    )


def test_dicts_keep_their_names_and_order(tmp_path):
    rows = [{"review": "a", "stars": 5}, {"stars": 1, "review": "b", "by": "me"}]
    columns = saved(rows, tmp_path)
    assert columns == {"review": ["a", "b"], "stars": [5, 1], "by": [None, "me"]}
    assert list(columns) == ["review", "stars", "by"]


def test_values_become_plain(tmp_path):
    values = [np.int64(3), np.float32(0.5), np.bool_(True), np.str_("x"), np.array([1, 2]), np.float64("nan"), None]
    values += [float("nan"), datetime.date(2024, 1, 2), decimal.Decimal("1.5"), ("a", np.int8(1)), {"k": np.int8(2)}]
    wanted = [3, 0.5, True, "x", [1, 2], None, None, None, "2024-01-02", "1.5", ["a", 1], {"k": 2}]
    columns = saved([("text", value) for value in values], tmp_path)
    assert columns["label"] == wanted
    assert [type(value) for value in columns["label"]] == [type(value) for value in wanted]


def test_missing_cells_are_refused_by_the_readers(tmp_path):
    for rows, says in (
        ([("a text", "x"), (float("nan"), "y")], 'column "text" has 1 rows without text, first in row 2'),
        ([("a text", "x"), ("b text", None)], 'column "label" has 1 rows without a label, first in row 2'),
    ):
        path = save_rows(rows, tmp_path / "rows.jsonl", field="data")
        with pytest.raises(UserError, match=says):
            load_examples(DataConfig(source=str(path)), field="task.train")


def test_half_a_character_is_refused_by_the_readers(tmp_path):
    path = save_rows([("fine", 1), ("\ud83d", 0)], tmp_path / "rows.jsonl", field="data")
    with pytest.raises(ValueError, match="line 2 has half of a character"):
        read_jsonl(path)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (42, "rows cannot be read from int 42"),
        ("train.csv", "rows cannot be read from str 'train.csv'"),
        ({"text": ["a"], "label": ["b"]}, "rows cannot be read from dict"),
        (iter([("a", 1)]), "rows cannot be read from"),
        ([], "there are no rows"),
        ([{}], "there are no rows"),
        (([], []), "there are no rows"),
        ([1, 2, 3], "row 1 is int 1"),
        ([("a", 1), "b"], "row 2 is str 'b', and row 1 is tuple"),
        ([("a", 1), ("b", "c", 1)], "row 2 is tuple"),
        ([("a", 1, 2, 3)], "row 1 is tuple"),
        ((["a", "b"], ["x"]), "the lists have 2 and 1 entries"),
        ([("a", {1})], 'column "label" holds set {1}'),
        ([("a", [b"x"])], "column \"label\" holds bytes b'x'"),
        ([{1: "a", "1": "b"}], 'two columns are called "1"'),
    ],
)
def test_what_is_not_accepted(tmp_path, rows, says):
    with pytest.raises(UserError) as error:
        save_rows(rows, tmp_path / "rows.jsonl", field="data")
    assert error.value.field == "data"
    assert says in error.value.message
    assert error.value.hint
    assert list(tmp_path.iterdir()) == []


def test_the_hint_names_what_is_accepted(tmp_path):
    with pytest.raises(UserError) as error:
        save_rows(42, tmp_path / "rows.jsonl", field="data")
    for word in ("DataFrame", "datasets.Dataset", "dicts", "(text, label)", "(text, pair, label)", "(texts, labels)"):
        assert word in error.value.hint


def test_a_dataset_with_class_names(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "words": datasets.List(datasets.Value("string")),
            "label": datasets.ClassLabel(names=["neg", "pos"]),
            "tags": datasets.List(datasets.ClassLabel(names=["O", "B"])),
        }
    )
    columns = {"words": [["a", "b"], ["c"], ["d"]], "label": [1, 0, -1], "tags": [[0, 1], [-1], [0]]}
    table = datasets.Dataset.from_dict(columns, features=features)
    wanted = {"words": columns["words"], "label": ["pos", "neg", None], "tags": [["O", "B"], [None], ["O"]]}
    assert saved(table, tmp_path) == wanted
    assert saved(table.with_format("numpy"), tmp_path) == wanted
    assert saved(table.select([1]), tmp_path)["words"] == [["c"]]
    with pytest.raises(UserError, match="several splits: train, test") as error:
        save_rows(datasets.DatasetDict(train=table, test=table), tmp_path / "rows.jsonl", field="data")
    assert error.value.hint == 'give one: data["train"]'


def test_a_dataframe(tmp_path):
    pandas = pytest.importorskip("pandas")
    when = pandas.Timestamp("2024-01-02")
    frame = pandas.DataFrame(
        {
            "review": HARD[:3],
            "stars": np.array([5, 1, 3]),
            "group": pandas.Categorical(["x", None, "y"]),
            "count": pandas.array([1, None, 2], dtype="Int64"),
            "when": [when, pandas.NaT, when],
            0: [0.5, float("nan"), 1.0],
        },
        index=[7, 8, 9],
    )
    assert saved(frame, tmp_path) == {
        "review": HARD[:3],
        "stars": [5, 1, 3],
        "group": ["x", None, "y"],
        "count": [1, None, 2],
        "when": ["2024-01-02 00:00:00", None, "2024-01-02 00:00:00"],
        "0": [0.5, None, 1.0],
    }
    assert saved((frame["review"], frame["stars"]), tmp_path) == {"text": HARD[:3], "label": [5, 1, 3]}
    twice = pandas.DataFrame([["a", "b"]], columns=pandas.Index(["text", "text"]))
    with pytest.raises(UserError, match='two columns are called "text"'):
        save_rows(twice, tmp_path / "rows.jsonl", field="data")


def test_a_layout_is_found_in_rows_from_python(tmp_path):
    rows = [(f"the film number {n} was long", f"its scene {n} was not", n % 3) for n in range(12)]
    path = save_rows(rows, tmp_path / "rows.jsonl", field="data")
    assert find_layout(str(path)) == Layout("class", "text", "pair", "label")
