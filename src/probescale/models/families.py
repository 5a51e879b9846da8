"""One short description per model family. Adding a family is adding an entry here; nothing else changes.

Paths are inside the backbone (`model.base_model`), which is the same module whatever head sits on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from probescale.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Family:
    name: str
    model_types: tuple[str, ...]  # `model_type` in config.json
    blocks: str = "encoder.layer"  # path of the stack of layers
    attention: str = "attention.output.dense"  # in a block: the projection of all heads' outputs
    feed_forward: str = "output.dense"  # in a block: the last projection of the feed-forward part
    embeddings: str = "embeddings"  # path of everything before the first layer
    layer_count: str = "num_hidden_layers"  # its name in the config
    positions_behind_padding: bool = False  # RoBERTa's learned positions begin behind the padding token's number
    pooling: str = "cls"  # what a sentence probe looks at
    first_block_only: tuple[str, ...] = ()  # weights that only the first block has, and that serve all blocks
    backbone: str = "AutoModel"  # stock class without a head
    classifier: str = "AutoModelForSequenceClassification"  # stock class with a sentence head
    mean_of_token_logits: bool = False  # the classifier answers per token; the masked mean is the sentence's answer

    def layers_in(self, config: PreTrainedConfig) -> int:
        return int(getattr(config, self.layer_count))

    def longest_input(self, config: PreTrainedConfig) -> int | None:
        """Tokens that the model can take; None where positions are relative."""
        positions = getattr(config, "max_position_embeddings", None)
        unused = max(config.pad_token_id or 0, 1) + 1 if self.positions_behind_padding else 0
        return positions - unused if positions else None

    def stack(self, model: PreTrainedModel) -> nn.ModuleList:
        """The layers of any stock class of this family."""
        return cast("nn.ModuleList", backbone(model).get_submodule(self.blocks))

    def sentence_logits(self, logits: Tensor, attention_mask: Tensor) -> Tensor:
        """(batch, classes), from what the classifier returns."""
        if not self.mean_of_token_logits:
            return logits
        mask = attention_mask.unsqueeze(-1).to(logits.dtype)  # (batch, tokens, 1)
        return (logits * mask).sum(1) / mask.sum(1)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(name="bert", model_types=("bert",)),
        Family(name="roberta", model_types=("roberta",), positions_behind_padding=True),
        Family(name="mpnet", model_types=("mpnet",), attention="attention.attn.o", positions_behind_padding=True),
        Family(
            name="t5-encoder",
            model_types=("t5",),
            blocks="encoder.block",
            attention="layer.0.SelfAttention.o",
            feed_forward="layer.1.DenseReluDense.wo",
            embeddings="shared",
            layer_count="num_layers",
            pooling="mean",
            first_block_only=("layer.0.SelfAttention.relative_attention_bias.weight",),
            backbone="T5EncoderModel",
            # transformers has no encoder-only T5 sentence classifier. This one is encoder-only, and the masked mean of
            # its token logits is exactly a linear head on the mean-pooled states.
            classifier="AutoModelForTokenClassification",
            mean_of_token_logits=True,
        ),
    )
}


def backbone(model: PreTrainedModel) -> PreTrainedModel:
    """The model without its head; itself where it has none."""
    return cast("PreTrainedModel", model.base_model)


def backbone_prefix(model: PreTrainedModel) -> str:
    """How the names of the backbone's weights begin."""
    return "" if model.base_model is model else f"{model.base_model_prefix}."


def family_of(config: PreTrainedConfig, *, field: str = "model.source") -> Family:
    """The description for a model's config."""
    for family in FAMILIES.values():
        if config.model_type in family.model_types:
            if family.layers_in(config) < 1:
                raise UserError("the model's config says that it has no layers", field=field)
            return family
    known = [model_type for family in FAMILIES.values() for model_type in family.model_types]
    raise UserError(
        f'model type "{config.model_type}" is not supported.{did_you_mean(config.model_type, known)}',
        field=field,
        hint=f"use a model of type: {', '.join(known)}",
    )
