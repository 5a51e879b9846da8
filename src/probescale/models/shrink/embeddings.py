"""Reduce the embedding size: a narrow embedding table and a projection, where a stock class has both.

ELECTRA has: its blocks are BERT's, and its embedding size may be smaller than its hidden size. So BERT-like models
become ELECTRA models, with the weights of `factorisation.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import numpy as np
import transformers
from torch import Tensor, nn
from transformers import ElectraConfig, PreTrainedConfig, PreTrainedModel

from probescale.config import Head
from probescale.errors import UserError
from probescale.models.families import FAMILIES, find_family
from probescale.models.family import Family, backbone_prefix
from probescale.models.heads import stock_class_name
from probescale.models.loading import LoadedModel, compute_fingerprint, empty_weights
from probescale.models.shrink.factorisation import TABLES, factorise, held_variance, token_shares

FIELD = "shrink.rank"
ELECTRA = FAMILIES["electra"]
COMPATIBLE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
SUPPORTED_HEADS: tuple[Head, ...] = ("none", "sentence", "token")


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
    shares = token_shares(len(body[TABLES[0]]), counts, loaded.tokenizer("")["input_ids"])
    if rank < _width(parent.config):
        body |= factorise(body, rank, shares)
    config = _electra_config(parent.config, rank, len(body[TABLES[1]]), electra_class)
    with empty_weights():
        child = electra_class(config)
    weights = {f"{backbone_prefix(child)}{name}": weight for name, weight in body.items()}
    weights |= _electra_head(parent, electra_class)
    # strict: no weight missing, none left over
    child.load_state_dict({name: weight.clone() for name, weight in weights.items()}, strict=True, assign=True)
    cast("nn.Module", child).to(parent.device)
    return replace(loaded, model=child.eval(), family=ELECTRA, fingerprint=compute_fingerprint(child))


def held_variances(loaded: LoadedModel, ranks: Iterable[int], counts: np.ndarray) -> dict[int, float]:
    """For every embedding size, the share of the variance of token embeddings that it holds.

    `counts`: how often each token occurs.
    """
    table = _electra_backbone(loaded.model, loaded.family)[TABLES[0]]
    held = held_variance(table, token_shares(len(table), counts, loaded.tokenizer("")["input_ids"]))
    return {rank: float(held[min(rank, len(held)) - 1]) for rank in ranks}


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
