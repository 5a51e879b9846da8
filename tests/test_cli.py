"""What a user sees when something is wrong: one message, exit code 2, no traceback, nothing half-written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from conftest import labelled_rows, write_csv


@pytest.fixture
def config(tmp_path, model_folder, task_files):
    """Write a configuration that works, with some values replaced (dotted keys)."""

    def write(**changes):
        raw = {
            "model": {"source": str(model_folder("bert"))},
            "task": {"train": {"source": str(task_files.train)}, "dev": {"source": str(task_files.dev)}},
            "selection": {"k": 2},
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
    """The run is refused with these words, and leaves nothing behind. `validate` says the same."""
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


def test_more_layers_than_there_are(cli, config, tmp_path):
    assert_refused(cli, config(selection={"k": 9}), tmp_path, "selection.k: k=9, but the model has 4 layers")


def test_inputs_longer_than_the_model_takes(cli, config, tmp_path):
    path = config(model__max_length=512)
    assert_refused(
        cli, path, tmp_path, "model.max_length: 512 tokens are more than the model can take", "use at most 128"
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


def test_an_empty_mapping_is_no_configuration(cli, tmp_path):
    (tmp_path / "c.yaml").write_text("{}")
    found = cli("validate", tmp_path / "c.yaml")
    assert found.code == 2
    assert "model: required" in found.err


def test_a_constant_text_column(cli, config, tmp_path):
    data = write_csv(tmp_path / "same.csv", [("en", "ab"[i % 2]) for i in range(100)])
    path = config(task__train={"source": str(data)}, task__dev=None)
    assert_refused(cli, path, tmp_path, "task.train: only 1 usable training rows")


def test_local_data_is_checked_beside_a_remote_source(cli, config, task_files):
    path = config(task__train={"source": str(task_files.train), "text": "a"}, task__dev={"source": "owner/name"})
    assert "task.train.text" in cli("validate", path).err


def test_a_probe_with_too_little_data(cli, config, tmp_path):
    data = write_csv(tmp_path / "few.csv", [("good", "a"), ("bad", "b"), ("fine", "a")])
    path = config(task__probes=[{"name": "tiny", "data": {"source": str(data)}}])
    assert_refused(cli, path, tmp_path, 'probe "tiny" has too little data (3 rows)')


@pytest.mark.parametrize("out", ["FILE", "FILE/inside", "OTHER", "x" * 300])
@pytest.mark.parametrize("command", ["run", "extract"])
def test_places_where_no_folder_can_be_written(cli, config, tmp_path, model_folder, command, out):
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


def test_places_where_no_file_can_be_written(cli, config, tmp_path):
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
def test_layers_that_run_backwards(cli, tmp_path, model_folder, keep):
    found = cli("extract", model_folder("bert"), "--keep", keep, "--out", tmp_path / "out")
    assert found.code == 2
    assert "--keep" in found.err
    assert list(tmp_path.iterdir()) == []


def test_extract_to_the_root(cli, model_folder):
    assert cli("extract", model_folder("bert"), "--keep", "1", "--out", "/").code == 2


def test_extract_writes_what_it_says(cli, tmp_path, model_folder):
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
    assert "--strategy: stitched goes by probes of subnetworks" in stitched.err
    unknown = cli("select", tmp_path / "scores.json", "--k", 1, "--metric", "beauty")
    assert unknown.code == 2
    assert "accuracy, f1" in unknown.err


def test_the_scores_are_not_written_where_the_figure_goes(cli, config, tmp_path):
    before = set(tmp_path.iterdir())
    found = cli("probe", config(), "--out", tmp_path / "scores.svg")
    assert found.code == 2
    assert "--out" in found.err
    assert {path.suffix for path in set(tmp_path.iterdir()) - before} <= {".yaml", ".csv"}


def test_validate_says_when_all_is_well(cli, config):
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
    ],
)
def test_list(cli, what, words):
    found = cli("list", what)
    assert found.code == 0
    assert all(word in found.out for word in words)


def test_help_needs_no_heavy_import():
    """`probescale --help` answers at once because nothing heavy is imported for it."""
    script = "import sys; sys.argv = ['probescale', '--help']\nfrom probescale.cli import main\ntry: main()\nfinally: "
    script += (
        "print(sorted({'torch', 'transformers', 'sklearn', 'datasets', 'pyarrow', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert "validate" in done.stdout


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
def test_extract_of_what_is_broken_writes_nothing(cli, model_folder, tmp_path, spoil, says):
    shutil.copytree(model_folder("bert"), tmp_path / "model")
    spoil(tmp_path / "model")
    found = cli("extract", tmp_path / "model", "--keep", "1,2", "--out", tmp_path / "out")
    assert found.code == 2
    assert says in found.err
    assert "Traceback" not in found.err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def scores_csv(path, **probes):
    """A file of scores, one list a probe."""
    rows = [f"{layer},{name},{score}" for name, row in probes.items() for layer, score in enumerate(row, 1)]
    path.write_text("\n".join(["layer,probe,score", *rows]) + "\n")
    return path


@pytest.fixture
def two_tasks(tmp_path):
    """The first task lives in the first layers, the second in the last ones."""
    first = scores_csv(tmp_path / "sentiment.csv", p=[0.9, 0.8, 0.2, 0.1, 0.1, 0.1])
    return first, scores_csv(tmp_path / "topic.csv", p=[0.1, 0.1, 0.1, 0.2, 0.8, 0.85])


def kept_by(cli, *arguments):
    found = cli("select", *arguments, "--json")
    assert found.code == 0, found.err
    return json.loads(found.out)["kept"]


def test_one_selection_for_several_tasks(cli, two_tasks):
    options = ["--k", 2, "--strategy", "best_scores"]
    assert kept_by(cli, two_tasks[0], *options) == [1, 2]
    assert kept_by(cli, two_tasks[1], *options) == [5, 6]
    assert kept_by(cli, *two_tasks, *options) == [1, 6]
    assert kept_by(cli, *two_tasks, *options, "--task-weight", "topic=9") == [5, 6]
    assert kept_by(cli, *two_tasks, *options, "--task-weight", "topic=1", "--task-weight", "sentiment=9") == [1, 2]
    assert kept_by(cli, *two_tasks, *options, "--task-weight", "topic=0") == [1, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--task-weight", "topics=1"], 'no SCORES are of the task "topics". Did you mean "topic"'),
        (["--task-weight", "weather=1"], "use one of: sentiment, topic"),
        (["--task-weight", "topic"], '"topic" is not TASK=NUMBER'),
        (["--task-weight", "topic=-1"], "weights are 0 or more"),
        (["--task-weight", "topic=nan"], "weights are 0 or more"),
        (["--task-weight", "topic=0", "--task-weight", "sentiment=0"], "all task weights are zero"),
    ],
)
def test_wrong_task_weights(cli, two_tasks, tmp_path, options, says):
    found = cli("select", *two_tasks, "--k", 2, *options, "--out", tmp_path / "out.json")
    assert found.code == 2
    assert says in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "out.json").exists()


def test_tasks_of_different_models(cli, two_tasks, tmp_path):
    found = cli("select", *two_tasks, scores_csv(tmp_path / "other.csv", p=[0.1, 0.2, 0.3]), "--k", 2)
    assert found.code == 2
    assert "models with 6, 6, 3 layers" in found.err


def test_structure_on_the_command_line(cli, two_tasks):
    options = [two_tasks[0], "--k", 3, "--strategy", "best_scores"]
    assert kept_by(cli, *options) == [1, 2, 3]
    assert kept_by(cli, *options, "--keep", "6") == [1, 2, 6]
    assert kept_by(cli, *options, "--keep", "5-6") == [1, 5, 6]
    assert kept_by(cli, *options, "--gap", 2) == [1, 3, 5]
    assert kept_by(cli, *options, "--keep", "6", "--gap", 2) == [1, 3, 6]
    assert kept_by(cli, *options, "--neighbours", "--keep", "4") == [2, 3, 4]
    assert kept_by(cli, two_tasks[1], "--k", 2, "--strategy", "bottom_k", "--neighbours", "--keep", "6") == [5, 6]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--keep", "7"], "--keep: layer 7 does not exist"),
        (["--keep", "a"], '--keep: "a" is not a layer'),
        (["--keep", "1,2,3"], "--k: k=2, but between 3 and 6 layers"),
        (["--keep", "1,2", "--gap", "2"], "--gap: layers 1, 2 are closer than the gap of 2"),
        (["--gap", "6"], "--k: k=2, but between 1 and 1 layers"),
        (["--gap", "2", "--neighbours"], "leave --gap or --neighbours out"),
        (["--gap", "0"], "--gap"),
        (["--strategy", "contiguous", "--gap", "2"], "use a gap of 1"),
        (["--strategy", "stitched"], "goes by probes of subnetworks"),
        (["--strategy", "angular"], "how texts flow"),
    ],
)
def test_structures_that_cannot_be(cli, two_tasks, tmp_path, options, says):
    strategy = [] if "--strategy" in options else ["--strategy", "best_scores"]
    found = cli("select", two_tasks[0], "--k", 2, *strategy, *options, "--out", tmp_path / "out.json")
    assert found.code == 2
    assert says in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "out.json").exists()


@pytest.fixture
def calibration(tmp_path):
    """Two probes; what was measured is made of them with the weights 0.8 and 0.2."""
    scores = scores_csv(tmp_path / "scores.csv", pos=[0.0, 1.0, 0.0], ner=[1.0, 0.0, 2.0])
    (tmp_path / "measured.csv").write_text('layers,value\n1,0.4\n2,0.7\n3,0.5\n"1,2",0.8\n1-3,1.0\n')
    return scores, tmp_path / "measured.csv"


def test_calibrate_learns_weights_and_writes_scores_that_carry_them(cli, calibration, tmp_path):
    found = cli("calibrate", *calibration, "--out", tmp_path / "new.json")
    assert found.code == 0, found.err
    assert "5 measured" in found.out
    assert "0.8000" in found.out
    assert "0.2000" in found.out
    written = json.loads((tmp_path / "new.json").read_text())
    assert {n: p["weight"] for n, p in written["probes"].items()} == pytest.approx({"pos": 0.8, "ner": 0.2})
    assert written["relevance"] == pytest.approx([0.2, 0.8, 0.4])
    learnt = json.loads(cli("calibrate", *calibration, "--json").out)
    assert learnt["weights"] == pytest.approx({"pos": 0.8, "ner": 0.2})
    assert learnt["error"] == pytest.approx(0, abs=1e-9)
    assert kept_by(cli, tmp_path / "new.json", "--k", 1, "--strategy", "best_scores") == [2]
    assert kept_by(cli, calibration[0], "--k", 1, "--strategy", "best_scores") == [3], "with equal weights"


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        (None, "neither a file nor a folder"),
        ("", "no column layers, value"),
        ("layers,value\n", "is empty"),
        ("layers,value\n1,0.4\n", "too few to learn from"),
        ("layers,value\n1,0.4\n2,0.5\n3,0.1\n9,0.5\n", "not layers of this model"),
        ("layers,value\n1,0.4\n2,high\n3,0.1\n", "give a finite number"),
        ("layers,value\n1,2,0.4\n", "put layers in quotes"),
        ("layers,value\n2-1,0.4\n", "runs backwards"),
    ],
)
def test_what_cannot_be_calibrated(cli, calibration, tmp_path, measured, says):
    path = tmp_path / "wrong.csv"
    if measured is not None:
        path.write_text(measured)
    found = cli("calibrate", calibration[0], path, "--out", tmp_path / "new.json")
    assert found.code == 2
    assert says in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "new.json").exists()


def test_calibrate_without_scores(cli, calibration, tmp_path):
    found = cli("calibrate", tmp_path / "none.json", calibration[1])
    assert found.code == 2
    assert "SCORES" in found.err
