from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, RobertaConfig, T5Config, T5ForConditionalGeneration

from helpers.models import FAMILIES, tiny_model
from helpers.sweeps import sweep
from probescale.errors import UserError
from probescale.models.counting import count_flops, count_from_config, count_parameters
from probescale.models.families import FAMILIES as DESCRIPTIONS
from probescale.models.heads import find_stock_class, stock_class_name
from probescale.models.loading import load_as_saved
from probescale.models.proof.child import without_cache
from probescale.models.proof.twin import build_twin_config
from probescale.models.surgery import keep_layers
from probescale.selection.budget import parse_budget
from probescale.selection.constraints import Constraints
from probescale.selection.select import select


@pytest.fixture(scope="module")
def roberta_large():
    config = RobertaConfig(
        vocab_size=50265, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
        max_position_embeddings=514, type_vocab_size=1,
    )  # fmt: skip
    return count_from_config(config, DESCRIPTIONS["roberta"], classes=2)


def test_roberta_large_counts(roberta_large):
    assert roberta_large.embeddings == 52_000_768
    assert set(roberta_large.layers) == {12_596_224}
    assert len(roberta_large.layers) == 24
    head = 1024 * 1024 + 1024 + 1024 * 2 + 2
    assert roberta_large.rest == head
    assert roberta_large.total == 355_359_744 - (1024 * 1024 + 1024) + head  # the classifier has no pooler


@pytest.mark.parametrize(
    ("budget", "k"), [("82M", 2), ("128.7M", 6), ("128.6M", 5), ("355.4M", 24), ("36.2%", 6), ("5x", 1)]
)
def test_budgets_on_roberta_large(roberta_large, budget, k):
    selection = select([0.5] * 24, Constraints(parse_budget(budget), roberta_large))
    assert selection.k == k
    assert selection.params == 52_000_768 + k * 12_596_224 + 1_051_650


def test_a_budget_below_one_layer_names_the_smallest(roberta_large):
    with pytest.raises(UserError, match="65,648,642"):
        select([0.5] * 24, Constraints(parse_budget("10x"), roberta_large))


def test_t5_base_encoder_counts():
    config = T5Config(vocab_size=32128, d_model=768, d_ff=3072, d_kv=64, num_heads=12, num_layers=12)
    found = count_from_config(config, DESCRIPTIONS["t5"], classes=2)
    assert found.embeddings == 24_674_304
    assert set(found.layers) == {7_079_424}  # the position bias that all layers share is not counted in layer 1
    assert found.total == 109_628_544 + 768 * 2 + 2


@pytest.mark.parametrize("family", FAMILIES)
def test_counted_parameters_are_those_of_the_cut(family, model_folder):
    loaded = load_as_saved(str(model_folder(family)))
    parameters = count_parameters(loaded.model, loaded.family)
    assert parameters == count_from_config(loaded.model.config, loaded.family, classes=2)
    for kept in [(1,), (2, 4), (1, 2, 3, 4)]:
        child = keep_layers(loaded, kept)
        assert sum(p.numel() for p in child.model.parameters()) == parameters.of(kept)


def test_ratios():
    """Against sums over the names of the weights."""
    model, _ = tiny_model("bert")
    total, layers = count_parameters(model, DESCRIPTIONS["bert"]).ratios([1, 2])
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    dropped = sum(size for name, size in sizes.items() if ".layer.2." in name or ".layer.3." in name)
    assert layers == 0.5
    assert total == pytest.approx(1 - dropped / sum(sizes.values()))
    assert dropped > 0


@pytest.mark.parametrize("length", [16, 128])
def test_flops_follow_the_textbook_formula(length):
    config = AutoConfig.for_model("roberta", hidden_size=256, intermediate_size=1024, num_attention_heads=4)
    found = count_flops(config, DESCRIPTIONS["roberta"], length)
    projections = 2 * length * (4 * 256**2 + 2 * 256 * 1024)
    attention = 2 * 2 * length**2 * 256
    assert found.layers[0] * 1e9 == pytest.approx(projections + attention)
    assert len(set(found.layers)) == 1
    assert found.fixed * 1e9 == pytest.approx(2 * 256**2)  # the pooler, once per text


def test_flops_of_a_language_model_count_the_vocabulary():
    config = AutoConfig.for_model("gpt2", n_embd=64, n_head=4, n_layer=2, vocab_size=1000)
    with_head = count_flops(config, DESCRIPTIONS["gpt2"], 16, "lm")
    without = count_flops(config, DESCRIPTIONS["gpt2"], 16)
    assert (with_head.fixed - without.fixed) * 1e9 == pytest.approx(2 * 16 * 64 * 1000)


def executed_flops(family, config, head) -> int:
    """Operations of a real forward pass of the stock class with this head, on 16 tokens."""
    config = type(config).from_dict(config.to_dict())
    config._attn_implementation = "eager"
    model = find_stock_class(family, config, head, field="")(config).eval()
    ids = torch.full((1, 16), 7)
    ids[0, -1] = config.eos_token_id  # BART's head reads the state at this token
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if family.decoder_layers(model) is not None else {})
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(**inputs, **without_cache(model))
    return counter.get_total_flops()


@pytest.mark.slow
@pytest.mark.parametrize("head", ["none", "sentence", "token", "lm"])
@pytest.mark.parametrize("family", sweep(sorted(DESCRIPTIONS), always=["bert", "t5", "llama"]))
def test_operations_of_every_family_and_head_are_counted(family, head):
    described = DESCRIPTIONS[family]
    config = build_twin_config(AutoConfig.for_model(described.model_types[0]), described)
    if stock_class_name(described, config, head) is None:
        with pytest.raises(UserError, match="transformers has no class"):
            count_flops(config, described, 16, head)
        return
    cost = count_flops(config, described, 16, head, classes=3)
    assert min(cost.layers) > 0
    assert len(cost.layers) == 4
    executed = executed_flops(described, config, head)
    if head == "sentence" and described.pooling == "last":  # stock decoders also compute the head for unused tokens
        assert sum(cost.layers) * 1e9 < cost.total * 1e9 < executed
    else:
        assert cost.total * 1e9 == pytest.approx(executed)


def test_a_decoder_is_counted_separately():
    config = T5Config(vocab_size=100, d_model=32, d_ff=64, d_kv=8, num_heads=4, num_layers=3, num_decoder_layers=2)
    found = count_from_config(config, DESCRIPTIONS["t5"], head="lm")
    model = T5ForConditionalGeneration(config)
    assert found.total == sum(p.numel() for p in model.parameters())
    assert len(found.layers) == 3
    assert len(found.decoder) == 2
    assert found.of([1], [2]) == found.total - 2 * found.layers[0] - found.decoder[0]
