"""The public functions: what the commands do, from Python. Heavy libraries are imported on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probescale.config import RunConfig

if TYPE_CHECKING:
    from probescale.deploy.bench import BenchResult
    from probescale.deploy.compressed import Compressed
    from probescale.deploy.export import ExportRecord
    from probescale.deploy.predict import Prediction
    from probescale.probing.scores import ProbeScores
    from probescale.recovery.result import RunResult
    from probescale.recovery.smallest import SmallestSearch
    from probescale.report.examination import Examination
    from probescale.selection.planning import Plan
    from probescale.selection.result import Selection
    from probescale.study.results import Results

Settings = RunConfig | Mapping[str, Any] | str | Path  # a configuration, the same as a mapping, or its YAML file


def load_config(settings: Settings, assignments: Sequence[str] = ()) -> RunConfig:
    """A checked configuration, from a YAML file or a mapping; Problems lists everything that is wrong with it.

    `assignments`: changes such as "selection.k=4".
    """
    from probescale.pipeline import validate

    if isinstance(settings, RunConfig):
        return settings
    if isinstance(settings, Mapping):
        return validate.check(dict(settings), assignments)
    return validate.load_config(settings, assignments)


def compress(
    model: str | Path | tuple[Any, Any],
    train: Any,  # noqa: ANN401 - a source, or rows in one of many forms
    budget: str | Sequence[str] | None = None,
    *,
    keep: float | None = None,
    ladder: bool | Sequence[str] = False,
    dev: Any = None,  # noqa: ANN401
    unlabelled: Any = None,  # noqa: ANN401
    second: Any = None,  # noqa: ANN401
    calibration: Any = None,  # noqa: ANN401
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    kind: str | None = None,
    header: bool = True,
    time: str | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Compressed:
    """Make a model small for your data; columns, training and everything else are chosen.

    `model`: a source, or a transformers model with its tokenizer. `train`, `dev`, `unlabelled`: a file, a hub data set,
    a DataFrame, a datasets.Dataset, or lists. `budget`: "5x" fewer parameters (if nothing is given), "20%", "8M",
    "50MB", "20ms"; or `keep`: the share of the metric to keep, such as 0.97; or `ladder`: a model of every size from
    one run, ["2x", "5x", "10x"], or True for the usual ones. `second`: for a generative model, other text, to measure
    what it forgets. `calibration`: data on which drop_loss measures layers, by default a part of train. `header`:
    whether the first line of CSV and TSV files has the names of the columns. `time`: how long it may take, such as
    "30m". `settings`: any setting of the configuration by its dotted key. `out`: the run folder, by default runs/ and
    the name of the data.
    """
    from probescale.deploy.compressed import Compressed
    from probescale.pipeline.compress import (
        NOTHING_GIVEN,
        Request,
        build_config,
        new_inputs,
        refuse_beside_keep,
        refuse_beside_ladder,
    )
    from probescale.pipeline.folder import check_run_folder
    from probescale.pipeline.run import run as run_pipeline
    from probescale.pipeline.smallest import smallest as find_smallest

    refuse_beside_keep(keep, {"budget": budget, "time": time, "ladder": ladder})
    refuse_beside_ladder(ladder, budget)
    columns = {"text": text, "pair": pair, "label": label, "kind": kind}
    source = model if isinstance(model, tuple) else str(model)
    chosen = {"time": time, **(settings or {})}
    size = "100%" if keep is not None else NOTHING_GIVEN if budget is None else budget
    rungs = "auto" if ladder is True else tuple(ladder or ())
    request = Request(source, train, dev, unlabelled, size, columns, chosen, header, rungs, second, calibration)
    folder = Path(out) if out else Path("runs") / request.name
    check_run_folder(folder, (), overwrite=overwrite)  # before rows are written where those of an earlier run stand
    with new_inputs(Path(f"{folder}.inputs")) as inputs:
        config, _ = build_config(request, inputs)
        if keep is None:
            run_pipeline(config, folder, overwrite=overwrite)
        else:
            find_smallest(config, keep, folder, overwrite=overwrite)
    return Compressed(folder)


def run(settings: Settings, out: str | Path, *, overwrite: bool = False) -> RunResult:
    """Probe, select, cut, fine-tune and evaluate; the folder `out` holds model, scores, metrics and report."""
    from probescale.pipeline.run import run as run_pipeline

    return run_pipeline(load_config(settings), out, overwrite=overwrite)


def smallest(settings: Settings, keep: float, out: str | Path, *, overwrite: bool = False) -> SmallestSearch:
    """Find the smallest subnetwork that keeps the share `keep` of the original's metric."""
    from probescale.pipeline.smallest import smallest as find_smallest

    return find_smallest(load_config(settings), keep, out, overwrite=overwrite)


