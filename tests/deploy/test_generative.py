"""Commands on the folder of a generative run: each does the obvious thing, or says in one sentence why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import BertForSequenceClassification, pipeline

from helpers.models import tiny_config, tiny_tokenizer
from probescale.deploy.bench import bench
from probescale.deploy.compressed import Compressed

pytestmark = pytest.mark.slow


def test_predict_goes_on_with_every_line(text_run: Path, tmp_path: Path, cli):
    prompts = ["the fox sees", "the cat likes the"]
    (tmp_path / "prompts.txt").write_text("\n".join([prompts[0], "", prompts[1], "the fox " * 99]), encoding="utf-8")
    done = cli("predict", text_run / "run", tmp_path / "prompts.txt", "--new-tokens", 8)
    assert done.code == 1  # two lines have no answer
    assert "line 2: no text" in done.err
    assert "line 4: 792 tokens, and the model takes from 1 to 255" in done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    write = pipeline("text-generation", model=str(text_run / "run" / "model"))
    for prompt, row in zip(prompts, (rows[0], rows[2]), strict=True):
        expected = write(prompt, max_new_tokens=8, do_sample=False, return_full_text=False)
        assert row["continuation"] == expected[0]["generated_text"]
    assert Compressed(text_run / "run").predict(prompts[0])[0].rendered


def test_questions_are_put_into_the_chat_template(text_run: Path, tmp_path: Path, cli):
    (tmp_path / "questions.csv").write_text("id,text\n7,who?\n", encoding="utf-8")
    command = ("predict", text_run / "run", tmp_path / "questions.csv", "--format", "csv", "--new-tokens", 4)
    plain, chat = cli(*command), cli(*command, "--chat")
    assert plain.code == chat.code == 0
    assert plain.out.startswith("line,id,text,continuation\n2,7,who?,")
    assert plain.out != chat.out


def test_bench_times_both_models(text_run: Path):
    result = bench([str(text_run / "model"), str(text_run / "run")], (1,), (16,), passes=3)
    assert [row.format for row in result.rows] == ["pytorch", "pytorch"]
    assert result.size[str(text_run / "run")] < result.size[str(text_run / "model")]


def test_what_does_not_fit_is_refused(text_run: Path, tmp_path: Path, cli):
    tokenizer, labelled = tiny_tokenizer("bert"), tmp_path / "labelled"
    BertForSequenceClassification(tiny_config("bert", len(tokenizer), layers=1)).save_pretrained(labelled)
    tokenizer.save_pretrained(labelled)
    onnx = cli("export", text_run / "run", "--out", tmp_path / "onnx")
    assert onnx.code == 2
    assert "LlamaForCausalLM has a decoder" in onnx.err
    assert not (tmp_path / "onnx").exists()
    vectors = cli("predict", text_run / "run", text_run / "second.txt", "--out", tmp_path / "vectors.npy")
    assert vectors.code == 2
    assert "only embeddings are written" in vectors.err
    (tmp_path / "pairs.csv").write_text("text,other\nwho?,why?\n", encoding="utf-8")
    pairs = cli("predict", text_run / "model", tmp_path / "pairs.csv", "--pair", "other")
    assert pairs.code == 2
    assert "--pair: " in pairs.err
    cut = cli("predict", text_run / "run", text_run / "second.txt", "--max-length", 32)
    assert cut.code == 2
    assert "goes on with whole texts" in cut.err
    labels = cli("predict", labelled, text_run / "second.txt", "--chat")
    assert labels.code == 2
    assert "it writes no texts" in labels.err


def test_push_lists_the_files_of_the_model(text_run: Path, cli):
    done = cli("push", text_run / "run", "me/tales", "--dry-run")
    assert done.code == 0
    assert "model.safetensors" in done.out
    assert "generation_config.json" in done.out
    assert "chat_template.jinja" in done.out
