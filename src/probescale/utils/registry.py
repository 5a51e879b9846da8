"""Registries that people add to: every file of a folder is registered by being there."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules


def import_files(package: str, folders: Iterable[str]) -> None:
    """Import every module of a package, so that what its files register is known."""
    for module in iter_modules(folders):
        import_module(f"{package}.{module.name}")


def first_doc_line(documented: object) -> str:
    """The first line of a docstring, as lists show it; empty where there is none."""
    return (documented.__doc__ or "").strip().partition("\n")[0]
