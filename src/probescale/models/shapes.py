"""Shapes of well-known checkpoints: their config by name, for questions that need neither weights nor a network."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@cache
def _entries() -> dict[str, dict[str, Any] | str]:
    """What `shapes.yaml` says: the shape of a name, or the name it is an alias of."""
    return YAML(typ="safe").load(
        resources.files("probescale.models").joinpath("shapes.yaml").read_text(encoding="utf-8")
    )


@cache
def _spelling() -> dict[str, str]:
    return {name.lower(): name for name in _entries()}


def names() -> list[str]:
    """All names with a built-in shape, aliases among them, in alphabetical order.

    >>> names()[:3]
    ['all-MiniLM-L6-v2', 'bart-base', 'bart-large']
    """
    return sorted(_entries(), key=str.lower)


def built_in(name: str) -> PreTrainedConfig | None:
    """A new config of this checkpoint, in any case and with or without its organisation; None for an unknown name."""
    known = _spelling().get(name.rsplit("/", 1)[-1].lower())
    if known is None:
        return None
    shape = _entries()[known]
    if isinstance(shape, str):
        shape = _entries()[shape]
    assert isinstance(shape, dict), f"{known} is an alias of an alias"

    from transformers import AutoConfig  # seconds; listing the names does without

    return AutoConfig.for_model(**shape)
