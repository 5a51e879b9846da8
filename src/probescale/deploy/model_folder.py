"""Where the model is in a run's folder."""

from __future__ import annotations

from pathlib import Path


def find_model_folder(folder: Path) -> Path:
    """The folder of the model in a run's folder; any other folder itself."""
    return folder / "model" if (folder / "model" / "config.json").is_file() else folder
