"""States of layers, sublayers and heads are where every family's description says."""

from __future__ import annotations

import itertools

import pytest
import torch
from transformers import AutoConfig

from probescale.errors import UserError
from probescale.models.families import FAMILIES, find_family
from probescale.models.family import Family
from probescale.models.loading import LoadedModel, compute_fingerprint
from probescale.models.proof.reference import example_inputs
from probescale.models.proof.twin import build_twin, build_twin_tokenizer
from probescale.probing.sites import hook_sites, list_sites


def loaded_twin(model_type: str) -> LoadedModel:
    config = AutoConfig.for_model(model_type)
    family: Family = find_family(config)
    model = build_twin(config, family, "sentence")
    assert model is not None
    return LoadedModel(model, build_twin_tokenizer(), family, model_type, compute_fingerprint(model))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_site_of_every_family_is_passed_once_with_its_width(name):
    loaded = loaded_twin(FAMILIES[name].model_types[0])
    sites = list_sites(loaded, ("layer", "sublayer", "head"))
    assert len(sites) == 1 + 4 * 4  # embeddings; of four layers the output, attention, feed-forward part, heads
    seen: dict[int, list[torch.Tensor]] = {}
    inputs = example_inputs(loaded.model, loaded.family)
    with torch.no_grad(), hook_sites(sites, lambda site, state: seen.setdefault(site, []).append(state)):
        loaded.model(**inputs)
    assert sorted(seen) == list(range(len(sites)))
    for number, site in enumerate(sites):
        (state,) = seen[number]
        assert state.shape == (*inputs["input_ids"].shape, site.width)
    layers = [seen[number][0] for number, site in enumerate(sites) if site.part == "layer"]
    assert all(not torch.equal(lower, upper) for lower, upper in itertools.pairwise(layers))


def test_parts_of_a_layer_that_are_not_described():
    loaded = loaded_twin("bloom")
    assert len(list_sites(loaded, ("layer",))) == 5
    with pytest.raises(UserError, match=r"parts in a layer of .* are not described"):
        list_sites(loaded, ("layer", "head"))
