"""Real weights and data: $PROBESCALE_REAL names a folder with `weights/` and `data/`; CONTRIBUTING.md says more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
REAL = Path(os.environ.get("PROBESCALE_REAL", "nowhere"))  # absent in most checkouts


def real_weights(name: str) -> Path:
    """The folder of a real model, or a skip that says how to get it."""
    places = [REAL / "weights" / name, REPOSITORY / ".cache" / "real-weights" / name]
    for place in places:
        if (place / "config.json").exists():
            return place
        if files := sorted(place.rglob("*.gguf")):
            return files[0]
    pytest.skip(f"needs the weights of {name}: run `make real-weights`, or set PROBESCALE_REAL (CONTRIBUTING.md)")


def real_data(name: str) -> Path:
    """A file below the folder of real data, or a skip that says how to get it."""
    path = REAL / "data" / name
    if not path.exists():
        pytest.skip(f"needs the data {name}: set PROBESCALE_REAL to a folder that has it (CONTRIBUTING.md)")
    return path
