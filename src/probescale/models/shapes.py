"""Shapes of well-known checkpoints: their config by name, for questions that need neither weights nor a network."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_ORGANISATIONS = (
    "almanach", "answerdotai", "distilbert", "eleutherai", "facebook", "facebookai", "google", "google-bert",
    "google-t5", "huggingfacetb", "microsoft", "mistralai", "openai-community", "qwen", "sentence-transformers",
    "tinyllama",
)  # fmt: skip


@cache
def _entries() -> dict[str, dict[str, Any] | str]:
    """What `shapes.yaml` says: the shape of a name, or the name it is an alias of."""
    return YAML(typ="safe").load(
        resources.files("probescale.models").joinpath("shapes.yaml").read_text(encoding="utf-8")
    )


@cache
def _spelling() -> dict[str, str]:
    return {name.lower(): name for name in _entries()}


def list_shapes() -> list[str]:
    """All names with a built-in shape, aliases among them, in alphabetical order.

    >>> list_shapes()[:3]
    ['all-MiniLM-L6-v2', 'bart-base', 'bart-large']
    """
    return sorted(_entries(), key=str.lower)


def canonical_name(name: str) -> str | None:
    """The name as it stands in shapes.yaml, whatever its case, alias or organisation; None for an unknown one."""
    organisation, _, plain = name.lower().rpartition("/")
    known = _spelling().get(plain)
    if known is None or (organisation and organisation not in _ORGANISATIONS):  # others give the same names to others
        return None
    shape = _entries()[known]
    return shape if isinstance(shape, str) else known


def built_in_config(name: str) -> PreTrainedConfig | None:
    """A new config of this checkpoint; None for an unknown name."""
    known = canonical_name(name)
    if known is None:
        return None
    shape = _entries()[known]
    assert isinstance(shape, dict), f"{known} is an alias of an alias"

    from transformers import AutoConfig  # seconds; listing the names does without

    return AutoConfig.for_model(**shape)
