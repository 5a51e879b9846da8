"""A run's model goes to work: exported with its metric checked, timed, asked, put on a card and listed for the hub."""

from __future__ import annotations

import ast
import csv
import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from transformers import BertModel

from helpers.sweeps import sweep
from probescale.deploy.bench import BenchResult
from probescale.deploy.export import export
from probescale.deploy.open_model import open_model
from probescale.deploy.predict import CHUNK, predict_lines
from probescale.deploy.push import push
from probescale.deploy.tables import bench_sentence, bench_tables
from probescale.deploy.texts import Line
from probescale.errors import UserError
from probescale.models.subsets import format_layers
from probescale.pipeline.cut import cut_to_folder
from probescale.pipeline.run import run as run_pipeline
from probescale.pipeline.validate import check
from probescale.report.card import read_licence

pytest.importorskip("onnxruntime", reason='pip install "probescale[onnx]"')
pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def run(tmp_path_factory, model_folder, task_files):
    """A finished run, and its model as a graph."""
    folder = tmp_path_factory.mktemp("work")
    raw = {
        "model": {"source": str(model_folder("roberta")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"k": 2},
        "compare": [],
        "recovery": {"epochs": 4, "learning_rate": 3e-3, "batch_size": 16, "original": {"keep": True}},
    }
    result = run_pipeline(check(raw), folder / "run")
    about = export(str(folder / "run"), folder / "run-onnx")
    return folder / "run", folder / "run-onnx", result, about


def test_the_export_of_a_run_measures_its_metric_again(run):
    *_, result, about = run
    assert about.metric == "accuracy"
    assert about.value_pytorch == pytest.approx(result.subnetwork.value)
    assert about.value == pytest.approx(result.subnetwork.value, abs=0.026)  # one of 40 rows may sit on the edge


@pytest.mark.parametrize("data", sweep(["gone", "other rows", "changed labels"], always=["other rows"]))
def test_an_export_measures_only_on_the_data_of_its_run(run, tmp_path, monkeypatch, task_files, cli, data):
    """What the path leads to now is not what the run was measured on: that costs the figure, not the export."""
    shutil.copytree(run[0], tmp_path / "run")
    config = (tmp_path / "run" / "config.yaml").read_text()
    lines = task_files.dev.read_text().splitlines()
    if data == "other rows":
        (tmp_path / "dev.csv").write_text("\n".join(lines[:-1]))
    elif data == "changed labels":
        (tmp_path / "dev.csv").write_text("\n".join([*lines[:-1], lines[-1].replace("negative", "positive")]))
    (tmp_path / "run" / "config.yaml").write_text(config.replace(str(task_files.dev), "dev.csv"))
    monkeypatch.chdir(tmp_path)  # a relative path leads elsewhere from another folder
    done = cli("export", "run", "--out", "out")
    assert done.code == 0, done.err
    why = "dev.csv" if data == "gone" else "is not what the run was measured on"
    assert f"the task's metric was not evaluated: {'task.dev' if data == 'gone' else 'the data'}" in done.out
    assert why in done.out
    assert json.loads((tmp_path / "out" / "probescale.json").read_text())["onnx"]["value"] is None


@pytest.mark.long
def test_what_loses_too_much_is_not_written(run, tmp_path, monkeypatch):
    folder = run[0]
    values = iter([0.9, 0.7])
    monkeypatch.setattr("probescale.deploy.export.evaluate_metric", lambda *_: next(values))
    with pytest.raises(UserError, match=r"changes from 90\.00 to 70\.00"):
        export(str(folder), tmp_path / "out", tolerance=0.1)
    assert not (tmp_path / "out").exists()


def texts_of(task_files) -> list[str]:
    with task_files.dev.open() as file:
        return [row["text"] for row in csv.DictReader(file)]


def test_predictions_keep_the_order_and_are_those_of_the_run(run, task_files):
    folder, graph, *_ = run
    texts = texts_of(task_files)
    random.Random(3).shuffle(texts)
    texts = [*texts, *(" ".join(texts[:3]) for _ in range(3))] * (CHUNK // 20)  # more than one chunk
    lines = [Line(number, text) for number, text in enumerate(texts, 1)]
    with (folder / "predictions.csv").open() as file:
        said = [row["stitched"] for row in csv.DictReader(file)]
    known = dict(zip(texts_of(task_files), said, strict=True))
    both = []
    for place in (folder, graph):
        answers = list(predict_lines(open_model(str(place)), lines))
        assert [answer.number for answer in answers] == list(range(1, len(texts) + 1))
        assert [answer.text for answer in answers] == texts
        records = [answer.record() for answer in answers]
        assert all(known.get(record["text"], record["label"]) == record["label"] for record in records)
        assert all(sum(record["probabilities"].values()) == pytest.approx(1) for record in records)
        both.append([record["probability"] for record in records])
    assert both[0] == pytest.approx(both[1], abs=1e-4)


@pytest.mark.parametrize("place", [0, 1], ids=["pytorch", "onnx"])
def test_a_bad_line_is_named_and_the_others_go_on(run, tmp_path, cli, place):
    rows = [
        b'{"text": "the film was good"}',
        b'{"text": 3}',
        b"{",
        b'{"other": "x"}',
        b"\xff\xfe",
        b'{"text": ""}',
        b"[]",
    ]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join([*rows, b'{"text": "the plot was dull"}']) + b"\n")
    done = cli("predict", run[place], tmp_path / "in.jsonl", "--out", tmp_path / "out.jsonl")
    assert done.code == 1
    said = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [one["line"] for one in said] == list(range(1, 9))
    assert [one["line"] for one in said if "label" in one] == [1, 8]
    for number, fault in ((2, "no string"), (3, "not JSON"), (4, 'no field "text"'), (5, "not UTF-8"), (6, "no text")):
        assert f"line {number}: " in done.err
        assert fault in next(one["fault"] for one in said if one["line"] == number)
    assert "6 lines could not be answered" in done.err


def test_tables_of_texts(run, tmp_path, cli):
    (tmp_path / "in.csv").write_text('id,text\n1,"the film, was ""good"""\n2,"two\nlines"\n3\n4,the plot was dull\n')
    done = cli("predict", run[0], tmp_path / "in.csv", "--format", "csv")
    rows = list(csv.DictReader(done.out.splitlines(keepends=True)))
    assert [row["line"] for row in rows] == ["2", "3", "5", "6"]
    assert list(rows[0]) == ["line", "id", "text", "label", "probability"], "the other columns stay"
    assert [row["id"] for row in rows] == ["1", "2", "3", "4"]
    assert [bool(row["label"]) for row in rows] == [True, True, False, True]
    assert rows[0]["text"] == 'the film, was "good"'
    assert "line 5: 1 fields, the header has 2" in done.err
    done = cli("predict", run[0], tmp_path / "in.csv", "--format", "jsonl")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [(record["id"], record.get("label", "")) for record in records] == [
        (row["id"], row["label"]) for row in rows
    ]
    done = cli("predict", run[0], tmp_path / "in.csv", "--text", "words")
    assert done.code == 2
    assert "use one of: id, text" in done.err


def test_a_table_without_header(run, tmp_path, cli):
    (tmp_path / "in.tsv").write_text("7\tthe film was good\n8\tthe plot was dull\n")
    done = cli("predict", run[0], tmp_path / "in.tsv", "--no-header", "--text", 2, "--format", "csv")
    assert done.code == 0, done.err
    assert [line.split(",")[:3] for line in done.out.splitlines()] == [
        ["line", "1", "2"], ["1", "7", "the film was good"], ["2", "8", "the plot was dull"]
    ]  # fmt: skip
    (tmp_path / "in.txt").write_text("a\n")
    done = cli("predict", run[0], tmp_path / "in.txt", "--no-header")
    assert (done.code, "only .csv and .tsv files can lack a header" in done.err) == (2, True)


def test_a_header_that_was_missing_in_training_is_not_expected_later(run, tmp_path, cli):
    """The first row of such a table is answered, and --header says that a new table has one."""
    model, table = tmp_path / "model", tmp_path / "in.csv"
    shutil.copytree(run[0] / "model", model)
    record = json.loads((model / "probescale.json").read_text())
    assert record["columns"]["header"]
    record["columns"] = {"text": "2", "pair": None, "header": False}
    (model / "probescale.json").write_text(json.dumps(record))
    table.write_text("7,the film was good\n8,the plot was dull\n")
    assert cli("predict", model, table, "--format", "csv").out.count("\n") == 3
    table.write_text("id,review\n7,the film was good\n8,the plot was dull\n")
    assert cli("predict", model, table, "--header", "--format", "csv").out.count("\n") == 3


def test_json_lines_as_a_table(run, tmp_path, cli):
    rows = [{"text": "the film was good", "label": "mine", "more": [1, {"a": "é"}]}, {"text": "the plot was dull"}]
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = cli("predict", run[0], file, "--format", "csv")
    first, second = csv.DictReader(done.out.splitlines(keepends=True))
    assert list(first) == ["line", "text", "input_label", "more", "label", "probability"]
    assert (first["input_label"], json.loads(first["more"]), second["more"]) == ("mine", [1, {"a": "é"}], "")
    many = "".join(json.dumps(row) + "\n" for row in [{"text": "good"}] * CHUNK + [{"text": "good", "late": 1}])
    file.write_text(many)
    done = cli("predict", run[0], file, "--format", "csv", "--out", tmp_path / "out.csv")
    assert done.code == 2
    assert f'line {CHUNK + 1} has the field "late"' in done.err
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.long
def test_the_kept_original_is_a_model_like_any_other(run, task_files, tmp_path):
    folder, _, result, _ = run
    kept = open_model(str(folder / "original"))
    with (folder / "predictions.csv").open() as file:
        said = [row["original"] for row in csv.DictReader(file)]
    lines = [Line(number, text) for number, text in enumerate(texts_of(task_files), 1)]
    assert [answer.record()["label"] for answer in predict_lines(kept, lines)] == said
    record = export(str(folder / "original"), tmp_path / "onnx")
    assert (record.metric, record.value_pytorch) == ("accuracy", pytest.approx(result.original.value))


def test_a_model_without_a_head_gives_no_labels(tmp_path, cli, model_folder):
    done = cli("extract", model_folder("t5"), "--keep", "1", "--out", tmp_path / "x")
    assert done.code == 0
    (tmp_path / "t.txt").write_text("a\n")
    raw = json.loads((tmp_path / "x" / "config.json").read_text())
    raw["architectures"], raw["problem_type"] = ["T5EncoderModel"], None
    (tmp_path / "x" / "config.json").write_text(json.dumps(raw))
    done = cli("predict", tmp_path / "x", tmp_path / "t.txt")
    assert done.code == 2
    assert "no labels" in done.err


@pytest.mark.long
def test_the_bench_times_models_in_turn(run, cli, tmp_path):
    folder, graph, *_ = run
    sizes = ("--batch-size", 1, "--batch-size", 4, "--length", 8, "--length", 16, "--passes", 3)
    done = cli("bench", folder, graph, *sizes, "--figure", tmp_path / "b.svg", "--json")
    assert done.code == 0, done.err
    found = BenchResult.model_validate_json(done.out)
    assert [(row.model, row.batch_size, row.length) for row in found.rows] == [
        (str(model), size, length) for size in (1, 4) for length in (8, 16) for model in (folder, graph)
    ]
    assert all(row.median > 0 and row.p95 >= row.median for row in found.rows)
    first = [row for row in found.rows if row.model == str(folder)]
    assert all(row.speedup == 1 for row in first)
    for row in found.rows:
        assert row.per_second * row.per_million == pytest.approx(1e6)
    assert found.size[str(folder)] == (folder / "model" / "model.safetensors").stat().st_size
    assert all(size > 0 for size in found.memory.values())
    assert bench_sentence(found).startswith("A million texts of 16 tokens take")
    *shapes, sizes = bench_tables(found)
    assert [len(table.rows) for table in (*shapes, sizes)] == [2] * 5
    assert shapes[0].rows[0][-1] == "1.0x"
    assert (tmp_path / "b.svg").is_file()
    assert (tmp_path / "b.png").is_file()
    done = cli("bench", folder, "--length", 4096)
    assert done.code == 2
    assert "takes at most 128 tokens" in done.err


def test_the_card_is_one_that_the_hub_reads(run):
    folder, _, result, _ = run
    card = ModelCard((folder / "model" / "README.md").read_text())
    data = card.data.to_dict()
    assert data["pipeline_tag"] == "text-classification"
    assert data["library_name"] == "transformers"
    measured = data["model-index"][0]["results"][0]["metrics"][0]
    assert (measured["type"], measured["value"]) == ("accuracy", round(result.subnetwork.value, 4))
    text, kept = card.text, format_layers(result.subnetwork.kept)
    for said in (f"{100 * result.subnetwork.value:.2f}", f"layers {kept} of 4", "## Limits", "pipeline(", "bibtex"):
        assert said in text
    assert str(Path.home()) not in text.replace(str(folder), "")


def test_the_licence_is_the_parents(tmp_path):
    (tmp_path / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\nlicense: wrong\n")
    assert read_licence(str(tmp_path)) == "apache-2.0"
    (tmp_path / "README.md").write_text("no front matter\nlicense: wrong\n")
    assert read_licence(str(tmp_path)) is None


class Stub:
    """The hub's client, as far as it is used."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def create_repo(self, repo, *, private, exist_ok):
        self.calls.append(("create", repo, private, exist_ok))

    def upload_folder(self, *, repo_id, folder_path, allow_patterns, commit_message):
        self.calls.append(("upload", repo_id, folder_path, sorted(allow_patterns)))
        return f"https://huggingface.co/{repo_id}/commit/1"


def test_push_uploads_what_the_dry_run_lists(run, cli):
    folder = run[0] / "model"
    (folder / ".secret").write_text("token")
    done = cli("push", run[0], "me/small", "--dry-run")
    (stub := Stub()).calls.clear()
    address = push(folder, "me/small", private=True, client=stub)  # type: ignore[arg-type]
    (folder / ".secret").unlink()
    assert address.endswith("/me/small/commit/1")
    create, upload = stub.calls
    assert create == ("create", "me/small", True, True)
    assert upload[3] == sorted(line.split("  ")[0] for line in done.out.splitlines()[:-1])
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(upload[3])
    assert ".secret" not in upload[3]
    done = cli("push", run[0].parent, "me/small", "--dry-run")
    assert done.code == 2
    assert "no config.json" in done.err


def test_the_lines_that_the_documentation_shows_run(run):
    """docs/guides/deploy.md: the folder in transformers, the export in ONNX Runtime."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "deploy.md").read_text()
    blocks = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    places = {"runs/reviews/model": str(run[0] / "model"), "runs/reviews-int8": str(run[1])}
    ran = []
    for block in blocks:
        if any(name in block for name in places):
            for name, place in places.items():
                block = block.replace(name, place)
            known: dict = {}
            exec(block, known)
            ran.append(known)
    assert len(ran) == 2
    assert ran[0]["classify"]("the film was good")[0]["label"] in ("negative", "positive")


@pytest.mark.long
def test_a_reader_that_goes_away_ends_it_without_a_word(run, tmp_path):
    (tmp_path / "many.txt").write_text("the film was good\n" * 5000)
    words = [
        sys.executable,
        "-m",
        "probescale",
        "predict",
        str(run[0]),
        str(tmp_path / "many.txt"),
        "--format",
        "jsonl",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_texts_are_cut_where_training_cut_them(run):
    folder, graph, *_ = run
    long = [Line(1, "the film was good " * 8 + "and the plot was awful and dull and poor " * 20)]
    for place in (folder, graph):
        ready = open_model(str(place))
        assert ready.trained_length == 32
        plain, cut, whole = (next(iter(predict_lines(ready, long, length))) for length in (None, 32, 64))
        plain, cut, whole = (answer.record()["probability"] for answer in (plain, cut, whole))
        assert plain == cut != whole


def test_the_snippets_of_the_docs_run_as_they_stand(run, model_folder, tmp_path, monkeypatch):
    encoder, folder = tmp_path / "encoder", tmp_path / "runs"
    folder.mkdir()
    (folder / "reviews").symlink_to(run[0])
    (folder / "reviews-int8").symlink_to(run[1])
    shutil.copytree(model_folder("bert"), encoder)
    model = BertModel.from_pretrained(encoder)
    model.save_pretrained(encoder)
    own = "sentence_transformers.models"
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{own}.Transformer"},
               {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{own}.Pooling"}]  # fmt: skip
    (encoder / "modules.json").write_text(json.dumps(modules))
    (encoder / "1_Pooling").mkdir()
    size = {"word_embedding_dimension": model.config.hidden_size, "pooling_mode_mean_tokens": True}
    (encoder / "1_Pooling" / "config.json").write_text(json.dumps(size))
    cut_to_folder(str(encoder), [1, 2], tmp_path / "small")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "guides" / "deploy.md").read_text()
    said = {}
    for code in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        *first, last = ast.parse(code).body
        known: dict = {}
        exec(compile(ast.Module(first, []), "docs", "exec"), known)
        assert isinstance(last, ast.Expr)
        said[code.split()[1]] = eval(compile(ast.Expression(last.value), "docs", "eval"), known)
    assert said["transformers"][0]["label"] in ("positive", "negative")
    assert said["sentence_transformers"].shape == (1, 1)
    assert said["onnxruntime,"][0].shape == (1, 2)
