"""The small model of a finished run, as an object: its figures, its report, its predictions, and ways to ship it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from probescale.errors import UserError
from probescale.models.subsets import format_layers
from probescale.recovery.result import RunResult
from probescale.utils.files import atomic_folder
from probescale.utils.outputs import check_output_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from probescale.deploy.bench import BenchResult
    from probescale.deploy.inference import InferenceModel
    from probescale.deploy.predict import Prediction
    from probescale.models.loading import LoadedModel
    from probescale.report.findings import RunFindings
    from probescale.utils.progress import PlainConsole

RUN_FILES = ("config.yaml", "scores.json", "selection.json", "metrics.json", "report.html")
PAGE_HEIGHT = 720  # pixels of the report in a notebook; it scrolls


class Compressed:
    """A finished run: the small model, its figures and its report. Of a ladder, one of its models."""

    def __init__(self, folder: Path | str, rung: str | None = None) -> None:
        """Open the folder of a finished run; weights are loaded on first use.

        `rung`: a size of a ladder, such as "5x"; by default the one that its report recommends.
        """
        from probescale.deploy.model_folder import find_model_folder

        self.folder, self._rung = Path(folder), rung
        _refuse_unfinished(self.folder)
        if rung:
            find_model_folder(self.folder, rung)  # refuses a rung that there is not

    # Of a ladder

    @property
    def rungs(self) -> tuple[str, ...]:
        """The names of the sizes that learned the task, the largest first; empty where the run is not a ladder."""
        ladder = self._findings.ladder
        return tuple(rung.name for rung in ladder.alive) if ladder else ()

    def rung(self, name: str) -> Compressed:
        """Another size of the same ladder."""
        return Compressed(self.folder, name)

    # Figures

    @cached_property
    def result(self) -> RunResult:
        """Metrics of the original, the small model and the compared strategies, from metrics.json."""
        return RunResult.load(self._records / "metrics.json")

    @property
    def _records(self) -> Path:
        """The folder with the figures of this model."""
        from probescale.pipeline.rungs import RUNGS

        return self.folder / RUNGS / self._model_folder.name if self._rung else self.folder

    @property
    def params(self) -> int:
        """Parameters of the small model, embeddings and head included."""
        return self.result.subnetwork.params

    @property
    def retention(self) -> float | None:
        """The share of the original's metric that is kept; None where training failed or there is no such share."""
        return self.result.retention

    def report(self) -> None:
        """Show the result: tables in a terminal, the interactive page in a notebook."""
        from probescale.utils.progress import PlainConsole

        # A file or a pipe has no width of its own: do not fold tables there.
        console = PlainConsole(width=None if sys.stdout.isatty() else 140)
        if console.is_jupyter:
            # Not IPython's HTML, which warns of an iframe; nor its IFrame, which VS Code shows no local file in.
            bundle = {"text/html": self._page_frame(), "text/plain": repr(self)}
            import_module("IPython.display").display(bundle, raw=True)
        else:
            self._print_tables(console)

    def _print_tables(self, console: PlainConsole) -> None:
        """Print the tables of layers and models, and what they come to in sentences."""
        from probescale.report.ladder import ladder_table, wish_table
        from probescale.report.tables import comparison_table, layer_table
        from probescale.report.verdict import run_summary

        console.print(layer_table(self._findings.scores, self.result.subnetwork.kept).rich())
        console.print("")
        ladder = self._findings.ladder
        console.print((ladder_table(self._findings) if ladder else comparison_table(self.result)).rich())
        if ladder:
            console.print("")
            console.print(wish_table(ladder).rich())
        for line in (*run_summary(self._findings), f"model, scores and report: {self.folder}"):
            console.print(f"\n{line}", soft_wrap=True)

    @cached_property
    def _findings(self) -> RunFindings:
        """Scores, selection, metrics and regressions of the run."""
        from probescale.report.findings import RunFindings

        return RunFindings.load(self.folder, self._records)

    def _page_frame(self) -> str:
        """report.html inside an element of its own: its style and script do not reach the notebook."""
        page = (self.folder / "report.html").read_text(encoding="utf-8")
        return (
            f'<iframe title="ProbeScale report" sandbox="allow-scripts" srcdoc="{escape(page)}" '
            f'style="width: 100%; height: {PAGE_HEIGHT}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        from probescale.report.phrases import format_count

        kept = "" if self.retention is None else f", {100 * self.retention:.1f} % kept"
        failed = ", training failed" if self.result.failure else ""
        layers = format_layers(self.result.subnetwork.kept)
        return f"Compressed({self.folder}: layers {layers}, {format_count(self.params)} parameters{kept}{failed})"

    def _repr_html_(self) -> str:
        """The result in sentences, with a link to the page: what a notebook shows for the object."""
        from probescale.report.verdict import ELSEWHERE, decide

        verdict = decide(self._findings, machine=ELSEWHERE)  # a notebook is a file that is read on other machines
        page = self.folder / "report.html"
        # Notebooks open paths relative to their folder, and no others.
        address = quote(Path(os.path.relpath(page)).as_posix())
        return (
            f"<p><b>{escape(self.result.task)}</b>: {escape(' '.join((verdict.sentence, *verdict.details)))}</p>"
            f'<p><a href="{address}" target="_blank">{escape(str(page))}</a></p>'
        )

    # The model

    @cached_property
    def _loaded(self) -> LoadedModel:
        from probescale.deploy.inference import load_pytorch

        return load_pytorch(self._model_folder, str(self.folder), "folder")

    @cached_property
    def _inference(self) -> InferenceModel:
        from probescale.deploy.inference import wrap_pytorch

        return wrap_pytorch(self._loaded)

    @property
    def _model_folder(self) -> Path:
        from probescale.deploy.model_folder import find_model_folder

        return find_model_folder(self.folder, self._rung)

    @property
    def model(self) -> PreTrainedModel:
        """The small model, an object of stock transformers."""
        return self._loaded.model

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The small model's tokenizer, an object of stock transformers."""
        return self._loaded.tokenizer

    def predict(self, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None) -> list[Prediction]:
        """Labels with probabilities (or numbers, or tags) for texts, in their order.

        `pairs`: the second texts, one for each of `texts`, if the task is on pairs.
        """
        from probescale.deploy.given_texts import read_given
        from probescale.deploy.predict import predict_lines

        return list(predict_lines(self._inference, read_given(self._inference, texts, pairs)))

    # Ways out

    def save_pretrained(self, folder: Path | str, *, overwrite: bool = False) -> Path:
        """Copy the model, its tokenizer and its card into a folder that stock transformers loads; returns the folder.

        `overwrite`: replace a folder that ProbeScale wrote. Other folders are left alone, unless they are empty.
        """
        from probescale.deploy.push import list_files
        from probescale.models.saving import MODEL_KIND
        from probescale.utils.resources import report_shortage

        target, source = Path(folder), self._model_folder
        empty = target.is_dir() and not any(target.iterdir())
        out = check_output_folder(
            target, kind=MODEL_KIND, inputs=[source], overwrite=overwrite or empty, field="folder"
        )
        paths = list_files(source)
        with report_shortage(out), atomic_folder(out, MODEL_KIND) as partial:
            for path in paths:
                copy = partial / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
        return target

    def export(
        self, format: str = "onnx", out: Path | str | None = None, *, int8: bool = False, overwrite: bool = False
    ) -> Path:
        """Write the model in another format, compared with the PyTorch model before it is kept; returns the folder.

        The folder's default name is the run's with the format at its end: runs/my-onnx, or runs/my-int8; of a rung,
        runs/my-5x-onnx.
        """
        from probescale.deploy.export import export as write_export

        name = "-".join(filter(None, (str(self.folder), self._rung, "int8" if int8 else format)))
        target = Path(out or name)
        write_export(str(self.folder), target, format, rung=self._rung, int8=int8, overwrite=overwrite)
        return target

    def push_to_hub(self, name: str, *, private: bool = False) -> str:
        """Upload the model and its card to the hub as `name` (owner/name); returns the address of the commit."""
        from probescale.deploy.push import push

        return push(self._model_folder, name, private=private)

    def benchmark(self, *others: Path | str) -> BenchResult:
        """Time the small model, next to others: latency, throughput, memory, size. Speed is relative to the first."""
        from probescale.deploy.bench import bench

        return bench([*map(str, others), str(self._model_folder if self._rung else self.folder)])


def _refuse_unfinished(folder: Path) -> None:
    """Raise an error that names what is missing from a folder that is not a finished run."""
    from probescale.pipeline.folder import MARK

    partial = Path(f"{folder.resolve()}.partial")
    several = (folder / "ladder.json").is_file()
    needed = RUN_FILES if several else (*RUN_FILES, "model/config.json")
    missing = [name for name in needed if not (folder / name).is_file()]
    interrupted = (folder / MARK).is_file() or (missing and (partial / MARK).is_file())
    if not missing and not interrupted:
        return
    reason = f"there is no {missing[0]}" if missing else "it was interrupted"
    raise UserError(
        f'"{folder}" is not a finished run: {reason}',
        field="folder",
        hint="run the same command again to resume it"
        if interrupted
        else "give a folder that compress() or `probescale run` wrote",
    )
