"""Factorise embeddings: a narrow embedding table and a projection to the hidden size, where a stock class has both.

ELECTRA has: its blocks are BERT's, and its embedding size may be smaller than its hidden size. So BERT-like models
become ELECTRA models. Both apply a layer norm to the embeddings: BERT at the full width, ELECTRA before the projection.
A layer norm subtracts the mean, which is linear, and divides by the norm, which a rotation does not change. Rows are
therefore written in principal axes, rotated to be orthogonal to (1, ..., 1), and the projection rotates them back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers import ElectraConfig, PreTrainedConfig, PreTrainedModel

from probescale.errors import UserError
from probescale.models.families import FAMILIES, find_family
from probescale.models.family import Family, backbone_prefix
from probescale.models.heads import Head, stock_class_name
from probescale.models.loading import LoadedModel, compute_fingerprint, empty_weights

FIELD = "shrink.rank"
ELECTRA = FAMILIES["electra"]
COMPATIBLE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
SUPPORTED_HEADS: tuple[Head, ...] = ("none", "sentence", "token")
TABLES = tuple(f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type"))
NORM, PROJECTION = "embeddings.LayerNorm", "embeddings_project"
UNSEEN_SHARE = 0.05  # of all tokens of future texts: those that the counted texts do not have
TYPICAL_LENGTH = 64  # tokens of a text: later positions weigh less and less
CHUNK_ROWS = 8192  # of a table, converted to double precision at a time


def why_rank_is_fixed(family: Family, config: PreTrainedConfig) -> str:
    """The reason why this model's embeddings cannot be factorised; empty where they can."""
    if family.name not in COMPATIBLE:
        return f"only the blocks of {', '.join(COMPATIBLE)} fit into ELECTRA's stock class, which has narrow embeddings"
    if config.is_decoder or config.add_cross_attention:
        return "it is built as a decoder"
    if getattr(config, "position_embedding_type", "absolute") != "absolute":
        return "its positions are relative, and ELECTRA's are absolute"
    if family.positions_after_padding and config.pad_token_id is None:
        return "its positions begin after the id of the padding token, which its config does not name"
    return ""


def check_rank(rank: int, family: Family, config: PreTrainedConfig) -> None:
    """Refuse an embedding size that the model cannot have."""
    if reason := why_rank_is_fixed(family, config):
        message = f"embeddings of {config.model_type} models cannot be factorised: {reason}"
        raise UserError(message, field=FIELD, hint="keep the embedding size")
    width = _width(config)
    if not 2 <= rank <= width:
        raise UserError(
            f"embedding size {rank} is not possible: the model has {width}", field=FIELD, hint=f"give 2 to {width}"
        )


def factorise_embeddings(loaded: LoadedModel, rank: int, counts: np.ndarray | None = None) -> LoadedModel:
    """A new ELECTRA model with this embedding size and the parent's layers. The parent is not changed.

    `counts`: how often each token of the vocabulary occurs; frequent tokens are approximated best. At the full
    embedding size the hidden states are the parent's. A sentence head keeps its matrices, but ELECTRA has gelu between
    them where BERT has tanh, so it has to be trained like a new head.
    """
    parent, family = loaded.model, loaded.family
    check_rank(rank, family, parent.config)
    electra_class = _find_electra_class(parent, family)
    body = _electra_backbone(parent, family)
    shares = _token_shares(len(body[TABLES[0]]), counts, loaded.tokenizer("")["input_ids"])
    if rank < _width(parent.config):
        body |= _factorise(body, rank, shares)
    config = _electra_config(parent.config, rank, len(body[TABLES[1]]), electra_class)
    with empty_weights():
        child = electra_class(config)
    weights = {f"{backbone_prefix(child)}{name}": weight for name, weight in body.items()}
    weights |= _electra_head(parent, electra_class)
    # strict: no weight missing, none left over
    child.load_state_dict({name: weight.clone() for name, weight in weights.items()}, strict=True, assign=True)
    cast("nn.Module", child).to(parent.device)
    return replace(loaded, model=child.eval(), family=ELECTRA, fingerprint=compute_fingerprint(child))


