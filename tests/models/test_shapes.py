"""The built-in shapes have the published parameter counts of their checkpoints."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedConfig,
    T5Config,
    T5EncoderModel,
)

from probescale.models.facts import built_in_facts
from probescale.models.shapes import built_in_config, list_shapes

COUNTS = {
    AutoModel: {
        "bert-base": 109_482_240,
        "bert-base-cased": 108_310_272,
        "bert-large": 335_141_888,
        "distilbert-base": 66_362_880,
        "all-MiniLM-L6-v2": 22_713_216,
        "roberta-base": 124_645_632,
        "roberta-large": 355_359_744,
        "distilroberta-base": 82_118_400,
        "xlm-roberta-base": 278_043_648,
        "xlm-roberta-large": 559_890_432,
        "mpnet-base": 109_486_464,
        "electra-small": 13_483_008,
        "electra-base": 108_891_648,
        "electra-large": 334_092_288,
        "deberta-v3-small": 141_304_320,
        "deberta-v3-base": 183_831_552,
        "deberta-v3-large": 434_012_160,
        "ModernBERT-base": 149_014_272,
        "ModernBERT-large": 394_781_696,
        "bart-base": 139_420_416,
        "bart-large": 406_291_456,
    },
    AutoModelForMaskedLM: {"camembert-base": 110_655_493},
    AutoModelForSeq2SeqLM: {
        "t5-small": 60_506_624,
        "t5-base": 222_903_552,
        "t5-large": 737_668_096,
        "flan-t5-small": 76_961_152,
        "flan-t5-base": 247_577_856,
        "flan-t5-large": 783_150_080,
        "mt5-small": 300_176_768,
        "mt5-base": 582_401_280,
    },
    AutoModelForCausalLM: {
        "gpt2": 124_439_808,
        "gpt2-medium": 354_823_168,
        "gpt2-large": 774_030_080,
        "gpt2-xl": 1_557_611_200,
        "pythia-70m": 70_426_624,
        "pythia-160m": 162_322_944,
        "pythia-410m": 405_334_016,
        "opt-125m": 125_239_296,
        "opt-350m": 331_196_416,
        "SmolLM2-135M": 134_515_008,
        "SmolLM2-360M": 361_821_120,
        "SmolLM2-1.7B": 1_711_376_384,
        "TinyLlama-1.1B": 1_100_048_384,
        "Mistral-7B": 7_241_732_096,
        "Qwen2-0.5B": 494_032_768,
        "Qwen2.5-0.5B": 494_032_768,
        "Qwen3-0.6B": 596_049_920,
        "gemma-2-2b": 2_614_341_888,
        "gemma-3-270m": 268_098_176,
        "gemma-3-1b": 999_885_952,
        "Phi-3-mini": 3_821_079_552,
    },
}
OWN_OUTPUT_LAYER = ("flan-t5", "mt5")


def config_of(name: str) -> PreTrainedConfig:
    config = built_in_config(name)
    assert config is not None, name
    return config


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "published"),
    [
        pytest.param(kind, *row, id=row[0], marks=[pytest.mark.long] if number else [])
        for kind, rows in COUNTS.items()
        for number, row in enumerate(rows.items())  # the first of each kind runs always
    ],
)
def test_parameters_are_as_published(kind, name: str, published: int) -> None:
    with torch.device("meta"):
        model = kind.from_config(config_of(name))
    if name.startswith(OWN_OUTPUT_LAYER):
        # transformers shares the output layer of every T5 it builds; loading these checkpoints separates it again
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    assert count(model) == published
    stored = built_in_facts(name)
    assert stored is not None
    if kind is AutoModel:  # without a head, like the stored facts
        assert stored.parameters.total == published
    assert len(stored.parameters.layers) == config_of(name).num_hidden_layers


def test_every_shape_is_counted() -> None:
    counted = [config_of(name).to_dict() for rows in COUNTS.values() for name in rows]
    assert [name for name in list_shapes() if config_of(name).to_dict() not in counted] == []


def test_parameters_of_parts() -> None:
    t5 = config_of("t5-base")
    assert isinstance(t5, T5Config)
    with torch.device("meta"):
        encoder = T5EncoderModel(t5)
        roberta = AutoModel.from_config(config_of("roberta-large"))
    assert count(encoder) == 109_628_544
    assert [count(layer) for layer in roberta.encoder.layer] == [12_596_224] * 24
    assert count(roberta.embeddings) == 52_000_768


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("FacebookAI/roberta-large", "roberta-large"),
        ("google-t5/t5-base", "t5-base"),
        ("answerdotai/ModernBERT-base", "ModernBERT-base"),
        ("modernbert-base", "ModernBERT-base"),
        ("ROBERTA-LARGE", "roberta-large"),
        ("google-bert/bert-base-uncased", "bert-base"),
        ("google/electra-small-discriminator", "electra-small"),
    ],
)
def test_names_with_organisation_case_and_alias(written: str, name: str) -> None:
    assert config_of(written).to_dict() == config_of(name).to_dict()


def test_each_call_gives_a_new_config() -> None:
    config_of("roberta-large").num_hidden_layers = 3
    assert config_of("roberta-large").num_hidden_layers == 24


@pytest.mark.parametrize("name", ["", "roberta", "roberta-large/", "someone/roberta-large-squad"])
def test_unknown_name(name: str) -> None:
    assert built_in_config(name) is None
