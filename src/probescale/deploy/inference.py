"""A saved model opened for inference: one interface, whether PyTorch or another runtime runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from probescale.errors import UserError
from probescale.models.config_reading import read_folder_config
from probescale.models.family import Family
from probescale.models.loading import LoadedModel, load_as_saved
from probescale.models.memory import BatchSplitter
from probescale.models.surgery import METADATA_FILE
from probescale.models.tokenizers import load_tokenizer
from probescale.utils.files import read_json

Kind = Literal["class", "number", "tags", "states"]
GRAPH = "model.onnx"
LONGEST = 512  # tokens, where neither model nor tokenizer has a limit


@dataclass(frozen=True)
class InferenceModel:
    """A model with its tokenizer, and a function that runs a batch."""

    name: str
    format: str  # pytorch, onnx, onnx int8
    kind: Kind
    labels: tuple[str, ...]  # of classes or tags
    tokenizer: PreTrainedTokenizerBase
    max_length: int  # tokens that the model can read
    run: Callable[[dict[str, np.ndarray]], np.ndarray]  # a padded batch -> (texts, labels), or (texts, tokens, labels)
    folder: Path | None = None  # with the weights; None for a model of the hub
    trained_length: int | None = None  # tokens after which training cut its texts


class TraceableModel(nn.Module):
    """A stock model whose forward takes tensors by position and returns one tensor, so that it can be traced."""

    def __init__(self, model: PreTrainedModel, family: Family, kind: Kind, fields: Sequence[str]) -> None:
        super().__init__()
        self.model, self.family, self.kind, self.fields = model, family, kind, tuple(fields)

    def forward(self, *values: Tensor) -> Tensor:
        inputs = dict(zip(self.fields, values, strict=True))
        outputs = self.model(**inputs)
        if self.kind == "states":
            return outputs.last_hidden_state
        if self.kind == "tags":
            return outputs.logits
        return self.family.sentence_logits(outputs.logits, inputs["attention_mask"])


def run_in_parts(
    model: InferenceModel, batch: dict[str, np.ndarray], texts: Sequence[int] | np.ndarray, portions: BatchSplitter
) -> np.ndarray:
    """The outputs for a batch, which is run in parts where memory is short. `texts` are their numbers, from 0."""
    work = lambda part: model.run({name: values[part] for name, values in batch.items()})  # noqa: E731
    return np.concatenate(portions.run(texts, batch["input_ids"].shape[1], work))


def open_model(source: str, *, field: str = "MODEL") -> InferenceModel:
    """Open a run's folder, a model folder, a folder that `export` wrote, or a model of the hub."""
    folder = Path(source)
    folder = folder / "model" if (folder / "model" / "config.json").is_file() else folder
    return (
        open_onnx(folder, field=field)
        if (folder / GRAPH).is_file()
        else wrap_pytorch(load_pytorch(folder, source, field))
    )


def load_pytorch(folder: Path, source: str, field: str) -> LoadedModel:
    """Load the weights of a folder; where there is none, of the hub's model of that name."""
    return load_as_saved(str(folder) if folder.exists() else source, field=field)


def wrap_pytorch(loaded: LoadedModel) -> InferenceModel:
    """A loaded PyTorch model, ready for inference."""
    kind = detect_kind(loaded)
    fields = input_names(loaded)
    traceable = TraceableModel(loaded.model, loaded.family, kind, fields).eval()

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        with torch.inference_mode():
            values = [torch.from_numpy(batch[name]).to(loaded.model.device) for name in fields]
            return traceable(*values).float().cpu().numpy()

    limit = limit_length(loaded.tokenizer, loaded.family.longest_input(loaded.model.config))
    folder = Path(loaded.source) if Path(loaded.source).is_dir() else None
    record = read_json(folder / METADATA_FILE, field="MODEL") if folder and (folder / METADATA_FILE).is_file() else {}
    labels = label_names(loaded.model.config, kind)
    return InferenceModel(
        loaded.source, "pytorch", kind, labels, loaded.tokenizer, limit, run, folder, record.get("max_length")
    )


def open_onnx(folder: Path, *, field: str) -> InferenceModel:
    """The graph of an exported folder, ready for inference."""
    from probescale.deploy.onnx.session import open_session

    record = read_json(folder / METADATA_FILE, field=field)
    try:
        about = record["onnx"]
        kind, labels, limit, fields = about["kind"], tuple(about["labels"]), about["longest"], about["inputs"]
        int8 = bool(about["int8"])
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{folder} has a graph but no record of it", field=field, hint="export it with `probescale export`"
        ) from error
    tokenizer = load_tokenizer(folder, read_folder_config(folder, field=field), field=field)
    session = open_session(folder / GRAPH, int8=int8)

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        return np.asarray(session.run(None, {name: batch[name] for name in fields})[0])

    name = "onnx int8" if int8 else "onnx"
    return InferenceModel(str(folder), name, kind, labels, tokenizer, limit, run, folder, record.get("max_length"))


def detect_kind(loaded: LoadedModel) -> Kind:
    """What the model's head predicts: a class, a number or tags; states where it has no head."""
    name, config = type(loaded.model).__name__, loaded.model.config
    sentence = name.endswith("ForSequenceClassification")
    by_tokens = name.endswith("ForTokenClassification")
    if sentence or (by_tokens and loaded.family.mean_of_token_logits and config.problem_type is not None):
        return "number" if config.problem_type == "regression" else "class"
    return "tags" if by_tokens else "states"


def label_names(config: PreTrainedConfig, kind: Kind) -> tuple[str, ...]:
    """The names of classes or tags, in the order of the logits."""
    names = {int(number): name for number, name in (config.id2label or {}).items()}
    return tuple(names[number] for number in sorted(names)) if kind in ("class", "tags") else ()


def input_names(loaded: LoadedModel) -> list[str]:
    """The names of the tensors that the model reads, in the order in which the tokenizer gives them."""
    return list(loaded.tokenizer("a text", return_tensors="np").keys())


def limit_length(tokenizer: PreTrainedTokenizerBase, limit: int | None) -> int:
    """The most tokens that both the tokenizer and the model (`limit`) allow."""
    return min(limit or LONGEST, tokenizer.model_max_length, 10**6)
