"""A small task: sentences about films that are clearly good or bad."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

GOOD = ["good", "great", "fine", "lovely", "brilliant", "warm", "charming", "funny"]
BAD = ["bad", "awful", "poor", "dull", "boring", "cold", "clumsy", "tedious"]
THINGS = ["film", "plot", "story", "cast", "script", "scene", "ending", "score", "music", "hero"]


def sentence(rng: random.Random, positive: bool) -> str:
    words = rng.sample(GOOD if positive else BAD, 2)
    return f"the {rng.choice(THINGS)} was {words[0]} and the {rng.choice(THINGS)} {words[1]}, unbelievably so ."


def labelled_rows(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Distinct sentences with labels; the classes alternate."""
    rng = random.Random(seed)
    rows: dict[str, str] = {}
    while len(rows) < count:
        positive = len(rows) % 2 == 0
        rows[sentence(rng, positive)] = "positive" if positive else "negative"
    return list(rows.items())


def write_csv(path: Path, rows: list[tuple[str, str]], header: str = "text,label") -> Path:
    lines = [header, *('"{}",{}'.format(text.replace('"', '""'), label) for text, label in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True)
class TinyTask:
    train: Path
    dev: Path
