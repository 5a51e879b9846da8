"""A narrower model equals its parent with every feed-forward output replaced by a least-squares fit to kept units."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel, T5Config
from transformers.pytorch_utils import Conv1D

from helpers.real import real_weights
from probescale.config import Head
from probescale.errors import UserError
from probescale.models.block_calls import removing_hooks
from probescale.models.counting import count_parameters
from probescale.models.families import FAMILIES, find_family
from probescale.models.family import backbone
from probescale.models.heads import build_on_meta
from probescale.models.loading import LoadedModel, load_as_saved
from probescale.models.proof.reference import example_inputs
from probescale.models.proof.twin import build_twin, build_twin_tokenizer
from probescale.models.saving import save_model
from probescale.models.shrink.unit_choice import BLOCK, RIDGE, fit_output, rank_units
from probescale.models.shrink.units import (
    UnitMoments,
    count_units,
    keep_units,
    measure_units,
    parameters_per_unit,
    why_width_is_fixed,
)
from probescale.models.surgery import keep_layers

UNITS, KEPT = 64, 24
FUSED = ("modernbert", "phi3")
NAMES = [*(name for name in FAMILIES if name not in FUSED), "t5, gated", "gpt2, width from the hidden size"]
TEXTS = ["w1 w2 w3 w4 w5 w6", "w7", "w8 w9 w1", "w30 w31 w2 w2"]


def loaded(name: str, head: Head = "none") -> LoadedModel:
    """A tiny model of the family with biases that are not zero."""
    family = FAMILIES[name.split(",")[0]]
    config = AutoConfig.for_model(family.model_types[0])
    if name == "t5, gated":
        config = T5Config(feed_forward_proj="gated-gelu")
    if name == "gpt2":
        config.n_inner = UNITS
    model = build_twin(config, family, head)
    assert model is not None
    tokenizer = build_twin_tokenizer()
    tokenizer.backend_tokenizer.pre_tokenizer = WhitespaceSplit()  # type: ignore[assignment]
    return LoadedModel(model, tokenizer, find_family(model.config), name, "")


def random_moments(of: LoadedModel, seed: int = 0) -> UnitMoments:
    """Moments of made-up activations, which vary more than those of a tiny model."""
    return UnitMoments([moments_of(units) for units in random_activations(of, seed)])


def random_activations(of: LoadedModel, seed: int = 0) -> list[torch.Tensor]:
    """(tokens, units) of every layer; units go along with each other."""
    random, units = torch.Generator().manual_seed(seed), count_units(of.model, of.family)
    mixed = [torch.randn(units, units, generator=random, dtype=torch.float64) for _ in range(of.layers)]
    return [torch.randn(4 * units, units, generator=random, dtype=torch.float64) @ mix + mix[0] for mix in mixed]


def moments_of(activations: torch.Tensor) -> torch.Tensor:
    with_constant = torch.cat([activations, torch.ones(len(activations), 1, dtype=activations.dtype)], 1)
    return (with_constant.T @ with_constant / len(activations)).float()


def output_projection(of: LoadedModel, number: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weight, (hidden, units), and bias of a layer's feed-forward output; layers from 0."""
    out = of.family.layers(of.model)[number].get_submodule(of.family.stack.feed_forward_output)
    weight, bias = out.get_parameter("weight").detach(), getattr(out, "bias", None)
    return weight.T if isinstance(out, Conv1D) else weight, None if bias is None else bias.detach()


