"""compress: a model, a table and a budget in; a small model that predicts out. And what users get wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import probescale
from helpers.data import labelled_rows, write_csv
from probescale.errors import Problems, UserError
from probescale.pipeline.compress import NOTHING_GIVEN, Request, build_config
from probescale.pipeline.validate import check
from probescale.recovery.result import RunResult
from probescale.recovery.smallest import SmallestSearch
from probescale.tasks.task import load_task
from probescale.utils.ownership import MANIFEST
from probescale.utils.yaml_files import read_yaml

ROWS = labelled_rows(160)
QUICK = {
    "model.max_length": 32,
    "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
    "recovery": {"epochs": 6, "learning_rate": 3e-3, "batch_size": 16, "augment": 0},
}
QUICK_OPTIONS = [
    word
    for setting in (
        "model.max_length=32",
        "probing={selectivity: false, code_length: false, penalties: [0.01]}",
        "recovery={epochs: 6, learning_rate: 3e-3, batch_size: 16, augment: 0}",
    )
    for word in ("--set", setting)
]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty current folder: whatever is written without an --out stands here."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """A CSV of reviews, whose columns have names of their own."""
    return write_csv(tmp_path_factory.mktemp("data") / "My reviews.csv", ROWS, header="review,sentiment")


# Any form of data and model


def as_frame():
    import pandas

    return pandas.DataFrame(ROWS, columns=["review", "sentiment"])


def as_dataset():
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["negative", "positive"])})
    numbers = [int(label == "positive") for _, label in ROWS]
    return Dataset.from_dict({"text": [text for text, _ in ROWS], "label": numbers}, features=features)


FORMS = {
    "csv": None,
    "frame": as_frame,
    "tuples": lambda: ROWS,
    "lists": lambda: ([text for text, _ in ROWS], [label for _, label in ROWS]),
    "dataset": as_dataset,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [form if form == "csv" else pytest.param(form, marks=pytest.mark.long) for form in FORMS]
)
def test_any_form_of_data_gives_a_model_that_predicts(model_folder, table, tmp_path, form):
    make = FORMS[form]
    train = make() if make else table
    small = probescale.compress(model_folder("bert"), train, "2x", settings=QUICK, out=tmp_path / "out")
    assert small.result.failure is None
    assert small.params <= small.result.original.params / 2
    assert small.result.examples == 32, "a fifth of the rows"
    rows = labelled_rows(12, seed=5)
    answers = [answer.record() for answer in small.predict([text for text, _ in rows])]
    right = sum(answer["label"] == label for answer, (_, label) in zip(answers, rows, strict=True))
    assert right >= 9
    assert {answer["label"] for answer in answers} == {"positive", "negative"}
    assert (tmp_path / "out.inputs").exists() == (form != "csv"), "rows from Python are kept, to repeat the run"


@pytest.mark.slow
@pytest.mark.long
def test_a_live_model_with_its_tokenizer_and_more_data(model_folder, tmp_path):
    source = model_folder("roberta")
    live = AutoModelForSequenceClassification.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    more = [text for text, _ in labelled_rows(80, seed=3)]
    small = probescale.compress(
        live,
        ROWS[:120],
        ("2x", "50MB"),
        dev=ROWS[120:],
        unlabelled=more,
        settings=QUICK,
        out=tmp_path / "out",
    )
    assert small.result.examples == 40
    assert "unlabelled texts" in small.result.recipe
    assert small.predict(ROWS[0][0])[0].record()["label"] in ("positive", "negative")
    assert {path.name for path in (tmp_path / "out.inputs").iterdir()} == {
        "train.jsonl",
        "dev.jsonl",
        "unlabelled.jsonl",
        "model",
        MANIFEST,
    }
    config = read_yaml(small.folder / "config.yaml")
    assert config["model"]["source"] == str(tmp_path / "out.inputs" / "model")
    assert check(config).selection.budget == ("2x", "50MB"), "the run can be repeated"


@pytest.mark.slow
def test_one_line_and_nothing_else(cli, model_folder, table, here):
    """All defaults: the columns, the recipe, the budget and the folder are chosen."""
    done = cli("compress", model_folder("bert"), table)
    assert done.code == 0, done.err
    assert "text: `review`, label: `sentiment` (2 classes)" in done.out
    out = here / "runs" / "My-reviews"
    assert {path.name for path in here.iterdir()} == {"runs"}
    assert {path.name for path in (here / "runs").iterdir()} == {"My-reviews"}
    result = RunResult.load(out / "metrics.json")
    assert result.task == "My-reviews"
    assert result.failure is None
    assert result.subnetwork.params <= result.original.params / 5
    assert result.subnetwork.value > 0.8
    assert "What it will do, and about how long that takes here:" in done.err
    assert "altogether" in done.err
    answers = probescale.predict(out, [ROWS[0][0], ROWS[1][0]])
    assert [answer.record()["label"] for answer in answers] == ["positive", "negative"]


@pytest.mark.slow
@pytest.mark.long
def test_a_share_to_keep_instead_of_a_budget(cli, model_folder, table, here):
    done = cli("compress", model_folder("bert"), table, "--keep", "50%", "--out", here / "out", *QUICK_OPTIONS)
    assert done.code == 0, done.err
    search = SmallestSearch.load(here / "out" / "smallest.json")
    assert search.keep == 0.5
    assert search.answer != "1x"
    assert "The smallest model that keeps 50 %" in done.out
    small = probescale.compress(model_folder("bert"), table, keep=0.5, settings=QUICK, out=here / "again")
    assert small.result.subnetwork.params == next(t.params for t in search.trials if t.budget == search.answer)


# The configuration


def build(model_folder, data, tmp_path, **request):
    return build_config(Request(str(model_folder("bert")), data, **request), tmp_path / "inputs")


def test_tables_without_header(model_folder, tmp_path):
    train, dev = (tmp_path / name for name in ("train.csv", "dev.tsv"))
    train.write_text("".join(f'"{text}",{label}\n' for text, label in ROWS[:120]))
    dev.write_text("".join(f"{text}\t{label}\n" for text, label in ROWS[120:]))
    more = tmp_path / "more.csv"
    more.write_text("".join(f'"{text}",x\n' for text, _ in labelled_rows(20, seed=9)))
    given = {"dev": str(dev), "unlabelled": str(more)}
    config, layout = build(model_folder, str(train), tmp_path, header=False, **given)
    assert layout.describe() == "text: column 1, label: column 2 (2 classes)"
    assert config.task.dev is not None
    assert config.task.unlabelled is not None
    for part in (config.task.train, config.task.dev, config.task.unlabelled):
        assert (part.header, part.text) == (False, "1")
    assert len(load_task(config.task, 0).train) == 120, "the first line is a row like the others"
    with pytest.raises(UserError, match=r"(?s)looks as if it had no header.*give --no-header"):
        build(model_folder, str(train), tmp_path)


def test_the_configuration_is_that_of_the_defaults(model_folder, table, tmp_path):
    config, layout = build(model_folder, str(table), tmp_path)
    assert (layout.text, layout.label, layout.kind, layout.pair) == ("review", "sentiment", "class", None)
    assert (config.task.train.text, config.task.train.label) == ("review", "sentiment")
    assert config.selection.budget == NOTHING_GIVEN == "5x"
    assert (config.selection.strategy, config.compare, config.time) == ("tried", (), None)
    assert config.task.max_dev == 10_000, "every model answers every row of dev"
    assert config.recovery == type(config.recovery)()
    assert config.shrink == type(config.shrink)()
    assert not (tmp_path / "inputs").exists(), "nothing from Python had to be written"


def test_settings_and_assignments_change_it(model_folder, table, tmp_path):
    request = Request(
        str(model_folder("bert")), str(table), budget=("5x", "20MB"), settings={"recovery.epochs": 2, "seed": 9}
    )
    config, _ = build_config(request, tmp_path / "inputs", ["recovery.epochs=3", "selection.keep=[1]"])
    assert config.selection.budget == ("5x", "20MB")
    assert (config.seed, config.recovery.epochs, config.selection.keep) == (9, 3, (1,))


def test_dev_may_have_other_columns(model_folder, table, tmp_path):
    dev = write_csv(tmp_path / "dev.csv", ROWS[:40], header="comment,class")
    config, _ = build(model_folder, str(table), tmp_path, dev=str(dev))
    assert config.task.dev is not None
    assert (config.task.dev.text, config.task.dev.label) == ("comment", "class")


@pytest.mark.parametrize(
    ("data", "name"),
    [("a/My reviews (1).csv", "My-reviews--1-"), ("b.jsonl.gz", "b"), (Path("c.tsv"), "c"), (ROWS, "task")],
)
def test_the_name_of_the_task_is_that_of_its_file(data, name):
    assert Request("model", data).name == name


def test_what_is_no_model_is_refused(table, tmp_path):
    with pytest.raises(UserError, match="a dict is no model") as refused:
        build_config(Request({"a": 1}, str(table)), tmp_path / "inputs")  # type: ignore[arg-type]
    assert refused.value.field == "model"
    assert "its tokenizer" in refused.value.hint


# A plan, and nothing else


def test_a_dry_run_writes_nothing(cli, model_folder, table, here):
    done = cli("compress", model_folder("bert"), table, "--budget", "2x", "--dry-run", *QUICK_OPTIONS)
    assert done.code == 0, done.err
    assert list(here.iterdir()) == []
    assert "What it will do, and about how long that takes here:" in done.out
    plan, _, settings = done.out.partition("As a configuration for `probescale run`")
    assert "altogether" in plan
    path = here / "plan.yaml"
    path.write_text(settings.partition(":\n")[2])
    config = check(read_yaml(path))
    assert config.selection.budget == ("2x",)
    assert config.recovery.epochs == 6
    assert config.task.train.text == "review"


def test_the_plan_leaves_the_learning_rate_to_short_trainings(cli, model_folder, table, here):
    done = cli("compress", model_folder("bert"), table, "--budget", "2x", "--dry-run")
    assert done.code == 0, done.err
    path = here / "plan.yaml"
    path.write_text(done.out.partition("As a configuration")[2].partition(":\n")[2])
    config = check(read_yaml(path))
    assert config.recovery.learning_rate == "auto"
    assert config.recovery.epochs != "auto"


# What users get wrong: exit code 2, one message, nothing left behind


def two_texts(folder: Path) -> Path:
    lines = [["title", "body", "label"], *([f"a {text}", f"so {text}", label] for text, label in ROWS)]
    with (folder / "data.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    return folder / "data.csv"


def many_labels(folder: Path) -> Path:
    rows = [(text, f"label {number}") for number, (text, _) in enumerate(ROWS)]
    return write_csv(folder / "data.csv", rows)


def broken_row(folder: Path) -> Path:
    lines = [json.dumps({"text": text, "label": label}) for text, label in ROWS]
    lines[6] = '{"text": "half of a ro'
    (folder / "data.jsonl").write_text("\n".join(lines))
    return folder / "data.jsonl"


def empty_cell(folder: Path) -> Path:
    return write_csv(folder / "data.csv", [*ROWS[:6], (ROWS[6][0], ""), *ROWS[7:]])


def plain(folder: Path) -> Path:
    return write_csv(folder / "data.csv", ROWS)


WRONG: dict[str, tuple[Any, list[str], list[str]]] = {  # data, options, what is said
    "two text columns": (two_texts, [], ["DATA", "title", "body", "--text"]),
    "labels that all differ": (many_labels, [], ["DATA", "160 different values in 160 rows", "--label"]),
    "a row that cannot be read": (broken_row, [], ["DATA", "7"]),
    "a cell without a label": (empty_cell, [], ["task.train.label", "row 7"]),
    "a budget that nothing meets": (plain, ["--budget", "500"], ["selection.budget", "500 parameters"]),
    "a budget that nothing meets, once texts are read": (plain, ["--budget", "3000"], ["selection.budget", "3,000"]),
    "too little time": (plain, ["--time", "2s"], ["time", "2s is too short"]),
    "no time": (plain, ["--time", "soon"], ["time", "not a duration", "30m"]),
    "no budget": (plain, ["--budget", "small"], ["selection.budget", "small"]),
    "no share": (plain, ["--keep", "97"], ["--keep", "97%"]),
    "a share and a size": (plain, ["--keep", "97%", "--budget", "5x"], ["--budget", "--keep"]),
    "a share and a time": (plain, ["--keep", "97%", "--time", "9h"], ["--time", "--keep"]),
    "no such column": (plain, ["--text", "txt"], ["txt", "text"]),
    "no such setting": (plain, ["--set", "recovery.epoch=3"], ["recovery.epoch"]),
    "no pairs": (plain, ["--bias", "nothing.csv"], ["task.bias.source", "nothing.csv"]),
    "no data": (lambda folder: folder / "nothing.csv", [], ["DATA", "nothing.csv"]),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_users_get_wrong(cli, model_folder, here, tmp_path_factory, fault):
    make, options, said = WRONG[fault]
    data = make(tmp_path_factory.mktemp("wrong"))
    done = cli("compress", model_folder("bert"), data, *options)
    assert done.code == 2, done.out + done.err
    message = " ".join(done.err.split())
    for words in said:
        assert words in message
    assert message.count("error: ") == 1
    assert "Traceback" not in message
    left = [path for path in here.rglob("*") if path.is_file()]
    assert left == []
    assert not list(here.rglob("*.partial"))


def test_a_teacher_with_other_labels(cli, model_folder, table, here):
    """The tiny models were saved with labels that nobody named."""
    done = cli("compress", model_folder("bert"), table, "--teacher", model_folder("roberta"))
    assert done.code == 2
    message = " ".join(done.err.split())
    assert (
        "error: recovery.teacher: its labels are LABEL_0, LABEL_1; those of the task are negative, positive" in message
    )
    assert message.count("error: ") == 1
    assert [path for path in here.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("option", [["--budget", "3000"], ["--time", "2s"]])
def test_a_dry_run_refuses_what_a_run_would(cli, model_folder, table, here, option):
    done = cli("compress", model_folder("bert"), table, "--dry-run", *option)
    assert done.code == 2, done.out
    assert list(here.iterdir()) == []


def test_rows_from_python_that_are_refused_leave_nothing(model_folder, tmp_path):
    rows = [{"title": f"a {text}", "body": f"so {text}", "label": label} for text, label in ROWS]
    with pytest.raises(UserError, match="title"):
        probescale.compress(model_folder("bert"), rows, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_share_in_per_cent_is_refused_from_python(model_folder, tmp_path):
    with pytest.raises(UserError, match="is not a share"):
        probescale.compress(model_folder("bert"), ROWS, keep=97, out=tmp_path / "out")
    with pytest.raises(UserError, match="is not a share"):
        probescale.compress(model_folder("bert"), ROWS, keep=0, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"budget": "10x", "keep": 0.9}, "--budget"),
        ({"time": "5m", "keep": 0.9}, "--time"),
        ({"settings": {"time": "5m"}, "keep": 0.9}, "time"),
        ({"ladder": True, "keep": 0.9}, "--ladder"),
        ({"budget": "10x", "ladder": True}, "budget"),
        ({"budget": ("2x", "5x"), "ladder": ["2x", "5x"]}, "budget"),
    ],
)
def test_what_would_be_ignored_is_refused_from_python(model_folder, tmp_path, given, field):
    with pytest.raises(UserError) as refused:
        probescale.compress(model_folder("bert"), ROWS, out=tmp_path / "out", **given)
    assert refused.value.field == field
    assert ("every size" in str(refused.value)) == (field == "budget")
    assert list(tmp_path.iterdir()) == []


def test_a_run_from_python_that_is_refused_leaves_nothing(model_folder, tmp_path):
    with pytest.raises(UserError, match="too short"):
        probescale.compress(model_folder("bert"), ROWS, time="2s", out=tmp_path / "out")
    with pytest.raises(UserError, match="3,000 parameters"):
        probescale.compress(model_folder("bert"), ROWS, "3000", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_every_problem_of_the_settings_is_listed(model_folder, table, tmp_path):
    request = Request(str(model_folder("bert")), str(table), settings={"recovery.epochs": -1, "task.metric": "acuracy"})
    with pytest.raises(Problems) as error:
        build_config(request, tmp_path / "inputs")
    assert {problem.field for problem in error.value.problems} == {"recovery.epochs", "task.metric"}
