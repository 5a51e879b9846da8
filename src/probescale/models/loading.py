"""Models from a folder: float32, safetensors only, and no weight left to chance unnoticed."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from probescale.errors import UserError
from probescale.models.families import Family, backbone_prefix, family_of
from probescale.models.tokenizers import load_tokenizer
from probescale.progress import waiting
from probescale.sources import model_folder


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without the library's load reports and bars: what matters in them is checked here and raised."""
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


@dataclass(frozen=True)
class LoadedModel:
    """A stock model with its tokenizer and the description of its family."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    family: Family
    source: str  # as the user gave it
    fingerprint: str  # of the backbone's weights as they were loaded

    @property
    def layers(self) -> int:
        return self.family.layers_in(self.model.config)


def read_config(source: str, revision: str | None = None, *, field: str = "model.source") -> PreTrainedConfig:
    """The model's config alone: from the hub, nothing else is fetched."""
    return _config(model_folder(source, revision, field=field, config_only=True), field=field)


def check_local_model(source: str, *, field: str = "model.source") -> None:
    """Refuse a local folder whose tokenizer or weights cannot be read, without loading the weights."""
    folder = model_folder(source, field=field)
    load_tokenizer(folder, _config(folder, field=field), field=field)
    for path in _weight_files(folder, field=field):
        try:
            with safe_open(path, "pt"):
                pass
        except Exception as error:  # whatever is wrong with the file
            raise UserError(f"{path} is not a safetensors file: {error}", field=field) from error


def load_classifier(
    source: str, revision: str | None, names: Sequence[str], seed: int, *, field: str = "model.source"
) -> LoadedModel:
    """The model with a new sentence head for these labels, drawn from the seed, whatever head the checkpoint has."""
    folder = model_folder(source, revision, field=field)
    config = _config(folder, field=field)
    family = family_of(config, field=field)
    tokenizer = load_tokenizer(folder, config, field=field)
    auto = getattr(transformers, family.classifier)
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    model, info = _load(auto, folder, field=field, ignore_mismatched_sizes=True, **labels)
    new = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
    _refuse_missing(
        {n for n in new if n.startswith(backbone_prefix(model)) and ".pooler." not in n}, folder, field=field
    )
    new |= {name for name in model.state_dict() if not name.startswith(backbone_prefix(model))}
    _draw(model, family, new, seed)
    return LoadedModel(model, tokenizer, family, source, fingerprint(model, without=new))


def load_as_saved(source: str, revision: str | None = None, *, field: str = "MODEL") -> LoadedModel:
    """The model in the class it was saved in, head included."""
    folder = model_folder(source, revision, field=field)
    config = _config(folder, field=field)
    family = family_of(config, field=field)
    tokenizer = load_tokenizer(folder, config, field=field)
    bare = getattr(transformers, family.backbone)
    saved_as = getattr(transformers, (config.architectures or [""])[0], bare)
    if config.is_encoder_decoder:  # the encoder is cut alone, out of the whole model
        saved_as = bare
    model, info = _load(saved_as, folder, field=field)
    if saved_as is not bare and any(not name.startswith(backbone_prefix(model)) for name in info["missing_keys"]):
        model, info = _load(bare, folder, field=field)  # the config names a head that the checkpoint does not have
    if info["missing_keys"] and all(name.startswith("pooler.") for name in info["missing_keys"]):
        model, info = _load(bare, folder, field=field, add_pooling_layer=False)  # nor a pooler: do not invent one
    _refuse_missing(set(info["missing_keys"]), folder, field=field)
    return LoadedModel(model, tokenizer, family, source, fingerprint(model))


def fingerprint(model: PreTrainedModel, without: Collection[str] = ()) -> str:
    """sha256 over names and values of the backbone's weights, the same whatever head sits on it."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if name.startswith(backbone_prefix(model)) and name not in without:
            digest.update(name.removeprefix(backbone_prefix(model)).encode())
            digest.update(tensor.detach().contiguous().cpu().numpy().data)
    return digest.hexdigest()


def _draw(model: PreTrainedModel, family: Family, names: Collection[str], seed: int) -> None:
    """Give these weights the values that the seed draws for a new model (of one layer: the layers are not needed)."""
    config = copy.deepcopy(model.config)
    setattr(config, family.layer_count, 1)
    transformers.set_seed(seed)
    drawn = type(model)(config).state_dict()
    with torch.no_grad():
        for name in names:
            model.state_dict()[name].copy_(drawn[name])


def _config(folder: Path, *, field: str) -> PreTrainedConfig:
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # whatever the library makes of a wrong file
        reason = " ".join(str(error).split()).split(". ")[0]
        raise UserError(
            f"{folder} has a config.json that transformers refuses: {reason}",
            field=field,
            hint="see `probescale list families` for what is supported",
        ) from error


def _load(
    cls: type, folder: Path, *, field: str, **options: object
) -> tuple[PreTrainedModel, dict[str, Iterable[str]]]:
    """from_pretrained in float32 (a float16 checkpoint would otherwise train in float16), never from pickle."""
    _weight_files(folder, field=field)
    try:
        with waiting("loading the model"), quiet_transformers():
            loaded, info = cls.from_pretrained(  # type: ignore[attr-defined]
                folder,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                **options,
            )
    except Exception as error:  # whatever the library makes of wrong or broken files
        raise UserError(f"{folder} cannot be loaded: {str(error).strip().splitlines()[0]}", field=field) from error
    return loaded.to("cuda" if torch.cuda.is_available() else "cpu").eval(), info


def _weight_files(folder: Path, *, field: str) -> list[Path]:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise UserError(
            f"{folder} has no safetensors weights",
            field=field,
            hint="save it with save_pretrained; pickles are not read",
        )
    return files


def _refuse_missing(names: set[str], folder: Path, *, field: str) -> None:
    if names:
        raise UserError(
            f"{folder} lacks {len(names)} weights its config asks for (or of another shape), such as {min(names)}",
            field=field,
            hint="they would be random; check the checkpoint",
        )
