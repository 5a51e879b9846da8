"""What a loss counts: labels, a teacher's answers, or both, each where it is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from probescale.recovery.objective import Objective
from probescale.tasks.kinds.losses import SquaredError

NAN = math.nan
LOGITS = torch.tensor([[2.0, -1.0], [0.5, 0.0], [-3.0, 1.0]])
ANSWERS = torch.tensor([[1.0, 0.0], [0.0, 4.0], [-1.0, 1.0]])
ROWS = torch.arange(3)


def kl(logits, answers, temperature=1.0):
    wanted = (answers / temperature).softmax(-1)
    own = (logits / temperature).log_softmax(-1)
    return (wanted * (wanted.log() - own)).sum(-1) * temperature**2


def test_labels_alone_are_cross_entropy():
    objective = Objective(torch.tensor([0.0, 1.0, 1.0]))
    assert objective.loss(LOGITS, ROWS).item() == pytest.approx(
        functional.cross_entropy(LOGITS, torch.tensor([0, 1, 1])).item()
    )


def test_rows_without_a_label_do_not_count():
    objective = Objective(torch.tensor([0.0, NAN, 1.0]))
    expected = functional.cross_entropy(LOGITS[[0, 2]], torch.tensor([0, 1])).item()
    assert objective.loss(LOGITS, ROWS).item() == pytest.approx(expected)
    assert objective.loss(LOGITS[1:2], ROWS[1:2]).item() == 0  # not NaN: a batch may have none


def test_class_weights_are_those_of_cross_entropy_and_leave_the_teacher_alone():
    weights, labels = torch.tensor([0.5, 4.0]), torch.tensor([0.0, 1.0, NAN])
    apart = functional.cross_entropy(LOGITS[:2], torch.tensor([0, 1]), weight=weights, reduction="none")
    assert Objective(labels, class_weights=weights).loss(LOGITS, ROWS).item() == pytest.approx(apart.mean().item())
    taught = Objective(labels, class_weights=weights, teacher_logits=ANSWERS, teacher_share=0.25)
    expected = torch.cat([0.75 * apart, torch.zeros(1)]) + torch.tensor([0.25, 0.25, 1.0]) * kl(LOGITS, ANSWERS)
    assert taught.loss(LOGITS, ROWS).item() == pytest.approx(expected.mean().item(), rel=1e-5)


def test_the_best_constant_predictor_counts_rows_as_the_loss_does():
    labels = torch.tensor([0.0] * 90 + [1.0] * 10)
    rows, logits = torch.arange(100), torch.zeros(100, 2)
    for weights, share in ((None, 0.1), (torch.tensor([100 / 180, 5.0]), 0.5)):
        objective = Objective(labels, class_weights=weights)
        constant = objective.constant_logits(logits, rows)
        assert constant[0].softmax(0)[1].item() == pytest.approx(share)
        other = constant + torch.tensor([0.0, 0.2])
        assert objective.loss(constant, rows) < objective.loss(other, rows)


@pytest.mark.parametrize("soft", [0.0, 0.3, 1.0])
def test_a_label_and_an_answer_share_the_loss_and_an_answer_alone_takes_all(soft):
    objective = Objective(torch.tensor([0.0, NAN, NAN]), teacher_logits=ANSWERS, teacher_share=soft, temperature=2.0)
    apart = kl(LOGITS, ANSWERS, 2.0)
    first = (1 - soft) * functional.cross_entropy(LOGITS[:1], torch.tensor([0])) + soft * apart[0]
    assert objective.loss(LOGITS, ROWS).item() == pytest.approx(((first + apart[1] + apart[2]) / 3).item(), rel=1e-5)


def test_a_word_that_the_teacher_did_not_see_learns_from_its_label():
    answers = ANSWERS.clone()
    answers[1:] = NAN
    objective = Objective(torch.tensor([NAN, 1.0, NAN]), teacher_logits=answers, teacher_share=1.0)
    expected = (kl(LOGITS, ANSWERS)[0] + functional.cross_entropy(LOGITS[1:2], torch.tensor([1]))) / 2
    assert objective.loss(LOGITS, ROWS).item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_right_answer_costs_nothing():
    objective = Objective(torch.full((3,), NAN), teacher_logits=ANSWERS)
    assert objective.loss(ANSWERS, ROWS).item() == pytest.approx(0, abs=1e-6)


def test_quantities_are_squared_distances():
    labels, answers = torch.tensor([1.0, NAN]), torch.tensor([[3.0], [5.0]])
    objective = Objective(labels, criterion=SquaredError(), teacher_logits=answers, teacher_share=0.5)
    logits = torch.tensor([[2.0], [2.0]])
    assert objective.loss(logits, torch.arange(2)).item() == pytest.approx((0.5 * 1 + 0.5 * 1 + 9) / 2)


def test_rows_are_looked_up_by_number():
    objective = Objective(torch.tensor([0.0, 1.0, 1.0]))
    assert objective.loss(LOGITS[[2, 0]], torch.tensor([2, 0])).item() == pytest.approx(
        functional.cross_entropy(LOGITS[[2, 0]], torch.tensor([1, 0])).item()
    )


def test_states_are_compared_by_share_of_their_length():
    wanted = torch.tensor([[[3.0, 4.0]], [[0.0, 2.0]]])  # (inputs, layers, hidden)
    objective = Objective(torch.zeros(2), states=wanted)
    found = torch.tensor([[[0.0, 2.0]], [[3.0, 4.0]]])
    assert objective.state_loss(found, torch.tensor([1, 0])).item() == 0
    assert objective.state_loss(found, torch.tensor([0, 1])).item() == pytest.approx((13 / 25 + 13 / 4) / 2)


def test_the_best_single_answer():
    mixed = Objective(torch.tensor([0.0, NAN, 1.0]), teacher_logits=ANSWERS)
    shares = (torch.tensor([1.0, 0.0]) + ANSWERS[1].softmax(-1) + torch.tensor([0.0, 1.0])) / 3
    torch.testing.assert_close(mixed.constant_logits(LOGITS, ROWS).softmax(-1), shares.expand(3, 2))
    labels, answers = torch.tensor([1.0, NAN, 3.0]), torch.tensor([[9.0], [5.0], [9.0]])
    numbers = Objective(labels, criterion=SquaredError(), teacher_logits=answers)
    assert numbers.constant_logits(LOGITS[:, :1], ROWS).flatten().tolist() == [3.0, 3.0, 3.0]
