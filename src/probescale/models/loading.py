"""Load models from a folder or a GGUF file: no pickle unless allowed, and no weight silently left random."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from accelerate import init_empty_weights
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.initialization import no_init_weights

from probescale.config import Head
from probescale.errors import UserError, first_line
from probescale.models.checkpoint import (
    refuse_missing,
    refuse_unknown_layers,
    refuse_unusable_weights,
    stored_dtype,
    weight_files,
)
from probescale.models.config_reading import read_folder_config
from probescale.models.families import find_family
from probescale.models.family import Family, backbone_prefix
from probescale.models.heads import PROBLEM_TYPES, find_stock_class, stock_class_name
from probescale.models.layer_config import cut_config
from probescale.models.pooling import SentencePooling, read_pooling
from probescale.models.tokenizers import find_tokenizer_file, gguf_options, load_tokenizer
from probescale.utils.progress import console, spinner
from probescale.utils.sources import fetch_model_folder


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the library's load reports and progress bars: what matters in them is checked and raised here."""
    logging = transformers.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def empty_weights() -> Iterator[None]:
    """Build models without memory for weights, and without drawing random ones."""
    with no_init_weights(), init_empty_weights(include_buffers=False):
        yield


@dataclass
class LoadedModel:
    """A stock model with its tokenizer and the description of its family."""

    model: PreTrainedModel
    own_tokenizer: PreTrainedTokenizerBase | None  # None: the folder has none, and a cut does not need one
    family: Family
    source: str  # as the user wrote it
    fingerprint: str  # of the backbone's weights; changes with a cut and with training
    head_is_trained: bool = False  # for the task's labels: by whoever made the checkpoint, or here
    pooling: SentencePooling | None = None  # of a sentence encoder, which gives one vector per text
    thresholds: dict[str, float] | None = None  # of labels, in probabilities; the output layer has them already

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        if self.own_tokenizer is None:
            raise UserError(f"{self.source} has no tokenizer", hint="save the model's own tokenizer in its folder")
        return self.own_tokenizer

    @property
    def layers(self) -> int:
        return self.family.count_layers(self.model.config)

    @property
    def usual_pooling(self) -> str:
        """Which token states a sentence probe reads: those of a sentence encoder's own pooling, or of the family."""
        return self.pooling.mode.removesuffix("token") if self.pooling else self.family.pooling

    @property
    def outputs(self) -> int:
        """How many numbers an answer has: logits, or those of an embedding."""
        return self.pooling.width if self.pooling else len(self.model.config.id2label or ())

    def __getstate__(self) -> dict[str, Any]:
        """Leave the family out for another process, which finds it again: descriptions contain functions."""
        return {name: value for name, value in vars(self).items() if name != "family"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, family=find_family(state["model"].config))


def check_local_model(source: str, *, allow_pickle: bool = False, field: str = "model.source") -> None:
    """Refuse a local model whose config, tokenizer or weight files cannot be read, without loading the weights."""
    folder = fetch_model_folder(source, field=field)
    load_tokenizer(folder, read_folder_config(folder, field=field), field=field)
    stored_dtype(weight_files(folder, allow_pickle=allow_pickle, field=field), field=field)


def load_classifier(
    source: str,
    revision: str | None,
    names: Sequence[str],
    seed: int,
    *,
    head: Head = "sentence",
    problem_type: str | None = None,
    keep_head: bool = False,
    allow_pickle: bool = False,
    field: str = "model.source",
) -> LoadedModel:
    """The model with a new head for these labels or tags, initialized from the seed, whatever the checkpoint's head.

    A regression head predicts one number and has no labels: `names` is empty. `keep_head`: the checkpoint's own head
    is kept, which has these labels in this order.
    """
    folder = fetch_model_folder(source, revision, field=field, allow_pickle=allow_pickle)
    config = read_folder_config(folder, field=field)
    family = find_family(config, field=field)
    tokenizer = load_tokenizer(folder, config, field=field)
    stock = find_stock_class(family, config, head, field=field)
    settings = {} if head == "lm" else _head_settings(config, tokenizer, names, head, problem_type)
    # float32: a half-precision checkpoint would silently train in half precision.
    options = {"ignore_mismatched_sizes": True, "dtype": torch.float32, **settings}
    model, info = _load(stock, folder, family, allow_pickle=allow_pickle, field=field, **options)
    new = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
    body = {n for n in new if n.startswith(backbone_prefix(model)) and ".pooler." not in n}
    refuse_missing(body, folder, family.stack, model, field=field)
    trained = keep_head and not new
    if head == "lm" and not trained:
        raise UserError(f"{folder} has no head that predicts tokens", field=field, hint="give a generative model")
    if not trained:
        new |= {name for name in model.state_dict() if not name.startswith(backbone_prefix(model))}
        _initialize(model, family, new, seed)
    cast("torch.nn.Module", model).to("cuda" if torch.cuda.is_available() else "cpu")
    return LoadedModel(model, tokenizer, family, source, compute_fingerprint(model, without=new), trained)


