from __future__ import annotations

import copy
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from probescale.config import RunConfig
from probescale.errors import Problems, UserError
from probescale.pipeline.validate import check, load_config
from probescale.study.cells import build_study
from probescale.tasks.builtin import builtin_tasks, fill_in
from probescale.utils.yaml_files import parse_section, read_yaml, set_value, to_yaml

HOME = Path(__file__).parents[1]
# Those whose data a script prepares are checked in tests/docs/test_paper_page.py.
CONFIGS = sorted(path for path in (HOME / "configs").rglob("*.yaml") if not path.name.startswith("scaled_"))


@pytest.fixture
def raw(model_folder, task_files):
    return {
        "model": {"source": str(model_folder("bert"))},
        "task": {"train": str(task_files.train), "dev": str(task_files.dev)},
        "selection": {"k": 2},
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_configs_parse_and_say_how_to_run_them(path):
    raw = read_yaml(path)
    verb = "study" if "study" in raw else "probe" if path.name.startswith("probe") else "run"
    assert f"# probescale {verb} {path.relative_to(HOME)}" in path.read_text()
    config = build_study(raw).cells[0].config if verb == "study" else parse_section(fill_in(raw), RunConfig)
    assert config.selection.strategy == (raw["study"]["strategies"][0] if verb == "study" else "tried")


def test_what_is_written_reads_back_the_same(raw):
    config = check(raw)
    again = YAML(typ="safe").load(to_yaml(config))
    assert RunConfig.model_validate(again) == config
    assert again["recovery"]["epochs"] == "auto"  # defaults are filled in


@pytest.mark.parametrize("odd", ["\x85", "a\u2028b", "\u2029", "\ufeffx", "a\nb ", "\t", "é", "😀", "1e3", "~"])
def test_unusual_letters_read_back_the_same(raw, odd):
    raw["task"]["labels"] = {odd: odd}
    config = RunConfig.model_validate(raw)
    assert RunConfig.model_validate(YAML(typ="safe").load(to_yaml(config))) == config


def test_every_problem_is_listed_at_once(raw):
    raw["modle"] = {}
    raw["task"]["metric"] = "acuracy"
    raw["task"]["train"] = {"source": raw["task"]["train"], "text": "txt", "lable": "label"}
    raw["selection"] = {"strategy": "topk", "budget": "huge"}
    raw["recovery"] = {"epochs": -1, "learning_rate": "fast"}
    raw["compare"] = ["uniform"]
    with pytest.raises(Problems) as error:
        check(raw)
    said = str(error.value)
    for part in [
        'modle: unknown key. Did you mean "model"',
        'task.train.lable: unknown key. Did you mean "label"',
        'selection.strategy: "topk" is not known. Did you mean "top_k"',
        'selection.budget: "huge" is not a budget',
        'task.metric: "acuracy" is not known. Did you mean "accuracy"',
        "recovery.epochs:",
        "recovery.learning_rate:",
        'compare.0: "uniform" is not known. Did you mean "uniform_k"',
        'task.train.text: column "txt" is not in',
    ]:
        assert part in said
    assert len(error.value.problems) == 9


def test_a_missing_column_is_found_beside_an_unknown_key(raw):
    raw["task"] = {"train": {"source": raw["task"]["train"], "text": "txt"}, "nmae": "x"}
    with pytest.raises(Problems) as error:
        check(raw)
    assert 'task.train.text: column "txt"' in str(error.value)
    assert 'task.nmae: unknown key. Did you mean "name"' in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("selection", {}, "give a budget"),
        ("probing", {"probe": "linaer"}, 'probing.probe: "linaer" is not known. Did you mean "linear"'),
        ("selection", {"budget": []}, "give a budget"),
        ("selection", {"budget": ["5x", "20 lightyears"]}, '"20 lightyears" is not a budget'),
        ("selection", {"budget": ["5x", True]}, "selection.budget"),
        ("task", "sst3", 'Did you mean "sst2"'),
        ("task", {"builtin": "qnlii"}, 'Did you mean "qnli"'),
        ("task", {}, "task.train: required"),
        ("seed", -1, "seed:"),
        ("selection", {"k": True}, "selection.k"),
        ("selection", {"budget": True}, "selection.budget"),
        ("selection", {"budget": 0.5}, "is not a budget|leaves nothing"),
        ("compare", "top_k", "compare: input should be a valid list"),
        ("model", {"source": "./no-such-folder"}, "does not exist"),
    ],
)
def test_single_problems(raw, key, value, says):
    raw[key] = value
    with pytest.raises(Problems, match=says):
        check(raw)


