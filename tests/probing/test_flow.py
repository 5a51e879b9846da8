"""Flow, against the same figures computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.data import labelled_rows
from helpers.models import LAYERS
from probescale.models.loading import load_as_saved
from probescale.probing.flow import measure_flow
from probescale.tasks.data import Examples

TEXTS = tuple(" ".join([text] * (1 + number % 2)) for number, (text, _) in enumerate(labelled_rows(9, seed=6)))
DATA = Examples(TEXTS, None, (0, 1, 0) * 3, ("a", "b"))
PAIRS = Examples(TEXTS, TEXTS[::-1], DATA.labels, DATA.names)


@pytest.fixture(scope="module", params=["bert", "t5"])
def loaded(request, model_folder):
    return load_as_saved(str(model_folder(request.param)))


def states_by_hand(loaded, texts, pairs=None):
    """(tokens of all texts, points, hidden): one text at a time, so that there is no padding at all."""
    blocks = loaded.family.layers(loaded.model)
    seen: list[torch.Tensor] = []

    def before(_block, args, kwargs):
        seen.append((args[0] if args else kwargs["hidden_states"])[0])

    def after(_block, _args, output):
        seen.append((output[0] if isinstance(output, tuple) else output)[0])

    handles = [blocks[0].register_forward_pre_hook(before, with_kwargs=True)]
    handles += [block.register_forward_hook(after) for block in blocks]
    rows = []
    with torch.no_grad():
        for number, text in enumerate(texts):
            seen.clear()
            pair = pairs[number] if pairs else None
            loaded.model(**loaded.tokenizer(text, pair, truncation=True, max_length=128, return_tensors="pt"))
            rows.append(torch.stack(seen, 1).double())
    for handle in handles:
        handle.remove()
    return torch.cat(rows).numpy()


def cosine(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


@pytest.mark.parametrize("data", [DATA, PAIRS], ids=["texts", "pairs"])
def test_influence_and_angles_are_means_over_real_tokens(loaded, data):
    states = states_by_hand(loaded, data.texts, data.pairs)
    result = measure_flow(loaded, data, batch_tokens=100_000)
    influence = [1 - cosine(states[:, i], states[:, i + 1]).mean() for i in range(LAYERS)]
    np.testing.assert_allclose(result.influence, influence, atol=1e-5)
    assert np.ptp(influence) > 1e-3, "layers differ, else this shows nothing"
    by_hand = [[np.arccos(np.clip(cosine(a, b), -1, 1)).mean() / np.pi for b in states.swapaxes(0, 1)]
               for a in states.swapaxes(0, 1)]  # fmt: skip
    np.testing.assert_allclose(result.angles, by_hand, atol=1e-4)
    assert result.texts == len(data)


def test_neither_batch_size_nor_padding_counts(loaded):
    together, alone = (measure_flow(loaded, DATA, batch_tokens=tokens) for tokens in (100_000, 1))
    np.testing.assert_allclose(together.influence, alone.influence, atol=1e-5)
    np.testing.assert_allclose(together.angles, alone.angles, atol=1e-4)


def test_angles_are_distances(loaded):
    angles = np.array(measure_flow(loaded, DATA).angles)
    assert angles.shape == (LAYERS + 1, LAYERS + 1)
    assert (np.diagonal(angles) == 0).all()
    np.testing.assert_allclose(angles, angles.T, atol=1e-6)
    assert (angles[~np.eye(LAYERS + 1, dtype=bool)] > 0).all()
    assert (angles <= 1).all()


def test_long_texts_are_cut_to_the_longest_input(loaded):
    cut = measure_flow(loaded, DATA, max_length=8)
    ids = loaded.tokenizer(list(DATA.texts), truncation=True, max_length=8)["input_ids"]
    assert {len(row) for row in ids} == {8}
    assert cut.influence != measure_flow(loaded, DATA).influence


def test_it_can_be_saved_and_leaves_no_hook(loaded):
    result = measure_flow(loaded, DATA)
    assert type(result).model_validate_json(result.model_dump_json()) == result
    assert not any(block._forward_hooks or block._forward_pre_hooks for block in loaded.family.layers(loaded.model))
