"""A saved model that answers texts, as PyTorch runs it or as ONNX Runtime does: the same from outside."""

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
from probescale.models.family import Family
from probescale.models.loading import LoadedModel, config_in, load_as_saved
from probescale.models.memory import Portions
from probescale.models.surgery import RECORD
from probescale.models.tokenizers import load_tokenizer
from probescale.utils.files import read_json

Kind = Literal["class", "number", "tags", "states"]
GRAPH = "model.onnx"
LONGEST = 512  # tokens, where neither model nor tokenizer has a limit


@dataclass(frozen=True)
class Ready:
    name: str
    format: str  # pytorch, onnx, onnx int8
    kind: Kind
    labels: tuple[str, ...]  # of classes or tags
    tokenizer: PreTrainedTokenizerBase
    longest: int  # tokens
    run: Callable[[dict[str, np.ndarray]], np.ndarray]  # a padded batch -> (texts, labels), or (texts, tokens, labels)
    files: Path | None = None  # where it is stored, for its size
    usual: int | None = None  # tokens of a text that it was trained to read


class Answers(nn.Module):
    """A stock model as one tensor after the other in, one out: what a graph can be made of."""

    def __init__(self, model: PreTrainedModel, family: Family, kind: Kind, fields: Sequence[str]) -> None:
        super().__init__()
        self.model, self.family, self.kind, self.fields = model, family, kind, tuple(fields)

    def forward(self, *values: Tensor) -> Tensor:
        inputs = dict(zip(self.fields, values, strict=True))
        found = self.model(**inputs)
        if self.kind == "states":
            return found.last_hidden_state
        if self.kind == "tags":
            return found.logits
        return self.family.sentence_logits(found.logits, inputs["attention_mask"])


def run_in_parts(
    ready: Ready, batch: dict[str, np.ndarray], texts: Sequence[int] | np.ndarray, portions: Portions
) -> np.ndarray:
    """At once, or in as many parts as memory asks for. `texts`: their numbers, from 0."""
    work = lambda part: ready.run({name: values[part] for name, values in batch.items()})  # noqa: E731
    return np.concatenate(portions.run(texts, batch["input_ids"].shape[1], work))


def open_model(source: str, *, field: str = "MODEL") -> Ready:
    """A model folder, a run's folder, a folder that `export` wrote, a hub name."""
    folder = Path(source)
    folder = folder / "model" if (folder / "model" / "config.json").is_file() else folder
    return open_graph(folder, field=field) if (folder / GRAPH).is_file() else from_loaded(load(folder, source, field))


def load(folder: Path, source: str, field: str) -> LoadedModel:
    return load_as_saved(str(folder) if folder.exists() else source, field=field)


def from_loaded(loaded: LoadedModel) -> Ready:
    kind = kind_of(loaded)
    fields = fields_of(loaded)
    answers = Answers(loaded.model, loaded.family, kind, fields).eval()

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        with torch.inference_mode():
            values = [torch.from_numpy(batch[name]).to(loaded.model.device) for name in fields]
            return answers(*values).float().cpu().numpy()

    limit = longest(loaded.tokenizer, loaded.family.longest_input(loaded.model.config))
    place = Path(loaded.source) if Path(loaded.source).is_dir() else None
    record = read_json(place / RECORD, field="MODEL") if place and (place / RECORD).is_file() else {}
    labels = labels_of(loaded.model.config, kind)
    return Ready(loaded.source, "pytorch", kind, labels, loaded.tokenizer, limit, run, place, record.get("max_length"))


def open_graph(folder: Path, *, field: str) -> Ready:
    from probescale.deploy.runtime import session

    record = read_json(folder / RECORD, field=field)
    try:
        about = record["onnx"]
        kind, labels, limit, fields = about["kind"], tuple(about["labels"]), about["longest"], about["inputs"]
        int8 = bool(about["int8"])
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{folder} has a graph but no record of it", field=field, hint="export it with `probescale export`"
        ) from error
    tokenizer = load_tokenizer(folder, config_in(folder, field=field), field=field)
    runs = session(folder / GRAPH, int8=int8)

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        return np.asarray(runs.run(None, {name: batch[name] for name in fields})[0])

    name = "onnx int8" if int8 else "onnx"
    return Ready(str(folder), name, kind, labels, tokenizer, limit, run, folder, record.get("max_length"))


def kind_of(loaded: LoadedModel) -> Kind:
    name, config = type(loaded.model).__name__, loaded.model.config
    sentence = name.endswith("ForSequenceClassification")
    by_tokens = name.endswith("ForTokenClassification")
    if sentence or (by_tokens and loaded.family.mean_of_token_logits and config.problem_type is not None):
        return "number" if config.problem_type == "regression" else "class"
    return "tags" if by_tokens else "states"


def labels_of(config: PreTrainedConfig, kind: Kind) -> tuple[str, ...]:
    names = {int(number): name for number, name in (config.id2label or {}).items()}
    return tuple(names[number] for number in sorted(names)) if kind in ("class", "tags") else ()


def fields_of(loaded: LoadedModel) -> list[str]:
    """What the tokenizer gives that the model reads."""
    return list(loaded.tokenizer("a text", return_tensors="np").keys())


def longest(tokenizer: PreTrainedTokenizerBase, limit: int | None) -> int:
    return min(limit or LONGEST, tokenizer.model_max_length, 10**6)
