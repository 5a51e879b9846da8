"""Which feed-forward units of a layer to keep, and the output projection that makes the best of them.

The output of a layer's feed-forward part is a linear map of its units. Without some units, the best that is left is
the least-squares fit of that output by the others. It needs only the moments of the units: the mean product of every
two of them over the tokens of some texts.
"""

from __future__ import annotations

import torch
from torch import Tensor

RIDGE = 1e-4  # of the mean variance of a unit: texts are only a sample
BLOCK = 32  # units taken between two updates of the whole output
TINY = 1e-12  # keeps units that never vary from a division by zero


def rank_units(moments: Tensor, weight: Tensor, count: int, *, has_bias: bool) -> Tensor:
    """The `count` best units, best first: each explains most of the output that those before it leave unexplained.

    `moments`: (units + 1, units + 1), the last entry that of a constant 1. `weight`: (hidden, units). This is a pivoted
    Cholesky factorisation of the units' covariance, with pivots chosen by what they explain of the output.
    """
    covariance = _with_ridge(_covariance(moments) if has_bias else moments[:-1, :-1].double())
    variance = covariance.diagonal().clone()
    # (hidden, units): what of the output goes along with each unit. What the units taken explain is subtracted for
    # a whole block of them at a time, since the matrix is large: (hidden, block) times (block, units).
    outputs = weight.double() @ covariance
    explained = outputs.square().sum(0)
    factor = covariance.new_empty(count, len(covariance))
    block = outputs.new_empty(len(outputs), BLOCK)
    taken = torch.zeros(len(covariance), dtype=torch.bool)
    order: list[int] = []
    for step in range(count):
        first = step - step % BLOCK
        rows = factor[first:step]
        unit = int((explained / variance.clamp(min=TINY)).masked_fill(taken, -1).argmax())
        scale = variance[unit].clamp(min=TINY).sqrt()
        factor[step] = row = (covariance[unit] - factor[:step, unit] @ factor[:step]) / scale
        done = block[:, : step - first]
        block[:, step - first] = column = (outputs[:, unit] - done @ rows[:, unit]) / scale
        overlap = column @ outputs - (column @ done) @ rows
        explained += row * (row * column.square().sum() - 2 * overlap)
        variance -= row.square()
        taken[unit] = True
        order.append(unit)
        if step + 1 - first == BLOCK:
            outputs -= block @ factor[first : step + 1]
            explained = outputs.square().sum(0)  # without the rounding errors of single steps
    return torch.tensor(order)


def fit_output(moments: Tensor, weight: Tensor, bias: Tensor | None, kept: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the output projection that best replaces the given one where only these units are left.

    `weight`: (hidden, units); the new one has a column for each of `kept`, in that order. With all units it does not
    change.
    """
    units = weight.shape[1]
    if len(kept) == units:
        return weight[:, kept], bias
    if bias is None:
        every, known = weight.double(), kept
        second = moments.double()[:-1, :-1]
    else:  # the bias is the weight of the constant
        every, known = torch.cat([weight, bias[:, None]], 1).double(), torch.cat([kept, torch.tensor([units])])
        second = moments.double()
    among = second[known][:, known]
    penalty = (TINY + RIDGE * among.diagonal()[: len(kept)].mean()) * torch.ones(len(known), dtype=torch.float64)
    penalty[len(kept) :] = 0
    # The penalty is on the distance to the old weights: what the texts do not determine stays as it was.
    fitted = torch.linalg.solve(among + penalty.diag(), second[known] @ every.T + penalty[:, None] * every.T[known])
    new = fitted.T.to(weight)
    return (new, None) if bias is None else (new[:, :-1], new[:, -1])


def _covariance(moments: Tensor) -> Tensor:
    second = moments.double()
    return second[:-1, :-1] - torch.outer(second[:-1, -1], second[-1, :-1])


def _with_ridge(covariance: Tensor) -> Tensor:
    return covariance + RIDGE * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=covariance.dtype)
