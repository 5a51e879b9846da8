"""GGUF: one file for llama.cpp, written by its own converter and read back by transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from probescale.deploy.formats.base import Exporter, ExportRecord, exporter
from probescale.deploy.gguf_converter import convert, find_converter
from probescale.deploy.inference import RunBatch
from probescale.errors import ProofFailed, UserError, first_line
from probescale.models.loading import LoadedModel, quiet_transformers
from probescale.models.tokenizers import gguf_options
from probescale.tasks.kinds import Kind
from probescale.utils.progress import spinner


@exporter("gguf")
class GgufExporter(Exporter):
    """A file for llama.cpp, written by its own converter (`--converter`); `--int8` for 8-bit weights (Q8_0)."""

    file = "model.gguf"
    suffixes = (".gguf",)
    runtime = "gguf"

    def __init__(self, converter: Path | None = None) -> None:
        self.converter = converter
        self.source: Path | None = None  # the model's folder, which the converter reads

    def with_converter(self, converter: str | None) -> Exporter:
        gguf_options(Path(self.file), field="--to")  # refuses at once where the file could not be read back
        return GgufExporter(find_converter(converter))

    def check(self, loaded: LoadedModel) -> None:
        if not loaded.family.is_decoder or loaded.model.get_output_embeddings() is None:
            raise UserError(
                f"{type(loaded.model).__name__} writes no texts; GGUF is for generative models here",
                field="--to",
                hint="use --to onnx",
            )
        if code := next(Path(loaded.source).glob("*.py"), None):
            raise UserError(
                f"{loaded.source} has code of its own ({code.name}), which the converter could run",
                field="MODEL",
                hint="remove it: the model does not need it here",
            )
        if not Path(loaded.source).is_dir():
            raise UserError(
                f"{loaded.source} is no folder, which llama.cpp's converter reads",
                field="MODEL",
                hint="save the model into a folder first",
            )

    def write(self, loaded: LoadedModel, kind: Kind | None, folder: Path, *, int8: bool) -> None:
        self.source = Path(loaded.source)
        self._convert(folder, "f32")

    def quantize(self, folder: Path) -> bool:
        self._convert(folder, "q8_0")
        return True

    def _convert(self, folder: Path, numbers: str) -> None:
        assert self.converter is not None
        assert self.source is not None
        with spinner("llama.cpp's converter is running"):
            convert(self.converter, self.source, folder / self.file, numbers)

    def open(self, folder: Path, record: ExportRecord) -> RunBatch:
        """The model as transformers reads it from the file."""
        from transformers import AutoModelForCausalLM

        place, options = gguf_options(folder / self.file, field="--out")
        try:
            with spinner("reading the file back"), quiet_transformers():
                model = AutoModelForCausalLM.from_pretrained(
                    place, local_files_only=True, trust_remote_code=False, dtype=torch.float32, **options
                ).eval()
        except Exception as error:  # whatever the library raises for a file that it cannot read
            raise ProofFailed(f"transformers cannot read the GGUF file back: {first_line(error)}") from error

        def run(batch: dict[str, np.ndarray]) -> np.ndarray:
            with torch.inference_mode():
                fields = {name: torch.from_numpy(batch[name]) for name in ("input_ids", "attention_mask")}
                return model(**fields).logits.numpy()

        return run
