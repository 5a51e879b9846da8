"""Errors on the command line: one message, exit code 2, no traceback, no partial output."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import version

import pytest
from ruamel.yaml import YAML

from helpers.data import labelled_rows, write_csv


@pytest.fixture
def config(tmp_path, model_folder, task_files):
    """Write a configuration that works, with some values replaced (dotted keys)."""

    def write(**changes):
        raw = {
            "model": {"source": str(model_folder("bert"))},
            "task": {"train": {"source": str(task_files.train)}, "dev": {"source": str(task_files.dev)}},
            "selection": {"k": 2, "strategy": "stitched"},
            "shrink": "none",
        }
        for key, value in changes.items():
            *path, last = key.split("__")
            here = raw
            for part in path:
                here = here[part]
            here[last] = value
        path = tmp_path / "config.yaml"
        YAML().dump(raw, path)
        return path

    return write


def assert_refused(cli, path, tmp_path, *says):
    """Assert that `run` and `validate` refuse the configuration with these words and write nothing."""
    before = sorted(tmp_path.iterdir())
    for command in (["run", path, "--out", tmp_path / "out"], ["validate", path]):
        found = cli(*command)
        assert found.code == 2, found.out
        for words in says:
            assert words in found.err
        assert "Traceback" not in found.err
        assert found.err.count("error:") == 1
        assert found.out == ""
    assert sorted(tmp_path.iterdir()) == before


def test_a_wrong_data_path(cli, config, tmp_path):
    path = config(task__train={"source": "nowhere/train.csv"})
    assert_refused(cli, path, tmp_path, 'task.train.source: "nowhere/train.csv" does not exist', "next:")


def test_a_wrong_model_path(cli, config, tmp_path):
    assert_refused(cli, config(model__source="./nowhere"), tmp_path, 'model.source: "./nowhere" does not exist')


def test_an_empty_file(cli, config, tmp_path):
    (tmp_path / "empty.csv").write_text("")
    assert_refused(cli, config(task__train={"source": str(tmp_path / "empty.csv")}), tmp_path, "empty.csv is empty")


def test_a_missing_column(cli, config, tmp_path, task_files):
    path = config(task__train={"source": str(task_files.train), "text": "review"})
    assert_refused(cli, path, tmp_path, 'task.train.text: column "review" is not in', "use one of: text, label")


def test_one_class_only(cli, config, tmp_path):
    data = write_csv(tmp_path / "one.csv", [(text, "good") for text, _ in labelled_rows(30)])
    assert_refused(
        cli, config(task__train={"source": str(data)}), tmp_path, 'task.train.label: column "label" has one class'
    )


def test_a_label_unseen_in_train(cli, config, tmp_path):
    data = write_csv(tmp_path / "dev.csv", [("a fine film", "positive"), ("a so-so film", "neutral")])
    assert_refused(
        cli, config(task__dev={"source": str(data)}), tmp_path, 'label "neutral" in row 2 does not occur in train'
    )


def test_a_text_column_of_numbers(cli, config, tmp_path):
    data = write_csv(tmp_path / "ids.csv", [(str(i), "ab"[i % 2]) for i in range(30)])
    assert_refused(
        cli, config(task__train={"source": str(data)}), tmp_path, 'column "text" holds numbers (first: 0), not text'
    )


@pytest.mark.parametrize("model_type", ["gpt5", "albert"])
def test_an_unknown_model_type(cli, config, tmp_path, model_type):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert_refused(cli, config(model__source=str(tmp_path / "model")), tmp_path, "model.source:", model_type)


def test_a_budget_too_small(cli, config, tmp_path):
    path = config(selection={"budget": "10K"})
    assert_refused(cli, path, tmp_path, "selection.budget: 10K allows 10,000 parameters", "the smallest budget is")


def test_k_above_the_number_of_layers_is_refused(cli, config, tmp_path):
    assert_refused(cli, config(selection={"k": 9}), tmp_path, "selection.k: k=9, but the model has 4 layers")


def test_inputs_longer_than_the_model_takes(cli, config, tmp_path):
    path = config(model__max_length=512)
    assert_refused(
        cli, path, tmp_path, "model.max_length: 512 tokens are more than the model accepts", "use at most 128"
    )


def test_several_files_at_fault_are_all_named(cli, config, task_files):
    path = config(
        task__train={"source": str(task_files.train), "text": "a", "label": "b"}, task__dev={"source": "no.csv"}
    )
    found = cli("validate", path)
    assert found.code == 2
    for field in ("task.train.text", "task.train.label", "task.dev.source"):
        assert field in found.err


@pytest.mark.parametrize("spoil", ["no tokenizer", "bad weights", "no weights"])
def test_validate_opens_the_model_folder(cli, config, tmp_path, model_folder, spoil):
    folder = shutil.copytree(model_folder("bert"), tmp_path / "model")
    if spoil == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    elif spoil == "bad weights":
        (folder / "model.safetensors").write_bytes(b"12345678 not weights")
    else:
        (folder / "model.safetensors").unlink()
    found = cli("validate", config(model__source=str(folder)))
    assert found.code == 2
    assert "model.source:" in found.err


def test_a_dev_file_of_one_row_and_one_class_is_enough(cli, config, tmp_path):
    data = write_csv(tmp_path / "dev.csv", [("a fine film", "positive")])
    assert cli("validate", config(task__dev={"source": str(data)})).code == 0


def test_an_empty_mapping_is_refused(cli, tmp_path):
    (tmp_path / "c.yaml").write_text("{}")
    found = cli("validate", tmp_path / "c.yaml")
    assert found.code == 2
    assert "model: required" in found.err


def test_a_constant_text_column(cli, config, tmp_path):
    data = write_csv(tmp_path / "same.csv", [("en", "ab"[i % 2]) for i in range(100)])
    path = config(task__train={"source": str(data)}, task__dev=None)
    assert_refused(cli, path, tmp_path, "task.train: only 0 usable training rows")


def test_local_data_is_checked_although_the_model_is_remote(cli, config, task_files):
    path = config(task__train={"source": str(task_files.train), "text": "a"}, task__dev={"source": "owner/name"})
    assert "task.train.text" in cli("validate", path).err


def test_a_probe_with_too_little_data(cli, config, tmp_path):
    data = write_csv(tmp_path / "few.csv", [("good", "a"), ("bad", "b"), ("fine", "a")])
    path = config(task__probes=[{"name": "tiny", "data": {"source": str(data)}}])
    assert_refused(cli, path, tmp_path, 'probe "tiny" has too little data (3 rows)')


@pytest.mark.parametrize("out", ["FILE", "FILE/inside", "OTHER", "x" * 300])
@pytest.mark.parametrize("command", ["run", "extract"])
def test_unwritable_output_folders_are_refused(cli, config, tmp_path, model_folder, command, out):
    (tmp_path / "FILE").write_text("mine")
    (tmp_path / "OTHER").mkdir()
    (tmp_path / "OTHER" / "thesis.tex").write_text("mine")
    arguments = [config()] if command == "run" else [model_folder("bert"), "--keep", "1"]
    before = sorted(tmp_path.rglob("*"))
    found = cli(command, *arguments, "--out", tmp_path / out, "--overwrite")
    assert found.code == 2
    assert "--out:" in found.err or "File name too long" in found.err
    assert "Traceback" not in found.err
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "OTHER" / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("name", ["out", "out.partial"])
def test_a_run_replaces_only_a_run(cli, config, tmp_path, name):
    (tmp_path / name).mkdir()
    for file in ("metrics.json", "thesis.tex"):
        (tmp_path / name / file).write_text("mine")
    found = cli("run", config(), "--out", tmp_path / "out", "--overwrite")
    assert found.code == 2
    assert "left alone" in found.err
    assert (tmp_path / name / "thesis.tex").read_text() == "mine"


def test_unwritable_output_files_are_refused(cli, config, tmp_path):
    paper = "layer,probe,score\n1,a,0.5\n"
    (tmp_path / "s.csv").write_text(paper)
    for command in (["probe", config()], ["select", tmp_path / "s.csv", "--k", "1"]):
        for out in (tmp_path, tmp_path / "s.csv" / "x.json"):
            found = cli(*command, "--out", out)
            assert found.code == 2
            assert "--out:" in found.err
    assert (tmp_path / "s.csv").read_text() == paper


def test_json_is_printed_as_it_is(cli, tmp_path):
    scores = {"task": "t", "layers": 1, "probes": {"a": {"scores": [0.1], "weight": 1}}}
    (tmp_path / "s.json").write_text(json.dumps(scores | {"provenance": {"command": "--set a=[top_k] :smile: [/x]"}}))
    found = cli("select", tmp_path / "s.json", "--k", "1", "--json")
    assert json.loads(found.out)["provenance"]["command"] == "--set a=[top_k] :smile: [/x]"


def test_too_few_rows(cli, config, tmp_path):
    data = write_csv(tmp_path / "few.csv", labelled_rows(6))
    assert_refused(cli, config(task__train={"source": str(data)}), tmp_path, "task.train: only 6 usable training rows")


def test_weights_that_are_missing(cli, tmp_path, model_folder):
    shutil.copytree(model_folder("bert"), tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    found = cli("extract", tmp_path / "model", "--keep", "1", "--out", tmp_path / "out")
    assert found.code == 2
    assert "no safetensors weights" in found.err
    assert not (tmp_path / "out").exists()


def test_a_config_that_promises_more_layers_than_the_weights_have(cli, tmp_path, model_folder):
    folder = shutil.copytree(model_folder("bert"), tmp_path / "model")
    lie = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 6}
    (folder / "config.json").write_text(json.dumps(lie))
    found = cli("extract", folder, "--keep", "1,6", "--out", tmp_path / "out")
    assert found.code == 2
    assert "lacks" in found.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("keep", "says"), [("1,9", "layer 9 does not exist"), ("a", '"a" is not'), ("0", "layer 0")])
def test_extract_of_layers_that_do_not_exist(cli, tmp_path, model_folder, keep, says):
    found = cli("extract", model_folder("bert"), "--keep", keep, "--out", tmp_path / "out")
    assert found.code == 2
    assert says in found.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", ["3-1", "2,3-1", "1--3"])
def test_a_reversed_layer_range_is_refused(cli, tmp_path, model_folder, keep):
    found = cli("extract", model_folder("bert"), "--keep", keep, "--out", tmp_path / "out")
    assert found.code == 2
    assert "--keep" in found.err
    assert list(tmp_path.iterdir()) == []


def test_extract_to_the_root(cli, model_folder):
    assert cli("extract", model_folder("bert"), "--keep", "1", "--out", "/").code == 2


@pytest.mark.slow
def test_extract_reports_what_it_writes(cli, tmp_path, model_folder):
    found = cli("extract", model_folder("mpnet"), "--keep", "1-2,4", "--out", tmp_path / "out")
    assert found.code == 0, found.err
    assert "kept layers 1-2, 4, dropped 3" in found.out
    assert "proved in a fresh process" in found.out
    again = cli("extract", model_folder("mpnet"), "--keep", "1", "--out", tmp_path / "out")
    assert again.code == 2
    assert "--overwrite" in again.err
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_probe_then_select(cli, config, tmp_path):
    path = config()
    found = cli("probe", path, "--out", tmp_path / "scores.json", "--set", "probing.validation=0.3")
    assert found.code == 0, found.err
    assert "accuracy" in found.out
    assert "bag of words" in found.out
    assert (tmp_path / "scores.svg").exists()
    assert (tmp_path / "scores.png").exists()
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["probes"]["task"]["validation"] == 36
    chosen = cli("select", tmp_path / "scores.json", "--budget", "90%", "--json")
    assert chosen.code == 0, chosen.err
    assert json.loads(chosen.out)["params"] <= 0.9 * json.loads(chosen.out)["params_original"]
    other = cli("select", tmp_path / "scores.json", "--k", 1, "--metric", "f1", "--contribution", "marginal", "--json")
    assert other.code == 0, other.err
    curve = scores["probes"]["task"]["measures"]["f1"]["values"]
    below = scores["probes"]["task"]["embeddings"]["f1"]
    gains = [here - lower for here, lower in zip(curve, [below, *curve], strict=False)]
    assert json.loads(other.out)["kept"] == [gains.index(max(gains)) + 1]
    assert json.loads(other.out)["score"] == pytest.approx(max(gains))
    stitched = cli("select", tmp_path / "scores.json", "--k", 1, "--metric", "f1", "--strategy", "stitched")
    assert stitched.code == 2
    assert "--strategy: stitched uses probes of subnetworks" in stitched.err
    unknown = cli("select", tmp_path / "scores.json", "--k", 1, "--metric", "beauty")
    assert unknown.code == 2
    assert "accuracy, f1" in unknown.err


def test_the_scores_are_not_written_where_the_figure_goes(cli, config, tmp_path):
    before = set(tmp_path.iterdir())
    found = cli("probe", config(), "--out", tmp_path / "scores.svg")
    assert found.code == 2
    assert "--out" in found.err
    assert {path.suffix for path in set(tmp_path.iterdir()) - before} <= {".yaml", ".csv"}


def test_validate_accepts_a_good_configuration(cli, config):
    found = cli("validate", config())
    assert (found.code, found.err) == (0, "")
    assert "no problems found" in found.out


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("tasks", ["sst2", "qnli", "pos (w=0.5)"]),
        ("properties", ["sentence_length", "bigram_shift", "CoNLL-U"]),
        ("strategies", ["contiguous", "top_k", "uniform_k"]),
        ("families", ["bert", "roberta", "mpnet", "t5"]),
        ("metrics", ["accuracy", "macro_f1"]),
        ("probes", ["linear", "mlp"]),
        ("exporters", ["onnx", "ONNX Runtime"]),
    ],
)
def test_list(cli, what, words):
    found = cli("list", what)
    assert found.code == 0
    assert all(word in found.out for word in words)


def test_help_needs_no_heavy_import():
    """`probescale --help` is quick because it imports no heavy library."""
    script = "import sys; sys.argv = ['probescale', '--help']\nfrom probescale.cli import main\ntry: main()\nfinally: "
    script += (
        "print(sorted({'torch', 'transformers', 'sklearn', 'datasets', 'pyarrow', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert "validate" in done.stdout


def test_version(cli):
    printed = cli("--version")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out == f"probescale {version('probescale')}\n"


@pytest.mark.slow
def test_python_dash_m():
    done = subprocess.run([sys.executable, "-m", "probescale", "list", "strategies"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "contiguous" in done.stdout


def _corrupt(folder):
    (folder / "model.safetensors").write_bytes(b"\x10" * 100)


def _cut_short(folder):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def _pickle_only(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _fewer_layers(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))


def _more_layers(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 9}))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_corrupt, "is not a safetensors file"),
        (_cut_short, "is not a safetensors file"),
        (_pickle_only, "pickle"),
        (_fewer_layers, "more layers than the 2 of its config"),
        (_more_layers, "config says 9 layers"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_extract_of_a_broken_model_writes_nothing(cli, model_folder, tmp_path, spoil, says):
    shutil.copytree(model_folder("bert"), tmp_path / "model")
    spoil(tmp_path / "model")
    found = cli("extract", tmp_path / "model", "--keep", "1,2", "--out", tmp_path / "out")
    assert found.code == 2
    assert says in found.err
    assert "Traceback" not in found.err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_table_of_predictions_is_not_written_to_a_file(cli, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("one\n")
    refused = cli("predict", tmp_path, texts, "--format", "table", "--out", tmp_path / "out.txt")
    assert (refused.code, refused.out) == (2, "")
    assert "--format: a table is for the terminal" in refused.err
    assert not (tmp_path / "out.txt").exists()
