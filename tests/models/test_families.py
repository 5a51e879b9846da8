"""Every family: tiny models with every head, cut in many ways and proved; what cannot be cut is refused."""

from __future__ import annotations

import pytest
from transformers import AutoConfig, GPT2Config, ModernBertConfig

from helpers.sweeps import sweep
from probescale.errors import UserError
from probescale.models import detection
from probescale.models.detection import find_stacks
from probescale.models.families import FAMILIES, find_family
from probescale.models.heads import HEADS, stock_class_name
from probescale.models.proof.comparison import Proof
from probescale.models.proof.twin import build_twin, build_twin_config
from probescale.models.rehearsal import CUTS, rehearse

DETECTED = ("gpt_neo", "mbart")  # docs/reference/models.md has more
TYPES = [family.model_types[0] for family in FAMILIES.values()]


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sweep([*TYPES, *DETECTED], always=["bert", "t5", "llama", "gpt_neo"]))
def test_every_cut_of_every_head_is_proved(model_type):
    config = AutoConfig.for_model(model_type)
    family = find_family(config)
    cuts = rehearse([(config, family)])[0]
    assert [f"{cut.head} {cut.cut}: {cut.outcome}" for cut in cuts if not cut.passed] == []
    assert {cut.head for cut in cuts} == {h for h in HEADS if stock_class_name(family, config, h)}
    assert {"sentence", "regression"} <= {cut.head for cut in cuts}
    bare = {cut.cut: cut.outcome for cut in cuts if cut.head == "none"}
    assert set(bare) == {*CUTS, "gaps, float16", "gaps, bfloat16", "gaps, sharded"}
    complete = bare["all"]
    assert isinstance(complete, Proof)
    assert complete.to_the_bit
    if family.pooling == "last" or family.decoder:
        caches = [cut.outcome.cache_difference for cut in cuts if isinstance(cut.outcome, Proof)]
        assert len([gap for gap in caches if gap is not None]) == len(CUTS)  # all of the language model


@pytest.mark.parametrize("model_type", TYPES)
def test_every_path_of_a_description_exists(model_type):
    config = AutoConfig.for_model(model_type)
    family = find_family(config)
    model = build_twin(config, family, "sentence")
    assert model is not None
    for block in family.layers(model):
        block.get_submodule(family.stack.attention_output)
        block.get_submodule(family.stack.feed_forward_output)
    assert not family.detected
    body = dict(model.base_model.named_modules())
    assert family.embeddings[0] in body
    assert family.stack.blocks in find_stacks(model.base_model)


@pytest.mark.parametrize(
    ("model_type", "says"),
    [
        ("albert", "share one block of weights"),
        ("gemma3", "not a text-only model"),
        ("vit", "not a text-only model"),
        ("xlm", "stacks have the 12 layers of its config; stacks: attentions"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_a_reason(model_type, says):
    with pytest.raises(UserError, match=says):
        find_family(AutoConfig.for_model(model_type))


def test_shared_weights_are_not_counted_as_layers():
    config = AutoConfig.for_model("bert", hidden_size=32, num_attention_heads=2, num_hidden_layers=3)
    from torch import nn
    from transformers import BertModel

    model = BertModel(config)
    assert find_stacks(model) == {"encoder.layer": 3}
    block = model.encoder.layer[0]
    model.encoder.layer = nn.ModuleList([block, block, block])
    assert find_stacks(model) == {}


def test_attention_scaled_by_the_layer_number_is_refused():
    with pytest.raises(UserError, match="scale_attn_by_inverse_layer_idx"):
        find_family(GPT2Config(scale_attn_by_inverse_layer_idx=True))


def test_modernbert_keeps_its_first_layer():
    config = ModernBertConfig()
    family = find_family(config)
    assert family.fixed(config) == (1,)
    assert family.check_kept((1, 4, 3), config) == (1, 4, 3)
    for kept in ((2, 3), (2, 1), (1, 2, 1)):
        with pytest.raises(UserError, match=r"layer 1 must stay the first layer.*attention norm"):
            family.check_kept(kept, config)


def test_a_layer_before_a_convolution_is_kept():
    """DeBERTa-v2-xlarge has one."""
    plain, convolving = (AutoConfig.for_model("deberta-v2", conv_kernel_size=size) for size in (0, 3))
    family = find_family(plain)
    assert family.fixed(plain) == ()
    assert family.fixed(convolving) == (1,)


def test_a_twin_has_every_layer_type():
    config = AutoConfig.for_model("gemma3_text")
    assert build_twin_config(config, find_family(config)).layer_types == ["sliding_attention", "full_attention"] * 2


def test_an_unknown_type_is_announced_once(capsys, monkeypatch):
    monkeypatch.setattr(detection, "_announced", set())  # other tests may have met it
    for _ in range(2):
        assert find_family(AutoConfig.for_model("olmo2")).detected
    assert capsys.readouterr().err.count('"olmo2" has no description') == 1