def probe(settings: Settings) -> ProbeScores:
    """Score every layer for the task, with all that the configured strategies decide by."""
    from probescale.pipeline.evidence import probe_task
    from probescale.pipeline.prepare import prepare

    return probe_task(prepare(load_config(settings)))


def select(
    scores: ProbeScores | str | Path, budget: str | int | None = None, k: int | None = None, strategy: str | None = None
) -> Selection:
    """Choose the layers to keep from probe scores.

    The default strategy is `stitched` if every contiguous block was probed, else `contiguous`.
    """
    from probescale.probing.score_files import load_scores
    from probescale.selection.budget import parse_budget
    from probescale.selection.constraints import Constraints
    from probescale.selection.evidence import combine_scores
    from probescale.selection.select import select as select_layers

    loaded = load_scores(Path(scores)) if isinstance(scores, (str, Path)) else scores
    evidence, resamples = combine_scores([loaded], [1.0])
    constraints = Constraints(parse_budget(budget, k), loaded.parameters)
    return select_layers(evidence, constraints, strategy, resamples=resamples, provenance=loaded.provenance)


def plan(model: str, budget: str | None = None) -> Plan:
    """What every number of layers would cost, and what shrinking would bring, from the model's config alone."""
    from probescale.selection.budget import parse_budget
    from probescale.selection.plan_model import plan_model

    return plan_model(model, parse_budget(budget) if budget else None)


def doctor(model: str, *, prove: bool = False) -> Examination:
    """Whether and how a model is supported; with `prove`, a tiny model of its build is cut in every way."""
    from probescale.report.examination import examine

    return examine(model, prove=prove)


def cut(model: str, kept: Sequence[int], out: str | Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Cut a checkpoint down to these layers (numbered from 1), prove the cut, and write it; returns its record."""
    from probescale.pipeline.cut import cut_to_folder

    return cut_to_folder(model, kept, out, overwrite=overwrite)


def run_study(path: str | Path, out: str | Path) -> Results:
    """Run every cell of a study that is not done yet, and write its report."""
    from probescale.study.cells import load_study
    from probescale.study.folder import StudyFolder
    from probescale.study.report import write_study_report
    from probescale.study.run import run_study as run_cells

    results = run_cells(load_study(Path(path)), Path(out))
    write_study_report(StudyFolder(Path(out)), results)
    return results


def export(model: str | Path, out: str | Path, *, int8: bool = False, overwrite: bool = False) -> ExportRecord:
    """Write a model as ONNX, compared with the PyTorch model before it is kept."""
    from probescale.deploy.export import export as write_export

    return write_export(str(model), Path(out), int8=int8, overwrite=overwrite)


def bench(models: Sequence[str | Path]) -> BenchResult:
    """Time models and formats side by side: latency, throughput, memory, size."""
    from probescale.deploy.bench import bench as time_models

    return time_models([str(model) for model in models])


def predict(model: str | Path, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[Prediction]:
    """Labels with probabilities (or numbers, or tags) for texts, in their order, from a run or model folder.

    `pairs`: the second texts, one for each of `texts`, if the model was trained on pairs.
    """
    from probescale.deploy.given_texts import read_given
    from probescale.deploy.open_model import open_model
    from probescale.deploy.predict import predict_lines

    opened = open_model(str(model))
    return list(predict_lines(opened, read_given(opened, texts, pairs)))
