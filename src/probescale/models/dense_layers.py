"""Dense modules of a sentence encoder: linear layers after the pooling. They are kept as they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from probescale.errors import UserError, first_line
from probescale.utils.files import read_json, write_json

WEIGHTS = "model.safetensors"
ACTIVATIONS = {"Identity": "torch.nn.modules.linear.Identity"} | {
    name: f"torch.nn.modules.activation.{name}" for name in ("Tanh", "ReLU", "GELU", "Sigmoid")
}


@dataclass(frozen=True, eq=False)
class DenseLayer:
    """A linear layer and its activation."""

    weight: Tensor  # (numbers out, numbers in)
    bias: Tensor | None
    activation: str  # one of ACTIVATIONS

    @property
    def width(self) -> int:
        """How many numbers it gives."""
        return len(self.weight)

    def __call__(self, vectors: Tensor) -> Tensor:
        """(texts, numbers out) from (texts, numbers in)."""
        bias = None if self.bias is None else self.bias.to(vectors)
        linear = torch.nn.functional.linear(vectors, self.weight.to(vectors), bias)
        return getattr(torch.nn, self.activation)()(linear)


def read_dense_layer(folder: Path, width: int, *, field: str) -> DenseLayer:
    """The layer in a module's folder; refused where it does not fit vectors of this width."""
    settings: dict[str, Any] = read_json(folder / "config.json", field=field)
    name = str(settings.get("activation_function", ACTIVATIONS["Tanh"])).rpartition(".")[2]
    if name not in ACTIVATIONS or settings.get("use_residual"):
        what = "a residual connection" if name in ACTIVATIONS else f'the activation "{name}"'
        raise UserError(
            f"{folder} has {what}", field=field, hint=f"known are layers with one of: {', '.join(ACTIVATIONS)}"
        )
    try:
        tensors = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{folder / WEIGHTS} cannot be read: {first_line(error)}",
            field=field,
            hint="save the model again with sentence-transformers, which writes safetensors; pickles are not read",
        ) from error
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    if (
        weight is None
        or weight.ndim != 2
        or weight.shape[1] != width
        or (bias is not None and len(bias) != len(weight))
    ):
        found = "no weights" if weight is None else f"weights of the shape {tuple(weight.shape)}"
        raise UserError(
            f"{folder} has {found}, and its vectors have {width} numbers",
            field=field,
            hint="its files do not fit together: download or save the model again",
        )
    return DenseLayer(weight.float(), None if bias is None else bias.float(), name)


def write_dense_layer(layer: DenseLayer, folder: Path) -> None:
    """Write the layer as sentence-transformers does."""
    folder.mkdir()
    settings = {
        "in_features": layer.weight.shape[1],
        "out_features": layer.width,
        "bias": layer.bias is not None,
        "activation_function": ACTIVATIONS[layer.activation],
    }
    write_json(folder / "config.json", settings)
    tensors = {"linear.weight": layer.weight} | ({} if layer.bias is None else {"linear.bias": layer.bias})
    save_file(tensors, folder / WEIGHTS)
