"""The config of a cut model: the layer count, and every setting with one value per layer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

from transformers import PreTrainedConfig

from probescale.models.family import Family

C = TypeVar("C", bound=PreTrainedConfig)
# Lists that may have as many values as there are layers by chance.
_NOT_PER_LAYER = ("architectures", "id2label", "label2id", "keys_to_ignore_at_inference", "bad_words_ids")


def cut_config(config: C, family: Family, kept: Sequence[int], decoder: Sequence[int] | None = None) -> C:
    """A copy of the config for these layers (numbered from 1) and these layers of a decoder (None: all)."""
    cut = copy.deepcopy(config)
    for name in per_layer_settings(config, family):
        values = getattr(config, name)
        setattr(cut, name, type(values)(values[layer - 1] for layer in kept))
    setattr(cut, family.stack.layer_count_setting, len(kept))
    if family.decoder:
        if decoder is not None:
            setattr(cut, family.decoder.layer_count_setting, len(decoder))
        # The generation cache reads this name. T5 has another one, and the encoder's count would be used instead.
        cut.decoder_layers = family.decoder.count_layers(cut)
    return cut


def per_layer_settings(config: PreTrainedConfig, family: Family) -> list[str]:
    """Names of settings with one value per layer, such as layer_types."""
    layers = family.count_layers(config)
    return [
        name
        for name, value in vars(config).items()
        if isinstance(value, (list, tuple))
        and len(value) == layers
        and name not in _NOT_PER_LAYER
        and not name.endswith(("token_id", "token_ids"))
    ]
