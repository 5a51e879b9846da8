"""Complete runs on a tiny model: what they write, that they repeat, that they resume after an interruption."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import transformers
from filelock import FileLock
from ruamel.yaml import YAML
from transformers import AutoConfig

import probescale
from helpers.models import FAMILIES, LAYERS, tiny_tokenizer
from helpers.sweeps import sweep
from probescale.errors import UserError
from probescale.models.families import FAMILIES as FAMILIES_BY_TYPE
from probescale.models.heads import stock_class_name
from probescale.models.loading import load_as_saved
from probescale.models.proof.twin import build_twin_config
from probescale.pipeline import run as pipeline
from probescale.pipeline import schedule, time_left, training
from probescale.pipeline.validate import check, load_config
from probescale.probing.score_files import load_scores
from probescale.recovery.recipe import Choices
from probescale.tasks.task import load_task
from probescale.utils.ownership import MANIFEST

pytestmark = pytest.mark.slow


def raw_config(folder: Path, task_files) -> dict:
    return {
        "model": {"source": str(folder), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "selection": {"k": 2, "strategy": "stitched"},
        "shrink": "none",
        "compare": ["top_k", "uniform_k"],
        "recovery": {"epochs": 6, "learning_rate": 3e-3, "batch_size": 16, "augment": 0},
        "seed": 3,
    }


@pytest.fixture(scope="module")
def bert_run(tmp_path_factory, model_folder, task_files):
    folder = tmp_path_factory.mktemp("run")
    path = folder / "config.yaml"
    YAML().dump(raw_config(model_folder("bert"), task_files), path)
    pipeline.run(load_config(path), folder / "out")
    return path, folder / "out"


def test_what_a_run_writes(bert_run):
    out = bert_run[1]
    names = {"config.yaml", "scores.json", "selection.json", "model", "metrics.json", "report.md"}
    names |= {"probes.svg", "probes.png", "predictions.csv", "report.html", "regressions.json", "bias.json"}
    names |= {"schedule.json", "recipe.json", "alternatives.json", MANIFEST}
    assert {p.name for p in out.iterdir()} == names
    assert not list(out.parent.glob("*.partial"))

    selection = json.loads((out / "selection.json").read_text())
    assert selection["k"] == len(selection["kept"]) == 2
    assert sorted(selection["kept"] + selection["dropped"]) == list(range(1, LAYERS + 1))
    assert selection["params"] < selection["params_original"]
    assert selection["ratio_total"] == selection["params"] / selection["params_original"]
    assert selection["ratio_layers"] == 0.5

    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["split"] == "dev"
    assert metrics["examples"] == 40
    assert set(metrics["compared"]) == {"top_k", "uniform_k"}
    assert metrics["original"]["kept"] == [1, 2, 3, 4]
    assert metrics["subnetwork"]["kept"] == selection["kept"]
    assert metrics["retention"] == metrics["subnetwork"]["value"] / metrics["original"]["value"]
    said = list(csv.DictReader((out / "predictions.csv").open()))
    assert list(said[0]) == ["row", "right", "original", selection["strategy"], "top_k", "uniform_k"]
    right = sum(row["right"] == row[selection["strategy"]] for row in said) / len(said)
    assert right == metrics["subnetwork"]["value"]

    low, high = metrics["subnetwork"]["interval"]
    assert low <= metrics["subnetwork"]["value"] <= high
    assert metrics["original"]["value"] > 0.8, "the task can be learned by a tiny model"
    assert set(metrics["provenance"]) >= {"model", "model_sha256", "data_sha256", "versions", "seed", "command"}

    scores = json.loads((out / "scores.json").read_text())
    assert len(scores["probes"]["task"]["scores"]) == len(scores["relevance"]) == LAYERS
    report = (out / "report.md").read_text()
    assert f"{metrics['subnetwork']['params']:,}" in report
    assert "uniform_k" in report


def test_config_yaml_runs_again(bert_run):
    path, out = bert_run
    given, settled = load_config(path), load_config(out / "config.yaml")
    own = {"epochs": 6, "learning_rate": 3e-3, "batch_size": 16, "dropout": "model"}
    assert settled.recovery.original == given.recovery.original.model_copy(update=own), "what was chosen is written out"
    assert (settled.task.metric, settled.recovery.class_weights) == ("accuracy", "none")
    recovery = settled.recovery.model_copy(
        update={"original": given.recovery.original, "class_weights": given.recovery.class_weights}
    )
    task = settled.task.model_copy(update={"metric": given.task.metric})
    assert settled.model_copy(update={"recovery": recovery, "task": task}) == given


@pytest.mark.long
def test_the_saved_model_is_the_measured_one(bert_run, task_files):
    """Stock transformers in a fresh process reach the accuracy that metrics.json states."""
    out = bert_run[1]
    script = """
