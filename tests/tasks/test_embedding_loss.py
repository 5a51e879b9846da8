"""The loss of embeddings, with all of their numbers and with the first ones alone."""

from __future__ import annotations

import torch

from probescale.tasks.kinds.losses import CrossEntropy, EmbeddingDistance


def test_the_first_numbers_have_to_tell_texts_apart():
    wanted = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    wanted[:, 4:] *= 0.01  # nearly all is in the first numbers
    moved = wanted.flip(1)
    plain, short = EmbeddingDistance(), EmbeddingDistance().for_first((4,))
    assert plain.of_teacher(wanted, wanted, 1.0).abs().max() < 1e-5, "nothing is lost by the teacher's own vectors"
    assert short.of_teacher(wanted, wanted, 1.0).mean() < 0.01
    lost = short.of_teacher(moved, wanted, 1.0) - plain.of_teacher(moved, wanted, 1.0)
    assert lost.mean() > 0.1, "the same similarities, but not in the first numbers"


def test_other_losses_have_no_first_numbers():
    loss = CrossEntropy()
    assert loss.for_first((4,)) is loss
