"""What inference reads in the probescale.json of a model folder, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from probescale.errors import UserError
from probescale.models.saving import METADATA_FILE
from probescale.utils.files import Record, read_json

Tokens = Annotated[int, Field(ge=1, strict=True)]


class InputColumns(Record):
    """The columns that a model learned from, in tables of one text or of a pair of texts per row."""

    text: str = "text"
    pair: str | None = None
    header: bool = True  # whether CSV and TSV files had the names of their columns in the first line


class ModelMetadata(Record):
    """A model's probescale.json. What inference does not read stays as it is."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str | None = None  # of the task
    max_length: Tokens | None = None  # tokens after which training cut its texts
    columns: InputColumns | None = None


def read_metadata(folder: Path | None, *, field: str) -> ModelMetadata:
    """The probescale.json of a folder; without any entry where there is none."""
    path = folder / METADATA_FILE if folder else None
    if path is None or not path.is_file():
        return ModelMetadata()
    try:
        return ModelMetadata.model_validate(read_json(path, field=field))
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"])) or "the file"
        raise UserError(
            f"{path}: {where}: {wrong['msg']}", field=field, hint="remove the file, or write the model again"
        ) from error
