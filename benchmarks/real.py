"""Real weights and data of the benchmarks: $PROBESCALE_REAL names a folder with `weights/` and `data/`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
REAL = Path(os.environ.get("PROBESCALE_REAL", "no-real-weights-here")).resolve()
DATA = REAL / "data"


def weights(name: str) -> Path:
    """The folder or GGUF file of a real model, from $PROBESCALE_REAL or from `make real-weights`."""
    for place in (REAL / "weights" / name, ROOT / ".cache" / "real-weights" / name):
        if (place / "config.json").exists():
            return place
        if files := sorted(place.rglob("*.gguf")):
            return files[0]
    sys.exit(f"the weights of {name} are not here: set PROBESCALE_REAL, run `make real-weights` (CONTRIBUTING.md)")
