"""export(): a model in another format, kept only if it matches the PyTorch model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probescale.deploy.evaluation import evaluate_metric
from probescale.deploy.formats import Exporter, ExportRecord, find_exporter
from probescale.deploy.inference import STATES, InferenceModel, input_names, load_pytorch, wrap_pytorch
from probescale.deploy.metadata import read_metadata
from probescale.deploy.model_folder import find_model_folder
from probescale.deploy.open_model import open_exported
from probescale.deploy.run_data import RunData, load_run_data
from probescale.errors import ProofFailed, UserError, first_line
from probescale.models.loading import quiet_transformers
from probescale.models.saving import METADATA_FILE
from probescale.models.tokenizers import reset_tokenizer
from probescale.utils.files import atomic_folder, write_json
from probescale.utils.outputs import check_output_folder
from probescale.utils.resources import report_shortage

KIND = "export"  # of the folder
TOLERANCE = 1e-3  # of the largest number of an output: float32 sums differ with their order
TEXTS = (
    "Fine.",
    "The film never quite finds its feet, but the two leads make up for it.",
    "In 1998, the committee (of 12 members) published its findings; few read them, and nobody acted. " * 4,
)


def export(
    source: str,
    out: Path,
    to: str = "onnx",
    *,
    rung: str | None = None,
    int8: bool = False,
    tolerance: float = 0.01,
    converter: str | None = None,
    overwrite: bool = False,
) -> ExportRecord:
    """Write a model with its tokenizer and config into a folder; `tolerance` is what the task's metric may lose.

    `rung`: a size of a ladder, such as 5x. `converter`: for GGUF, the word that llama.cpp's converter may run, "pypi"
    or a checkout. Where the dev set of its run is gone or has changed, the metric is not evaluated, and the record says
    why.
    """
    exporter = find_exporter(to).with_converter(converter)
    out = check_output_folder(out, kind=KIND, inputs=[source], overwrite=overwrite)
    folder = find_model_folder(Path(source), rung)
    loaded = load_pytorch(folder, source, "MODEL")
    exporter.check(loaded)
    original = wrap_pytorch(loaded)
    record = ExportRecord(
        int8=False,
        kind=original.kind.name if original.kind else STATES,
        labels=original.labels,
        inputs=tuple(input_names(loaded)),
        longest=original.max_length,
        largest_difference=0.0,
    )
    metadata = read_metadata(folder, field="MODEL").model_dump(mode="json", exclude_unset=True)
    data, reason = _find_run_data(folder, original.labels)
    with report_shortage(out), atomic_folder(out, KIND) as partial:
        draft = _Draft(partial, exporter, metadata or {"parent": source})
        exporter.write(loaded, original.kind, partial, int8=int8)
        with quiet_transformers():
            loaded.model.config.save_pretrained(partial)
            reset_tokenizer(loaded.tokenizer).save_pretrained(partial)
        difference = _compare_outputs(original, draft.reopen(record))
        record = record.model_copy(update={"largest_difference": difference})
        if int8 and exporter.quantize(partial):
            record = record.model_copy(update={"int8": True})
        values = _compare_metric(original, draft.reopen(record), data, tolerance) if data else {"unmeasured": reason}
        record = record.model_copy(update=values)
        draft.reopen(record)
    return record


class _Draft:
    """An export that is not kept yet."""

    def __init__(self, folder: Path, exporter: Exporter, metadata: dict[str, Any]) -> None:
        self.folder, self.exporter, self.metadata = folder, exporter, metadata

    def reopen(self, record: ExportRecord) -> InferenceModel:
        """Save the record, and open the folder as a user would."""
        write_json(self.folder / METADATA_FILE, self.metadata | {self.exporter.name: record.model_dump(mode="json")})
        return open_exported(self.folder, self.exporter, field="--out")


def _find_run_data(folder: Path, labels: tuple[str, ...]) -> tuple[RunData | None, str]:
    """What the metric is evaluated on; where that is not possible, why: it takes the figure only, not the export."""
    try:
        return load_run_data(folder, labels), ""
    except UserError as error:
        return None, first_line(error)


def _compare_outputs(original: InferenceModel, exported: InferenceModel) -> float:
    """The largest relative difference over short and long texts, alone and in batches; refused if above rounding."""
    largest = 0.0
    for texts in ((TEXTS[0],), (TEXTS[1],), TEXTS, (TEXTS[2],) * 2):
        batch = dict(
            original.tokenizer(
                list(texts), padding=True, truncation=True, max_length=original.max_length, return_tensors="np"
            )
        )
        expected, actual = original.run(batch), exported.run(batch)
        if expected.shape != actual.shape:
            raise ProofFailed(f"the export's outputs have the shape {actual.shape}, the model's {expected.shape}")
        rows = batch["attention_mask"].astype(bool) if expected.ndim == 3 else slice(None)
        difference = np.abs(expected - actual)[rows].max() / max(np.abs(expected).max(), 1e-9)
        largest = max(largest, float(difference))
    if not largest <= TOLERANCE:
        raise ProofFailed(f"the export's outputs differ from the model's by {largest:.2g} of the largest one")
    return largest


def _compare_metric(
    original: InferenceModel, exported: InferenceModel, data: RunData, tolerance: float
) -> dict[str, Any]:
    """The metric of both models on the dev set of the run; refused if the export loses more than `tolerance`."""
    task = data.task
    before, after = (evaluate_metric(model, task, data.max_length) for model in (original, exported))
    if task.measure.loss(before, after) > tolerance:
        raise UserError(
            f"{task.metric} on {task.dev_split} changes from {task.measure.show(before)} to "
            f"{task.measure.show(after)}, by more than {task.measure.factor * tolerance:g}",
            field="--tolerance",
            hint="nothing was written; allow more, or export without --int8",
        )
    return {"metric": task.metric, "value_recorded": data.recorded, "value_pytorch": before, "value": after}
