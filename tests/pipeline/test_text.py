"""Generative models through the whole pipeline: probe, take layers out, heal, measure, save."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.decoders import (
    LAYERS,
    save_decoder,
    save_merging_decoder,
    word_tokenizer,
    write_corpus,
    write_jsonl,
)
from probescale.errors import Problems, UserError
from probescale.models.loading import load_classifier
from probescale.models.packing import pack
from probescale.models.shrink.shrink_plan import ShrinkPlan
from probescale.models.surgery import keep_layers
from probescale.pipeline.prepare import prepare
from probescale.pipeline.removals import calibration_batches
from probescale.pipeline.run import run
from probescale.pipeline.smallest import smallest
from probescale.pipeline.training import Training
from probescale.pipeline.validate import check, load_config
from probescale.probing.lens import probe_next_token
from probescale.probing.removals import measure_removals
from probescale.recovery.health import check_trained
from probescale.recovery.inputs import TextInputs
from probescale.recovery.likeliest_tokens import LIKELIEST, LikeliestTokens, record_likeliest_tokens
from probescale.recovery.predict import predict
from probescale.tasks.documents import Documents, split_passages
from probescale.tasks.kinds.losses import NextToken


def make_folder(folder: Path, save: Callable[[Path], object]) -> Path:
    """A model and a text file."""
    save(folder / "model")
    write_corpus(folder, 900)
    return folder


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("decoder"), save_decoder)


def settings(decoder: Path, **more: Any) -> dict[str, Any]:
    raw = {
        "model": {"source": str(decoder / "model"), "max_length": 64},
        "task": {"name": "tales", "kind": "text", "train": str(decoder / "corpus.txt")},
        "selection": {"k": 2},
        "recovery": {"epochs": 1, "learning_rate": 3e-3},
    }
    return raw | more


def load(decoder: Path):
    return load_classifier(str(decoder / "model"), None, (), 0, head="lm", keep_head=True)


def documents(decoder: Path) -> Documents:
    return Documents(tuple(split_passages((decoder / "corpus.txt").read_text())), whole=False)


def test_predictions_are_the_loss_of_the_stock_model(decoder: Path):
    loaded, data = load(decoder), documents(decoder).take([0, 1])
    nats, tokens, size = np.array([list(row) for row in predict(loaded, data, max_length=64)]).sum(0)
    blocks = pack(loaded.tokenizer, data, 64)
    expected = 0.0
    for number in range(len(blocks.tokens)):
        ids = torch.tensor([blocks.tokens[number]["input_ids"]])
        targets = torch.from_numpy(blocks.targets[blocks.rows_of(number)]).long()
        logits = loaded.model(input_ids=ids).logits[0]
        expected += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    assert nats == pytest.approx(expected, rel=1e-5)
    assert tokens == len(blocks.targets)
    assert size == pytest.approx(sum(len(text) for text in data.texts))


def test_the_distance_to_a_teacher_is_the_divergence_where_all_tokens_are_kept():
    torch.manual_seed(0)
    own, teacher = torch.randn(5, 8), torch.randn(5, 8)
    answers = torch.cat([torch.arange(8.0).expand(5, 8), teacher.log_softmax(-1)], -1)
    labels = torch.tensor([0.0, 1, 2, torch.nan, 4])
    hard, soft = NextToken().of_both(own, labels, answers, 1.0)
    full = torch.nn.functional.kl_div(own.log_softmax(-1), teacher.log_softmax(-1), reduction="none", log_target=True)
    torch.testing.assert_close(soft, full.sum(-1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(hard, NextToken().of_labels(own, labels))
    assert hard[3] == 0


def test_a_teacher_that_was_stopped_goes_on_where_it_was(decoder: Path, tmp_path: Path):
    loaded = load(decoder)
    inputs = TextInputs.from_blocks(pack(loaded.tokenizer, documents(decoder).take([0]), 64))
    record_likeliest_tokens(loaded, inputs, tmp_path / "whole", blocks=len(inputs))
    record_likeliest_tokens(loaded, inputs, tmp_path / "parts", blocks=3)
    for path in (tmp_path / "parts").iterdir():  # killed while it wrote
        path.write_bytes(path.read_bytes() + b"half a row")
    record_likeliest_tokens(loaded, inputs, tmp_path / "parts", blocks=len(inputs))
    whole, parts = (LikeliestTokens.load(tmp_path / name) for name in ("whole", "parts"))
    assert np.array_equal(whole.ids, parts.ids)
    assert len(whole) == len(inputs.blocks.targets)
    assert np.array_equal(whole.log_probabilities, parts.log_probabilities)
    answers = whole[torch.tensor([0, len(whole)])]
    assert answers[1].isnan().all()
    assert answers[0, LIKELIEST:].exp().sum() <= 1.001


def test_removals_find_the_layers_that_a_full_search_finds(decoder: Path):
    bench = prepare(check(settings(decoder)))
    batches = calibration_batches(bench, bench.loaded)
    found = measure_removals(bench.loaded, batches)
    kept = list(range(1, LAYERS + 1))
    for layer, loss in zip(found.order, found.losses, strict=True):
        losses = {}
        for dropped in kept:
            model = keep_layers(bench.loaded, [one for one in kept if one != dropped]).model
            with torch.inference_mode():
                parts = [batch.loss(model(**batch.inputs, use_cache=False).logits) for batch in batches]
            losses[dropped] = sum(total for total, _ in parts) / sum(count for _, count in parts)
        assert layer == min(losses, key=lambda one: losses[one])
        assert loss == pytest.approx(losses[layer], rel=1e-4)
        kept.remove(layer)
    assert len(kept) == 1


def test_the_lens_ends_at_what_the_model_knows(decoder: Path):
    loaded, options = load(decoder), {"weight": 1.0, "length": 64, "seed": 0}
    found = probe_next_token(loaded, documents(decoder), **options)
    again = probe_next_token(loaded, documents(decoder), **options)
    information = found.measures["information"]
    assert found == again
    assert len(found.scores) == LAYERS
    assert found.scores[-1] == max(found.scores) > found.scores[0]
    assert found.bits["token frequencies"] - found.scores[-1] == pytest.approx(found.bits["the whole model"], abs=1e-4)
    assert found.floors["majority"] < found.floors["embeddings"] < found.measures["accuracy"].values[-1]
    assert found.embeddings
    assert found.embeddings["information"] < found.scores[-1]
    assert all(
        low <= value <= high
        for low, value, high in zip(information.low, information.values, information.high, strict=True)
    )
    assert found.measures["logit_lens"].values[0] < found.scores[0]  # the map helps where states are far from the last


@pytest.mark.slow
def test_a_run_heals_and_saves_a_stock_model(decoder: Path, tmp_path: Path):
    result = run(check(settings(decoder)), tmp_path / "run")
    assert result.metric == "bits_per_byte"
    assert result.strategy == "drop_loss"
    assert not result.failure
    assert result.original.value < result.subnetwork.value
    assert result.retention == pytest.approx(result.original.value / result.subnetwork.value)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    assert model.config.num_hidden_layers == 2
    assert model.generation_config.repetition_penalty == 1.25
    assert tokenizer.chat_template == word_tokenizer().chat_template
    ids = tokenizer("the fox sees", return_tensors="pt")["input_ids"]
    with_cache, without = (
        model.generate(ids, max_new_tokens=8, do_sample=False, use_cache=cache) for cache in (True, False)
    )
    assert torch.equal(with_cache, without)


@pytest.mark.long
@pytest.mark.slow
def test_healing_helps_and_a_run_can_be_repeated(decoder: Path, tmp_path: Path):
    result = run(check(settings(decoder)), tmp_path / "run")
    untrained = run(check(settings(decoder, recovery={"epochs": 0})), tmp_path / "untrained")
    assert result.subnetwork.value < untrained.subnetwork.value
    repeated = run(load_config(tmp_path / "run" / "config.yaml"), tmp_path / "again")
    assert repeated.subnetwork.value == result.subnetwork.value


@pytest.mark.slow
def test_conversations_are_learned_by_their_answers(decoder: Path, tmp_path: Path):
    rows = [{"prompt": f"who is number {number}?", "response": f"number {number} is the fox."} for number in range(60)]
    task = {"name": "chat", "kind": "text", "train": str(write_jsonl(tmp_path / "chat.jsonl", rows))}
    result = run(check(settings(decoder, task=task)), tmp_path / "run")
    assert result.examples == 12
    assert result.subnetwork.value > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"selection": {"k": 2, "strategy": "stitched"}}, "texts have none"),
        ({"shrink": {"vocabulary": "auto"}}, "shrink.vocabulary: it takes labels"),
        ({"shrink": {"units": 32}}, "shrink.units: of a generative model, layers and tokens"),
        ({"shrink": "auto"}, "shrink.rank: of a generative model, layers and tokens"),
        ({"recovery": {"temperature": 2.0}}, "other temperatures than 1"),
    ],
)
def test_settings_for_labelled_texts_are_refused(decoder: Path, change: dict[str, Any], said: str):
    with pytest.raises(Problems, match=said):
        check(settings(decoder, **change))


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_a_model_that_writes_no_texts_is_refused(decoder: Path, model_folder, family: str):
    model = {"source": str(model_folder(family)), "max_length": 64}
    with pytest.raises(UserError, match="does not write texts token by token"):
        prepare(check(settings(decoder, model=model)))


def test_texts_and_models_that_do_not_fit_are_refused(decoder: Path, tmp_path: Path):
    (tmp_path / "short.txt").write_text("a few words.\n" * 200)
    task = {"kind": "text", "train": str(tmp_path / "short.txt")}
    model = {"source": str(decoder / "model"), "max_length": 256}
    with pytest.raises(UserError, match=r"train holds 1 document|less than 4 blocks of 256"):
        _ = prepare(check(settings(decoder, task=task, model=model))).situation
    other = tmp_path / "other"
    save_decoder(other)
    tokenizer = word_tokenizer()
    tokenizer.add_tokens(["zebra"])
    config = json.loads((other / "config.json").read_text())
    tokenizer.save_pretrained(other)
    (other / "config.json").write_text(json.dumps(config | {"vocab_size": 264}))
    from safetensors.torch import load_file, save_file

    weights = load_file(other / "model.safetensors")
    name = "model.embed_tokens.weight"
    weights[name] = torch.cat([weights[name], weights[name][:1]])
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="has another tokenizer"):
        prepare(check(settings(decoder, recovery={"teacher": str(other)})))


@pytest.mark.slow
@pytest.mark.long
def test_the_smallest_model_that_keeps_a_share_of_fewer_bits(decoder: Path, tmp_path: Path):
    """Of bits per byte, less is better: a model that needs many more keeps too little, however large its figure is."""
    raw = settings(decoder, selection={"budget": "100%"}, shrink="none")
    search = smallest(check(raw), 0.9, tmp_path / "out")
    original, *others = search.trials
    assert search.metric == "bits_per_byte"
    assert search.wanted == pytest.approx(original.value / 0.9)
    for step in others:
        assert step.retention == pytest.approx(original.value / step.value)
        assert step.enough == (step.value <= search.wanted)
    answer = next(step for step in search.trials if step.budget == search.answer)
    assert answer.enough
    assert all(step.params > answer.params for step in search.trials if step.enough and step is not answer)


def test_text_that_is_too_long_is_read_from_all_over_it(decoder: Path, tmp_path: Path):
    raw = settings(decoder)
    bench = prepare(check({**raw, "recovery": {"epochs": 1, "texts": 8}}))
    train, read = bench.task.train, Training(bench, tmp_path, ShrinkPlan()).task.train
    assert isinstance(train, Documents)
    assert isinstance(read, Documents)
    places = [train.texts.index(text) for text in read.texts]
    assert places == sorted(places) != list(range(len(places)))
    blocks = len(pack(bench.loaded.tokenizer, read, 64).tokens)
    assert 8 <= blocks < len(pack(bench.loaded.tokenizer, train, 64).tokens)
    everything = prepare(check({**raw, "recovery": {"epochs": 1, "texts": 10**6}}))
    assert Training(everything, tmp_path, ShrinkPlan()).task == everything.task


def test_conversations_without_room_for_their_answers_do_not_count(decoder: Path):
    loaded = load(decoder)
    question, answer = ("user", "the fox sees the crow. " * 40), ("assistant", "the crow sees the fox.")
    chats = (*[(question, answer)] * 60, *[(("user", "who?"), answer)] * 3)
    data = Documents(tuple(" ".join(words for _, words in chat) for chat in chats), chats=chats)
    health = check_trained(loaded, data, 32, None, "none")
    assert np.isfinite([health.score, health.constant_score, health.loss_share]).all()


@pytest.fixture(scope="session")
def merging_decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder with merged tokens, half of which the corpus does not have."""
    return make_folder(tmp_path_factory.mktemp("merging"), save_merging_decoder)


