"""The verdict on a run: what its sentences, tables, report.md and model card say to people."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from helpers.hostile import MARKUP, SCRIPT, markup
from probescale.config import DataConfig, TaskConfig
from probescale.models.families import FAMILIES
from probescale.probing.scores import ProbeResult, ProbeScores
from probescale.recovery.regressions import Regressions, Slice
from probescale.recovery.result import Alternative, EvaluatedModel, RunResult
from probescale.report.findings import RunFindings
from probescale.report.markdown import run_report
from probescale.report.rivals import ONE_TRAINING, alternatives_sentence, comparison_sentence
from probescale.report.run_cards import run_cards
from probescale.report.run_page import run_page
from probescale.report.tables import comparison_table
from probescale.report.verdict import decide, run_summary, verdict_markdown
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.result import Selection
from probescale.selection.select import select
from probescale.tasks.metrics import METRICS, metric
from probescale.tasks.task import load_task

FAILURE = "The original did not learn the task: it answers one class for nearly every training text."
PROVENANCE = {"command": "", "model": "m", "model_sha256": "0", "data_sha256": {}, "seed": 0, "versions": {}}
CHANGED = Regressions(
    agreement=0.95,
    newly_wrong=34,
    newly_right=20,
    slices=(Slice(name="all", rows=1872, original=0.89, small=0.88, newly_wrong=34, newly_right=20),),
    examples=(),
)


@pytest.fixture
def distance() -> Iterator[str]:
    """The name of a metric of which less is better."""

    @metric("number", lower_is_better=True)
    def mean_distance(rows: np.ndarray) -> float:
        """Mean distance of the predicted from the right number."""
        return float(np.abs(rows[:, 0] - rows[:, 1]).mean())

    yield "mean_distance"
    del METRICS["mean_distance"]


def evaluated(value: float, params: int, retention: float | None, speedup: float = 1.0, layers: int = 4):
    kept = tuple(range(1, layers + 1))
    return EvaluatedModel(
        kept=kept, params=params, ratio_total=params / 33_360_000, ratio_layers=layers / 4, value=value,
        interval=(value - 0.02, value + 0.02), retention=retention, losses=(0.5,), milliseconds=2.0, speedup=speedup,
        seconds=1.0,
    )  # fmt: skip


def alternative(name: str, value: float, params: int = 12_345, speedup: float = 812.0) -> Alternative:
    interval = (value - 0.02, value + 0.02)
    return Alternative(
        name=name, value=value, interval=interval, retention=value / 0.894, params=params, milliseconds=0.1,
        speedup=speedup,
    )  # fmt: skip


def result(*alternatives: Alternative, small: float = 0.878, original: float = 0.894, **changes: object) -> RunResult:
    retention = None if changes.get("failure") else small / original
    whole = 1.0 if retention else None
    made = RunResult(
        task="sst2", metric="accuracy", split="dev", examples=1872, recipe="5 epochs", strategy="contiguous",
        original=evaluated(original, 33_360_000, whole), subnetwork=evaluated(small, 6_620_000, retention, 4.81, 2),
        compared={"top_k": evaluated(small - 0.05, 6_620_000, retention, 4.7, 2)}, alternatives=alternatives,
        retention=retention, provenance={},
        retention_interval=None if retention is None else (retention - 0.01, retention + 0.01),
    )  # fmt: skip
    return made.model_copy(update=changes)


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        (0.828, "No other strategy in the table did better than contiguous."),
        (0.878, "No other strategy in the table did better than contiguous."),
        (0.890, "The layers of top_k are as good here (accuracy 89.0 against 87.8, within the 95 % interval)."),
        (
            0.899,
            f"The layers of top_k did better here (accuracy 89.9 against 87.8), in {ONE_TRAINING}.",
        ),
    ],
)
def test_a_strategy_that_did_better_is_named(other, wanted):
    model = evaluated(other, 6_620_000, other / 0.894).model_copy(update={"kept": (3, 4)})
    made = result(compared={"top_k": model})
    assert comparison_sentence(made) == wanted
    assert wanted in run_summary(findings(made))
    assert wanted in " ".join(verdict_markdown(findings(made))).replace("\\", "")
    same = model.model_copy(update={"kept": made.subnetwork.kept})
    assert comparison_sentence(result(compared={"top_k": same})) == "", "the same layers are one model"
    twice = comparison_sentence(result(compared={"top_k": model, "uniform_k": model}))
    assert twice == wanted.replace("of top_k", "of top_k and uniform_k"), "one model with two names"
    assert comparison_sentence(result(compared={"top_k": model}, failure=FAILURE)) == ""
    assert comparison_sentence(result(compared={"3x": model})) == "", "another budget is no strategy"


def findings(made: RunResult, changed: Regressions | None = CHANGED) -> RunFindings:
    scores = ProbeScores(task="sst2", layers=4, probes={"task": ProbeResult(scores=(0.8, 0.7, 0.6, 0.5), weight=1)})
    return RunFindings(scores, chosen(scores), made, None, changed)


def sentence_of(made: RunResult, changed: Regressions | None = None) -> str:
    return decide(findings(made, changed)).sentence


def chosen(scores: ProbeScores) -> Selection:
    return select(scores.relevance, Constraints(parse_budget(k=2)), "contiguous")


def printed(made: RunResult, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(comparison_table(made).rich())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_summary_in_one_sentence():
    assert sentence_of(result()) == (
        "Ship it: 98.2 % of the accuracy is kept (97.2 to 99.2 %; 87.8 instead of 89.4), it is 4.8 times as fast on "
        "this machine and has 6.6M parameters instead of 33.4M (5.0 times smaller)."
    )
    assert sentence_of(result(), CHANGED).endswith(
        "; of 1,872 examples, 34 that were right are now wrong and 20 that were wrong are now right."
    )


def test_the_original_itself_is_not_called_smaller():
    whole = result().original
    sentence = sentence_of(result(subnetwork=whole, retention=1.0))
    assert sentence.startswith("Keep the original: 100.0 % of the accuracy is kept (")
    assert sentence.endswith("it is just as fast on this machine and has 33.4M parameters, as many as the original.")
    nearly = whole.model_copy(update={"params": 32_700_000})
    assert "32.7M parameters instead of 33.4M (2.0 % less)" in sentence_of(result(subnetwork=nearly))


@pytest.mark.parametrize(
    ("found", "best"),
    [
        (result(small=0.47, original=0.39), "the small model reaches 47.0, it 39.0"),
        (
            result(alternative("frozen encoder", 0.48), small=0.395, original=0.39),
            "frozen encoder reaches 48.0, it 39.0",
        ),
    ],
)
def test_an_original_that_learned_too_little_is_no_measure(found, best):
    """120 % of next to nothing is not shipped."""
    verdict = decide(findings(found))
    assert (verdict.decision, verdict.heading) == ("unsure", "Not sure yet")
    assert f"the original itself has learned too little: {best}; allow more time" in verdict.reasons


def test_a_rival_within_the_interval_of_the_original_changes_nothing():
    verdict = decide(findings(result(alternative("frozen encoder", 0.90, params=40_000_000))))
    assert verdict.decision == "ship"


@pytest.mark.parametrize("retention", [None, -0.2])
def test_without_a_share_both_values_are_named(retention):
    interval = retention and (retention - 0.01, retention + 0.01)
    verdict = decide(findings(result(retention=retention, retention_interval=interval)))
    assert "accuracy is 87.8 instead of 89.4 (" in verdict.sentence
    assert verdict.decision == ("unsure" if retention is None else "no")


def test_a_failure_comes_first_and_no_share_is_named():
    failed = result(alternative("bag of words", 0.81), small=0.22, original=0.23, failure=FAILURE)
    sentence = sentence_of(failed, CHANGED)
    assert sentence.startswith(f"Do not ship it: {FAILURE} Accuracy is 22.0 instead of 23.0, it is 4.8 times as fast")
    assert "%" not in sentence
    assert "now wrong" not in sentence
    first, second = run_summary(findings(failed))
    assert first == sentence
    assert second == "The best simple alternative, bag of words, reaches accuracy 81.0 with 12,345 parameters."


def test_a_share_that_was_left_in_a_failed_result_is_not_shown():
    failed = result(alternative("bag of words", 0.81)).model_copy(update={"failure": FAILURE})
    assert "%" not in sentence_of(failed)
    assert "retention" not in comparison_table(failed).markdown()
    cards = run_cards(findings(failed))
    assert [card.caption for card in cards if "kept" in card.caption] == ["layers kept of 4"]
    assert not any("%" in card.value + card.remark for card in cards)


def test_a_worse_alternative_is_named_with_what_it_lacks():
    worse = (alternative("static embeddings", 0.70), alternative("bag of words", 0.743))
    expected = "The best simple alternative, bag of words, reaches accuracy 74.3: 13.5 points less."
    assert alternatives_sentence(result(*worse)) == expected
    assert run_summary(findings(result(*worse)))[1:] == [expected]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.859, "is as good here (accuracy 85.9 against 87.8, within the 95 % interval)"),
        (0.885, "is as good here (accuracy 88.5 against 87.8, within the 95 % interval)"),
        (0.910, f"did better here (accuracy 91.0 against 87.8, {ONE_TRAINING})"),
    ],
)
def test_an_alternative_that_is_as_good_says_that_the_subnetwork_is_not_needed(value, words):
    sentence = alternatives_sentence(result(alternative("bag of words", value), alternative("static embeddings", 0.5)))
    sizes = "with 12,345 parameters instead of 6.6M: you may not need this model."
    assert sentence == f"A simple alternative, bag of words, {words} {sizes}"
    verdict = decide(findings(result(alternative("bag of words", value))))
    assert (verdict.decision, verdict.heading) == ("unsure", "You may not need it")


def test_an_alternative_that_is_as_good_but_larger_does_not_replace_it():
    frozen = alternative("frozen encoder", 0.88, params=33_360_000, speedup=1.0)
    sentence = alternatives_sentence(result(frozen))
    assert sentence.endswith("within the 95 % interval), but larger: 33.4M parameters instead of 6.6M.")
    assert "not need" not in sentence
    sentence = alternatives_sentence(result(frozen, alternative("bag of words", 0.743)))
    assert sentence.endswith("The best smaller alternative, bag of words, reaches accuracy 74.3: 13.5 points less.")
    static = alternative("static embeddings", 0.88, params=11_720_000, speedup=143)
    assert "it is faster, 143 times as fast as the original" in alternatives_sentence(result(static))


def test_no_alternative_no_sentence():
    assert alternatives_sentence(result()) == ""
    assert len(run_summary(findings(result()))) == 1


def test_where_less_is_better(distance):
    errors = {"small": 0.35, "original": 0.33, "metric": distance, "retention": 0.33 / 0.35}
    errors["retention_interval"] = (0.93, 0.95)
    made = result(alternative("bag of words", 0.45), alternative("static embeddings", 0.40), **errors)
    assert "mean distance is 35.0 instead of 33.0 (lower is better; 93.0 to 95.0 %; 95 % is" in sentence_of(made)
    assert alternatives_sentence(made) == (
        "The best simple alternative, static embeddings, reaches mean distance 40.0: 5.0 points more, and lower is "
        "better."
    )
    near = alternatives_sentence(result(alternative("bag of words", 0.36), **errors))
    assert "is as good here (mean distance 36.0 against 35.0, lower is better, within the 95 % interval)" in near
    assert "did better here (mean distance 30.0" in alternatives_sentence(
        result(alternative("bag of words", 0.30), **errors)
    )
    better = evaluated(0.30, 6_620_000, None).model_copy(update={"kept": (3, 4)})
    did_better = f"The layers of top_k did better here (mean distance 30.0 against 35.0), in {ONE_TRAINING}."
    assert did_better in run_summary(findings(result(**errors, compared={"top_k": better})))
    card = run_cards(findings(made))[0]
    assert (card.value, card.caption) == ("94.3 %", "retention: the original's mean distance divided by this model's")


def test_contradictions_in_the_data_are_in_report_and_page(task_files):
    made = result(provenance=PROVENANCE)
    said = "1 text has different labels in 2 rows"
    shown = replace(findings(made), contradictions=said)
    task = load_task(TaskConfig(train=DataConfig(source=str(task_files.train))), 0)
    assert said in run_report(task, FAMILIES["bert"], shown)
    assert said in run_page(shown)
    assert said not in run_page(findings(made))


def test_alternatives_stand_below_the_models_of_the_terminal_table():
    made = result(alternative("bag of words", 0.743), alternative("frozen encoder", 0.84, 33_360_000, 1.0))
    table = comparison_table(made)
    assert [row[0] for row in table.rows] == ["original", "ProbeScale", "top_k", "bag of words", "frozen encoder"]
    assert table.rows[1][-2:] == ("98.2%", "4.8x")
    assert table.rows[3] == ("bag of words", "-", "12,345", "<0.1%", "-", "74.30", "72.3-76.3", "83.1%", "812x")
    assert table.rows[4][3:5] == ("100%", "-")
    assert "| accuracy | 95% interval | retention | speed |" in table.markdown()


def test_the_terminal_table_fits_eighty_columns():
    made = result(alternative("static embeddings", 0.743), alternative("frozen encoder", 0.74, 33_360_000))
    spread = made.subnetwork.model_copy(update={"kept": (2, 3, 5, 7, 9, 10, 12)})
    made = made.model_copy(update={"compared": {"block_influence": spread}})
    lines = printed(made, 80)
    assert max(map(len, lines)) <= 80
    for name in ("ProbeScale", "block_influence", "embeddings", "encoder"):
        assert any(name in line.split() for line in lines), f"{name} is cut"
    assert any(line.startswith("ProbeScale ") and line.rstrip().endswith("4.8x") for line in lines)
    assert "not shown for lack of width: of layers" in lines[-1]
    assert "not shown" not in " ".join(printed(made, 120))


def test_without_any_retention_the_table_has_no_such_column():
    failed = result(small=0.22, original=0.23, failure=FAILURE)
    failed = failed.model_copy(update={"compared": {}})
    assert "retention" not in comparison_table(failed).markdown()
    assert comparison_table(failed).rows[1][-1] == "4.8x"


def test_markdown_starts_with_the_warning_and_hostile_words_stay_text():
    words = f"It answers {SCRIPT} {MARKUP}\n\n# always"
    made = result(alternative(f"bag of {MARKUP}", 0.81), small=0.2, original=0.2, failure=words)
    paragraphs = verdict_markdown(findings(made))
    assert paragraphs[0].startswith("> **Do not ship it:** It answers ")
    assert len(paragraphs) == 2
    assert markup("\n\n".join(paragraphs)) == set()
    assert "\n" not in paragraphs[0]


@pytest.mark.parametrize("failure", [None, FAILURE])
def test_report_and_card_start_with_the_verdict(model_folder, task_files, failure):
    from probescale.models.loading import load_classifier
    from probescale.pipeline.validate import check
    from probescale.report.card import model_card

    source = str(model_folder("bert"))
    raw = {
        "model": {"source": source, "max_length": 32},
        "task": {"train": str(task_files.train), "dev": str(task_files.dev)},
        "selection": {"k": 2},
    }
    task = load_task(check(raw).task, 0)
    parent = load_classifier(source, None, task.train.names, 0, head=task.kind.head)
    made = result(alternative("bag of words", 0.743), failure=failure, provenance=PROVENANCE)
    report = run_report(task, parent.family, findings(made))
    card = model_card(parent, task, findings(made)).split("---\n", 2)[2]
    for page in (report, card):
        _, first, second, *_ = page.strip().split("\n\n")
        assert first.startswith("> **Do not ship it:**" if failure else "**Ship it:** 98.2 % of the accuracy")
        assert "on the machine that trained it" in first
        assert "The best simple alternative, bag of words" in second
        assert "| bag of words | " in page
        assert ("| retention | speed |" in page) == (failure is None)
        assert (FAILURE in page) == (failure is not None)
