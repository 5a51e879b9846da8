"""A finished run as an object: figures, report, predictions, and ways to ship the model, on a real tiny run."""

from __future__ import annotations

import builtins
import csv
import json
import shutil
import sys
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel, pipeline

from helpers.data import labelled_rows
from probescale.deploy.compressed import RUN_FILES, Compressed
from probescale.errors import UserError
from probescale.models.subsets import format_layers
from probescale.pipeline.folder import MARK
from probescale.pipeline.run import run as run_pipeline
from probescale.pipeline.validate import check
from probescale.report.findings import RunFindings
from probescale.report.phrases import format_count
from probescale.report.verdict import ELSEWHERE, decide, run_summary

pytestmark = [pytest.mark.slow, pytest.mark.long]

TEXTS = [text for text, _ in labelled_rows(12, seed=5)]
EVIL = "</iframe><script>window.evil=1</script>"


def raw_config(model: Path, train: Path, dev: Path, **columns: str) -> dict:
    return {
        "model": {"source": str(model), "max_length": 32},
        "task": {"name": "tiny", "train": {"source": str(train), **columns}, "dev": {"source": str(dev), **columns}},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"k": 2},
        "compare": [],
        "recovery": {"epochs": 4, "learning_rate": 3e-3, "batch_size": 16},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model_folder, task_files) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("compressed") / "my run"
    run_pipeline(check(raw_config(model_folder("bert"), task_files.train, task_files.dev)), out)
    return out


@pytest.fixture(scope="module")
def small(folder) -> Compressed:
    return Compressed(folder)


@pytest.fixture
def copied(folder, tmp_path) -> Path:
    """A copy of the run, for tests that change its files."""
    return Path(shutil.copytree(folder, tmp_path / "run"))