def test_a_teacher_with_fewer_tokens_says_the_same(merging_decoder: Path, tmp_path: Path):
    """With the tokens of the texts, texts have the same tokens as before, and the likeliest of them the same odds."""
    bench = prepare(check(settings(merging_decoder, shrink={"vocabulary": "task"})))
    [way] = bench.shrinks
    assert way.vocabulary is not None
    assert way.vocabulary < bench.loaded.model.config.vocab_size
    small = bench.shrinker.shrink(bench.loaded, tuple(range(1, LAYERS + 1)), way)
    assert small.model.config.vocab_size == way.vocabulary
    train = cast("Documents", bench.task.train)
    blocks = [pack(loaded.tokenizer, train, 64) for loaded in (bench.loaded, small)]
    names = [
        loaded.tokenizer.convert_ids_to_tokens(each.tokens.fields["input_ids"].tolist())
        for loaded, each in zip((bench.loaded, small), blocks, strict=True)
    ]
    assert names[0] == names[1]
    assert blocks[0].rows.tolist() == blocks[1].rows.tolist()
    training = Training(bench, tmp_path, way)
    training.train_original()
    answers = training.teacher_outputs()
    assert answers is not None
    assert answers.likeliest is not None
    assert answers.likeliest.ids.max() < way.vocabulary
    first = torch.tensor([blocks[1].tokens[0]["input_ids"]])
    expected = small.model(input_ids=first).logits[0, 0].log_softmax(-1).topk(LIKELIEST)
    got = answers.likeliest[torch.tensor([0])][0]
    assert torch.equal(got[:LIKELIEST].long(), expected.indices)
    torch.testing.assert_close(got[LIKELIEST:], expected.values, atol=1e-2, rtol=1e-2)