import csv, sys
from transformers import pipeline
rows = list(csv.DictReader(open(sys.argv[2])))
classify = pipeline("text-classification", model=sys.argv[1], device="cpu")
said = [answer["label"] for answer in classify([row["text"] for row in rows])]
print(sum(a == row["label"] for a, row in zip(said, rows)) / len(rows))
"""
    command = [sys.executable, "-c", script, str(out / "model"), str(task_files.dev)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) == json.loads((out / "metrics.json").read_text())["subnetwork"]["value"]


@pytest.mark.long
def test_the_same_config_and_seed_give_the_same_files(bert_run, tmp_path):
    path, out = bert_run
    pipeline.run(load_config(path), tmp_path / "again")
    for name in ("scores.json", "selection.json", "config.yaml"):
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes()
    first, again = (json.loads((folder / "metrics.json").read_text()) for folder in (out, tmp_path / "again"))
    assert all(first[which]["value"] == again[which]["value"] for which in ("original", "subnetwork"))
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (out, tmp_path / "again")]
    assert weights[0] == weights[1]


def test_another_seed_draws_another_split(model_folder, task_files):
    raw = raw_config(model_folder("bert"), task_files)
    found = []
    for seed in (3, 4):
        config = check(raw | {"seed": seed})
        found.append(probescale.probe(config).probes["task"].measures)
    assert found[0]["information"] != found[1]["information"]  # accuracies may well agree


@pytest.mark.long
def test_the_batch_size_changes_no_score(model_folder, task_files):
    found = []
    for batch_tokens in (1, 50_000):
        config = check(raw_config(model_folder("bert"), task_files) | {"probing": {"batch_tokens": batch_tokens}})
        found.append(probescale.probe(config).probes["task"])
    assert found[0] == found[1]


@pytest.mark.parametrize("family", sweep([family for family in FAMILIES if family != "bert"], always=["t5"]))
def test_every_family_runs_and_learns(family, model_folder, task_files, tmp_path):
    raw = raw_config(model_folder(family), task_files) | {"compare": []}
    result = pipeline.run(check(raw), tmp_path / "out")
    assert result.subnetwork.value > 0.8
    assert result.subnetwork.params < result.original.params
    assert (tmp_path / "out" / "model" / "model.safetensors").is_file()


@pytest.mark.long
@pytest.mark.parametrize("model_type", ["llama", "modernbert", "bart"])
def test_other_architectures_run_from_end_to_end(model_type, task_files, tmp_path):
    """A decoder without a padding token, a model with a fixed first layer, an encoder-decoder."""
    described = FAMILIES_BY_TYPE[model_type]
    tokenizer = tiny_tokenizer("roberta")
    config = build_twin_config(AutoConfig.for_model(model_type), described)
    config.vocab_size, config.pad_token_id, config.eos_token_id, config.bos_token_id = len(tokenizer), 1, 2, 0
    if model_type == "llama":
        tokenizer.pad_token = tokenizer.cls_token = config.pad_token_id = None
    model = getattr(transformers, stock_class_name(described, config, "none") or "")(config)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    raw = raw_config(tmp_path / "model", task_files)
    raw |= {"compare": ["top_k"], "recovery": {"epochs": 1, "augment": 0}}
    raw["selection"] |= {"budget": ["99%", "50MB", "1GFLOPs", "10s"], "length": 32}
    result = pipeline.run(check(raw), tmp_path / "out")
    kept = result.subnetwork.kept
    assert len(kept) == 2
    assert kept[0] == 1 or model_type != "modernbert"
    assert result.compared["top_k"].kept == ((1, 4) if model_type == "modernbert" else (3, 4))
    selection = json.loads((tmp_path / "out" / "selection.json").read_text())
    assert selection["budget"] == "99%, 50MB, 1GFLOPs, 10s, k=2"
    assert set(selection["costs"]) == {"megabytes", "gflops", "milliseconds"}
    assert 0 < selection["costs"]["milliseconds"] < 10_000
    stored = (tmp_path / "out" / "model" / "model.safetensors").stat().st_size / 1e6
    assert selection["costs"]["megabytes"] == pytest.approx(stored, rel=0.1)  # a tiny file is not all weights
    assert load_scores(tmp_path / "out" / "scores.json").layers == 4


def test_a_pair_task_with_a_tagging_probe(model_folder, tmp_path):
    rows = [f"is the film good ?,the film was {'good' if i % 2 else 'dull'} and {i} long,{i % 2}" for i in range(60)]
    (tmp_path / "pairs.csv").write_text("\n".join(["question,sentence,label", *rows]))
    nouns, adjectives = ["film", "plot", "story", "cast", "script"], ["good", "bad", "dull", "warm", "cold", "fine"]
    sentences = [f"the\tD\n{noun}\tN\nwas\tV\n{word}\tA\n" for noun in nouns for word in adjectives]
    (tmp_path / "tags.conll").write_text("\n".join(sentences))
    tags = {"source": str(tmp_path / "tags.conll"), "text": 1, "label": 2}
    raw = {
        "model": {"source": str(model_folder("roberta")), "max_length": 32},
        "task": {
            "builtin": "qnli",
            "train": {"source": str(tmp_path / "pairs.csv")},
            "dev": None,
            "probes": [
                {"name": "qnli", "pooling": "sep"},
                {"name": "pos", "pooling": "token", "data": tags},
            ],
        },
        "selection": {"k": 2},
    }
    scores = probescale.probe(check(raw))
    assert {name: probe.pooling for name, probe in scores.probes.items()} == {"qnli": "sep", "pos": "token"}
    assert max(scores.probes["pos"].scores) > 0.9
    expected = [0.5 * a + 0.5 * b for a, b in zip(*(p.scores for p in scores.probes.values()), strict=True)]
    assert scores.relevance == pytest.approx(expected)


def test_an_interrupted_run_resumes_to_the_same_numbers(bert_run, tmp_path, monkeypatch):
    path, out = bert_run
    calls = []
    fine_tune = training.fine_tune

    def cut_off(*args, **kwargs):
        calls.append(kwargs["title"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return fine_tune(*args, **kwargs)

    monkeypatch.setattr(training, "fine_tune", cut_off)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(load_config(path), tmp_path / "cut")
    assert not (tmp_path / "cut").exists()
    assert (tmp_path / "cut.partial" / "scores.json").exists()
    pipeline.run(load_config(path), tmp_path / "cut")
    assert calls.count("fine-tuning: original") == 1, "what was finished is not done again"
    first, again = (json.loads((folder / "metrics.json").read_text()) for folder in (out, tmp_path / "cut"))
    assert first["subnetwork"]["value"] == again["subnetwork"]["value"]
    assert (out / "selection.json").read_bytes() == (tmp_path / "cut" / "selection.json").read_bytes()
    assert not (tmp_path / "cut.partial").exists()


def test_diverging_training_is_refused_and_leaves_nothing(model_folder, task_files, tmp_path, monkeypatch):
    def astray(loaded, *args, **kwargs):
        fine_tune(loaded, *args, **kwargs)
        next(loaded.model.parameters()).data.fill_(float("nan"))
        return fine_tune(loaded, *args, **kwargs)

    fine_tune = training.fine_tune
    monkeypatch.setattr(training, "fine_tune", astray)
    raw = raw_config(model_folder("bert"), task_files) | {"recovery": {"epochs": 1}}
    with pytest.raises(UserError, match=r"recovery\.learning_rate"):
        pipeline.run(check(raw), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_cls_pooling_is_refused_without_a_cls_token(model_folder, task_files):
    raw = raw_config(model_folder("t5"), task_files)
    raw["task"]["probes"] = [{"name": "p", "pooling": "cls"}]
    with pytest.raises(UserError, match=r"task\.probes\.0\.pooling"):
        pipeline.prepare(check(raw))


def test_the_seed_reaches_the_new_head(model_folder, task_files):
    raw = raw_config(model_folder("bert"), task_files)
    heads = [
        pipeline.prepare(check(raw | {"seed": s})).loaded.model.state_dict()["classifier.weight"] for s in (3, 3, 4)
    ]
    assert heads[0].equal(heads[1])
    assert not heads[0].equal(heads[2])


def test_runs_that_share_the_original_share_its_recipe(model_folder, task_files, tmp_path, monkeypatch):
    """With little time the teacher answers only a part of the texts: the same part for all of them."""
    for module in (schedule, time_left):
        monkeypatch.setattr(module, "EFFORTS", (0.005, 0.005))
    raw = raw_config(model_folder("bert"), task_files) | {"time": "10m", "compare": []}
    raw["recovery"] = {"learning_rate": 3e-3, "original": {"epochs": 6, "batch_size": 16}}
    own = "".join(f"he is good {n} times,she is good {n} times\n" for n in range(6))
    (tmp_path / "own pairs.csv").write_text(f"text,other\n{own}")
    raw["task"] |= {"bias": str(tmp_path / "own pairs.csv")}
    config = check(raw)
    pipeline.prepare_shared([config], tmp_path / "shared")
    result = pipeline.run(config, tmp_path / "out", shared=tmp_path / "shared")
    simple = [(folder / "alternatives.json").read_text() for folder in (tmp_path / "shared", tmp_path / "out")]
    assert simple[0] == simple[1], "measured once for all runs"
    for page in ("report.md", "report.html", "model/README.md"):
        shown = (tmp_path / "out" / page).read_text()
        assert "Of 6 pairs of " in shown, page
        assert "points (95 %: " in shown, page
    planned = schedule.Schedule.load(tmp_path / "shared" / "schedule.json")
    recipe = Choices.load(tmp_path / "out" / "recipe.json")
    assert recipe == planned.choices
    assert recipe.texts == 640
    assert f"also on {640 - 120} unlabelled texts" in result.recipe
    answered = np.load(tmp_path / "shared" / ".work" / "teacher" / "logits.npy")
    assert answered.shape == (640, 2)
    assert len(result.original.losses) == 6


def test_a_folder_locked_by_another_process_is_left_alone(bert_run, tmp_path):
    path, _ = bert_run
    with FileLock(tmp_path / ".new.lock"), pytest.raises(UserError, match=r"another process is working on .*new"):
        pipeline.run(load_config(path), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "new.partial").exists()


def test_an_existing_folder_is_only_replaced_when_asked(bert_run):
    path, out = bert_run
    before = sorted(p.name for p in out.iterdir())
    with pytest.raises(UserError, match="already exists"):
        pipeline.run(load_config(path), out)
    assert sorted(p.name for p in out.iterdir()) == before


def test_the_public_functions_one_by_one(bert_run, tmp_path):
    config = probescale.load_config(bert_run[0])
    selection = probescale.select(probescale.probe(config), "90%")
    record = probescale.cut(config.model.source, selection.kept, tmp_path / "small")
    assert record["kept"] == list(selection.kept)
    assert load_as_saved(str(tmp_path / "small")).layers == selection.k
    result = probescale.run(config, tmp_path / "out")
    assert result.subnetwork.value > 0.7
    texts = load_task(config.task, config.seed).dev.texts[:3]
    written = list(csv.DictReader((tmp_path / "out" / "predictions.csv").open()))
    answers = probescale.predict(tmp_path / "out", texts)
    assert [answer.rendered.cell for answer in answers if answer.rendered] == [
        row[result.strategy] for row in written[:3]
    ]