def stock_logits(folder: Path) -> torch.Tensor:
    """What stock transformers computes for the texts."""
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        return model.eval()(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits


def set_metrics(folder: Path, **values: object) -> None:
    path = folder / "metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# Figures


def test_the_figures_are_those_of_the_run(small, folder):
    metrics = json.loads((folder / "metrics.json").read_text())
    assert small.result.model_dump(mode="json") == metrics
    assert small.params == metrics["subnetwork"]["params"] == small.model.num_parameters()
    assert small.retention == metrics["retention"]


def test_one_line_says_what_it_is(small, folder, copied):
    kept, share = format_layers(small.result.subnetwork.kept), 100 * small.retention
    parameters = f"{format_count(small.params)} parameters"
    assert repr(small) == f"Compressed({folder}: layers {kept}, {parameters}, {share:.1f} % kept)"
    set_metrics(copied, retention=None, failure="the subnetwork did not learn the task")
    assert repr(Compressed(copied)) == f"Compressed({copied}: layers {kept}, {parameters}, training failed)"


@pytest.mark.long
def test_the_report_prints_the_tables_of_the_command(copied, model_folder, task_files, tmp_path, cli, capsys):
    config = tmp_path / "my.yaml"
    config.write_text(json.dumps(raw_config(model_folder("bert"), task_files.train, task_files.dev)))
    done = cli("run", config, "--out", tmp_path / "again")
    assert done.code == 0, done.err
    tables, name, _ = done.out.partition("\nmodel, scores and report: ")
    assert name
    assert "Probe scores by layer" in tables
    again = Compressed(tmp_path / "again")
    again.report()
    printed = capsys.readouterr().out
    assert printed.startswith(tables)
    assert printed.endswith(f"\nmodel, scores and report: {again.folder}\n")
    lines = run_summary(RunFindings.load(again.folder))
    assert all(line in printed for line in lines)
    assert lines[0].startswith(("Ship it", "Not sure yet", "You may not need it", "Do not ship it"))
    set_metrics(copied, failure="The subnetwork did not learn the task.")
    Compressed(copied).report()
    assert "\nDo not ship it: The subnetwork did not learn the task. " in capsys.readouterr().out


# Notebooks


def display_in_notebook(compressed: Compressed, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What report() hands to a notebook's display(); Jupyter is no dependency, so its two hooks are stood in for."""
    shown: list[dict[str, str]] = []
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    display = SimpleNamespace(display=lambda bundle, *, raw: shown.append(bundle if raw else {}))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    compressed.report()
    return shown


def test_a_notebook_shows_the_page(small, monkeypatch, capsys):
    [bundle] = display_in_notebook(small, monkeypatch)
    assert bundle["text/plain"] == repr(small)
    assert bundle["text/html"].startswith("<iframe ")
    assert capsys.readouterr().out == ""


def test_the_page_works_inside_a_notebook(small, monkeypatch):
    """In a browser, under the content policy of a VS Code notebook: the script runs, and cannot reach the notebook."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here")
    [bundle] = display_in_notebook(small, monkeypatch)
    policy = (
        "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
        "child-src https: data: blob:"
    )
    notebook = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><body>{bundle["text/html"]}'
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_content(notebook)
        frame = page.frame_locator("iframe")
        assert frame.locator("#title").inner_text() == "ProbeScale: tiny"
        kept = ",".join(map(str, small.result.subnetwork.kept))
        assert frame.locator("#strip").get_attribute("data-kept") == kept
        assert page.frames[1].evaluate("self.origin") == "null"
        browser.close()


def test_a_notebook_shows_a_summary_with_a_link(copied, monkeypatch):
    monkeypatch.chdir(copied.parent)
    renamed = copied.rename(copied.with_name("a run"))
    html = Compressed(renamed)._repr_html_()
    assert 'href="a%20run/report.html"' in html
    assert escape(decide(RunFindings.load(renamed), machine=ELSEWHERE).sentence) in html
    set_metrics(renamed, task=EVIL, failure=EVIL)
    html = Compressed(renamed)._repr_html_()
    assert "<script>" not in html
    assert html.count("&lt;script&gt;") == 2


# The model


def test_predictions_are_those_of_stock_transformers(small, folder):
    classify = pipeline("text-classification", model=str(folder / "model"), device="cpu")
    expected = classify(TEXTS)
    answers = [prediction.record() for prediction in small.predict(TEXTS)]
    assert [answer["text"] for answer in answers] == TEXTS
    assert [answer["label"] for answer in answers] == [answer["label"] for answer in expected]
    assert [answer["probability"] for answer in answers] == pytest.approx(
        [answer["score"] for answer in expected], abs=1e-5
    )
    assert len({answer["label"] for answer in answers}) == 2


def test_one_text_is_a_list_of_one(small):
    [alone], [first, *_] = small.predict(TEXTS[0]), small.predict(TEXTS)
    assert alone.number == first.number == 1
    assert alone.record()["label"] == first.record()["label"]
    assert small.predict([]) == []


def test_the_model_is_a_stock_one_and_is_opened_once(copied):
    small = Compressed(copied)
    assert isinstance(small.model, PreTrainedModel)
    assert type(small.model).__module__.startswith("transformers.")
    small.predict(TEXTS[0])
    shutil.rmtree(copied / "model")
    assert len(small.predict(TEXTS)) == len(TEXTS)
    assert small.tokenizer.decode(small.tokenizer(TEXTS[0])["input_ids"], skip_special_tokens=True)


def test_what_is_no_text_is_refused(small):
    with pytest.raises(UserError, match="number 2 is nan, not a text") as refused:
        small.predict([TEXTS[0], float("nan")])
    assert refused.value.field == "texts"
    with pytest.raises(UserError, match="reads one text at a time") as refused:
        small.predict(TEXTS, pairs=TEXTS)
    assert refused.value.field == "pairs"


@pytest.mark.long
def test_pairs(tmp_path, model_folder, task_files):
    """A task on two texts: the second one decides."""

    def write_pairs(path: Path, source: Path) -> Path:
        with source.open() as file, path.open("w", newline="") as target:
            writer = csv.writer(target)
            writer.writerows([("first", "second", "label")])
            writer.writerows(("what was it like ?", row["text"], row["label"]) for row in csv.DictReader(file))
        return path

    train, dev = (write_pairs(tmp_path / path.name, path) for path in (task_files.train, task_files.dev))
    run_pipeline(check(raw_config(model_folder("bert"), train, dev, text="first", pair="second")), tmp_path / "run")
    train.unlink()  # predictions need no data
    small = Compressed(tmp_path / "run")
    firsts = ["what was it like ?"] * len(TEXTS)
    classify = pipeline("text-classification", model=str(tmp_path / "run" / "model"), device="cpu")
    expected: Any = classify([{"text": firsts[0], "text_pair": text} for text in TEXTS])
    answers = [prediction.record() for prediction in small.predict(firsts, pairs=TEXTS)]
    assert [answer["label"] for answer in answers] == [answer["label"] for answer in expected]
    assert [answer["probability"] for answer in answers] == pytest.approx(
        [answer["score"] for answer in expected], abs=1e-5
    )
    assert small.predict(firsts[0], pairs=TEXTS[0])[0].record()["label"] == answers[0]["label"]
    with pytest.raises(UserError, match="there are no second texts"):
        small.predict(firsts)
    with pytest.raises(UserError, match="1 second texts for 12 texts"):
        small.predict(firsts, pairs=TEXTS[:1])


# Ways out


def test_the_saved_folder_is_a_stock_model(small, folder, tmp_path):
    saved = small.save_pretrained(tmp_path / "deep" / "small")
    assert saved == tmp_path / "deep" / "small"
    assert torch.equal(stock_logits(saved), stock_logits(folder / "model"))
    assert {path.name for path in saved.iterdir()} == {path.name for path in (folder / "model").iterdir()}
    assert (saved / "README.md").read_bytes() == (folder / "model" / "README.md").read_bytes()
    assert [path.name for path in saved.parent.iterdir()] == ["small"], "no temporary folder is left"


def test_folders_of_others_are_left_alone(small, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(UserError) as refused:
            small.save_pretrained(tmp_path / "other", overwrite=overwrite)
        assert refused.value.field == "folder"
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.txt"]


def test_an_own_folder_is_replaced_on_request_and_an_empty_one_at_once(small, tmp_path):
    (tmp_path / "empty").mkdir()
    saved = small.save_pretrained(tmp_path / "empty")
    (saved / "config.json").unlink()
    with pytest.raises(UserError, match="already exists"):
        small.save_pretrained(saved)
    assert not (saved / "config.json").exists()
    small.save_pretrained(saved, overwrite=True)
    assert (saved / "config.json").is_file()


@pytest.mark.long
def test_export(copied):
    pytest.importorskip("onnxruntime", reason='pip install "probescale[onnx]"')
    from probescale.deploy.open_model import open_model
    from probescale.deploy.predict import predict_lines
    from probescale.deploy.texts import Line

    small = Compressed(copied)
    graph = small.export()
    assert graph == copied.with_name("run-onnx")
    exported = open_model(str(graph))
    assert exported.format == "onnx"
    answers = predict_lines(exported, [Line(number, text) for number, text in enumerate(TEXTS, 1)])
    probabilities = [answer.record()["probability"] for answer in answers]
    assert probabilities == pytest.approx([answer.record()["probability"] for answer in small.predict(TEXTS)], abs=1e-4)
    with pytest.raises(UserError, match="already exists"):
        small.export()
    assert small.export(out=copied.with_name("graph"), int8=True) == copied.with_name("graph")
    assert (copied.with_name("graph") / "model.onnx").is_file()
    with pytest.raises(UserError, match='"onx" is not known'):
        small.export("onx")


def test_push_uploads_the_model_and_its_card(small, folder, monkeypatch):
    calls: list[dict] = []

    class Client:
        """The hub's client, as far as it is used."""

        def create_repo(self, repo: str, **options: object) -> None:
            calls.append({"repo": repo, **options})

        def upload_folder(self, **options: object) -> str:
            calls.append(options)
            return f"https://huggingface.co/{options['repo_id']}/commit/1"

    monkeypatch.setattr("huggingface_hub.HfApi", Client)
    assert small.push_to_hub("me/small", private=True).endswith("/me/small/commit/1")
    create, upload = calls
    assert create == {"repo": "me/small", "private": True, "exist_ok": True}
    assert upload["folder_path"] == folder / "model"
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(upload["allow_patterns"])


def test_push_without_a_hub_says_so(small):
    with pytest.raises(UserError, match=r"the hub refuses me/small: .*offline"):
        small.push_to_hub("me/small")


@pytest.mark.long
def test_benchmark_compares_with_the_first(small, folder, model_folder, monkeypatch):
    from probescale.deploy import bench

    shapes = ((1,), (8,), 3)  # batch sizes, lengths and passes: fewer than users get
    monkeypatch.setattr(bench.bench, "__defaults__", shapes)
    original, own = small.benchmark(model_folder("bert")).rows
    assert (original.model, own.model) == (str(model_folder("bert")), str(folder))
    assert original.speedup == 1


# What is no finished run


@pytest.mark.parametrize("name", RUN_FILES)
def test_an_incomplete_folder_is_refused(copied, name):
    (copied / name).unlink()
    with pytest.raises(UserError, match=f"is not a finished run: there is no {name}") as refused:
        Compressed(copied)
    assert refused.value.field == "folder"
    assert "probescale run" in refused.value.hint


def test_an_interrupted_run_is_to_be_resumed(copied, tmp_path):
    (copied / MARK).parent.mkdir()
    (copied / MARK).write_text("{}")
    with pytest.raises(UserError, match="is not a finished run: it was interrupted") as refused:
        Compressed(copied)
    assert refused.value.hint == "run the same command again to resume it"
    copied.rename(tmp_path / "out.partial")
    with pytest.raises(UserError, match="is not a finished run: there is no config") as refused:
        Compressed(tmp_path / "out")
    assert refused.value.hint == "run the same command again to resume it"


def test_the_current_folder_and_none_at_all(copied, tmp_path, monkeypatch):
    monkeypatch.chdir(copied)
    assert Compressed(".").params > 0
    with pytest.raises(UserError, match="is not a finished run"):
        Compressed(tmp_path / "nothing")