def embedding_parameters(config: PreTrainedConfig, vocabulary: int, rank: int | None = None) -> int:
    """Parameters before the first layer with this vocabulary size, factorised; with rank None, in the current layout.

    Only for models that can be factorised. For others, `parameters_per_token` gives what a smaller vocabulary saves.

    >>> bert = transformers.BertConfig()
    >>> embedding_parameters(bert, bert.vocab_size), embedding_parameters(bert, 5000, 128)
    (23837184, 805120)
    """
    family = find_family(config)
    width = _width(config) if rank is None else rank
    check_rank(width, family, config)
    unused = 0 if rank is None else _unused_positions(config, family)
    rows = vocabulary + config.max_position_embeddings - unused + config.type_vocab_size
    projection = (width + 1) * config.hidden_size if width != config.hidden_size else 0
    return (rows + 2) * width + projection  # 2: weight and bias of the norm


def parameters_per_token(model: PreTrainedModel) -> int:
    """Parameters of one token of the vocabulary, in any family and head; the model may be on the meta device."""
    modules = (model.get_input_embeddings(), model.get_output_embeddings())
    tables = {id(p): p for module in modules if module is not None for p in module.parameters()}
    return sum(p.numel() // len(p) for p in tables.values() if len(p) == model.config.vocab_size)


def _width(config: PreTrainedConfig) -> int:
    """The embedding size of a model."""
    return config.embedding_size if config.model_type == "electra" else config.hidden_size


def _unused_positions(config: PreTrainedConfig, family: Family) -> int:
    """Rows of the position table before that of the first token; ELECTRA has none."""
    return config.pad_token_id + 1 if family.positions_after_padding else 0


def _find_electra_class(model: PreTrainedModel, family: Family) -> type[PreTrainedModel]:
    """ELECTRA's stock class with the same head."""
    name = type(model).__name__
    for head in SUPPORTED_HEADS:
        if stock_class_name(family, model.config, head) == name:
            return getattr(transformers, stock_class_name(ELECTRA, ElectraConfig(), head) or "")
    raise UserError(
        f"{name} has a head that no stock class with narrow embeddings has",
        field=FIELD,
        hint="load the model with a sentence or token head, or without a head",
    )


def _electra_config(
    config: PreTrainedConfig, rank: int, positions: int, electra_class: type[PreTrainedModel]
) -> ElectraConfig:
    """The parent's settings, which have the same names in ELECTRA, with this embedding size."""
    changed = {
        "model_type": "electra",
        "architectures": [electra_class.__name__],
        "embedding_size": rank,
        "max_position_embeddings": positions,
    }
    electra = ElectraConfig.from_dict(config.to_dict() | changed)
    electra._attn_implementation = config._attn_implementation  # not part of the dictionary
    return electra


def _electra_backbone(model: PreTrainedModel, family: Family) -> dict[str, Tensor]:
    """The backbone's weights under ELECTRA's names, without the pooler and without unused positions."""
    prefix = backbone_prefix(model)
    weights = {n.removeprefix(prefix): weight for n, weight in model.state_dict().items() if n.startswith(prefix)}
    body = {name: weight for name, weight in weights.items() if name.startswith(("embeddings", "encoder."))}
    return body | {TABLES[1]: body[TABLES[1]][_unused_positions(model.config, family) :]}


def _electra_head(model: PreTrainedModel, electra_class: type[PreTrainedModel]) -> dict[str, Tensor]:
    """The head's weights under ELECTRA's names; BERT's pooler becomes the first matrix of the sentence head."""
    prefix, weights = backbone_prefix(model), model.state_dict()
    head = {name: weight for name, weight in weights.items() if prefix and not name.startswith(prefix)}
    if electra_class is not transformers.ElectraForSequenceClassification or "classifier.dense.weight" in head:
        return head
    renamed = {f"{prefix}pooler.dense": "classifier.dense", "classifier": "classifier.out_proj"}
    return {f"{new}.{kind}": weights[f"{old}.{kind}"] for old, new in renamed.items() for kind in ("weight", "bias")}


def _factorise(body: Mapping[str, Tensor], rank: int, token_shares: Tensor) -> dict[str, Tensor]:
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


def _token_shares(vocabulary: int, counts: np.ndarray | None, special: Sequence[int]) -> Tensor:
    """The expected share of each token; `special`: ids around every text, whether or not they were counted."""
    if counts is None:
        return _uniform_shares(vocabulary)
    seen = torch.tensor(counts, dtype=torch.float64)
    if seen.shape != (vocabulary,) or not torch.isfinite(seen).all() or (seen < 0).any() or seen.sum() == 0:
        raise UserError(f"counts need {vocabulary} numbers, one per token, not all 0", field="counts")
    seen[special] = seen[special].clamp(min=float(seen.sum()) / TYPICAL_LENGTH)
    return (1 - UNSEEN_SHARE) * seen / seen.sum() + UNSEEN_SHARE * _uniform_shares(vocabulary)
