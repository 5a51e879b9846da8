"""The whole story, top-down: probe, select, cut, fine-tune, measure, write."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from probescale.checks import check_budget
from probescale.config import RunConfig, to_yaml
from probescale.errors import UserError
from probescale.files import write_json, write_text
from probescale.models.loading import LoadedModel, load_classifier
from probescale.models.parameters import Parameters
from probescale.models.surgery import extract, save_model
from probescale.probing.probe import probe
from probescale.probing.scores import ProbeScores, load_scores
from probescale.progress import console
from probescale.provenance import provenance
from probescale.recovery.recover import predict, recover
from probescale.recovery.result import Measured, RunResult
from probescale.report.markdown import report
from probescale.selection.budget import parse_budget
from probescale.selection.select import Selection, select
from probescale.tasks.task import Task, load_task


def run(config: RunConfig, out: Path | str, *, overwrite: bool = False) -> RunResult:
    """Everything a configuration asks for, written to the folder `out` when it is complete.

    Until then the work stands in `out.partial`; the same call goes on from there after an interruption.
    """
    out = Path(out)
    if out.exists() and not overwrite:
        raise UserError(f'"{out}" already exists', field="--out", hint="choose another folder, or add --overwrite")
    task, loaded = prepare(config)
    made = provenance(loaded, task, config.seed)
    work = _work_folder(out, config, made)

    scores = _stage_scores(work, loaded, task, config, made)
    budget = parse_budget(config.selection.budget, config.selection.k)
    chosen, *others = [
        select(scores.relevance, budget, scores.parameters, strategy, made)
        for strategy in dict.fromkeys((config.selection.strategy, *config.compare))
    ]
    chosen.save(work / "selection.json")

    every = tuple(range(1, scores.layers + 1))
    assert scores.parameters is not None
    measure = _Measurer(work, loaded, task, config, scores.parameters)
    original = measure("original", every)
    subnetwork = measure(chosen.strategy, chosen.kept, original, save_to=work / "model", record=_record(chosen))
    compared = {other.strategy: measure(other.strategy, other.kept, original) for other in others}

    result = RunResult(
        task=task.name,
        metric=task.metric,
        split=task.dev_split,
        examples=len(task.dev),
        recipe=measure.recipe,
        strategy=chosen.strategy,
        original=original,
        subnetwork=subnetwork,
        compared=compared,
        retention=subnetwork.retention,
        provenance=made,
    )
    result.save(work / "metrics.json")
    write_text(work / "report.md", report(task, scores, chosen, result))
    _finish(work, out)
    return result


def prepare(config: RunConfig) -> tuple[Task, LoadedModel]:
    """Data and model, with everything that can be refused refused now: bad data, an impossible budget."""
    task = load_task(config.task, config.seed)
    check_budget(config, len(task.train.names))
    names = task.train.names
    return task, load_classifier(config.model.source, config.model.revision, names, config.seed)


class _Measurer:
    """Cuts, fine-tunes and evaluates; a subset that several strategies chose is trained once."""

    def __init__(self, work: Path, loaded: LoadedModel, task: Task, config: RunConfig, parameters: Parameters) -> None:
        self.work, self.loaded, self.task, self.config, self.parameters = (
            work,
            loaded,
            task,
            config,
            parameters,
        )

    @property
    def recipe(self) -> str:
        r = self.config.recovery
        return (
            f"fine-tuning, {r.epochs} epochs on {len(self.task.train):,} examples, AdamW, learning rate "
            f"{r.learning_rate:g}, batch size {r.batch_size}, warm-up {r.warmup:g}, weight decay {r.weight_decay:g}, "
            f"seed {self.config.seed}"
        )

    def __call__(
        self,
        name: str,
        kept: tuple[int, ...],
        original: Measured | None = None,
        save_to: Path | None = None,
        record: dict[str, Any] | None = None,
    ) -> Measured:
        kept_file = self.work / "measured" / ("-".join(map(str, kept)) + ".json")
        if kept_file.exists() and (save_to is None or save_to.exists()):
            return Measured.model_validate_json(kept_file.read_text())
        started = time.perf_counter()
        config, task = self.config, self.task
        model = extract(self.loaded, kept)
        length = config.model.max_length
        recover(
            model,
            task.train,
            config.recovery,
            max_length=length,
            seed=config.seed,
            title=f"fine-tuning: {name}",
        )
        predicted = predict(model, task.dev, max_length=length, title=f"evaluating: {name}")
        value = task.measure(np.array(task.dev.labels), predicted)
        against = value if original is None else original.value
        ratio_total, ratio_layers = self.parameters.ratios(kept)
        measured = Measured(
            kept=kept,
            params=self.parameters.of(kept),
            ratio_total=ratio_total,
            ratio_layers=ratio_layers,
            value=value,
            retention=value / against if against > 0 else None,
            seconds=round(time.perf_counter() - started, 1),
        )
        if save_to is not None:
            save_model(model, record or {}, save_to)
        write_json(kept_file, measured.model_dump(mode="json"))
        return measured


def _stage_scores(work: Path, loaded: LoadedModel, task: Task, config: RunConfig, made: dict[str, Any]) -> ProbeScores:
    path = work / "scores.json"
    if not path.exists():
        probe(loaded, task, config, made).save(path)
    return load_scores(path)


def _record(selection: Selection) -> dict[str, Any]:
    """What model/probescale.json says of where the model comes from."""
    return {"parent": selection.provenance["model"], **selection.model_dump(mode="json")}


def _work_folder(out: Path, config: RunConfig, made: dict[str, Any]) -> Path:
    """`out.partial`, with what an interrupted run of exactly this configuration left there, else new."""
    work = out.with_name(out.name + ".partial")
    identity = {**made, "command": None, "config": config.model_dump(mode="json")}
    mark = work / "identity.json"
    if mark.exists() and mark.read_text() == _as_json(identity):
        console.print(f"going on with the interrupted run in {work}")
        return work
    shutil.rmtree(work, ignore_errors=True)
    write_text(work / "config.yaml", to_yaml(config))
    write_text(mark, _as_json(identity))
    return work


def _as_json(data: dict[str, Any]) -> str:
    import json

    return json.dumps(data, indent=2, sort_keys=True)


def _finish(work: Path, out: Path) -> None:
    """Drop what only served to go on, and give the folder its name."""
    shutil.rmtree(work / "measured")
    (work / "identity.json").unlink()
    if out.exists():
        shutil.rmtree(out)
    work.rename(out)