def test_probe_weights_default_to_one_over_m():
    task = {"train": "a.csv", "probes": [{"name": "a"}, {"name": "b"}]}
    config = parse_section({"model": {"source": "m"}, "task": task, "selection": {"k": 1}}, RunConfig)
    assert config.task.probe_weights() == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("probes", "says"),
    [
        ([{"name": "a", "weight": 1}, {"name": "b"}], "to every probe or to none"),
        ([{"name": "a", "weight": 0}], "all zero"),
        ([{"name": "a"}, {"name": "a"}], "must differ"),
        ([{"name": "a", "weight": -1}], "greater than or equal to 0"),
        ([{"name": "a", "weight": float("nan")}], "finite|greater"),
        ([], "at least 1 item"),
    ],
)
def test_probe_weights_that_make_no_sense(probes, says):
    with pytest.raises(Problems, match=says):
        parse_section(
            {"model": {"source": "m"}, "task": {"train": "a.csv", "probes": probes}, "selection": {"k": 1}}, RunConfig
        )


def test_built_in_tasks_are_the_papers():
    tasks = builtin_tasks()
    assert [(p["name"], p["weight"]) for p in tasks["sst2"]["probes"]] == [("sst2", 1.0)]
    assert [(p["name"], p["weight"], p["pooling"]) for p in tasks["qnli"]["probes"]] == [
        ("qnli", 0.5, "sep"),
        ("pos", 0.5, "token"),
    ]


def test_own_data_for_a_built_in_task_keeps_its_columns_but_not_its_split():
    task = fill_in({"task": {"builtin": "sst2", "train": "mine.tsv", "max_train": 50}})["task"]
    assert task["train"] == {"source": "mine.tsv", "text": "sentence", "label": "label"}
    assert task["dev"]["split"] == "validation"
    assert task["max_train"] == 50


def test_a_part_of_a_built_in_task_can_be_set(tmp_path, raw):
    """As the comment in qnli.yaml says."""
    tags = tmp_path / "wsj.conll"
    tags.write_text("".join(f"The\tDT\nend\tNN\n{i}\tCD\n\n" for i in range(30)))
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("question,sentence,label\n" + "".join(f"is it ?,it is {i} .,{i % 2}\n" for i in range(40)))
    own = {"model": raw["model"], "task": "sst2", "selection": {"k": 2}}
    config = check(
        own,
        [
            "task=qnli",
            f"task.probes.1.data={{source: {tags}, text: 1, label: 2}}",
            f"task.train={{source: {pairs}, text: question, pair: sentence}}",
            "task.dev=null",
        ],
    )
    assert config.task.name == "qnli"
    assert config.task.probes[1].data is not None
    assert config.task.probes[1].data.source == str(tags)
    assert config.task.probes[0].pooling == "sep"


def test_labels_may_be_given_as_numbers(raw):
    raw["task"]["labels"] = {0: "bad", 1: "good"}
    assert check(raw).task.labels == {"0": "bad", "1": "good"}


def test_set(raw):
    for assignment in [
        "selection.k=3",
        "recovery.learning_rate=1e-3",
        "task.probes=[{name: x}]",
        "task.probes.0.weight=2",
    ]:
        set_value(raw, assignment)
    config = check(raw)
    assert (config.selection.k, config.recovery.learning_rate) == (3, 1e-3)
    assert config.task.probes[0].weight == 2


@pytest.mark.parametrize("assignment", ["selection.k", "=3", "task.probes.7.weight=1", "seed.x.y=1", "selection.k=[1"])
def test_set_that_cannot_be_applied(raw, assignment):
    raw = copy.deepcopy(raw) | {"seed": 1, "task": {**raw["task"], "probes": [{"name": "a"}]}}
    with pytest.raises(UserError, match="--set"):
        set_value(raw, assignment)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no settings"),
        ("- a\n- b\n", "has no settings"),
        ("seed: 1\nseed: 2\n", "duplicate key"),
        ("seed: [1\n", "not valid YAML"),
        ("seed: 2001-99-99\n", "not valid YAML"),
        ("a: " + "[" * 5000, "not valid YAML"),
        ("seed: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
    ],
)
def test_files_that_are_no_configuration(tmp_path, text, says):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=says):
        load_config(path)
