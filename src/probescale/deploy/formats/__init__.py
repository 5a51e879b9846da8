"""Formats of `probescale export`, by name. To add one, put a class with @exporter into a file of this folder."""

from __future__ import annotations

from pathlib import Path

from probescale.deploy.formats import onnx
from probescale.deploy.formats.base import EXPORTERS, Exporter, ExportRecord, exporter
from probescale.errors import UserError, lookup

__all__ = ["EXPORTERS", "ExportRecord", "Exporter", "detect_exporter", "exporter", "find_exporter", "onnx"]


def find_exporter(name: str) -> Exporter:
    """The exporter of a format; an unknown name is refused with the names that are known."""
    if name == "gguf":
        raise UserError(
            "GGUF is not written here",
            field="--to",
            hint="a decoder's folder is read by llama.cpp: python convert_hf_to_gguf.py FOLDER",
        )
    return lookup(EXPORTERS, name, field="--to")


def detect_exporter(folder: Path) -> Exporter | None:
    """The exporter that wrote a folder; None where it holds no exported model."""
    return next((exporter for exporter in EXPORTERS.values() if (folder / exporter.file).is_file()), None)
