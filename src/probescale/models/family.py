"""What a description of a model family says, and how the code asks it.

Paths are inside the backbone (`model.base_model`), which is the same module whatever head sits on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from probescale.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig, PreTrainedModel

HIDDEN_WIDE = "in its stock class all heads together are as wide as the hidden states, however many they are"
Rule = Callable[[Any], str]  # config -> why something is so; nothing where it is not


def _never(_config: object) -> str:
    return ""


@dataclass(frozen=True)
class Stack:
    """Layers that run one after the other."""

    blocks: str  # path of the list of layers
    attention_output: str = ""  # in a block: the projection of all heads' outputs
    feed_forward_output: str = ""  # in a block: the last projection of the feed-forward part
    layer_count_setting: str = (
        "num_hidden_layers"  # its name in the config; stock configs map their own names to this one
    )
    first_block_only: tuple[str, ...] = ()  # weights that only the first block has, and that serve all blocks
    head_projections: tuple[
        str, ...
    ] = ()  # in a block: queries, keys, values; where the config gives a head's width by itself
    unit_projections: tuple[
        str, ...
    ] = ()  # in a block: projections whose rows are feed-forward units (those that the block has)
    width_setting: str = "intermediate_size"  # the config's name of how many units each block has

    def count_layers(self, config: PreTrainedConfig) -> int:
        return int(getattr(config, self.layer_count_setting))

    def find_in(self, model: PreTrainedModel) -> nn.ModuleList | None:
        """The layers in any stock class; None where the class does not have this stack (T5's encoder alone)."""
        import torch

        here: Any = backbone(model)
        for part in self.blocks.split("."):
            here = getattr(here, part, None)
        return here if isinstance(here, torch.nn.ModuleList) else None


@dataclass(frozen=True)
class Family:
    name: str
    model_types: tuple[str, ...]  # `model_type` in config.json
    stack: Stack  # the layers that are probed and selected
    decoder: Stack | None = None  # of an encoder-decoder: its second stack, chosen separately
    embeddings: tuple[str, ...] = ("embeddings",)  # paths of everything before the first layer
    positions_behind_padding: bool = False  # RoBERTa's learned positions begin behind the padding token's number
    pooling: str = "cls"  # what a sentence probe looks at
    backbone_class: str = "AutoModel"  # stock class without a head
    classifier_class: str = "AutoModelForSequenceClassification"  # stock class with a sentence head
    mean_of_token_logits: bool = False  # the classifier answers per token; the masked mean is the sentence's answer
    layer_1_stays: Rule = _never  # why the first layer has to stay the first
    why_refused: Rule = _never  # why a model with this config cannot be cut
    why_heads_are_fixed: str = (
        HIDDEN_WIDE  # why heads cannot be dropped, where `stack.head_projections` does not say how
    )
    detected: bool = False  # found by looking at the model, not described here

    def count_layers(self, config: PreTrainedConfig) -> int:
        return self.stack.count_layers(config)

    def fixed(self, config: PreTrainedConfig) -> tuple[int, ...]:
        """Layers that every subnetwork has to keep."""
        return (1,) if self.layer_1_stays(config) else ()

    def longest_input(self, config: PreTrainedConfig) -> int | None:
        """Tokens that the model can take; None where positions are relative."""
        positions = getattr(config, "max_position_embeddings", None)
        unused = max(config.pad_token_id or 0, 1) + 1 if self.positions_behind_padding else 0
        return positions - unused if positions else None

    def layers(self, model: PreTrainedModel) -> nn.ModuleList:
        """The layers of any stock class of this family."""
        return cast("nn.ModuleList", self.stack.find_in(model))

    def decoder_layers(self, model: PreTrainedModel) -> nn.ModuleList | None:
        """The second stack, where this class has one."""
        return self.decoder.find_in(model) if self.decoder else None

    def sentence_logits(self, logits: Tensor, attention_mask: Tensor) -> Tensor:
        """(batch, classes), from what the classifier returns."""
        if not self.mean_of_token_logits:
            return logits
        mask = attention_mask.unsqueeze(-1).to(logits.dtype)  # (batch, tokens, 1)
        return (logits * mask).sum(1) / mask.sum(1)

    def check_kept(self, kept: Sequence[int], config: PreTrainedConfig, *, field: str = "--keep") -> tuple[int, ...]:
        """Layers numbered from 1, in the order in which they will run; refused where the stock class has no place."""
        kept = check_layers(kept, self.count_layers(config), field=field)
        reason = self.layer_1_stays(config)
        if reason and (kept[0] != 1 or 1 in kept[1:]):
            raise UserError(
                f"layer 1 has to stay the first one, and only there: {reason}", field=field, hint="keep 1, then others"
            )
        return kept


def check_layers(kept: Sequence[int], layers: int, *, field: str) -> tuple[int, ...]:
    if not kept:
        raise UserError("no layer is kept", field=field, hint=f"give layers between 1 and {layers}")
    if outside := [layer for layer in kept if not 1 <= layer <= layers]:
        raise UserError(f"layer {outside[0]} does not exist", field=field, hint=f"give layers between 1 and {layers}")
    return tuple(kept)


def backbone(model: PreTrainedModel) -> PreTrainedModel:
    """The model without its head; itself where it has none."""
    return cast("PreTrainedModel", model.base_model)


def backbone_prefix(model: PreTrainedModel) -> str:
    """How the names of the backbone's weights begin."""
    return "" if model.base_model is model else f"{model.base_model_prefix}."
