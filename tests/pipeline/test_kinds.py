"""Tasks with one tag per word or one number per text: probes, heads and complete runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from helpers.data import BAD, GOOD, THINGS, labelled_rows, write_csv
from helpers.models import LAYERS
from probescale.api import predict
from probescale.errors import Problems, UserError
from probescale.models.counting import count_from_config, count_parameters
from probescale.models.families import FAMILIES
from probescale.models.loading import load_classifier
from probescale.models.proof.comparison import compare_in_memory
from probescale.models.proof.reference import compute_own_reference
from probescale.pipeline import run as pipeline
from probescale.pipeline.evidence import probe_task
from probescale.pipeline.prepare import prepare
from probescale.pipeline.smallest import smallest
from probescale.pipeline.validate import check
from probescale.probing.score_files import load_scores
from probescale.probing.scores import ProbeResult, ProbeScores
from probescale.recovery.result import EvaluatedModel, RunResult
from probescale.report.card import model_card
from probescale.report.findings import RunFindings
from probescale.report.usage import usage
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.evidence import combine_scores
from probescale.selection.select import select
from probescale.selection.strategies import STRATEGIES
from probescale.tasks.kinds import find_kind
from probescale.tasks.task import load_task

KINDS = ("tags", "number")
FAMILY_NAMES = ("bert", "roberta", "t5")
STOCK = {"bert": "Bert", "roberta": "Roberta", "t5": "T5"}
TAGS = dict.fromkeys(THINGS, "B-THING") | dict.fromkeys([*GOOD, *BAD], "B-OPINION")
TAGS |= {"unbelievably": "B-MANNER", "so": "I-MANNER"}


def tagged_rows(rows: list[tuple[str, str]]) -> str:
    """The same sentences with one tag per word: things, opinions, and the manner, which is two words."""
    words = [text.replace(",", " ,").split() for text, _ in rows]
    return "\n\n".join("\n".join(f"{word}\t{TAGS.get(word, 'O')}" for word in sentence) for sentence in words) + "\n"


def numbered_rows(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """A score per sentence that grows with the letters of the first opinion."""
    return [(text, str((1.0 if label == "positive" else -1.0) + len(text.split()[3]) / 50)) for text, label in rows]


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """The task section of the configuration for every kind."""
    folder, rows = tmp_path_factory.mktemp("kinds"), labelled_rows(160)
    parts = {"train": rows[:120], "dev": rows[120:]}
    for name, part in parts.items():
        (folder / f"{name}.conll").write_text(tagged_rows(part))
        write_csv(folder / f"{name}.csv", numbered_rows(part))
    columns = {"text": 1, "label": 2}
    return {
        "tags": {name: {"source": str(folder / f"{name}.conll"), **columns} for name in parts} | {"kind": "tags"},
        "number": {name: str(folder / f"{name}.csv") for name in parts} | {"kind": "number"},
    }


def raw_config(folder: Path, task: dict) -> dict:
    return {
        "model": {"source": str(folder), "max_length": 48},
        "task": {"name": "tiny", **task},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "selection": {"k": 2, "strategy": "contiguous", "sample": 300},
        "shrink": "none",
        "compare": [],
        "recovery": {"epochs": 5, "learning_rate": 3e-3, "batch_size": 16, "augment": 0},
        "seed": 3,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_strategy_gets_its_evidence(model_folder, data, kind):
    raw = raw_config(model_folder("roberta"), data[kind])  # its tokenizer is the same in every process
    # A tournament and removals need the trained model.
    names = [name for name, known in STRATEGIES.items() if not known.decides_allocation and known.reads != "removals"]
    config = check(raw | {"compare": [name for name in names if name != "contiguous"]})
    scores = probe_task(prepare(config))
    found = scores.probes["task"]
    assert (found.pooling, found.target, found.spans) == (
        ("token", "class", True) if kind == "tags" else ("cls", "number", False)
    )
    assert max(found.scores) > 0.7, found.scores
    assert scores.flow is not None
    assert scores.subnetworks is not None
    accuracy = dict(zip(scores.subnetworks.subsets, scores.subnetworks.accuracy, strict=True))
    assert accuracy[(1, 2)] > 0.7, "R2, or the share of right tags"
    evidence, resamples = combine_scores(
        [scores.with_metric("information", None)], [1.0]
    )  # accuracies may all be equal
    for name in names:
        chosen = select(evidence, Constraints(parse_budget(k=2), scores.parameters), name, resamples=resamples)
        assert len(chosen.kept) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_stock_head_for_a_kind(model_folder, data, kind, family):
    source, names = str(model_folder(family)), ("a", "b", "c") if kind == "tags" else ()
    head = find_kind(kind).head
    one, again, other = (load_classifier(source, None, names, seed, head=head) for seed in (0, 0, 1))
    per_token = kind == "tags" or family == "t5"
    name = f"{STOCK[family]}For{'Token' if per_token else 'Sequence'}Classification"
    assert type(one.model).__name__ == name
    config = one.model.config
    assert config.num_labels == (3 if kind == "tags" else 1)
    assert config.problem_type == (None if kind == "tags" else "regression")
    assert config.id2label == ({0: "a", 1: "b", 2: "c"} if kind == "tags" else {0: "number"})
    assert one.fingerprint == again.fingerprint == other.fingerprint
    drawn = [
        {n: w for n, w in loaded.model.state_dict().items() if n.startswith("classifier")}
        for loaded in (one, again, other)
    ]
    assert all(drawn[0][n].equal(drawn[1][n]) for n in drawn[0])
    assert not all(drawn[0][n].equal(drawn[2][n]) for n in drawn[0])
    assert count_parameters(one.model, one.family) == count_from_config(config, one.family, len(names), head)


def test_the_checkpoints_own_head_is_replaced(model_folder, tmp_path):
    model = load_classifier(str(model_folder("bert")), None, (), 0, head="regression")
    model.model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    again = load_classifier(str(tmp_path), None, ("a", "b"), 0)
    assert again.model.config.problem_type == "single_label_classification"
    assert again.model.config.num_labels == 2


def test_the_memory_layout_of_weights_changes_no_output(model_folder):
    """A saved head behind a one-number bias is not aligned in memory; the proof of a cut still compares every bit."""
    loaded = load_classifier(str(model_folder("bert")), None, (), 0, head="regression")
    before = compute_own_reference(loaded.model, loaded.family)
    for parameter in loaded.model.parameters():
        crooked = torch.empty(parameter.numel() + 11)[11:].view_as(parameter)
        parameter.data = crooked.copy_(parameter.data)
    assert compare_in_memory(loaded.model, loaded.family, before) == 0


def test_a_model_without_the_head_is_refused_before_any_work(tmp_path, model_folder, data):
    bart = transformers.BartConfig(
        vocab_size=350, d_model=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_attention_heads=2, decoder_attention_heads=2,
    )  # fmt: skip
    transformers.BartForSequenceClassification(bart).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(model_folder("roberta")).save_pretrained(tmp_path)
    with pytest.raises(Problems, match='no class for "bart" with the head "token"'):
        check(raw_config(tmp_path, data["tags"]))
    assert check(raw_config(tmp_path, data["number"]))
    with pytest.raises(UserError, match='no class for "bart" with the head "token"'):
        load_classifier(str(tmp_path), None, ("a", "b"), 0, head="token")


def test_settings_that_do_not_fit_the_kind_are_listed_together(model_folder, data):
    raw = raw_config(
        model_folder("bert"), data["tags"] | {"metric": "accuracy", "probes": [{"name": "p", "pooling": "cls"}]}
    )
    raw["task"]["dev"] = data["number"]["dev"]
    with pytest.raises(Problems) as error:
        check(raw)
    assert {problem.field for problem in error.value.problems} == {
        "task.metric",
        "task.probes.0.pooling",
        "task.dev.text",
    }


def test_non_numeric_labels_and_class_metrics_are_refused_for_numbers(model_folder, data, task_files):
    with pytest.raises(Problems, match=r"task\.train\.label: .* without a number"):
        check(raw_config(model_folder("bert"), {"kind": "number", "train": str(task_files.train)}))
    with pytest.raises(Problems, match=r"relevance\.metric"):
        check(raw_config(model_folder("bert"), data["number"]) | {"relevance": {"metric": "f1"}})


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_report_says_how_to_use_the_model(data, model_folder, family):
    said = {}
    for kind in KINDS:
        config = check(raw_config(model_folder(family), data[kind]))
        said[kind] = usage(load_task(config.task, 0), FAMILIES[family])
    assert 'pipeline("token-classification", model="model", aggregation_strategy="first")' in said["tags"]
    assert ("attention mask" in said["number"]) == (family == "t5")
    assert ('function_to_apply="none"' in said["number"]) == (family != "t5")


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "number"), ("roberta", "tags"), ("t5", "tags"), ("t5", "number")]
)
def test_the_card_says_the_same_as_the_report(data, model_folder, family, kind):
    task = load_task(check(raw_config(model_folder(family), data[kind])).task, 0)
    parent = load_classifier(str(model_folder(family)), None, task.train.names, 0, head=task.kind.head)
    scores = ProbeScores(
        task="tiny", layers=LAYERS, probes={"task": ProbeResult(scores=(0.5, 0.7, 0.6, 0.4), weight=1)}
    )
    chosen = select(scores.relevance, Constraints(parse_budget(k=2)), "contiguous")
    small = EvaluatedModel(
        kept=chosen.kept, params=10, ratio_total=0.5, ratio_layers=0.5, value=0.8, interval=(0.7, 0.9), retention=1.0,
        losses=(0.5,), milliseconds=1.0, speedup=2.0, seconds=1.0,
    )  # fmt: skip
    result = RunResult(
        task="tiny", metric=task.metric, split="dev", examples=40, recipe="5 epochs", strategy="contiguous",
        original=small, subnetwork=small, compared={}, retention=1.0, provenance={},
    )  # fmt: skip
    card = model_card(parent, task, RunFindings(scores, chosen, result, None))
    assert usage(task, FAMILIES[family]) in card
    works = "AutoModelForTokenClassification.from_pretrained" if (family, kind) == ("t5", "number") else "pipeline("
    assert works in card


@pytest.mark.slow
def test_smallest_refuses_an_original_with_a_negative_metric(model_folder, data, tmp_path):
    raw = raw_config(model_folder("bert"), data["number"] | {"metric": "r2"})
    raw["recovery"] = {"epochs": 0}
    with pytest.raises(UserError, match=r"--keep: the original reaches r2 -"):
        smallest(check(raw), 0.9, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "kind"),
    [
        pytest.param("bert", "number", marks=pytest.mark.long),
        pytest.param("roberta", "tags", marks=pytest.mark.long),
        pytest.param("t5", "tags", marks=pytest.mark.long),
        pytest.param("t5", "number", marks=pytest.mark.long),
    ],
)
def test_a_complete_run(model_folder, data, tmp_path, family, kind):
    """Stock transformers load the saved model and reach the metric of the run."""
    out = tmp_path / "out"
    raw = raw_config(model_folder(family), data[kind])
    result = pipeline.run(check(raw | {"relevance": {"metric": "information"}}), out)  # accuracies may all be equal
    assert result.metric == {"tags": "entity_f1", "number": "spearman"}[kind]
    assert result.examples == 40
    assert result.original.value > 0.6, "a tiny model can learn it"
    low, high = result.subnetwork.interval
    assert low <= result.subnetwork.value <= high
    assert len(load_scores(out / "scores.json").relevance) == LAYERS
    record = json.loads((out / "model" / "probescale.json").read_text())
    assert ("sentence_logits" in record) == (family == "t5" and kind == "number")
    report = (out / "report.md").read_text()
    assert f"on dev, {result.metric.replace('_', ' ')} is {100 * result.subnetwork.value:.2f}" in report
    assert result.failure is None
    assert "did not learn" not in report
    if family != "t5":
        found = _stock_answers(out / "model", data[kind]["dev"], kind)
        assert found == pytest.approx(result.subnetwork.value, abs=1e-6)
    if kind == "tags":
        sentences = Path(data[kind]["dev"]["source"]).read_text().strip().split("\n\n")
        texts = [" ".join(line.split("\t")[0] for line in block.split("\n")) for block in sentences]
        with (out / "predictions.csv").open() as file:
            evaluated = [row[result.strategy] for row in csv.DictReader(file)]
        assert [answer.rendered.cell for answer in predict(out, texts) if answer.rendered] == evaluated


def _stock_answers(folder: Path, dev: Any, kind: str) -> float:
    """The metric, computed with the transformers pipeline that the report names."""
    from scipy.stats import spearmanr
    from seqeval.metrics import f1_score

    if kind == "number":
        rows = [line.rsplit(",", 1) for line in Path(dev).read_text().splitlines()[1:]]
        ask: Any = transformers.pipeline(
            "text-classification", model=str(folder), function_to_apply="none", device="cpu"
        )
        said = [answer["score"] for answer in ask([text.strip('"') for text, _ in rows])]
        found: Any = spearmanr([float(label) for _, label in rows], said)
        return float(found.statistic)
    ask = transformers.pipeline("token-classification", model=str(folder), ignore_labels=[], device="cpu")
    gold, said = [], []
    for block in Path(dev["source"]).read_text().strip().split("\n\n"):
        words, tags = zip(*(line.split("\t") for line in block.split("\n")), strict=True)
        starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
        at = {token["start"]: token["entity"] for token in ask(" ".join(words))}
        gold.append(list(tags))
        said.append([at[int(start)] for start in starts])
    f1: Any = f1_score(gold, said)
    return float(f1)
