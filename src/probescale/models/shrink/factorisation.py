"""The weights of factorised embeddings, from embedding tables of the full width.

BERT applies a layer norm to the embeddings at the full width, ELECTRA before the projection. A layer norm subtracts the
mean, which is linear, and divides by the norm, which a rotation does not change. Rows are therefore written in their
principal axes, rotated to be orthogonal to (1, ..., 1), and the projection rotates them back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from probescale.errors import UserError

TABLES = tuple(f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type"))
NORM, PROJECTION = "embeddings.LayerNorm", "embeddings_project"
UNSEEN_SHARE = 0.05  # of all tokens of future texts: those that the counted texts do not have
TYPICAL_LENGTH = 64  # tokens of a text: later positions weigh less and less
CHUNK_ROWS = 8192  # of a table, converted to double precision at a time


def factorise(body: Mapping[str, Tensor], rank: int, token_shares: Tensor) -> dict[str, Tensor]:
    """Narrow embedding tables, their norm, and the projection behind it (see the module's docstring)."""
    tables = [body[name] for name in TABLES]
    shares = [token_shares, _position_shares(len(tables[1])), _uniform_shares(len(tables[2]))]
    axes = _principal_axes(tables, shares, rank - 1)
    width, kind = tables[0].shape[1], tables[0]
    rotation = axes @ _basis_without_mean(rank).T  # (width, rank)
    scale = (rank / width) ** 0.5  # keeps the size of single values, so that the norm's epsilon matters as before
    gain, shift = (_double(body[f"{NORM}.{part}"]) for part in ("weight", "bias"))
    projection, bias = torch.eye(width, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    if f"{PROJECTION}.weight" in body:  # an ELECTRA model that becomes narrower
        projection, bias = (_double(body[f"{PROJECTION}.{part}"]) for part in ("weight", "bias"))
    weights = {name: _rows_times(table, rotation * scale) for name, table in zip(TABLES, tables, strict=True)}
    weights |= {f"{NORM}.weight": torch.ones(rank), f"{NORM}.bias": torch.zeros(rank)}
    weights |= {f"{PROJECTION}.weight": projection @ (gain.unsqueeze(1) * rotation) / scale}
    weights |= {f"{PROJECTION}.bias": projection @ shift + bias}
    return {name: tensor.to(kind) for name, tensor in weights.items()}


def held_variance(table: Tensor, shares: Tensor) -> Tensor:
    """The share of the variance of a table's rows, drawn by their shares, in the first 1, 2, ... principal axes."""
    covariance, _ = _covariance_and_mean(table, shares)
    values = torch.linalg.eigvalsh(covariance).flip(0).clamp(min=0)
    return values.cumsum(0) / values.sum()


def token_shares(vocabulary: int, counts: np.ndarray | None, special: Sequence[int]) -> Tensor:
    """The expected share of each token; `special`: ids around every text, whether or not they were counted."""
    if counts is None:
        return _uniform_shares(vocabulary)
    seen = torch.tensor(counts, dtype=torch.float64)
    if seen.shape != (vocabulary,) or not torch.isfinite(seen).all() or (seen < 0).any() or seen.sum() == 0:
        raise UserError(f"counts need {vocabulary} numbers, one per token, not all 0", field="counts")
    seen[special] = seen[special].clamp(min=float(seen.sum()) / TYPICAL_LENGTH)
    return (1 - UNSEEN_SHARE) * seen / seen.sum() + UNSEEN_SHARE * _uniform_shares(vocabulary)


def _principal_axes(tables: Sequence[Tensor], shares: Sequence[Tensor], count: int) -> Tensor:
    """The first principal axes of sums of one row per table, rows drawn by their shares, (width, count)."""
    covariances, means = zip(*map(_covariance_and_mean, tables, shares), strict=True)
    mean = sum(means, torch.zeros(1, dtype=torch.float64))
    _, axes = torch.linalg.eigh(sum(covariances) + torch.outer(mean, mean))  # ascending eigenvalues
    return axes.flip(1)[:, :count]


def _covariance_and_mean(table: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Covariance and mean of a table's centred rows, drawn by their shares."""
    width = table.shape[1]
    moment, mean = torch.zeros(width, width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    for rows, share in zip(table.split(CHUNK_ROWS), shares.split(CHUNK_ROWS), strict=True):
        centred = _centred(rows)
        moment += centred.T @ (centred * share.unsqueeze(1))
        mean += share @ centred
    return moment - torch.outer(mean, mean), mean


def _basis_without_mean(size: int) -> Tensor:
    """An orthonormal basis of the vectors whose mean is zero, (size, size - 1), from a Householder reflection."""
    mirror = torch.full((size,), -(size**-0.5), dtype=torch.float64)
    mirror[0] += 1
    return (torch.eye(size, dtype=torch.float64) - 2 * torch.outer(mirror, mirror) / (mirror @ mirror))[:, 1:]


def _rows_times(table: Tensor, matrix: Tensor) -> Tensor:
    return torch.cat([(_centred(rows) @ matrix).to(table) for rows in table.split(CHUNK_ROWS)])


def _centred(rows: Tensor) -> Tensor:
    """Rows minus their own mean, in double precision."""
    rows = _double(rows)
    return rows - rows.mean(1, keepdim=True)


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()


def _uniform_shares(count: int) -> Tensor:
    return torch.full((count,), 1 / count, dtype=torch.float64)


def _position_shares(count: int) -> Tensor:
    """The share of each position among all tokens: every text has a first token, fewer have later ones."""
    reached = TYPICAL_LENGTH / (TYPICAL_LENGTH + torch.arange(count, dtype=torch.float64))
    return reached / reached.sum()
