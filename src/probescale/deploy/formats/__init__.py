"""Formats of `probescale export`, by name. To add one, put a class with @exporter into a file of this folder."""

from __future__ import annotations

from pathlib import Path

from probescale.deploy.formats.base import EXPORTERS as EXPORTERS
from probescale.deploy.formats.base import Exporter as Exporter
from probescale.deploy.formats.base import ExportRecord as ExportRecord
from probescale.deploy.formats.base import exporter as exporter
from probescale.errors import lookup
from probescale.utils.registry import import_files

import_files(__name__, __path__)


def find_exporter(name: str) -> Exporter:
    """The exporter of a format; an unknown name is refused with the names that are known."""
    return lookup(EXPORTERS, name, field="--to")


def detect_exporter(folder: Path) -> Exporter | None:
    """The exporter that wrote a folder; None where it holds no exported model."""
    return next((exporter for exporter in EXPORTERS.values() if (folder / exporter.file).is_file()), None)
