"""Regression labels are learned in standard units (mean 0, deviation 1); the output layer then absorbs the scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from probescale.errors import UserError
from probescale.models.family import backbone

FARTHEST = 10.0  # deviations between the mean and 0 that a head without a bias still learns


@dataclass(frozen=True)
class LabelScale:
    """Mean and standard deviation of the labels."""

    mean: float = 0.0
    deviation: float = 1.0

    def standardise(self, values: np.ndarray) -> np.ndarray:
        """Values in standard units."""
        return ((values - self.mean) / self.deviation).astype(np.float32)

    def fold_into_head(self, model: PreTrainedModel) -> None:
        """Change the output layer so that the model predicts in the units of the data."""
        last = find_output_layer(model)
        with torch.no_grad():
            last.weight.mul_(self.deviation)
            if last.bias is not None:
                last.bias.mul_(self.deviation).add_(self.mean)

    def take_out_of_head(self, model: PreTrainedModel) -> None:
        """Change the output layer of a model that predicts in the units of the data, to learn in standard units."""
        last = find_output_layer(model)
        with torch.no_grad():
            last.weight.div_(self.deviation)
            if last.bias is not None:
                last.bias.sub_(self.mean).div_(self.deviation)


def fit_label_scale(labels: np.ndarray, model: PreTrainedModel) -> LabelScale:
    """The scale of these labels. The mean stays 0 if the output layer has no bias that could absorb it."""
    mean = float(np.nanmean(labels)) if find_output_layer(model).bias is not None else 0.0
    return LabelScale(mean, float(np.nanstd(labels)) or 1.0)


def refuse_far_numbers(labels: np.ndarray, model: PreTrainedModel) -> None:
    """Refuse numbers far from 0 for a head without a bias, as decoders have it: no weight could hold their mean."""
    mean, deviation = float(np.nanmean(labels)), float(np.nanstd(labels))
    if find_output_layer(model).bias is None and abs(mean) > FARTHEST * deviation:
        raise UserError(
            f"the numbers are around {mean:.6g} and differ from it by {deviation:.3g}, which {type(model).__name__} "
            "cannot learn: its head has no bias",
            field="task.train",
            hint=f"subtract {mean:.6g} from all numbers, and add it to the model's answers; or take an encoder",
        )


def find_output_layer(model: PreTrainedModel) -> nn.Linear:
    """The last linear layer of the head."""
    inside = set(backbone(model).modules())
    found = [module for module in model.modules() if isinstance(module, nn.Linear) and module not in inside]
    return found[-1]