def _head_settings(
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    names: Sequence[str],
    head: Head,
    problem_type: str | None,
) -> dict[str, Any]:
    """Settings of a model's config for a head with these labels."""
    names = ("number",) if head == "regression" else names
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: i for i, name in enumerate(names)},
        # A decoder's sentence head reads the last token that is not padding.
        **({} if config.pad_token_id is not None else {"pad_token_id": tokenizer.pad_token_id}),
        # Always set: the checkpoint's own head may have another problem type.
        "problem_type": problem_type or PROBLEM_TYPES.get(head),
    }


def read_trained_labels(
    source: str, revision: str | None, head: Head, problem_type: str | None = None, *, field: str
) -> tuple[str, ...] | None:
    """The labels of a checkpoint that was fine-tuned with this head, in its order; None where it has another head.

    `problem_type`: of its config, where it is not the head's own.
    """
    folder = fetch_model_folder(source, revision, field=field)
    config = read_folder_config(folder, field=field)
    stock = stock_class_name(find_family(config, field=field), config, head)
    saved = config.architectures if isinstance(config.architectures, list) else []
    usual = PROBLEM_TYPES.get(head)
    fitting = (problem_type,) if problem_type else (usual,) if head == "regression" else (usual, None)
    if stock is None or stock not in saved or config.problem_type not in fitting:
        return None
    return tuple(str(name) for _, name in sorted((config.id2label or {}).items()))


def load_encoder(
    source: str, revision: str | None, *, allow_pickle: bool = False, field: str = "model.source"
) -> LoadedModel:
    """A sentence encoder without any head, with its pooling."""
    folder = fetch_model_folder(source, revision, field=field, allow_pickle=allow_pickle)
    loaded = load_as_saved(source, revision, bare=True, padded=True, allow_pickle=allow_pickle, field=field)
    loaded.pooling = read_pooling(folder, loaded.model.config.hidden_size, field=field)
    loaded.head_is_trained = True
    cast("torch.nn.Module", loaded.model).to("cuda" if torch.cuda.is_available() else "cpu")
    return loaded


def load_as_saved(
    source: str,
    revision: str | None = None,
    *,
    bare: bool = False,
    encoder_only: bool = False,
    padded: bool = False,
    reads_texts: bool = True,
    allow_pickle: bool = False,
    dtype: torch.dtype | str = torch.float32,
    field: str = "MODEL",
) -> LoadedModel:
    """The model in the class it was saved in, including its head; `dtype="auto"` keeps the stored dtype.

    `bare`: without its head.
    `padded`: its tokenizer pads batches, on the right. `reads_texts`: it must have a tokenizer.
    """
    folder = fetch_model_folder(source, revision, field=field, allow_pickle=allow_pickle)
    config = read_folder_config(folder, field=field)
    family = find_family(config, field=field)
    has_tokenizer = reads_texts or find_tokenizer_file(folder)
    tokenizer = load_tokenizer(folder, config, padded=padded, field=field) if has_tokenizer else None
    files = weight_files(folder, allow_pickle=allow_pickle, field=field)
    dtype = stored_dtype(files, field=field) if dtype == "auto" else dtype
    load = partial(_load, folder=folder, family=family, allow_pickle=allow_pickle, field=field, dtype=dtype)
    name = stock_class_name(family, config, "none") if bare else None
    backbone = getattr(transformers, name or family.backbone_class)
    saved_as = backbone if encoder_only or bare else _saved_class(config, family, folder)
    model, info = load(saved_as)
    if saved_as is not backbone and any(not name.startswith(backbone_prefix(model)) for name in info["missing_keys"]):
        del model
        model, info = load(backbone)  # the config names a head that the checkpoint does not have
    if info["missing_keys"] and all(name.startswith("pooler.") for name in info["missing_keys"]):
        del model
        model, info = load(backbone, add_pooling_layer=False)  # nor a pooler: do not add a random one
    refuse_missing(set(info["missing_keys"]), folder, family.stack, model, field=field)
    if encoder_only and (family.decoder is None or family.decoder_layers(model) is not None):
        raise UserError(f"{config.model_type} models have no stock class for the encoder alone", field="--encoder-only")
    _note_unused(info["unexpected_keys"], model)
    if tokenizer and padded and model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id  # a decoder's sentence head looks for it
    return LoadedModel(model, tokenizer, family, source, compute_fingerprint(model))


