from __future__ import annotations

import gzip
import json

import psutil
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from probescale.errors import Problems, UserError
from probescale.tasks import readers
from probescale.tasks.readers import READERS, read_columns
from probescale.utils.sources import DATA_SUFFIXES

ROLES: dict[str, str | int] = {"text": "text", "label": "label"}


def read(path, roles=ROLES):
    return read_columns(str(path), None, roles, field="task.train")


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv"])
def test_the_file_is_closed_before_arrow_reads_ahead(tmp_path, monkeypatch, name):
    """Its thread once took a piece of the file that was opened next, which had the same descriptor."""
    path, real, called = tmp_path / name, readers.csv.open_csv, []
    path.write_text("text\n" + "a long row of words\n" * 200_000)  # several blocks

    def watched(source, **options):
        called.append(source)
        assert str(path) not in [file.path for file in psutil.Process().open_files()]
        return real(source, **options)

    monkeypatch.setattr(readers.csv, "open_csv", watched)
    assert len(read(path, {"text": "text"})["text"]) == 200_000
    assert len(called) == 1


def test_csv_is_read_as_written(tmp_path):
    """datasets' loader turns NA and null into None and 007 into 7; nothing here does."""
    file = tmp_path / "a.csv"
    file.write_text('text,label\nNA,007\nnull,1e3\n"two\nlines, ""quoted""",\n', encoding="utf-8")
    assert read(file) == {"text": ["NA", "null", 'two\nlines, "quoted"'], "label": ["007", "1e3", ""]}


@pytest.mark.parametrize(("name", "sign"), [("a.csv", ","), ("a.tsv", "\t"), ("a.csv.gz", ",")])
def test_a_file_without_header(tmp_path, name, sign):
    content = f"NA{sign}007\na text{sign}1\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    roles: dict[str, str | int] = {"text": 1, "label": "2"}
    found = read_columns(str(tmp_path / name), None, roles, header=False, field="task.train")
    assert found == {"text": ["NA", "a text"], "label": ["007", "1"]}
    with pytest.raises(Problems, match="if its first line is a row, set header: false"):
        read(tmp_path / name)


def test_columns_by_number_and_names_first(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "a", "group": 1}\n')
    assert read(tmp_path / "a.jsonl", {"text": 1, "label": "2"}) == {"text": ["a"], "label": [1]}
    (tmp_path / "b.csv").write_text("0,1\na,b\n")  # as pandas writes a table without names
    assert read(tmp_path / "b.csv", {"text": 0, "label": 1}) == {"text": ["a"], "label": ["b"]}
    for wrong in (0, 3, "-1", "9" * 5000, "²"):
        with pytest.raises(Problems, match="is not in"):
            read(tmp_path / "a.jsonl", {"text": wrong})


def test_tsv_takes_quotes_as_characters(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text('text\tlabel\n" half a quote\t1\nhe said "no"\t0\n', encoding="utf-8")
    assert read(file)["text"] == ['" half a quote', 'he said "no"']


def test_gzip_and_byte_order_mark(tmp_path):
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress("\ufefftext,label\nå,1\n".encode()))
    assert read(file) == {"text": ["å"], "label": ["1"]}


def test_a_byte_order_mark_in_every_kind_of_text_file(tmp_path):
    words: dict[str, str | int] = {"text": 1, "label": 2}
    for name, written, roles, wanted in (
        ("a.tsv", "text\tlabel\na\t1\n", None, {"text": ["a"], "label": ["1"]}),
        ("a.jsonl", '{"text": "a", "label": 1}\n', None, {"text": ["a"], "label": [1]}),
        ("a.conll", "The\tDT\n", words, {"text": [["The"]], "label": [["DT"]]}),
    ):
        (tmp_path / name).write_text(written, encoding="utf-8-sig")
        assert (read(tmp_path / name, roles) if roles else read(tmp_path / name)) == wanted, name


def test_jsonl_parquet_arrow(tmp_path):
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 0}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    table = pa.Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    for suffix in ("jsonl", "parquet", "arrow"):
        assert read(tmp_path / f"a.{suffix}") == {"text": ["a", "b"], "label": [1, 0]}


def test_parquet_with_a_column_that_its_schema_does_not_have(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"words": [["a", "b"], ["c"]]}), path)
    data = path.read_bytes()
    place = data.rindex(b"element")  # in the description of the column's pages, which comes after the schema
    path.write_bytes(data[:place] + b"elemenT" + data[place + 7 :])
    with pytest.raises(UserError, match="its schema does not describe its column"):
        read(path)


def test_conll_with_documents_comments_and_a_hash_token(tmp_path):
    file = tmp_path / "a.conll"
    file.write_text("# doc wsj_0001\nThe\tDT\n#\t#\n\n\nEnd\tNN\n")
    roles: dict[str, str | int] = {"text": 1, "label": 2}
    assert read(file, roles) == {"text": [["The", "#"], ["End"]], "label": [["DT", "#"], ["NN"]]}
    universal = tmp_path / "c.conll"
    universal.write_text("# text = a b c d e f g\n1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n")
    assert read(universal, {"text": 2, "label": 5}) == {"text": [["The"]], "label": [["DT"]]}
    spaced = tmp_path / "b.txt"
    spaced.write_text("-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\n\nnow RB O O\n")
    assert read(spaced, {"text": 1, "label": 2}) == {"text": [["EU"], ["now"]], "label": [["NNP"], ["RB"]]}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "text,label\n", "no rows"),
        ("a.csv", "text,label\na,b,c\n", "cannot be read"),
        ("a.csv", b"text,label\n\xff\xfe,1\n", "cannot be read"),
        ("a.csv", "text,text,label\na,b,1\n", 'two columns are called "text"'),
        ("a.csv", "sentence,label\na,1\n", 'column "text" is not in'),
        ("a.csv", "text,label\na,b\n".encode("utf-16"), "(?s)it is UTF-16.*save it as UTF-8"),
        ("a.csv", "text,label\né,b\n".encode("latin-1"), "(?s)invalid UTF8.*save it as UTF-8"),
        ("a.jsonl", '{"text": "é"}'.encode("latin-1"), "(?s)can't decode.*save it as UTF-8"),
        ("a.jsonl", "{oops\n", "line 1 is not JSON"),
        ("a.jsonl", "[1]\n", "line 1 is not a JSON object"),
        ("a.parquet", "not parquet", "cannot be read"),
        ("a.arrow", "not arrow", "cannot be read"),
        ("a.csv.gz", "not gzip", "cannot be read"),
        ("a.xlsx", "x", "unknown file type"),
        ("a.conll", "one\tX\ntwo\n", "line 2 has 1 columns"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, name, content, says):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=says) as error:
        read(file)
    assert "task.train." in str(error.value)


