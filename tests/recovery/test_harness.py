"""Scores on tasks of lm-evaluation-harness, computed by the harness itself from local files."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.decoders import NAMES, PLACES, VERBS, save_decoder, write_corpus, write_jsonl
from probescale.errors import Problems, UserError
from probescale.models.loading import LoadedModel, load_classifier
from probescale.pipeline.run import run
from probescale.pipeline.validate import check
from probescale.recovery.generation import Generation
from probescale.recovery.harness import check_harness, run_harness
from probescale.report.findings import RunFindings
from probescale.report.generation import HARNESS, generation_page

EXAMPLES = 24
TASK = """\
task: endings
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_target: "{{{{label}}}}"
doc_to_choice: "{{{{[first, second]}}}}"
metric_list:
  - metric: acc
"""


def write_task(folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A task of one's own: which of two endings a sentence has. The wrong ones are words in another order."""
    draw = random.Random(0)
    rows: list[dict[str, Any]] = []
    for number in range(EXAMPLES):
        place = draw.choice(PLACES)
        endings = [f" {place}.", " " + " ".join(reversed(place.split())) + "."]
        label = number % 2
        text = f"the {draw.choice(NAMES)} {draw.choice(VERBS)} the {draw.choice(NAMES)}"
        rows.append({"text": text, "first": endings[label], "second": endings[1 - label], "label": label})
    data, task = write_jsonl(folder / "endings.jsonl", list(rows)), folder / "endings.yaml"
    task.write_text(TASK.format(data=json.dumps(str(data))), encoding="utf-8")
    return task, rows


def log_probability(loaded: LoadedModel, text: str, ending: str) -> float:
    start, ids = len(loaded.tokenizer(text)["input_ids"]), loaded.tokenizer(text + ending)["input_ids"]
    with torch.no_grad():
        logits = loaded.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(logits[place - 1, ids[place]].item() for place in range(start, len(ids)))


@pytest.mark.long
def test_the_score_is_that_of_the_likelier_ending(tmp_path: Path):
    pytest.importorskip("lm_eval", reason='pip install "probescale[harness]"')
    task, rows = write_task(tmp_path)
    model = str(save_decoder(tmp_path / "model", steps=12))  # has not learned much: it errs
    loaded = load_classifier(model, None, (), 0, head="lm", keep_head=True)
    check_harness([str(task)])
    (score,) = run_harness(loaded, [str(task)])
    right = [
        (log_probability(loaded, row["text"], row["first"]) < log_probability(loaded, row["text"], row["second"]))
        == bool(row["label"])
        for row in rows
    ]
    share = sum(right) / len(right)
    assert (score.task, score.metric, score.examples) == ("endings", "acc", EXAMPLES)
    assert score.value == pytest.approx(share)
    assert score.error == pytest.approx(math.sqrt(share * (1 - share) / (EXAMPLES - 1)), abs=1e-6)
    assert run_harness(loaded, [str(task)]) == (score,)


@pytest.mark.long
def test_unknown_tasks_are_refused_before_any_work(tmp_path: Path):
    pytest.importorskip("lm_eval", reason='pip install "probescale[harness]"')
    with pytest.raises(UserError, match=r'task\.harness\.0.*has no task "arc_hardest"'):
        check_harness(["arc_hardest"])
    check_harness(["arc_easy"])


def test_files_of_tasks_are_checked_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nameless = tmp_path / "nameless.yaml"
    nameless.write_text("dataset_path: json\n", encoding="utf-8")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(UserError, match=r"task\.harness\.0.*missing\.yaml does not exist"):
        check_harness([str(tmp_path / "missing.yaml")])
    with pytest.raises(UserError, match="names no task"):
        check_harness([str(nameless)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"probescale\[harness\]"):
        check_harness(["arc_easy"])
    check_harness([])


def test_classifiers_have_no_such_tasks(tmp_path: Path, model_folder, task_files):
    raw = {
        "model": {"source": str(model_folder("bert"))},
        "task": {"train": str(task_files.train), "dev": str(task_files.dev), "harness": ["missing.yaml"]},
        "selection": {"k": 2},
    }
    with pytest.raises(Problems, match=r"task\.harness: is for generative models"):
        check(raw)


@pytest.mark.long
def test_a_run_shows_the_scores_of_both_models(tmp_path: Path):
    pytest.importorskip("lm_eval", reason='pip install "probescale[harness]"')
    task, _ = write_task(tmp_path)
    raw = {
        "model": {"source": str(save_decoder(tmp_path / "model", steps=12)), "max_length": 64},
        "task": {
            "name": "tales",
            "kind": "text",
            "train": str(write_corpus(tmp_path, 600)),
            "harness": [str(task)],
        },
        "selection": {"k": 2},
        "recovery": {"epochs": 1, "learning_rate": 3e-3},
    }
    run(check(raw), tmp_path / "run")
    for folder, scores in (("model", "original_scores"), ("run/model", "small_scores")):
        loaded = load_classifier(str(tmp_path / folder), None, (), 0, head="lm", keep_head=True)
        assert getattr(Generation.load(tmp_path / "run" / "generation.json"), scores) == run_harness(
            loaded, [str(task)]
        )
    page = generation_page(RunFindings.load(tmp_path / "run"))
    assert page is not None
    assert [table["words"] for table in page["tables"]].count(HARNESS) == 1
    assert "| endings" in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
