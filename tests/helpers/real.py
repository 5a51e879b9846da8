"""Real weights and data, where they are: $PROBESCALE_REAL names a folder with `weights/` and `data/`."""

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
    pytest.skip(f"the weights of {name} are not here; `make real-weights` fetches them")