@pytest.mark.slow
def test_layers_and_tokens_are_dropped_and_the_rest_heals(merging_decoder: Path, tmp_path: Path):
    raw = settings(merging_decoder, shrink={"vocabulary": "task"}, compare=["full_model"])
    result = run(check(raw), tmp_path / "run")
    assert result.subnetwork.before is not None
    assert result.subnetwork.value < result.subnetwork.before.value
    whole = AutoModelForCausalLM.from_pretrained(merging_decoder / "model")
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    assert model.config.vocab_size == len(tokenizer) < whole.config.vocab_size
    assert model.num_parameters() == result.subnetwork.params
    assert result.other_models["full model, trained on the same text"].params == whole.num_parameters()
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    text = "a quick question about numbers: ça va?"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.slow
def test_conversations_keep_the_tokens_of_their_template(merging_decoder: Path, tmp_path: Path):
    rows = [{"prompt": "who sees the cat?", "response": f"the fox sees the cat {n} times."} for n in range(60)]
    task = {"kind": "text", "train": str(write_jsonl(tmp_path / "chat.jsonl", rows))}
    bench = prepare(check(settings(merging_decoder, task=task, shrink={"vocabulary": "task"})))
    small = bench.shrinker.shrink(bench.loaded, tuple(range(1, LAYERS + 1)), bench.shrinks[0])
    assert small.tokenizer.chat_template == bench.loaded.tokenizer.chat_template
    train = cast("Documents", bench.task.train)
    before, after = (
        loaded.tokenizer.convert_ids_to_tokens(pack(loaded.tokenizer, train, 64).tokens.fields["input_ids"].tolist())
        for loaded in (bench.loaded, small)
    )
    assert before == after


def test_perplexity_of_other_tokens_is_refused(merging_decoder: Path):
    raw = settings(merging_decoder, shrink={"vocabulary": "task"})
    raw["task"]["metric"] = "perplexity"
    with pytest.raises(Problems, match=r"task.metric: perplexity is counted per token"):
        check(raw)
