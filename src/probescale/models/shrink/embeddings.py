"""Narrow embeddings: a table of low rank and a projection, where a stock class can hold them.

ELECTRA's can: its blocks are BERT's, and its embeddings may be narrower than they. BERT and its kin become ELECTRA
models. Both normalise what they embed: BERT in the full width, ELECTRA before the projection. A norm takes the mean
off, which is linear, and divides by the length, which does not change when space is turned. So rows are written in
their main axes, the axes are turned away from the mean, and the projection turns them back.
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
HOME = FAMILIES["electra"]
FIT = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
HEADS: tuple[Head, ...] = ("none", "sentence", "token")
TABLES = tuple(f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type"))
NORM, PROJECTION = "embeddings.LayerNorm", "embeddings_project"
UNSEEN = 0.05  # share of the words that are not counted: texts to come have others
OFTEN = 64  # tokens that texts have: later positions count less and less
ROWS = 8192  # of a table at once: double precision takes twice the memory


def why_rank_is_fixed(family: Family, config: PreTrainedConfig) -> str:
    """Why this model's embeddings cannot be factorised; nothing where they can."""
    if family.name not in FIT:
        return f"ELECTRA's stock class, which has narrow embeddings, holds the blocks of {', '.join(FIT)} alone"
    if config.is_decoder or config.add_cross_attention:
        return "it is built as a decoder"
    if getattr(config, "position_embedding_type", "absolute") != "absolute":
        return "its positions are relative, and ELECTRA's are not"
    if family.positions_after_padding and config.pad_token_id is None:
        return "its positions begin behind the number of a padding token that its config does not name"
    return ""


def check_rank(rank: int, family: Family, config: PreTrainedConfig) -> None:
    """Refuse a width of the embeddings that the model cannot have."""
    if reason := why_rank_is_fixed(family, config):
        message = f"embeddings of {config.model_type} models cannot be factorised: {reason}"
        raise UserError(message, field=FIELD, hint="leave the embeddings as wide as they are")
    width = _width(config)
    if not 2 <= rank <= width:
        raise UserError(
            f"embeddings {rank} wide cannot be made of {width} wide ones", field=FIELD, hint=f"give 2 to {width}"
        )


def factorise_embeddings(loaded: LoadedModel, rank: int, counts: np.ndarray | None = None) -> LoadedModel:
    """A new ELECTRA model with embeddings of this width, and the parent's layers. The parent is left as it is.

    `counts` says how often each piece of the vocabulary occurs in the texts at hand: what is frequent is fitted best.
    At the full width the states are the parent's. A sentence head keeps its matrices, but ELECTRA has gelu between
    them where BERT has tanh: it has to be trained, as a new head has.
    """
    parent, family = loaded.model, loaded.family
    check_rank(rank, family, parent.config)
    home = _home_class(parent, family)
    body = _body(parent, family)
    shares = _word_shares(len(body[TABLES[0]]), counts, loaded.tokenizer("")["input_ids"])
    if rank < _width(parent.config):
        body |= _narrowed(body, rank, shares)
    config = _home_config(parent.config, rank, len(body[TABLES[1]]), home)
    with empty_weights():
        child = home(config)
    weights = {f"{backbone_prefix(child)}{name}": weight for name, weight in body.items()} | _head(parent, home)
    # strict: no weight missing, none left over
    child.load_state_dict({name: weight.clone() for name, weight in weights.items()}, strict=True, assign=True)
    cast("nn.Module", child).to(parent.device)
    return replace(loaded, model=child.eval(), family=HOME, fingerprint=compute_fingerprint(child))


def embedding_parameters(config: PreTrainedConfig, vocabulary: int, rank: int | None = None) -> int:
    """Parameters before the first layer with so many pieces: factorised, or for None in the layout that the model has.

    Only for models that can be factorised: of others, `parameters_per_token` says what a smaller vocabulary saves.

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
    return (rows + 2) * width + projection  # 2: the norm


def parameters_per_token(model: PreTrainedModel) -> int:
    """What one piece of the vocabulary costs, with any family and head; the model may be on the meta device."""
    modules = (model.get_input_embeddings(), model.get_output_embeddings())
    found = {id(p): p for module in modules if module is not None for p in module.parameters()}
    return sum(p.numel() // len(p) for p in found.values() if len(p) == model.config.vocab_size)


def _width(config: PreTrainedConfig) -> int:
    return config.embedding_size if config.model_type == "electra" else config.hidden_size


def _unused_positions(config: PreTrainedConfig, family: Family) -> int:
    """Rows of the table before the first token's: ELECTRA counts from 0."""
    return config.pad_token_id + 1 if family.positions_after_padding else 0


def _home_class(model: PreTrainedModel, family: Family) -> type[PreTrainedModel]:
    """ELECTRA's class with the same kind of head."""
    here = type(model).__name__
    for head in HEADS:
        if stock_class_name(family, model.config, head) == here:
            return getattr(transformers, stock_class_name(HOME, ElectraConfig(), head) or "")
    raise UserError(
        f"{here} has a head that no stock class has behind narrow embeddings",
        field=FIELD,
        hint="load the model with a head for sentences or tokens, or without one",
    )


def _home_config(config: PreTrainedConfig, rank: int, positions: int, home: type[PreTrainedModel]) -> ElectraConfig:
    """All settings of the parent's, under the same names."""
    changed = {
        "model_type": "electra",
        "architectures": [home.__name__],
        "embedding_size": rank,
        "max_position_embeddings": positions,
    }
    made = ElectraConfig.from_dict(config.to_dict() | changed)
    made._attn_implementation = config._attn_implementation  # how it computes is no part of the dictionary
    return made


