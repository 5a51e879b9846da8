"""A model without some feed-forward units equals its parent with those units fixed at their mean, or at zero."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel, T5Config

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
from probescale.models.shrink.units import count_units, keep_units, parameters_per_unit, score_units, why_width_is_fixed
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


def random_values(of: LoadedModel, seed: int = 0) -> list[np.ndarray]:
    """One value for every unit of every layer."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=count_units(of.model, of.family)) for _ in range(of.layers)]


def states(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return backbone(model)(**inputs)[0]


@contextmanager
def units_fixed(
    of: LoadedModel, count: int, scores: Sequence[np.ndarray], values: Sequence[np.ndarray]
) -> Iterator[None]:
    """The independent route: in the parent, all units but the best have these values, whatever the input."""

    def hold(number: int):
        dropped = np.argsort(-scores[number])[count:]

        def hook(_module, args):
            changed = args[0].clone()
            changed[..., dropped] = torch.from_numpy(values[number][dropped]).to(changed)
            return (changed,)

        return hook

    projections = [block.get_submodule(of.family.stack.feed_forward_output) for block in of.family.layers(of.model)]
    with removing_hooks([out.register_forward_pre_hook(hold(number)) for number, out in enumerate(projections)]):
        yield


@pytest.mark.parametrize("name", NAMES)
def test_the_cut_equals_the_parent_with_units_fixed(name):
    parent = loaded(name)
    before = {key: weight.clone() for key, weight in parent.model.state_dict().items()}
    inputs = example_inputs(parent.model, parent.family)
    scores, means = random_values(parent), random_values(parent, 1)
    out = parent.family.layers(parent.model)[0].get_submodule(parent.family.stack.feed_forward_output)
    folded = getattr(out, "bias", None) is not None
    full = states(parent.model, inputs)
    with units_fixed(parent, KEPT, scores, means if folded else [0 * row for row in means]):
        expected = states(parent.model, inputs)
    assert (expected - full).abs().max() > 1e-2, "the cut changed nothing: the test would prove nothing"

    child = keep_units(parent, KEPT, scores, means)

    assert type(child.model) is type(parent.model)
    torch.testing.assert_close(states(child.model, inputs), expected, atol=1e-5, rtol=1e-4)
    assert all(torch.equal(before[key], weight) for key, weight in parent.model.state_dict().items())
    assert getattr(child.model.config, parent.family.stack.width_setting) == KEPT
    assert count_units(child.model, child.family) == KEPT
    lost = (count_units(parent.model, parent.family) - KEPT) * parameters_per_unit(parent.model, parent.family)
    old, new = (count_parameters(of.model, of.family).layers for of in (parent, child))
    assert [a - b for a, b in zip(old, new, strict=True)] == [lost] * parent.layers


def test_without_means_dropped_units_are_zero():
    parent = loaded("bert")
    inputs = example_inputs(parent.model, parent.family)
    scores = random_values(parent)
    with units_fixed(parent, KEPT, scores, [0 * row for row in scores]):
        expected = states(parent.model, inputs)
    torch.testing.assert_close(states(keep_units(parent, KEPT, scores).model, inputs), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2"])
def test_keeping_all_units_changes_nothing(name):
    parent = loaded(name)
    child = keep_units(parent, UNITS, random_values(parent), random_values(parent, 1))
    other = child.model.state_dict()
    assert all(torch.equal(weight, other[key]) for key, weight in parent.model.state_dict().items())


@pytest.mark.parametrize("name", ["bert", "llama", "t5, gated", "gpt2", "bart", "opt"])
def test_scores_leave_padding_out(name):
    """Compared with one text at a time, without padding."""
    parent = loaded(name)
    statistics = score_units(parent, TEXTS, batch_tokens=16)
    seen: list[torch.Tensor] = []
    out = parent.family.layers(parent.model)[1].get_submodule(parent.family.stack.feed_forward_output)
    with removing_hooks([out.register_forward_pre_hook(lambda _m, args: seen.append(args[0].flatten(0, -2)))]):
        for text in TEXTS:
            states(parent.model, dict(parent.tokenizer(text, return_tensors="pt")))
    real = torch.cat(seen).double()
    assert len(real) == sum(len(text.split()) for text in TEXTS)
    weight = out.get_parameter("weight").detach().double()
    size = real.square().mean(0).sqrt() * weight.norm(dim=1 if name == "gpt2" else 0)
    np.testing.assert_allclose(statistics.scores[1], size.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(statistics.means[1], real.mean(0).numpy(), rtol=1e-4, atol=1e-6)
    assert len(statistics.scores) == len(statistics.means) == parent.layers


def test_pairs_count_too():
    parent = loaded("bert")
    texts, pairs = score_units(parent, TEXTS), score_units(parent, TEXTS, TEXTS[::-1])
    assert not np.allclose(texts.means[0], pairs.means[0])


def test_the_best_units_lose_least():
    parent = loaded("bert")
    statistics = score_units(parent, TEXTS)
    batch = dict(parent.tokenizer(TEXTS[0], return_tensors="pt"))
    full = states(parent.model, batch)
    worst = [-row for row in statistics.scores]
    good, bad = (states(keep_units(parent, 48, s, statistics.means).model, batch) for s in (statistics.scores, worst))
    assert (good - full).norm() < (bad - full).norm()


def test_layers_and_units_in_either_order():
    parent, kept = loaded("bert", "sentence"), (4, 2)
    scores, means = random_values(parent), random_values(parent, 1)
    first = keep_layers(keep_units(parent, KEPT, scores, means), kept)
    second = keep_units(keep_layers(parent, kept), KEPT, [scores[n - 1] for n in kept], [means[n - 1] for n in kept])
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
        keep_units(parent, KEPT, [np.zeros(UNITS)] * parent.layers)
    assert "--encoder-only" in refused.value.hint


@pytest.mark.parametrize("count", [0, -1, UNITS + 1])
def test_wrong_counts(count):
    parent = loaded("bert")
    with pytest.raises(UserError, match=f"{count} feed-forward units cannot be kept: a layer of this model has 64"):
        keep_units(parent, count, random_values(parent))


def test_scores_of_another_model_and_no_texts():
    parent = loaded("bert")
    good = random_values(parent)
    for scores, means in [(good[:2], None), ([row[:3] for row in good], None), (good, good[1:])]:
        with pytest.raises(UserError, match="4 layers with one value for each of 64 units"):
            keep_units(parent, KEPT, scores, means)
    with pytest.raises(UserError, match="there are none"):
        score_units(parent, [])


@pytest.mark.slow
def test_a_fresh_process_loads_it(tmp_path):
    parent = loaded("bert", "sentence")
    statistics = score_units(parent, TEXTS)
    child = keep_units(parent, KEPT, statistics.scores, statistics.means)
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
    """Three quarters of the units with the means of the others are closer to the parent than zeros, or other units."""
    parent = load_as_saved(str(real_weights("minilm")))
    texts = ["a charming and often affecting journey .", "unflinchingly bleak and desperate", "What is it about ?"]
    statistics = score_units(parent, texts)
    count = count_units(parent.model, parent.family) * 3 // 4
    batch = dict(parent.tokenizer(texts[0], return_tensors="pt"))
    full = states(parent.model, batch)
    ways = [(statistics.scores, statistics.means), (statistics.scores, None), (random_values(parent), statistics.means)]
    errors = [float((states(keep_units(parent, count, *way).model, batch) - full).norm()) for way in ways]
    assert errors[0] < errors[1]
    assert errors[0] < 0.5 * errors[2]
