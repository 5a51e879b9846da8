"""Building blocks of configurations: sections that refuse unknown keys, and the types of their fields."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, StringConstraints


class Section(BaseModel):
    """A part of the configuration: frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _no_address(source: str) -> str:
    if "://" in source:
        raise ValueError("an address is no source: give a local path, a name on the hub, or a place in a wheel")
    return source


Source = Annotated[str, StringConstraints(min_length=1), AfterValidator(_no_address)]
Name = Annotated[str, StringConstraints(min_length=1, pattern=r"^[\w.-]+$")]
Int = Annotated[int, Strict()]  # true is not 1
Column = Annotated[str | int, Field(union_mode="left_to_right")]


def short_name(source: str) -> str:
    """The last part of a model's source, as a file name.

    >>> short_name("pypi:some-model==0.1/some/folder#sha256=0"), short_name("owner/bert"), short_name("my model")
    ('some-model', 'bert', 'my-model')
    """
    wheel = re.match(r"pypi:([^=]+)==", source)
    return re.sub(r"[^\w.=-]+", "-", wheel[1] if wheel else PurePath(source).name) or "model"


def list_of_one(value: Any) -> Any:  # noqa: ANN401 - raw YAML
    """A text alone as a list; everything else as it is."""
    return [value] if isinstance(value, str) else value


def text_keys(value: Any) -> Any:  # noqa: ANN401 - raw YAML, where 0: and "0": are different keys
    """A mapping with its keys as text."""
    return {str(key): name for key, name in value.items()} if isinstance(value, dict) else value


def auto_alone(value: Any) -> Any:  # noqa: ANN401 - raw YAML
    """`auto` alone as a section in which nothing is set."""
    return {} if value == "auto" else value