def _body(model: PreTrainedModel, family: Family) -> dict[str, Tensor]:
    """The backbone's weights under ELECTRA's names, which has no pooler, with the positions that tokens can have."""
    prefix = backbone_prefix(model)
    weights = {n.removeprefix(prefix): weight for n, weight in model.state_dict().items() if n.startswith(prefix)}
    body = {name: weight for name, weight in weights.items() if name.startswith(("embeddings", "encoder."))}
    return body | {TABLES[1]: body[TABLES[1]][_unused_positions(model.config, family) :]}


def _head(model: PreTrainedModel, home: type[PreTrainedModel]) -> dict[str, Tensor]:
    """The head's weights under ELECTRA's names: BERT's pooler is the first of the two matrices of a sentence head."""
    prefix, weights = backbone_prefix(model), model.state_dict()
    head = {name: weight for name, weight in weights.items() if prefix and not name.startswith(prefix)}
    if home is not transformers.ElectraForSequenceClassification or "classifier.dense.weight" in head:
        return head
    renamed = {f"{prefix}pooler.dense": "classifier.dense", "classifier": "classifier.out_proj"}
    return {f"{new}.{kind}": weights[f"{old}.{kind}"] for old, new in renamed.items() for kind in ("weight", "bias")}


def _narrowed(body: Mapping[str, Tensor], rank: int, words: Tensor) -> dict[str, Tensor]:
    """Tables of this width, their norm, and the projection behind it (see the text at the top)."""
    tables = [body[name] for name in TABLES]
    axes = _main_axes(tables, [words, _position_shares(len(tables[1])), _even(len(tables[2]))], rank - 1)
    width, kind = tables[0].shape[1], tables[0]
    turned = axes @ _away_from_the_mean(rank).T  # (width, rank)
    size = (rank / width) ** 0.5  # single numbers stay as large as they were, also beside the norm's epsilon
    gain, shift = (_double(body[f"{NORM}.{part}"]) for part in ("weight", "bias"))
    behind, added = torch.eye(width, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    if f"{PROJECTION}.weight" in body:  # an ELECTRA that gets narrower still
        behind, added = (_double(body[f"{PROJECTION}.{part}"]) for part in ("weight", "bias"))
    made = {name: _rows_times(table, turned * size) for name, table in zip(TABLES, tables, strict=True)}
    made |= {f"{NORM}.weight": torch.ones(rank), f"{NORM}.bias": torch.zeros(rank)}
    made |= {f"{PROJECTION}.weight": behind @ (gain.unsqueeze(1) * turned) / size}
    made |= {f"{PROJECTION}.bias": behind @ shift + added}
    return {name: tensor.to(kind) for name, tensor in made.items()}


def _main_axes(tables: Sequence[Tensor], shares: Sequence[Tensor], count: int) -> Tensor:
    """(width, count): the directions in which sums of a row of each table lie most, rows drawn by their shares."""
    spreads, means = zip(*map(_spread, tables, shares), strict=True)
    middle = sum(means, torch.zeros(1, dtype=torch.float64))
    _, axes = torch.linalg.eigh(sum(spreads) + torch.outer(middle, middle))  # the largest come last
    return axes.flip(1)[:, :count]


def _spread(table: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Covariance and mean of centred rows that are drawn by their shares."""
    width = table.shape[1]
    moment, mean = torch.zeros(width, width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    for rows, share in zip(table.split(ROWS), shares.split(ROWS), strict=True):
        here = _centred(rows)
        moment += here.T @ (here * share.unsqueeze(1))
        mean += share @ here
    return moment - torch.outer(mean, mean), mean


def _away_from_the_mean(size: int) -> Tensor:
    """(size, size - 1): columns of length 1, at right angles to each other and to (1, 1, ..., 1)."""
    mirror = torch.full((size,), -(size**-0.5), dtype=torch.float64)
    mirror[0] += 1
    return (torch.eye(size, dtype=torch.float64) - 2 * torch.outer(mirror, mirror) / (mirror @ mirror))[:, 1:]


def _rows_times(table: Tensor, matrix: Tensor) -> Tensor:
    return torch.cat([(_centred(rows) @ matrix).to(table) for rows in table.split(ROWS)])


def _centred(rows: Tensor) -> Tensor:
    rows = _double(rows)
    return rows - rows.mean(1, keepdim=True)


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()


def _even(count: int) -> Tensor:
    return torch.full((count,), 1 / count, dtype=torch.float64)


def _position_shares(count: int) -> Tensor:
    """Every text has a first token, and fewer and fewer have later ones."""
    reached = OFTEN / (OFTEN + torch.arange(count, dtype=torch.float64))
    return reached / reached.sum()


def _word_shares(vocabulary: int, counts: np.ndarray | None, around: Sequence[int]) -> Tensor:
    """How often each piece is to be expected; `around`: those around every text, whether or not they were counted."""
    if counts is None:
        return _even(vocabulary)
    seen = torch.tensor(counts, dtype=torch.float64)
    if seen.shape != (vocabulary,) or not torch.isfinite(seen).all() or (seen < 0).any() or seen.sum() == 0:
        raise UserError(f"counts are {vocabulary} numbers, one for each piece, not all of them 0", field="counts")
    seen[around] = seen[around].clamp(min=float(seen.sum()) / OFTEN)
    return (1 - UNSEEN) * seen / seen.sum() + UNSEEN * _even(vocabulary)