def states(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return backbone(model)(**inputs)[0]


@contextmanager
def outputs_fitted(of: LoadedModel, count: int, activations: Sequence[torch.Tensor]) -> Iterator[None]:
    """The independent route: in the parent, every feed-forward output is a least-squares fit to the kept units."""

    def fit(number: int):
        weight, bias = output_projection(of, number)
        units = activations[number]
        best = rank_units(moments_of(units), weight, count, has_bias=bias is not None).sort().values
        wanted = units @ weight.double().T + (0 if bias is None else bias.double())
        known = units[:, best]
        if bias is not None:
            known = torch.cat([known, torch.ones(len(known), 1, dtype=known.dtype)], 1)
        fitted = torch.from_numpy(np.linalg.lstsq(known.numpy(), wanted.numpy(), rcond=None)[0]).float()

        def hook(_module, args, _output):
            kept = args[0][..., best]
            if bias is not None:
                kept = torch.cat([kept, torch.ones(*kept.shape[:-1], 1)], -1)
            return kept @ fitted

        return hook

    projections = [block.get_submodule(of.family.stack.feed_forward_output) for block in of.family.layers(of.model)]
    with removing_hooks([out.register_forward_hook(fit(number)) for number, out in enumerate(projections)]):
        yield


@pytest.mark.parametrize("name", NAMES)
def test_the_cut_equals_the_parent_with_fitted_outputs(name):
    parent = loaded(name)
    before = {key: weight.clone() for key, weight in parent.model.state_dict().items()}
    inputs = example_inputs(parent.model, parent.family)
    activations = random_activations(parent)
    full = states(parent.model, inputs)
    with outputs_fitted(parent, KEPT, activations):
        expected = states(parent.model, inputs)
    assert (expected - full).abs().max() > 1e-2, "the cut changed nothing: the test would prove nothing"

    child = keep_units(parent, KEPT, UnitMoments([moments_of(units) for units in activations]))

    assert type(child.model) is type(parent.model)
    torch.testing.assert_close(states(child.model, inputs), expected, atol=2e-2, rtol=2e-2)  # a ridge keeps it stable
    assert all(torch.equal(before[key], weight) for key, weight in parent.model.state_dict().items())
    assert getattr(child.model.config, parent.family.stack.width_setting) == KEPT
    assert count_units(child.model, child.family) == KEPT
    lost = (count_units(parent.model, parent.family) - KEPT) * parameters_per_unit(parent.model, parent.family)
    old, new = (count_parameters(of.model, of.family).layers for of in (parent, child))
    assert [a - b for a, b in zip(old, new, strict=True)] == [lost] * parent.layers


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2"])
def test_keeping_all_units_changes_nothing(name):
    parent = loaded(name)
    child = keep_units(parent, UNITS, random_moments(parent))
    other = child.model.state_dict()
    assert all(torch.equal(weight, other[key]) for key, weight in parent.model.state_dict().items())


@pytest.mark.parametrize("name", ["bert", "llama", "t5, gated", "gpt2", "bart", "opt"])
def test_moments_leave_padding_out(name):
    """Compared with one text at a time, without padding."""
    parent = loaded(name)
    measured = measure_units(parent, TEXTS, batch_tokens=16)
    seen: list[torch.Tensor] = []
    out = parent.family.layers(parent.model)[1].get_submodule(parent.family.stack.feed_forward_output)
    with removing_hooks([out.register_forward_pre_hook(lambda _m, args: seen.append(args[0].flatten(0, -2)))]):
        for text in TEXTS:
            states(parent.model, dict(parent.tokenizer(text, return_tensors="pt")))
    real = torch.cat(seen).double()
    assert len(real) == sum(len(text.split()) for text in TEXTS)
    torch.testing.assert_close(measured.layers[1], moments_of(real), rtol=1e-3, atol=1e-4)
    assert len(measured.layers) == parent.layers


def test_pairs_count_too():
    parent = loaded("bert")
    texts, pairs = measure_units(parent, TEXTS), measure_units(parent, TEXTS, TEXTS[::-1])
    assert not torch.allclose(texts.layers[0], pairs.layers[0])


def unexplained(weight: torch.Tensor, bias: torch.Tensor, units: torch.Tensor, kept: torch.Tensor) -> float:
    """The share of the output's variance that the best fit to these units leaves."""
    new, shift = fit_output(moments_of(units), weight, bias, kept)
    assert shift is not None
    wanted = units @ weight.double().T + bias.double()
    got = units[:, kept] @ new.double().T + shift.double()
    return float((got - wanted).square().sum() / (wanted - wanted.mean(0)).square().sum())


def test_the_chosen_units_explain_more_than_large_or_random_ones():
    random = torch.Generator().manual_seed(0)
    hidden, units, few = 16, UNITS, 8
    sources = torch.randn(500, 8, generator=random, dtype=torch.float64)
    # Half of the units are large copies of one source, the others small mixtures of all of them.
    loud = 3 * sources[:, :1].expand(-1, units // 2)
    quiet = sources @ torch.randn(8, units // 2, generator=random, dtype=torch.float64)
    activations = torch.cat([loud, quiet], 1) + 0.1 * torch.randn(500, units, generator=random, dtype=torch.float64)
    weight, bias = torch.randn(hidden, units, generator=random), torch.randn(hidden, generator=random)
    chosen = rank_units(moments_of(activations), weight, few, has_bias=True)
    size = activations.square().mean(0).sqrt() * weight.double().norm(dim=0)
    largest = size.argsort(descending=True)[:few]
    some = torch.randperm(units, generator=random)[:few]
    best, *others = (unexplained(weight, bias, activations, kept) for kept in (chosen, largest, some))
    assert best < 0.05
    assert best < 0.5 * min(others)


def test_the_best_few_are_the_beginning_of_the_best_many():
    parent = loaded("bert")
    (weight, bias), moments = output_projection(parent, 0), random_moments(parent).layers[0]
    many = rank_units(moments, weight, 32, has_bias=bias is not None)
    assert torch.equal(many[:8], rank_units(moments, weight, 8, has_bias=bias is not None))
    assert len(set(many.tolist())) == 32


def test_every_unit_explains_most_of_what_is_left():
    random = torch.Generator().manual_seed(3)
    units, count = 3 * BLOCK, 2 * BLOCK + 5
    mixing = torch.randn(units, units, generator=random, dtype=torch.float64)
    activations = torch.randn(400, units, generator=random, dtype=torch.float64) @ mixing
    weight, moments = torch.randn(8, units, generator=random), moments_of(activations)
    left = activations - activations.mean(0)
    # The ridge of the factorisation, as rows of data.
    ridge = (RIDGE * left.square().mean(0).mean() * len(left)) ** 0.5
    left = torch.cat([left, ridge * torch.eye(units, dtype=torch.float64)])
    for unit in rank_units(moments, weight, count, has_bias=True).tolist():
        explained = ((weight.double() @ left.T) @ left).square().sum(0) / left.square().sum(0).clamp(min=1e-9)
        assert explained[unit] >= 0.999 * explained.max()
        left = left - torch.outer(left[:, unit], left[:, unit] @ left) / left[:, unit].square().sum()


def test_units_that_never_vary():
    weight, bias = torch.ones(4, UNITS), torch.zeros(4)
    moments = torch.zeros(UNITS + 1, UNITS + 1)
    moments[-1, -1] = 1
    kept = rank_units(moments, weight, 3, has_bias=True)
    new, shift = fit_output(moments, weight, bias, kept)
    assert len(set(kept.tolist())) == 3
    assert shift is not None
    assert torch.isfinite(new).all()
    assert torch.isfinite(shift).all()


def test_layers_and_units_in_either_order():
    parent, kept = loaded("bert", "sentence"), (4, 2)
    moments = random_moments(parent)
    first = keep_layers(keep_units(parent, KEPT, moments), kept)
    second = keep_units(keep_layers(parent, kept), KEPT, moments, kept)
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_says_whether_its_width_can_change(name):
    family = FAMILIES[name]
    assert (why_width_is_fixed(family) == "") is (name not in FUSED)
    if name in FUSED:
        empty = build_on_meta(family, AutoConfig.for_model(family.model_types[0]))
        with pytest.raises(UserError, match=f"of {name} models cannot be dropped: gates and units are one matrix"):
            count_units(empty, family)


def test_a_detected_family_keeps_its_width():
    assert "are not described" in why_width_is_fixed(find_family(AutoConfig.for_model("olmo2")))


def test_a_decoder_of_the_same_width():
    parent = loaded("t5", "lm")
    with pytest.raises(UserError, match="one feed-forward width for encoder and decoder") as refused:
        keep_units(parent, KEPT, UnitMoments([torch.zeros(UNITS + 1, UNITS + 1)] * parent.layers))
    assert "--encoder-only" in refused.value.hint


@pytest.mark.parametrize("count", [0, -1, UNITS + 1])
def test_wrong_counts(count):
    parent = loaded("bert")
    with pytest.raises(UserError, match=f"{count} feed-forward units cannot be kept: a layer of this model has 64"):
        keep_units(parent, count, random_moments(parent))


def test_moments_of_another_model_and_no_texts():
    parent = loaded("bert")
    good = random_moments(parent).layers
    for moments in (good[:2], [each[:3, :3] for each in good]):
        with pytest.raises(UserError, match="4 layers with 64 units each"):
            keep_units(parent, KEPT, UnitMoments(list(moments)))
    with pytest.raises(UserError, match="there are none"):
        measure_units(parent, [])


@pytest.mark.slow
def test_a_fresh_process_loads_it(tmp_path):
    parent = loaded("bert", "sentence")
    child = keep_units(parent, KEPT, measure_units(parent, TEXTS))
    save_model(child, {"width": KEPT}, tmp_path / "saved")
    record = json.loads((tmp_path / "saved" / "probescale.json").read_text())
    assert record["proof"]["to_the_bit"]
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    batch = parent.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(again(**batch).logits, child.model(**batch).logits)


@pytest.mark.real
@pytest.mark.slow
def test_real_weights():
    """A quarter of the units: closer to the parent when chosen and fitted than when fitted alone."""
    parent = load_as_saved(str(real_weights("minilm")))
    texts = ["a charming and often affecting journey .", "unflinchingly bleak and desperate", "What is it about ?"] * 20
    texts += [
        f"{text} {word}"
        for text in texts[:3]
        for word in ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    ]
    moments = measure_units(parent, texts)
    count = count_units(parent.model, parent.family) // 4
    batch = dict(parent.tokenizer(texts[0], return_tensors="pt"))
    full = states(parent.model, batch)
    random = UnitMoments(moments.layers)
    for number in range(parent.layers):
        random._orders[number] = torch.randperm(4 * count, generator=torch.Generator().manual_seed(number))
    errors = [float((states(keep_units(parent, count, way).model, batch) - full).norm()) for way in (moments, random)]
    assert errors[0] < 0.5 * errors[1]
