"""The description of a model family: where its layers are, and what its stock classes can hold.

Paths are relative to the backbone (`model.base_model`), which does not depend on the head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from probescale.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig, PreTrainedModel

HIDDEN_WIDE = "in its stock class all heads together are as wide as the hidden states, however many there are"
Rule = Callable[[Any], str]  # config -> the reason why something applies; empty where it does not


def _never(_config: object) -> str:
    return ""


@dataclass(frozen=True)
class Stack:
    """A list of layers that run one after the other, and where its parts are."""

    blocks: str  # path of the module list that holds the layers
    attention_output: str = ""  # in a block: the projection behind the attention heads
    feed_forward_output: str = ""  # in a block: the projection behind the feed-forward units
    layer_count_setting: str = (
        "num_hidden_layers"  # its name in the config; stock configs map their own names to this one
    )
    first_block_only: tuple[str, ...] = ()  # weights that all blocks use and only the first one stores
    head_projections: tuple[str, ...] = ()  # in a block: queries, keys, values; where the config has head_dim
    unit_projections: tuple[str, ...] = ()  # in a block: projections whose rows are feed-forward units
    width_setting: str = "intermediate_size"  # name of the feed-forward width in the config

    def count_layers(self, config: PreTrainedConfig) -> int:
        """The number of layers that a config asks for."""
        return int(getattr(config, self.layer_count_setting))

    def find_in(self, model: PreTrainedModel) -> nn.ModuleList | None:
        """The layers of this stack in a model; None where its class does not have the stack (T5's encoder-only one)."""
        import torch

        here: Any = backbone(model)
        for part in self.blocks.split("."):
            here = getattr(here, part, None)
        return here if isinstance(here, torch.nn.ModuleList) else None


@dataclass(frozen=True)
class Family:
    """What the code needs to know to cut, probe and train models of one architecture."""

    name: str
    model_types: tuple[str, ...]  # `model_type` in config.json
    stack: Stack  # the layers that are probed and selected
    decoder: Stack | None = None  # of an encoder-decoder: its second stack, chosen separately
    embeddings: tuple[str, ...] = ("embeddings",)  # paths of everything before the first layer
    positions_after_padding: bool = False  # RoBERTa's learned positions begin after the id of the padding token
    pooling: str = "cls"  # which token states a sentence probe reads
    backbone_class: str = "AutoModel"  # stock class without a head
    classifier_class: str = "AutoModelForSequenceClassification"  # stock class with a sentence head
    mean_of_token_logits: bool = False  # the classifier gives logits per token; their masked mean is used
    layer_1_stays: Rule = _never  # why layer 1 must stay the first layer
    why_refused: Rule = _never  # why a model with this config cannot be cut
    why_heads_are_fixed: str = (
        HIDDEN_WIDE  # why heads cannot be dropped, where `stack.head_projections` does not say how
    )
    learning_rate_factor: float = 1.0  # of the rates that BERT is usually trained with
    detected: bool = False  # from the model's structure, not described by hand

    @property
    def is_decoder(self) -> bool:
        """Whether its models go on with a text, token by token, without an encoder."""
        return self.pooling == "last" and self.decoder is None

    def count_layers(self, config: PreTrainedConfig) -> int:
        return self.stack.count_layers(config)

    def fixed(self, config: PreTrainedConfig) -> tuple[int, ...]:
        """Layers that every subnetwork must keep."""
        return (1,) if self.layer_1_stays(config) else ()

    def longest_input(self, config: PreTrainedConfig) -> int | None:
        """The most tokens that the model accepts; None where positions are relative. XLNet says -1 for that."""
        positions = getattr(config, "max_position_embeddings", None)
        unused = max(config.pad_token_id or 0, 1) + 1 if self.positions_after_padding else 0
        return positions - unused if positions and positions > 0 else None

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The layers of a model of this family, whatever its stock class."""
        return cast("nn.ModuleList", self.stack.find_in(model))

    def decoder_layers(self, model: PreTrainedModel) -> nn.ModuleList | None:
        """The decoder's layers; None where the model's class has no decoder."""
        return self.decoder.find_in(model) if self.decoder else None

    def sentence_logits(self, logits: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits per text, (batch, classes), from the output of the stock classifier."""
        if not self.mean_of_token_logits:
            return logits
        mask = attention_mask.unsqueeze(-1).to(logits.dtype)  # (batch, tokens, 1)
        return (logits * mask).sum(1) / mask.sum(1)

    def check_kept(self, kept: Sequence[int], config: PreTrainedConfig, *, field: str = "--keep") -> tuple[int, ...]:
        """Check the layers to keep (numbered from 1, in running order) against what the stock class can hold."""
        kept = check_layers(kept, self.count_layers(config), field=field)
        reason = self.layer_1_stays(config)
        if reason and (kept[0] != 1 or 1 in kept[1:]):
            raise UserError(
                f"layer 1 must stay the first layer, and only there: {reason}", field=field, hint="keep 1, then others"
            )
        return kept


def check_layers(kept: Sequence[int], layers: int, *, field: str) -> tuple[int, ...]:
    """The layers to keep, or an error if there are none or one does not exist."""
    if not kept:
        raise UserError("no layer is kept", field=field, hint=f"give layers between 1 and {layers}")
    if outside := [layer for layer in kept if not 1 <= layer <= layers]:
        raise UserError(f"layer {outside[0]} does not exist", field=field, hint=f"give layers between 1 and {layers}")
    return tuple(kept)


def backbone(model: PreTrainedModel) -> PreTrainedModel:
    """The model without its head; the model itself where it has no head."""
    return cast("PreTrainedModel", model.base_model)


def backbone_prefix(model: PreTrainedModel) -> str:
    """The prefix of the names of the backbone's weights."""
    return "" if model.base_model is model else f"{model.base_model_prefix}."
