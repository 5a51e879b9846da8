"""Built-in configs of well-known checkpoints, for questions that need neither weights nor a network."""

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
    """The contents of shapes.yaml: for each name its settings, or the name that it is an alias of."""
    return YAML(typ="safe").load(
        resources.files("probescale.models").joinpath("shapes.yaml").read_text(encoding="utf-8")
    )


@cache
def _spelling() -> dict[str, str]:
    """Lower-case name -> name as in shapes.yaml."""
    return {name.lower(): name for name in _entries()}


def list_shapes() -> list[str]:
    """All names with a built-in config, including aliases, in alphabetical order.

    >>> list_shapes()[:3]
    ['all-MiniLM-L6-v2', 'bart-base', 'bart-large']
    """
    return sorted(_entries(), key=str.lower)


def canonical_name(name: str) -> str | None:
    """The name as in shapes.yaml, for any case, alias or known organisation; None for an unknown name."""
    organisation, _, plain = name.lower().rpartition("/")
    known = _spelling().get(plain)
    # A model of this name by another owner is another model.
    if known is None or (organisation and organisation not in _ORGANISATIONS):
        return None
    entry = _entries()[known]
    return entry if isinstance(entry, str) else known


def built_in_config(name: str) -> PreTrainedConfig | None:
    """A new config of a well-known checkpoint; None for an unknown name."""
    known = canonical_name(name)
    if known is None:
        return None
    settings = _entries()[known]
    assert isinstance(settings, dict), f"{known} is an alias of an alias"

    from transformers import AutoConfig  # takes seconds; listing the names does not need it

    return AutoConfig.for_model(**settings)
