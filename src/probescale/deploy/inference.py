"""A saved model opened for inference: one interface, whether PyTorch or another runtime runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from probescale.deploy.metadata import InputColumns, ModelMetadata, read_metadata
from probescale.errors import UserError, first_line
from probescale.models.batching import batches_by_tokens
from probescale.models.heads import detect_head
from probescale.models.loading import LoadedModel, load_as_saved, quiet_transformers
from probescale.models.memory import BatchSplitter
from probescale.models.pooling import read_pooling
from probescale.models.saving import METADATA_FILE
from probescale.models.sentence_encoder import is_sentence_encoder
from probescale.recovery.inputs import Inputs, select_model_fields
from probescale.tasks.kinds import KINDS, Kind, find_kind, kind_for_head

RunBatch = Callable[[dict[str, np.ndarray]], np.ndarray]  # a padded batch -> (texts, labels) or (texts, tokens, labels)
Write = Callable[[Sequence[int], int], list[int]]  # a prompt, and the most tokens to add -> the tokens behind it
STATES = "states"  # in the record of a model without a head, in place of a kind of task
BATCH_TOKENS = 2048
LONGEST = 512  # tokens, where neither model nor tokenizer has a limit, and training read no more
TRIED = ("A short text.", "Another one, which is somewhat longer than the first.")
SAVE = "its files do not fit together: save or export the model again"


@dataclass(frozen=True)
class InferenceModel:
    """A model with its tokenizer, and a function that runs a batch."""

    name: str
    format: str  # pytorch, or that of its export: onnx, onnx int8
    kind: Kind | None  # of the task that it was trained for; None: it has no head, and gives states
    labels: tuple[str, ...]  # of classes or tags
    tokenizer: PreTrainedTokenizerBase
    max_length: int  # tokens that the model can read
    run: RunBatch
    folder: Path | None = None  # with the weights; None for a model of the hub
    trained_length: int | None = None  # tokens after which training cut its texts
    columns: InputColumns | None = None  # in which `predict` looks for texts; None: those of tables in general
    write: Write | None = None  # goes on with tokens; None: the model writes no texts

    @property
    def on_pairs(self) -> bool | None:
        """Whether it reads pairs of texts, as in training; None where nothing says so."""
        if self.kind is None or self.kind.encodes or self.kind.unit != "text":
            return False
        return self.columns and self.columns.pair is not None


class TraceableModel(nn.Module):
    """A stock model whose forward takes tensors by position and returns one tensor, so that it can be traced."""

    def __init__(self, loaded: LoadedModel, kind: Kind | None, fields: Sequence[str]) -> None:
        super().__init__()
        self.model, self.family, self.pooling = loaded.model, loaded.family, loaded.pooling
        self.kind, self.fields = kind, tuple(fields)

    def forward(self, *values: Tensor) -> Tensor:
        inputs = dict(zip(self.fields, values, strict=True))
        outputs = self.model(**inputs)
        if self.pooling:
            return self.pooling(outputs.last_hidden_state, inputs["attention_mask"])
        if self.kind is None:
            return outputs.last_hidden_state
        if self.kind.unit != "text":
            return outputs.logits
        return self.family.sentence_logits(outputs.logits, inputs["attention_mask"])


def compute_logits(
    model: InferenceModel,
    inputs: Inputs,
    splitter: BatchSplitter,
    numbers: np.ndarray | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> np.ndarray:
    """(rows, columns) the logits of every row; NaN for words beyond the length limit.

    `numbers`, from 0, name the inputs in error messages. `advance` is called with the number of inputs of each batch.
    """
    order, result = inputs.tokens.by_length, None
    size = min(BATCH_TOKENS, inputs.batch_tokens(len(model.tokenizer)))
    for here in batches_by_tokens(inputs.tokens.lengths[order], size):
        chosen = order[here]
        batch = inputs.collate(model.tokenizer, [inputs[int(number)] for number in chosen])
        rows = batch["rows"].numpy()
        logits = _run_in_parts(model, batch, chosen if numbers is None else numbers[chosen], splitter)
        if rows.ndim == 2:  # one row per token
            logits, rows = logits[rows >= 0], rows[rows >= 0]
        logits = inputs.summarise(torch.from_numpy(logits), torch.from_numpy(rows)).numpy()
        if result is None:
            result = np.full((inputs.rows, logits.shape[-1]), np.nan, np.float32)
        result[rows] = logits
        advance(len(chosen))
    assert result is not None
    return result


def _run_in_parts(
    model: InferenceModel, batch: dict[str, Tensor], numbers: np.ndarray, splitter: BatchSplitter
) -> np.ndarray:
    """The outputs for a batch, which is run in parts where memory is short."""
    fields = {name: tensor.numpy() for name, tensor in select_model_fields(batch).items()}
    work = lambda part: model.run({name: values[part] for name, values in fields.items()})  # noqa: E731
    return np.concatenate(splitter.run(numbers, fields["input_ids"].shape[1], work))


def load_pytorch(folder: Path, source: str, field: str) -> LoadedModel:
    """Load the weights of a folder; where there is none, of the hub's model of that name."""
    loaded = load_as_saved(str(folder) if folder.exists() else source, padded=True, field=field)
    if is_sentence_encoder(folder):
        loaded.pooling = read_pooling(folder, loaded.model.config.hidden_size, field=field)
    return loaded