def _saved_class(config: PreTrainedConfig, family: Family, folder: Path) -> type:
    """The class that the config names, or a class with or without language model head for this family."""
    names = config.architectures if isinstance(config.architectures, list) else []
    named = getattr(transformers, str(names[0]), None) if names and folder.suffix != ".gguf" else None
    if isinstance(named, type) and issubclass(named, PreTrainedModel):  # not every name in the library is a model
        return named
    generates = family.pooling == "last" or family.decoder is not None
    known = stock_class_name(family, config, "lm" if generates else "none")
    return getattr(transformers, known or "", getattr(transformers, family.backbone_class))


def _note_unused(unexpected: Iterable[str], model: PreTrainedModel) -> None:
    """Tell the user about weights of the checkpoint that the class does not have."""
    names = sorted(name for name in unexpected if not name.endswith("position_ids"))
    if names:
        console.print(
            f"note: {len(names)} weights of the checkpoint have no place in {type(model).__name__} and are left out, "
            f"such as {names[0]}",
        )


def compute_fingerprint(model: PreTrainedModel, without: Collection[str] = ()) -> str:
    """sha256 over names and values of the backbone's weights, independent of the head and of the stored dtype."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if name.startswith(backbone_prefix(model)) and name not in without:
            digest.update(name.removeprefix(backbone_prefix(model)).encode())
            digest.update(tensor.detach().float().contiguous().cpu().numpy().data)
    return digest.hexdigest()


def _initialize(model: PreTrainedModel, family: Family, names: Collection[str], seed: int) -> None:
    """Set these weights to the random values of a new model with this seed (with one layer: others are not needed)."""
    config = cut_config(model.config, family, (1,))
    transformers.set_seed(seed)
    drawn = type(model)(config).state_dict()
    with torch.no_grad():
        for name in names:
            model.state_dict()[name].copy_(drawn[name])


def _load(
    cls: type, folder: Path, family: Family, *, allow_pickle: bool, field: str, **options: object
) -> tuple[PreTrainedModel, dict[str, Iterable[str]]]:
    """from_pretrained, with unknown layers and all faults as errors."""
    files = weight_files(folder, allow_pickle=allow_pickle, field=field)
    place, gguf = gguf_options(folder, field=field)
    if not gguf:
        options["use_safetensors"] = files[0].suffix == ".safetensors"
    try:
        with spinner("loading the model"), quiet_transformers():
            loaded, info = cls.from_pretrained(  # type: ignore[attr-defined]
                place,
                local_files_only=True,
                output_loading_info=True,
                **({"trust_remote_code": False} if cls.__name__.startswith("Auto") else {}),
                **gguf,
                **options,
            )
    except Exception as error:  # whatever the library raises for broken files
        if "ignore_mismatched_sizes" in str(error):  # the message refers to a report that is not shown
            raise UserError(
                f"{folder} has weights in other shapes than its config says", field=field, hint="correct its config"
            ) from error
        raise UserError(f"{folder} cannot be loaded: {first_line(error)}", field=field) from error
    refuse_unknown_layers(info["unexpected_keys"], family, loaded, folder, field=field)
    refuse_unusable_weights(loaded, files, folder, field=field)
    return loaded.eval(), info
