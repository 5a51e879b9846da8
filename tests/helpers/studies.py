"""A small study on a tiny model."""

from __future__ import annotations

from typing import Any


def settings(model_folder, task_files, **study) -> dict[str, Any]:
    what = {"strategies": ["stitched", "top_k"], "budgets": ["k=2"], "seeds": [0], "workers": 2}
    return {
        "model": {"source": str(model_folder("bert")), "max_length": 32},
        "task": {"name": "tiny", "train": str(task_files.train), "dev": str(task_files.dev)},
        "probing": {"selectivity": False, "code_length": False, "penalties": [0.01]},
        "relevance": {"metric": "information"},
        "recovery": {"epochs": 3, "learning_rate": 3e-3, "batch_size": 16},
        "study": {**what, **study},
    }
