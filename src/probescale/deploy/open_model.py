"""open_model(): a saved model, whatever its format, opened for inference."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from probescale.deploy.formats import Exporter, ExportRecord, detect_exporter
from probescale.deploy.inference import (
    STATES,
    InferenceModel,
    limit_length,
    load_pytorch,
    refuse_silent,
    wrap_pytorch,
)
from probescale.deploy.metadata import read_metadata
from probescale.deploy.model_folder import find_model_folder
from probescale.errors import UserError
from probescale.models.config_reading import read_folder_config
from probescale.models.families import find_family
from probescale.models.tokenizers import load_tokenizer
from probescale.tasks.kinds import find_kind


def open_model(source: str, rung: str | None = None, *, field: str = "MODEL") -> InferenceModel:
    """Open a run's folder, a model folder, a folder that `export` wrote, or a model of the hub.

    `rung`: a size of a ladder, such as 5x.
    """
    folder = find_model_folder(Path(source), rung)
    if exporter := detect_exporter(folder):
        return open_exported(folder, exporter, field=field)
    return wrap_pytorch(load_pytorch(folder, source, field))


def open_exported(folder: Path, exporter: Exporter, *, field: str) -> InferenceModel:
    """Open a folder that `export` wrote."""
    metadata = read_metadata(folder, field=field)
    try:
        record = ExportRecord.model_validate((metadata.model_extra or {})[exporter.name])
    except (KeyError, ValidationError) as error:
        raise UserError(
            f"{folder} has {exporter.file} but no valid record of its export",
            field=field,
            hint="export it with `probescale export`",
        ) from error
    config = read_folder_config(folder, field=field)
    tokenizer = load_tokenizer(folder, config, field=field)
    positions = find_family(config, field=field).longest_input(config)
    model = InferenceModel(
        name=str(folder),
        format=f"{exporter.name} int8" if record.int8 else exporter.name,
        kind=None if record.kind == STATES else find_kind(record.kind, field=field),
        labels=record.labels,
        tokenizer=tokenizer,
        max_length=min(record.longest, limit_length(tokenizer, positions, metadata.max_length)),
        run=exporter.open(folder, record),
        folder=folder,
        trained_length=metadata.max_length,
        columns=metadata.columns,
    )
    return refuse_silent(model, field=field)
