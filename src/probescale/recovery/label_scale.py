"""Quantities on a scale that training can bear: learnt with mean 0 and spread 1, and turned back in the last matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from probescale.models.family import backbone


@dataclass(frozen=True)
class LabelScale:
    mean: float = 0.0
    spread: float = 1.0

    def of(self, values: np.ndarray) -> np.ndarray:
        return ((values - self.mean) / self.spread).astype(np.float32)

    def fold_into_head(self, model: PreTrainedModel) -> None:
        """Afterwards the model answers in the units of the data."""
        last = output_layer(model)
        with torch.no_grad():
            last.weight.mul_(self.spread)
            if last.bias is not None:
                last.bias.mul_(self.spread).add_(self.mean)


def fit_label_scale(labels: np.ndarray, model: PreTrainedModel) -> LabelScale:
    """Without a bias in the model's last matrix the mean has no place to go."""
    mean = float(np.nanmean(labels)) if output_layer(model).bias is not None else 0.0
    return LabelScale(mean, float(np.nanstd(labels)) or 1.0)


def output_layer(model: PreTrainedModel) -> nn.Linear:
    inside = set(backbone(model).modules())
    found = [module for module in model.modules() if isinstance(module, nn.Linear) and module not in inside]
    return found[-1]