def test_a_near_miss_is_suggested(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("texts,label\na,1\n")
    with pytest.raises(UserError, match='Did you mean "texts"'):
        read(file)


def test_all_missing_columns_are_named_and_a_split_is_for_the_hub(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(Problems) as error:
        read(file)
    assert [problem.field for problem in error.value.problems] == ["task.train.text", "task.train.label"]
    with pytest.raises(UserError, match='"test" is the split of a hub data set'):
        read_columns(str(file), "test", {"text": "a"}, field="task.train")


def test_what_looks_like_a_file_can_be_read():
    assert set(DATA_SUFFIXES) == set(READERS)


def test_the_hub_out_of_reach():
    with pytest.raises(UserError, match="the hub cannot be reached"):
        read_columns("nobody/cached:this", "train", ROLES, field="task.train")


def stream(path, table, **options):
    with ipc.new_stream(str(path), table.schema, options=ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table)


def repeated(text, count):
    """One text, many times, as a dictionary stores it."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))


def write_bomb(name, path):
    """A small file that stands for hundreds of megabytes, or more."""
    megabyte, count = "x" * 10**6, 200
    texts = repeated(megabyte, count)
    if name == "dictionary.parquet":
        parquet.write_table(pa.table({"text": texts}), path, compression="zstd")
    elif name == "one row.parquet":
        lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), texts)
        parquet.write_table(pa.table({"text": lists}), path, compression="zstd")
    elif name == "beginnings.parquet":
        lines = pa.array([megabyte[:100_000] + str(number) for number in range(1500)])
        encoding = {"text": "DELTA_BYTE_ARRAY"}
        parquet.write_table(pa.table({"text": lines}), path, use_dictionary=False, column_encoding=encoding)
    elif name == "packed.arrow":
        stream(path, pa.table({"text": texts.dictionary_decode()}), compression="zstd")
    elif name == "dictionary.arrow":
        stream(path, pa.table({"text": texts}))
    elif name == "nothing.arrow":
        stream(path, pa.table({"text": pa.nulls(10**9)}))
    elif name == "runs.arrow":
        stream(path, pa.table({"text": pa.RunEndEncodedArray.from_arrays([10**6], ["x"])}))
    elif name == "fields.jsonl":
        path.write_text("\n".join(json.dumps({f"field {number}": 1}) for number in range(4000)))
    elif name == "features.conllu":
        path.write_text("".join(f"1\ta\ta\tX\tX\tF{number}=1\t0\troot\t_\t_\n\n" for number in range(4000)))


BOMBS = (
    *("dictionary.parquet", "one row.parquet", "beginnings.parquet", "packed.arrow", "dictionary.arrow"),
    *("nothing.arrow", "runs.arrow", "fields.jsonl", "features.conllu"),
)


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_expands_to_gigabytes(tmp_path, name):
    path = tmp_path / name
    write_bomb(name, path)
    before = psutil.Process().memory_info().rss
    with pytest.raises(UserError, match=r"it expands to more than|are not supported"):
        read(path)
    assert psutil.Process().memory_info().rss - before < 800 * 10**6


def test_columns_of_many_types_are_read_as_before(tmp_path):
    columns = {
        "text": pa.array(["a", None, "ccc"], pa.string_view()),
        "label": pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), pa.array(["x", "y"])),
        "words": pa.array([["a", "b"], None, []], pa.list_(pa.string())),
        "pairs": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int64(), 2)),
        "inner": pa.array([{"a": "b"}, None, {"a": None}]),
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "nothing": pa.nulls(3),
    }
    table = pa.table(columns)
    stream(tmp_path / "a.arrow", table, compression="lz4")
    expected = {name: column.to_pylist() for name, column in columns.items()}
    assert readers.read_all_columns(str(tmp_path / "a.arrow"), None, field="task.train") == expected
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    assert readers.read_all_columns(str(tmp_path / "a.parquet"), None, field="task.train") == expected


def test_a_table_of_very_many_columns(tmp_path):
    """Names were compared with each other, which took hours."""
    count = 20_000
    names, cells = ",".join(f"c{number}" for number in range(count)), ",".join("1" * count)
    (tmp_path / "wide.csv").write_text(f"text,label,{names}\na,b,{cells}\n")
    assert read(tmp_path / "wide.csv") == {"text": ["a"], "label": ["b"]}


def test_a_cell_of_several_megabytes(tmp_path):
    long = "many words " * 300_000
    (tmp_path / "a.csv").write_text(f'text,label\n"{long}",b\nc,d\n')
    assert read(tmp_path / "a.csv") == {"text": [long, "c"], "label": ["b", "d"]}
