"""A model without some heads equals its parent with those heads silenced; what no stock class can hold is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig, PreTrainedModel, set_seed

from helpers.models import tiny_tokenizer
from probescale.errors import UserError
from probescale.models.attention_heads import (
    check_head_count,
    choose_heads,
    head_group_size,
    keep_heads,
    possible_head_counts,
    why_heads_are_fixed,
)
from probescale.models.counting import count_parameters
from probescale.models.families import FAMILIES, find_family
from probescale.models.loading import LoadedModel, load_as_saved
from probescale.models.proof.reference import example_inputs, heads_silenced
from probescale.models.surgery import keep_layers
from probescale.pipeline.cut import cut_to_folder, head_rows
from probescale.probing.scores import ProbeResult, ProbeScores
from probescale.report.examination import examine

WIDTH = 10  # of a head: not hidden size / number of heads, so that no shape fits by chance
SIZE: dict[str, Any] = {
    "vocab_size": 350, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 3, "head_dim": WIDTH, "pad_token_id": 1, "bos_token_id": 0,
    "eos_token_id": 2,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {}),
    "llama with biases": ("LlamaForCausalLM", {"attention_bias": True}),
    "llama, heads by themselves": ("LlamaForCausalLM", {"num_key_value_heads": 6}),
    "llama, one key for all": ("LlamaForCausalLM", {"num_key_value_heads": 1}),
    "llama, width from the number": ("LlamaForCausalLM", {"head_dim": None}),
    "mistral": ("MistralForSequenceClassification", {"sliding_window": 4}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen2, width from the number": ("Qwen2Model", {"head_dim": None}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "gemma2": ("Gemma2ForCausalLM", {"query_pre_attn_scalar": 5, "sliding_window": 4}),
    "gemma3": ("Gemma3ForCausalLM", {"query_pre_attn_scalar": 5, "sliding_window": 4}),
    "t5": ("T5EncoderModel", {}),
    "t5 with a head": ("T5ForTokenClassification", {}),
    "mt5": ("MT5EncoderModel", {}),
}
# Two of three groups, other ones in every layer.
KEPT = ((1, 2, 5, 6), (3, 4, 5, 6), (1, 2, 3, 4))
SAME = ((1, 3, 4, 6),) * 3


def build(name: str) -> PreTrainedModel:
    """Random weights, large enough that every head matters; norms and biases differ from their initial values."""
    class_name, changed = MODELS[name]
    cls = getattr(transformers, class_name)
    size = {key: value for key, value in (SIZE | changed).items() if value is not None}
    if "t5" in name:
        size = {
            "vocab_size": 350, "d_model": 48, "d_ff": 64, "d_kv": WIDTH, "num_heads": 6, "num_layers": 3,
            "relative_attention_num_buckets": 8, "pad_token_id": 1, "eos_token_id": 2,
        }  # fmt: skip
    set_seed(3)
    model = cls(cls.config_class(**size)).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "relative_attention_bias" in key:
                parameter.normal_(0, 2)
            elif parameter.ndim > 1 and "t5" not in name:
                parameter.mul_(4)
            elif parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def loaded(name: str) -> LoadedModel:
    model = build(name)
    return LoadedModel(model, tiny_tokenizer("roberta"), find_family(model.config), name, "")


def kept_heads(name: str) -> tuple[tuple[int, ...], ...]:
    return SAME if "t5" in name else KEPT


def first_output(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return model(**inputs)[0]


@pytest.mark.parametrize("name", MODELS)
def test_the_cut_equals_the_parent_with_heads_silenced(name):
    parent, kept = loaded(name), kept_heads(name)
    before = {key: weight.clone() for key, weight in parent.model.state_dict().items()}
    inputs = example_inputs(parent.model, parent.family)
    full = first_output(parent.model, inputs)
    with heads_silenced(parent.model, parent.family, dict(enumerate(kept, 1))):
        silenced = first_output(parent.model, inputs)
    assert (silenced - full).abs().max() > 1e-2, "the cut changed nothing: the test would prove nothing"

    child = keep_heads(parent, kept)

    assert type(child.model) is type(parent.model)
    torch.testing.assert_close(first_output(child.model, inputs), silenced, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(first_output(parent.model, inputs), full, atol=0, rtol=0)
    assert all(torch.equal(before[key], weight) for key, weight in parent.model.state_dict().items())
    assert find_family(child.model.config).count_layers(child.model.config) == 3


@pytest.mark.parametrize("name", MODELS)
def test_parameters_of_dropped_heads_are_gone(name):
    parent = loaded(name)
    child = keep_heads(parent, kept_heads(name))
    config = parent.model.config
    width = getattr(config, "head_dim", 48 // 6)
    keys = getattr(config, "num_key_value_heads", 6)
    dropped_keys = 0 if keys == 1 else 2 * keys // 6  # of each of the three layers, as 2 of 6 heads
    bias = "self_attn.q_proj.bias" in " ".join(parent.model.state_dict())
    each = width * (2 * 2 * 48 + 2 * dropped_keys * 48) + bias * width * (2 + 2 * dropped_keys)
    shared = 2 * 8 if "t5" in name else 0  # position biases: a column of 8 for each head
    before, after = (count_parameters(m.model, m.family).total for m in (parent, child))
    assert before - after == 3 * each + shared


def test_silencing_equals_zeros_in_the_output_projection():
    parent = loaded("llama")
    inputs = example_inputs(parent.model, parent.family)
    with heads_silenced(parent.model, parent.family, {2: (3, 4, 5, 6)}):
        silenced = first_output(parent.model, inputs)
    with torch.no_grad():
        parent.model.model.layers[1].self_attn.o_proj.weight[:, : 2 * WIDTH] = 0
    torch.testing.assert_close(first_output(parent.model, inputs), silenced, atol=1e-6, rtol=1e-5)


def test_generation_with_the_cache():
    child = keep_heads(loaded("llama"), KEPT)
    ids = torch.tensor([[5, 6, 7, 8]])
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    with_cache, without = (child.model.generate(ids, use_cache=use, **options) for use in (True, False))  # type: ignore[operator]
    assert torch.equal(with_cache, without)
    assert with_cache.shape == (1, 10)


def test_heads_can_be_cut_twice():
    once = keep_heads(loaded("qwen2, width from the number"), KEPT)
    twice = keep_heads(once, [(3, 4), (1, 2), (3, 4)])
    at_once = keep_heads(loaded("qwen2, width from the number"), [(5, 6), (3, 4), (3, 4)])
    for key, weight in at_once.model.state_dict().items():
        assert torch.equal(weight, twice.model.state_dict()[key])


def test_the_best_groups_are_chosen():
    config, family = build("llama").config, FAMILIES["llama"]
    assert head_group_size(config) == 2
    rows = [(0.9, 0.1, 0.6, 0.6, 0.5, 0.4), (0.1, 0.1, 0.2, 0.2, 0.9, 0.0), (0.5, 0.5, 0.5, 0.5, 0.5, 0.5)]
    assert choose_heads(rows, 2, family, config) == ((3, 4), (5, 6), (1, 2))
    assert choose_heads(rows, 4, family, config) == ((1, 2, 3, 4), (3, 4, 5, 6), (1, 2, 3, 4))


def test_t5_keeps_the_same_heads_in_all_layers():
    config, family = build("t5").config, FAMILIES["t5"]
    rows = [(0.9, 0, 0, 0, 0.5, 0), (0, 0.8, 0, 0, 0.5, 0), (0, 0, 0.7, 0, 0.5, 0)]
    assert choose_heads(rows, 2, family, config) == ((1, 5),) * 3
    with pytest.raises(UserError, match="position biases"):
        keep_heads(loaded("t5"), [(1,), (2,), (3,)])


def test_heads_that_all_share_keys_are_dropped_one_by_one():
    config = build("llama, one key for all").config
    assert head_group_size(config) == 1
    assert possible_head_counts(config) == (1, 2, 3, 4, 6)  # 48 is not a multiple of 5
    child = keep_heads(loaded("llama, one key for all"), [(1, 2, 4)] * 3)
    assert child.model.config.num_key_value_heads == 1


@pytest.mark.parametrize(
    ("count", "says"), [(0, "has 6"), (7, "has 6"), (-2, "has 6"), (3, "not a whole number of groups: each 2 share")]
)
def test_wrong_numbers_of_heads(count, says):
    with pytest.raises(UserError, match=says) as refused:
        check_head_count(count, FAMILIES["llama"], build("llama").config)
    assert refused.value.field == "--heads"
    assert refused.value.hint == "give one of: 2, 4, 6"


def test_a_number_that_the_stock_config_refuses():
    config = build("llama, heads by themselves").config
    with pytest.raises(UserError, match="LlamaConfig does not accept 5 heads with a hidden size of 48"):
        check_head_count(5, FAMILIES["llama"], config)
    assert possible_head_counts(build("mistral").config) == (2, 4, 6)


@pytest.mark.parametrize(
    "kept", [KEPT[:2], (*KEPT[:2], (1, 2)), ((1, 3, 5, 6),) * 3, ((5, 6, 7, 8),) * 3, ((2, 1, 5, 6),) * 3]
)
def test_wrong_heads(kept):
    with pytest.raises(UserError):
        keep_heads(loaded("llama"), kept)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_says_whether_heads_can_be_dropped(name):
    family = FAMILIES[name]
    config = AutoConfig.for_model(family.model_types[0])
    can = name in ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "t5", "mt5")
    assert (why_heads_are_fixed(family, config) == "") is can
    if not can:
        with pytest.raises(UserError, match=r"cannot be dropped: .*(one matrix|as wide as the hidden states)"):
            check_head_count(1, family, config)


def test_a_detected_family_keeps_its_heads():
    config = AutoConfig.for_model("olmo2")
    assert "are not described" in why_heads_are_fixed(find_family(config), config)


@pytest.mark.parametrize(
    ("name", "says"),
    [("gemma-3-1b", "keeps 1, 2, 3 of 4"), ("Qwen2.5-0.5B", "in groups of 7"), ("t5-small", "of the encoder alone"),
     ("phi-3-mini", "one matrix"), ("gpt2", "as wide as the hidden states")],
)  # fmt: skip
def test_the_doctor_reports_heads(name, says):
    notes = examine(name).notes
    (about_heads,) = (note for note in notes if note.startswith("Attention heads"))
    assert says in about_heads
    assert any("cannot be left out alone" in note for note in notes)


def scores_with(heads: tuple[tuple[float, ...], ...] | None, **provenance: object) -> ProbeScores:
    probe = ProbeResult(scores=(0.5,) * 3, weight=1, heads=heads)
    return ProbeScores(task="tiny", layers=3, probes={"tiny": probe}, provenance=provenance)


def test_probes_are_averaged_by_their_weights():
    one = ProbeResult(scores=(0.5,), weight=0.75, heads=((1.0, 0.0),))
    two = ProbeResult(scores=(0.5,), weight=0.25, heads=((0.0, 1.0),))
    none = ProbeResult(scores=(0.5,), weight=0)
    scores = ProbeScores(task="tiny", layers=1, probes={"one": one, "two": two, "none": none})
    assert head_rows(scores, layers=1, heads=2) == [[0.75, 0.25]]


ROWS = ((0.9, 0.8, 0.1, 0.2, 0.7, 0.7), (0.1, 0.2, 0.5, 0.5, 0.6, 0.6), (0.8, 0.8, 0.5, 0.5, 0.1, 0.2))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Callable[[str], Path]:
    def folder(name: str) -> Path:
        place = tmp_path_factory.mktemp("parent") / "model"
        build(name).save_pretrained(place)
        tiny_tokenizer("roberta").save_pretrained(place)
        return place

    return folder


@pytest.mark.slow
def test_layers_and_heads_from_the_command_line(cli, saved, tmp_path):
    source = saved("llama")
    parent = load_as_saved(str(source))
    scores_with(ROWS, model=str(source), model_sha256=parent.fingerprint).save(tmp_path / "scores.json")
    options = ("--keep", "3,1", "--heads", 4, "--scores", tmp_path / "scores.json", "--out", tmp_path / "cut")
    found = cli("extract", source, *options)
    assert found.code == 0, found.err
    assert "kept 4 of 6 heads in every layer" in found.out
    record = json.loads((tmp_path / "cut" / "probescale.json").read_text())
    assert record["kept"] == [3, 1]
    assert record["kept_heads"] == [[1, 2, 3, 4], [1, 2, 5, 6]]
    assert record["proof"]["route"] == "the parent's blocks called by hand and heads silenced"
    assert record["proof"]["cache_difference"] < 1e-3
    config = json.loads((tmp_path / "cut" / "config.json").read_text())
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (4, 2, WIDTH)
    layers_alone = count_parameters(keep_layers(parent, (3, 1)).model, parent.family).total
    assert record["params"] == layers_alone - 2 * 6 * 48 * WIDTH  # two queries, keys, values, two outputs: 6 of 48
    again = cli("extract", source, *options)
    assert again.code == 2
    assert "--overwrite" in again.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2, width from the number", "gemma3", "t5 with a head"])
def test_a_fresh_process_gives_the_same_outputs(saved, tmp_path, name):
    record = cut_to_folder(str(saved(name)), (1, 3), tmp_path / "cut", heads=4, head_scores=scores_with(ROWS))
    assert record["proof"]["largest_difference"] < 1e-5
    assert len(record["kept_heads"]) == 2


def test_what_extract_refuses(cli, saved, tmp_path):
    source = saved("llama")
    files = {
        "good": scores_with(ROWS),
        "no heads": scores_with(None),
        "fewer layers": scores_with(ROWS[:2]),
        "other heads": scores_with(tuple(row[:4] for row in ROWS)),
        "other weights": scores_with(ROWS, model="elsewhere", model_sha256="0"),
    }
    for name, scores in files.items():
        scores.save(tmp_path / f"{name}.json")
    for options, says in [
        (("--heads", 4), "--scores: heads are chosen by their scores"),
        (("--scores", tmp_path / "good.json"), "--heads: scores choose heads"),
        (("--heads", 4, "--scores", tmp_path / "none.json"), "does not exist"),
        (("--heads", 0, "--scores", tmp_path / "good.json"), "--heads: 0 heads cannot be kept"),
        (("--heads", 3, "--scores", tmp_path / "good.json"), "give one of: 2, 4, 6"),
        (("--heads", 4, "--scores", tmp_path / "no heads.json"), "--set probing.granularity=[layer,head]"),
        (("--heads", 4, "--scores", tmp_path / "fewer layers.json"), "2 layers with 6 heads are of another model"),
        (("--heads", 4, "--scores", tmp_path / "other heads.json"), "3 layers with 4 heads are of another model"),
        (("--heads", 4, "--scores", tmp_path / "other weights.json"), "other weights than these, from elsewhere"),
    ]:
        found = cli("extract", source, "--keep", "1-3", "--out", tmp_path / "cut", *options)
        assert found.code == 2, options
        assert says in " ".join(found.err.split()), options
        assert not (tmp_path / "cut").exists()


def test_models_that_cannot_lose_heads(cli, model_folder, tmp_path):
    scores_with(ROWS, model_sha256="of the encoder alone").save(tmp_path / "scores.json")
    encoder_decoder = tmp_path / "t5"
    size: dict[str, Any] = {
        "d_model": 48,
        "d_ff": 64,
        "d_kv": WIDTH,
        "num_heads": 6,
        "num_layers": 3,
        "vocab_size": 350,
    }
    transformers.T5ForConditionalGeneration(transformers.T5Config(**size)).save_pretrained(encoder_decoder)
    tiny_tokenizer("roberta").save_pretrained(encoder_decoder)
    options = ("--keep", "1", "--scores", tmp_path / "scores.json", "--out", tmp_path / "cut", "--heads")
    for source, count, says in [(model_folder("bert"), 2, "as wide as the hidden states"),
                                (encoder_decoder, 4, "load only the encoder, with --encoder-only")]:  # fmt: skip
        found = cli("extract", source, *options, count)
        assert found.code == 2
        assert says in " ".join(found.err.split())
        assert not (tmp_path / "cut").exists()
