"""Costs in GFLOPs and milliseconds: of a layer, and of each of its feed-forward units."""

from __future__ import annotations

import pytest
from transformers import AutoConfig

from helpers.sweeps import sweep
from probescale.models.budget_costs import Workload, measure_costs
from probescale.models.counting import count_flops
from probescale.models.families import FAMILIES
from probescale.models.proof.twin import build_twin_config
from probescale.models.shrink.units import why_width_is_fixed, with_width

NARROWABLE = [name for name, family in FAMILIES.items() if not why_width_is_fixed(family) and not family.decoder]


@pytest.mark.parametrize("name", sweep(NARROWABLE, always=["bert", "gpt2", "llama"]))
def test_gflops_of_any_width_are_those_of_a_model_with_that_width(name):
    family = FAMILIES[name]
    config = build_twin_config(AutoConfig.for_model(family.model_types[0]), family)
    cost = measure_costs({"gflops"}, Workload(config, family, "none", length=16))["gflops"]
    assert cost.units, "a unit's cost is told apart"
    for units in (cost.units // 2, 3):
        exact = count_flops(with_width(config, family.stack, units), family, 16)
        assert cost.narrowed(units).layers == pytest.approx(exact.layers)
        assert cost.narrowed(units).total == pytest.approx(cost.total), "shares still refer to the original"
    assert cost.narrowed(None) == cost


def test_time_of_a_narrower_layer_is_no_longer_and_not_negative():
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 2048, "num_hidden_layers": 2}
    config = AutoConfig.for_model("bert", vocab_size=99, **sizes)
    workload = Workload(config, FAMILIES["bert"], "none", length=32)
    cost = measure_costs({"milliseconds"}, workload)["milliseconds"]
    narrow = cost.narrowed(1)
    assert all(0 <= less <= full for less, full in zip(narrow.layers, cost.layers, strict=True))


def test_a_family_with_a_fixed_width_has_layers_alone():
    family = FAMILIES["phi3"]
    config = build_twin_config(AutoConfig.for_model("phi3"), family)
    cost = measure_costs({"gflops"}, Workload(config, family, "none", length=16))["gflops"]
    assert cost.units is None
    assert cost.narrowed(8) == cost
