"""Subnetworks run inside the model equal the cut models, and share the layers that they start with."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoConfig

from helpers.data import labelled_rows
from helpers.models import LAYERS, tiny_tokenizer
from probescale.models.block_calls import record_calls
from probescale.models.families import FAMILIES
from probescale.models.family import backbone
from probescale.models.heads import stock_class_name
from probescale.models.loading import LoadedModel, compute_fingerprint, load_as_saved
from probescale.models.proof.twin import build_twin_config
from probescale.models.subsets import all_contiguous_blocks, count_passes, format_subset
from probescale.models.surgery import keep_layers
from probescale.probing.cache import Store
from probescale.probing.represent import PassSettings, Request, represent
from probescale.probing.subnetworks import list_subnetwork_sites, run_subnetworks
from probescale.tasks.data import Examples

SAVED = ("bert", "mpnet", "t5")
BUILT = ("llama", "gpt2", "modernbert", "bart")
TEXTS = tuple(text * (1 + number % 2) for number, (text, _) in enumerate(labelled_rows(8, seed=5)))
DATA = Examples(TEXTS, None, (0, 1) * 4, ("a", "b"))
SUBSETS = [(3,), (1, 2), (2, 3), (1, 3), (1, 3, 4)]


@pytest.fixture(scope="module")
def any_model(model_folder):
    models: dict[str, LoadedModel] = {}

    def load(name: str) -> LoadedModel:
        if name not in models:
            models[name] = load_as_saved(str(model_folder(name))) if name in SAVED else build_model(name)
        return models[name]

    return load


def build_model(model_type: str) -> LoadedModel:
    """A tiny model of another family with a real tokenizer; large weights make its layers differ."""
    tokenizer, family = tiny_tokenizer("roberta"), FAMILIES[model_type]
    config = build_twin_config(AutoConfig.for_model(model_type), family)
    config.vocab_size, config.pad_token_id, config.bos_token_id, config.eos_token_id = len(tokenizer), 1, 0, 2
    transformers.set_seed(0)
    model = getattr(transformers, stock_class_name(family, config, "none") or "")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
    return LoadedModel(model, tokenizer, family, model_type, compute_fingerprint(model))


def compute_states(loaded, **options):
    with Store.open(keep=False) as store:
        features = represent(loaded, [Request(DATA, "mean")], store, PassSettings(max_length=48, **options))[0]
        return {site: features.load(site, np.arange(len(features))) for site in features.widths}


def allowed(loaded, subsets):
    fixed = loaded.family.fixed(loaded.model.config)
    return [subset for subset in subsets if set(fixed) <= set(subset)]


@pytest.mark.parametrize("name", [*SAVED, *BUILT])
def test_a_subnetwork_ends_with_the_states_of_the_model_that_is_cut(any_model, name):
    loaded = any_model(name)
    subsets = allowed(loaded, SUBSETS)
    inside = compute_states(loaded, subnetworks=subsets)
    assert list(inside) == [format_subset(subset) for subset in subsets]
    for subset in subsets:
        cut = compute_states(keep_layers(loaded, subset))[f"layer-{len(subset):03d}"]
        np.testing.assert_allclose(inside[format_subset(subset)], cut, rtol=1e-4, atol=1e-5)
    assert all(not np.allclose(a, b, atol=1e-3) for a, b in itertools.combinations(inside.values(), 2))


@pytest.mark.parametrize("name", ["bert", "t5", "llama", "modernbert"])
def test_the_batch_size_does_not_change_a_subnetwork(any_model, name):
    loaded = any_model(name)
    subsets = allowed(loaded, SUBSETS)
    together, alone = (compute_states(loaded, subnetworks=subsets, batch_tokens=tokens) for tokens in (100_000, 1))
    for site, states in together.items():
        np.testing.assert_allclose(alone[site], states, rtol=1e-4, atol=1e-5)


def test_the_order_of_the_subsets_is_that_of_the_sites(any_model):
    loaded = any_model("bert")
    forward, backward = (compute_states(loaded, subnetworks=some) for some in (SUBSETS, SUBSETS[::-1]))
    assert list(backward) == list(forward)[::-1]
    for site, states in forward.items():
        np.testing.assert_array_equal(states, backward[site])


@pytest.mark.parametrize("name", ["bert", "t5", "gpt2"])
@pytest.mark.parametrize("subsets", [all_contiguous_blocks(LAYERS, LAYERS), [(2, 4), (1, 2)], [(1, 2, 3)]])
def test_blocks_are_called_as_often_as_count_passes_says(any_model, name, subsets):
    loaded = any_model(name)
    calls = []
    hooks = [block.register_forward_hook(lambda *_: calls.append(1)) for block in loaded.family.layers(loaded.model)]
    compute_states(loaded, subnetworks=subsets, batch_tokens=100_000)
    for hook in hooks:
        hook.remove()
    assert len(calls) == count_passes(subsets, LAYERS) * LAYERS


def test_every_block_of_twelve_layers_costs_less_than_eight_passes():
    subsets = all_contiguous_blocks(12, 12)
    assert len(subsets) == 78
    assert count_passes(subsets, 12) <= 8


def test_a_subset_is_received_once_and_under_its_number(any_model):
    loaded = any_model("t5")
    inputs = dict(loaded.tokenizer(list(TEXTS[:3]), return_tensors="pt", padding=True))
    received: dict[int, torch.Tensor] = {}
    numbers: list[int] = []

    def receive(number, state):
        numbers.append(number)
        received[number] = state

    with torch.inference_mode():
        run_subnetworks(loaded, SUBSETS, inputs, receive)
        own = backbone(loaded.model)(**inputs, output_hidden_states=True).hidden_states
    assert sorted(numbers) == list(range(len(SUBSETS)))
    torch.testing.assert_close(received[SUBSETS.index((1, 2))], own[2])
    assert [site.name for site in list_subnetwork_sites(loaded, SUBSETS)] == [
        format_subset(subset) for subset in SUBSETS
    ]
    assert {site.width for site in list_subnetwork_sites(loaded, SUBSETS)} == {32}


def test_a_run_leaves_no_hook_behind_even_when_it_fails(any_model):
    loaded = any_model("bert")
    blocks = list(loaded.family.layers(loaded.model))

    def fail():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        record_calls(blocks, fail, outputs=True)
    compute_states(loaded, subnetworks=[(2,)])
    assert not any(block._forward_hooks or block._forward_pre_hooks for block in blocks)


def test_subnetworks_and_layers_are_kept_apart_in_the_cache(any_model):
    """With the same model and texts, other sites make another entry."""
    loaded = any_model("bert")
    with Store.open(keep=False) as store:
        first, second, layers = (
            represent(loaded, [Request(DATA, "mean")], store, PassSettings(subnetworks=subsets))[0]
            for subsets in ([(1,)], [(2,)], ())
        )
        rows = np.arange(len(DATA))
        np.testing.assert_allclose(first.load("1", rows), layers.load("layer-001", rows), atol=1e-6)
        assert list(second.widths) == ["2"]
