"""Untrusted text is shown safely, and secrets are never shown."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import probescale
from helpers.hostile import ESCAPES, MARKUP, SCRIPT, TOKEN, elements, markup
from probescale.cli.options import show_json
from probescale.errors import UserError
from probescale.pipeline.provenance import command
from probescale.recovery.regressions import Example, Regressions, Slice
from probescale.report.card import read_licence
from probescale.report.figure import saved_figure
from probescale.report.page import Page, render
from probescale.report.regressions import regression_table
from probescale.report.run_page import _changed
from probescale.study.cells import _model_names, build_study
from probescale.study.folder import StudyFolder
from probescale.study.report import write_study_report
from probescale.study.results import read_results
from probescale.utils.files import Record
from probescale.utils.sources import fetch_model_folder
from probescale.utils.yaml_files import read_yaml, set_value

CONTROLS = set("\x1b\x07\x9b\r\u202e")


def test_examples_that_became_wrong_are_text_on_the_page():
    every = f"{SCRIPT} {MARKUP} {ESCAPES}"
    example = Example(row=1, text=every, right=every, original=every, small=every)
    one = Slice(name=every, rows=1, original=1, small=0, newly_wrong=1, newly_right=0)
    changed = Regressions(agreement=0, newly_wrong=1, newly_right=0, slices=(one,), examples=(example,))
    empty = Page("", [], [], [], [], "", [], [], [])
    page = render(empty._replace(title=every, lead=[every], notes=[every], changed=_changed(changed)))
    assert elements(page) == elements(render(empty))
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["changed"]["examples"][0]["text"] == every  # whole, once it is read again
    assert markup(regression_table(changed).markdown()) == set()


def test_the_page_of_a_study_with_a_hostile_fault(tmp_path, model_folder, task_files):
    raw = {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"train": str(task_files.train), "dev": str(task_files.dev)},
        "study": {"strategies": ["top_k"], "budgets": ["k=2"]},
    }
    study, folder = build_study(raw), StudyFolder(tmp_path / "out")
    folder.open(study)
    folder.record_failure(study.cells[0].name, f"{SCRIPT} {MARKUP} {TOKEN[:5]}")
    write_study_report(folder, read_results(folder, study))
    page = (folder.path / "report.html").read_text()
    assert "window.evil=1" in page
    assert elements(page) == elements(render(Page("", [], [], [], [], "", [], [], [])))
    report = (folder.path / "report.md").read_text()
    assert "window.evil=1" in report
    assert markup(report) == set()


def test_models_of_a_study_are_called_as_files_can_be():
    names = _model_names(["./<img src=x> [a](b)", "x/$a_$\x1b[31m", "..", "pypi:a<b>==1/x"])
    assert all(re.fullmatch(r"[\w.=-]*", name) for name in names)


def test_dollars_in_a_figure_are_not_a_formula(tmp_path, monkeypatch):
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    monkeypatch.chdir(tmp_path)
    with saved_figure(tmp_path / "figure") as (figure, paths):
        figure.suptitle(r"$\evil{$ and -->")
    assert all(path.is_file() for path in paths)


def test_a_licence_is_a_single_word(tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: mit\nx: y\n---\n")
    assert read_licence(str(tmp_path)) == "mit"
    (tmp_path / "README.md").write_text("---\nlicense: 'mit\\n---\\n<script>'\n---\n")
    assert read_licence(str(tmp_path)) is None


def test_texts_and_labels_in_the_terminal(cli, model_folder, tmp_path):
    model = shutil.copytree(model_folder("bert"), tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    names = [f"{ESCAPES} [red]a[/red]", "[link=http://evil]b[/link]"]
    config |= {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    (model / "config.json").write_text(json.dumps(config))
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": f"a [bold]film[/bold] {ESCAPES}"}) + "\n")
    done = cli("predict", model, tmp_path / "texts.jsonl", "--format", "table")
    assert done.code == 0
    assert "[bold]film[/bold]" in done.out
    assert "\\x1b[31mred" in done.out
    assert not set(done.out + done.err) & CONTROLS


def test_file_names_in_error_messages(cli, tmp_path):
    name = "\x1b[31m\u202e[bold]x[/bold]"
    for given in (f"./{name}", f"./{name}\udcff.yaml"):
        done = cli("validate", tmp_path / given)
        assert done.code == 2
        assert "\\x1b[31m\\u202e[bold]x[/bold]" in done.err
        assert not set(done.err) & CONTROLS


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BOMB + "compare: *a9\n", "aliases that expand to more"),
        ("a: &a [*a]\n", "aliases that expand to more"),
        ("a: " + "[" * 800, "is not valid YAML"),
        ("a: !!python/object/apply:os.system [touch executed]\n", "is not valid YAML"),
        ("a: !!python/name:os.system\n", "is not valid YAML"),
        ("a: !!bool maybe\n", "is not valid YAML"),
        ("a: !!int ''\n", "is not valid YAML"),
        ("# " + "x" * 1_000_001, "too much for a configuration"),
    ],
)
def test_hostile_yaml(tmp_path, monkeypatch, text, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=says):
        read_yaml(tmp_path / "config.yaml")
    assert not (tmp_path / "executed").exists()


def test_hostile_assignments():
    with pytest.raises(UserError, match="is not valid YAML"):
        set_value({}, "a=!!python/object/apply:os.system [true]")
    with pytest.raises(UserError, match="aliases that expand to more"):
        set_value({}, "a=&a [*a]")


ADDRESS = f"https://me:{TOKEN}@huggingface.co/owner/name"


def test_a_token_in_an_address_is_not_repeated(cli, tmp_path, model_folder, task_files):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"model: {{source: {model_folder('bert')}}}\n"
        f"task: {{train: {task_files.train}, dev: {task_files.dev}}}\nselection: {{k: 2}}\n"
    )
    for key in ("model.source", "task.train", "task.unlabelled"):
        done = cli("run", config, "--set", f"{key}={ADDRESS}", "--out", tmp_path / "out")
        assert done.code == 2
        assert "an address is no source" in done.err
        assert TOKEN not in done.out + done.err
    done = cli("doctor", ADDRESS)
    assert done.code == 2
    assert "...@huggingface.co/owner/name" in done.err
    assert TOKEN not in done.out + done.err
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_a_token_in_a_command_is_not_recorded():
    recorded = command(["probescale", "run", "a.yaml", "--set", f"model.source={ADDRESS}", "--set", f"seed={TOKEN}"])
    assert TOKEN not in recorded
    assert "a.yaml" in recorded


def test_an_invalid_hub_name_does_not_show_a_token():
    with pytest.raises(UserError) as error:
        fetch_model_folder(f"owner/{TOKEN}")
    assert TOKEN not in str(error.value)


SOURCES = {path: path.read_text() for path in Path(probescale.__file__).parent.rglob("*.py")}


def search(pattern: str) -> list[str]:
    """Lines of our own code that match."""
    lines = [(path.name, line) for path, text in SOURCES.items() for line in text.splitlines()]
    assert len(lines) > 5000
    return [f"{name}: {line.strip()}" for name, line in lines if re.search(pattern, line)]


def test_yaml_is_only_read_safely():
    assert search(r"^\s*(import|from) yaml\b") == []
    unsafe = [line for line in search(r"YAML\(") if 'YAML(typ="safe")' not in line]
    assert unsafe == ["yaml_files.py: yaml = YAML()"]  # which only writes
    assert search(r"yaml\.load|YAML\(\)\.load") == []


def test_nothing_is_unpickled_or_executed():
    assert search(r"^\s*(import|from) (pickle|dill|cloudpickle|joblib|shelve|marshal)\b") == []
    assert search(r"torch\.load|weights_only|allow_pickle=True|trust_remote_code=True|shell=True|os\.system") == []
    calls = [
        call
        for path, text in SOURCES.items()
        if path.parent.name != "report"
        for call in re.findall(r"Auto\w+\.from_\w+\([^#]*?\)\n", text)
    ]
    assert len(calls) >= 5
    assert all("trust_remote_code=False" in call for call in calls)
    assert [line[:15] for line in search(r"(?<!\.)\b(eval|exec)\(")] == ["comparison.py: "]  # of a file of our own


def test_the_page_inserts_only_text():
    script = (Path(probescale.__file__).parent / "report" / "page" / "page.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)


class Named(Record):
    """A result that quotes a name."""

    name: str


def test_json_has_no_control_characters_and_says_the_same(capsys):
    show_json(Named(name=ESCAPES))
    printed = capsys.readouterr().out
    assert not set(printed) & CONTROLS
    assert json.loads(printed) == {"name": ESCAPES}
