"""What a run of a generative model measures and shows beside its metric: samples, a second text, tokens per second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.decoders import save_decoder, word_tokenizer, write_corpus, write_other_text
from probescale.config import REFERENCES
from probescale.errors import Problems, UserError
from probescale.models.loading import load_classifier
from probescale.models.prompts import PROMPT_CHARACTERS, build_prompts
from probescale.models.token_speed import WRITTEN, measure_token_speeds
from probescale.pipeline.compress import Request, build_config
from probescale.pipeline.prepare import prepare
from probescale.pipeline.removals import calibration_batches
from probescale.pipeline.validate import check
from probescale.pipeline.workbench import Workbench
from probescale.recovery.generation import NEW_TOKENS, Generation
from probescale.recovery.predict import predict
from probescale.recovery.result import RunResult
from probescale.report.findings import RunFindings
from probescale.report.generation import KNOWN, NO_SECOND, generation_page
from probescale.tasks.documents import Documents, split_passages
from probescale.tasks.metrics import METRICS
from probescale.tasks.task import load_task


@pytest.mark.slow
def test_samples_are_what_the_saved_models_write_greedily(text_run: Path):
    written = Generation.load(text_run / "run" / "generation.json")
    assert len(written.prompts) == len(written.original) == len(written.small) >= 2
    for folder, continuations in ((text_run / "model", written.original), (text_run / "run" / "model", written.small)):
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        for prompt, continuation in zip(written.prompts, continuations, strict=True):
            ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
            assert len(prompt) <= PROMPT_CHARACTERS
            for _ in range(NEW_TOKENS):
                likeliest = model(input_ids=ids).logits[0, -1].argmax()
                if likeliest == tokenizer.eos_token_id:
                    break
                ids = torch.cat([ids, likeliest.view(1, 1)], 1)
            assert tokenizer.decode(ids[0]) == prompt + continuation


@pytest.mark.slow
def test_the_second_text_is_measured_before_and_after_training(text_run: Path):
    result = RunResult.load(text_run / "run" / "metrics.json")
    small = result.subnetwork
    assert small.before is not None
    assert small.value < small.before.value
    assert result.original.before is None
    data = Documents(tuple(split_passages((text_run / "second.txt").read_text())), whole=False)
    for folder, value in ((text_run / "model", result.original.second), (text_run / "run" / "model", small.second)):
        loaded = load_classifier(str(folder), None, (), 0, head="lm", keep_head=True)
        measured = METRICS["bits_per_byte"](data.gold, predict(loaded, data, max_length=64))
        assert value == pytest.approx(measured, rel=1e-4)
    assert {"train", "dev", "second"} <= set(result.provenance["data_sha256"])


@pytest.mark.slow
def test_page_report_and_card_show_the_same(text_run: Path):
    findings = RunFindings.load(text_run / "run")
    shown = generation_page(findings)
    assert shown is not None
    training, speed, samples = shown["tables"]
    assert [row[0] for row in training["cells"]] == ["original", "cut, without training", "this model"]
    assert all(all(row) for row in training["cells"])
    assert KNOWN in training["words"]
    assert NO_SECOND not in training["words"]
    assert "64 tokens" in speed["words"]
    page = (text_run / "run" / "report.html").read_text(encoding="utf-8")
    assert json.dumps(samples["cells"][0][0])[1:-1] in page
    for name in ("report.md", "model/README.md"):
        text = (text_run / "run" / name).read_text(encoding="utf-8")
        assert "## What both models write" in text
        assert "tokens/s" in text
        assert " ".join(samples["cells"][0][0].split()) in text
    assert "not evaluated on other texts" not in (text_run / "run" / "model" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_rows_beside_the_result_are_trained_without_the_original(text_run: Path):
    result = RunResult.load(text_run / "run" / "metrics.json")
    plain, full = (result.other_models[name] for name in REFERENCES.values())
    assert plain.kept == result.subnetwork.kept
    assert full.kept == result.original.kept
    assert result.subnetwork.before is not None
    assert plain.value < result.subnetwork.before.value  # it learned,
    assert plain.value != result.subnetwork.value  # from something else
    assert full.value != result.original.value
    assert plain.second
    report = (text_run / "run" / "report.md").read_text(encoding="utf-8")
    header, *_ = (text_run / "run" / "predictions.csv").read_text(encoding="utf-8").splitlines()
    assert all(name in report and name in header for name in REFERENCES.values())


def test_layers_are_measured_on_the_calibration_text(tmp_path: Path):
    model, corpus = save_decoder(tmp_path / "model", steps=1), write_corpus(tmp_path, 600)
    other = write_other_text(tmp_path / "other.txt")
    config, _ = build_config(Request(model, str(corpus), budget="50%", calibration=str(other)), tmp_path / "inputs")
    bench = prepare(config)
    seen = {str(bench.loaded.tokenizer.decode(row)) for batch in _batches(bench) for row in batch}
    text = other.read_text()
    assert all(block in text for block in seen)
    assert "calibration" in bench.task.fingerprints
    without = prepare(config.model_copy(update={"task": config.task.model_copy(update={"calibration": None})}))
    assert without.task.calibration is without.task.train
    assert all(str(without.loaded.tokenizer.decode(row)) not in text for batch in _batches(without) for row in batch)
    same = config.task.model_copy(update={"calibration": config.task.train, "dev": config.task.train})
    with pytest.raises(UserError, match=r"task.calibration: all its rows are in dev|train holds 0"):
        load_task(same, 0)


def _batches(bench: Workbench) -> list[torch.Tensor]:
    return [batch.inputs["input_ids"] for batch in calibration_batches(bench, bench.loaded)]


def test_rows_of_generative_models_are_refused_for_labels(task_files, model_folder):
    raw = {"model": {"source": str(model_folder("bert"))}, "task": {"train": str(task_files.train)}}
    with pytest.raises(Problems, match="plain_loss is for generative models"):
        check({**raw, "selection": {"k": 2}, "compare": ["plain_loss"]})


def test_prompts_are_beginnings_of_documents_and_questions(tmp_path: Path):
    tokenizer = word_tokenizer(prefix=True)
    texts = Documents(("the fox sees the cat at home. " * 4, "a b"))
    first, second = build_prompts(tokenizer, texts, 100)
    assert tokenizer.decode(first) == "<s>the fox sees the cat at home. the fox sees the cat at home."
    assert tokenizer.decode(second) == "<s>a"
    chat = (("system", "be kind"), ("user", "who?"), ("assistant", "the fox"), ("user", "why?"), ("assistant", "so"))
    [asked] = build_prompts(tokenizer, Documents(("",), (chat,)), 100)
    assert (
        str(tokenizer.decode(asked)).removeprefix("<s>") == "<|system|>be kind<|end|><|user|>who?<|end|><|assistant|>"
    )
    assert build_prompts(tokenizer, Documents(("",), (chat,)), 5) == []


def test_speed_and_memory_are_those_of_the_prompt(tmp_path: Path):
    loaded = load_classifier(save_decoder(tmp_path / "model", steps=1), None, (), 0, head="lm", keep_head=True)
    speeds = measure_token_speeds(loaded, loaded, 64)
    assert speeds.prompt_tokens == 64
    assert min(speeds.prefill.tokens_per_second, speeds.decoding.tokens_per_second) > 0
    config = loaded.model.config
    assert speeds.cache_megabytes == pytest.approx(
        2 * config.num_hidden_layers * 64 * config.hidden_size * 4 / 1e6, 1e-2
    )
    assert speeds.weights_megabytes == pytest.approx(loaded.model.num_parameters() * 4 / 1e6, 1e-2)
    longest = measure_token_speeds(loaded, loaded, 10_000)  # the model has 256 positions
    assert longest.prompt_tokens == 256 - WRITTEN


def test_a_second_text_is_for_generative_models_and_nothing_is_learned_from_it(
    task_files, model_folder, tmp_path: Path
):
    labelled = {"train": str(task_files.train), "second": str(task_files.train)}
    raw = {"model": {"source": str(model_folder("bert"))}, "task": labelled, "selection": {"k": 2}}
    with pytest.raises(Problems, match="is for generative models"):
        check(raw)
    model, corpus = save_decoder(tmp_path / "model", steps=1), write_corpus(tmp_path, 600)
    other = write_other_text(tmp_path / "other.txt")
    request = Request(model, str(corpus), budget="50%", second=str(other))
    config, _ = build_config(request, tmp_path / "inputs")
    assert config.task.second is not None
    assert config.task.second.source == str(other)
    assert str(other) in config.list_sources()
    same = config.task.model_copy(update={"second": config.task.train})
    with pytest.raises(UserError, match="train holds 0 documents"):
        load_task(same, 0)
