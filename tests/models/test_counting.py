from __future__ import annotations

import pytest
from transformers import RobertaConfig, T5Config

from conftest import FAMILIES, tiny_model
from probescale.errors import UserError
from probescale.models.counting import count_from_config, count_parameters
from probescale.models.families import FAMILIES as DESCRIPTIONS
from probescale.models.families import family_of
from probescale.models.loading import load_as_saved
from probescale.models.surgery import extract
from probescale.selection.budget import parse_budget
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
    found = select([0.5] * 24, parse_budget(budget), roberta_large)
    assert found.k == k
    assert found.params == 52_000_768 + k * 12_596_224 + 1_051_650


def test_a_budget_below_one_layer_names_the_smallest(roberta_large):
    with pytest.raises(UserError, match="65,648,642"):
        select([0.5] * 24, parse_budget("10x"), roberta_large)


def test_t5_base_encoder_counts():
    config = T5Config(vocab_size=32128, d_model=768, d_ff=3072, d_kv=64, num_heads=12, num_layers=12)
    found = count_from_config(config, DESCRIPTIONS["t5-encoder"], classes=2)
    assert found.embeddings == 24_674_304
    assert set(found.layers) == {7_079_424}  # the bias that all layers share is not layer 1's
    assert found.total == 109_628_544 + 768 * 2 + 2


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_predicted_is_what_the_cut_has(family, model_folder):
    loaded = load_as_saved(str(model_folder(family)))
    parameters = count_parameters(loaded.model, loaded.family)
    assert parameters == count_from_config(loaded.model.config, loaded.family, classes=2)
    for kept in [(1,), (2, 4), (1, 2, 3, 4)]:
        child = extract(loaded, kept)
        assert sum(p.numel() for p in child.model.parameters()) == parameters.of(kept)


def test_ratios():
    model, _ = tiny_model("bert")
    parameters = count_parameters(model, DESCRIPTIONS["bert"])
    total, layers = parameters.ratios([1, 2])
    assert layers == 0.5
    assert total == parameters.of([1, 2]) / parameters.total > 0.5


def test_an_unknown_model_type_is_named():
    class Robertta(RobertaConfig):
        model_type = "robertta"

    with pytest.raises(UserError, match=r'"robertta" is not supported\. Did you mean "roberta"'):
        family_of(Robertta())