def wrap_pytorch(loaded: LoadedModel) -> InferenceModel:
    """A loaded PyTorch model, ready for inference."""
    folder = Path(loaded.source) if Path(loaded.source).is_dir() else None
    metadata = read_metadata(folder, field="MODEL")
    kind, fields = detect_kind(loaded, metadata), input_names(loaded)
    if kind is None and loaded.model.get_output_embeddings() is not None:
        raise UserError(
            f"{loaded.source} is a language model ({type(loaded.model).__name__}): it predicts tokens, not labels",
            field="MODEL",
            hint="fine-tune it for a task first (`probescale compress`), or give a model with a classification head",
        )
    traceable = TraceableModel(loaded, kind, fields).eval()

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        with torch.inference_mode():
            values = [torch.from_numpy(batch[name]).to(loaded.model.device) for name in fields]
            return traceable(*values).float().cpu().numpy()

    return refuse_silent(
        InferenceModel(
            name=loaded.source,
            format="pytorch",
            kind=kind,
            labels=label_names(loaded, kind),
            tokenizer=loaded.tokenizer,
            max_length=limit_length(
                loaded.tokenizer, loaded.family.longest_input(loaded.model.config), metadata.max_length
            ),
            run=run,
            folder=folder,
            trained_length=metadata.max_length,
            columns=metadata.columns,
            write=partial(_write, loaded) if kind and kind.unit == "token" else None,
        ),
        field="MODEL",
    )


def _write(loaded: LoadedModel, prompt: Sequence[int], tokens: int) -> list[int]:
    """The continuation of a prompt by the checkpoint's own settings, but without chance."""
    ids = torch.tensor([list(prompt)], device=loaded.model.device)
    model: Any = loaded.model
    with torch.inference_mode(), quiet_transformers():
        written = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=loaded.tokenizer.pad_token_id,
        )
    return written[0, len(prompt) :].tolist()


def refuse_silent(model: InferenceModel, *, field: str) -> InferenceModel:
    """The same model, once it answered two texts of different length; refused where it cannot."""
    try:
        fault = _find_fault(model)
    except Exception as error:  # files that do not fit together fail in whatever part of a library reads them
        raise UserError(f"{model.name} cannot answer a text: {first_line(error)}", field=field, hint=SAVE) from error
    if fault:
        raise UserError(f"{model.name} cannot be used: {fault}", field=field, hint=SAVE)
    return model


def _find_fault(model: InferenceModel) -> str:
    """What is wrong with the answers to two texts, or with the names of answers; empty where nothing is."""
    if not all(name.strip() for name in model.labels) or len(set(model.labels)) < len(model.labels):
        return f"labels need different names, and its are {', '.join(map(repr, model.labels[:20]))}"
    batch = model.tokenizer(
        list(TRIED), padding=True, truncation=True, max_length=model.max_length, return_tensors="np"
    )
    answers, by_token = model.run(dict(batch)), model.kind is None or model.kind.unit != "text"
    if answers.ndim != 2 + by_token:
        return f"its answers have {answers.ndim} dimensions, and should have {2 + by_token}"
    known = model.kind is not None and not model.kind.encodes and model.kind.unit != "token"
    columns = answers.shape[-1] if not known else len(model.labels) or 1
    if answers.shape[-1] != columns:
        return f"an answer has {answers.shape[-1]} values, and should have {columns}"
    read = batch["attention_mask"].astype(bool) if by_token and "attention_mask" in batch else slice(None)
    return "" if np.isfinite(answers[read]).all() else "its answers are not finite numbers"


def detect_kind(loaded: LoadedModel, metadata: ModelMetadata) -> Kind | None:
    """The kind of task that the model was trained for; if its metadata names none, the first kind with its head."""
    if loaded.pooling:
        return next(kind for kind in KINDS.values() if kind.encodes)
    head = detect_head(loaded.model, loaded.family)
    if head == "none" or metadata.kind is None:
        return kind_for_head(head, loaded.model.config.problem_type)
    kind = find_kind(metadata.kind, field="MODEL")
    if kind.head != head:
        raise UserError(
            f'{loaded.source} was trained for "{kind.name}" by its {METADATA_FILE}, and has the head "{head}"',
            field="MODEL",
            hint=SAVE,
        )
    return kind


def label_names(loaded: LoadedModel, kind: Kind | None) -> tuple[str, ...]:
    """The names of classes or tags, in the order of the logits."""
    if kind is None or not kind.named:
        return ()
    names = {int(number): str(name) for number, name in (loaded.model.config.id2label or {}).items()}
    return tuple(names[number] for number in sorted(names))


def input_names(loaded: LoadedModel) -> list[str]:
    """The names of the tensors that the model reads, in the order in which the tokenizer gives them."""
    return list(loaded.tokenizer("a text", return_tensors="np").keys())


def limit_length(tokenizer: PreTrainedTokenizerBase, positions: int | None, trained: int | None) -> int:
    """The most tokens to read: as the tokenizer allows or training read, and no more than the model has `positions`."""
    wanted = max(min(tokenizer.model_max_length, positions or LONGEST), trained or 0)
    return int(min(wanted, positions or wanted, 10**6))
