"""The whole story, top-down: probe, select, cut, fine-tune, measure, write."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from probescale.checks import check_budget
from probescale.config import RunConfig, to_yaml
from probescale.errors import ProofFailed, UserError
from probescale.files import check_output_folder, write_json, write_text
from probescale.gathering import gather
from probescale.models.cost import Cost
from probescale.models.counting import count_parameters
from probescale.models.loading import LoadedModel, load_classifier
from probescale.models.parameters import Parameters
from probescale.models.parent import parents_answers
from probescale.models.proof import check_in_memory
from probescale.models.surgery import extract, record_of, save_model
from probescale.models.units import costs_of
from probescale.probing.probe import check_probes, probe
from probescale.probing.scores import ProbeScores, load_scores
from probescale.progress import console, waiting
from probescale.provenance import provenance
from probescale.recovery.recover import predict, recover
from probescale.recovery.result import Measured, RunResult
from probescale.report.figure import write_figure
from probescale.report.markdown import report
from probescale.selection.budget import Unit, parse_budget
from probescale.selection.evidence import evidence_of, resampled
from probescale.selection.select import Selection, largest, select
from probescale.selection.structure import structure_of
from probescale.tasks.metrics import interval
from probescale.tasks.task import Task, load_task


def run(config: RunConfig, out: Path | str, *, overwrite: bool = False) -> RunResult:
    """Everything a configuration asks for, written to the folder `out` when it is complete.

    Until then the work stands in `out.partial`; the same call goes on from there after an interruption.
    """
    out = check_output_folder(Path(out), overwrite=overwrite, markers=["config.yaml", "selection.json", "metrics.json"])
    check_output_folder(_partial(out), overwrite=True, markers=["identity.json"])
    task, loaded = prepare(config)
    made = provenance(loaded, task, config.seed)
    with _work_folder(out, config, made) as work:
        costs = _costs(work / "costs.json", loaded, config)
        most = _most(loaded, config, costs)  # a budget that nothing meets shows before the work
        scores = _scores(work, loaded, task, config, made, most)
        chosen, *others = _selections(scores, loaded, config, costs, made)
        chosen.save(work / "selection.json")

        assert scores.parameters is not None
        measurer = _Measurer(work, loaded, task, config, scores.parameters)
        original = measurer.measure("original", tuple(range(1, scores.layers + 1)))
        subnetwork = measurer.measure(chosen.strategy, chosen.kept, original, save_with=chosen)
        compared = {other.strategy: measurer.measure(other.strategy, other.kept, original) for other in others}

        result = RunResult(
            task=task.name,
            metric=task.metric,
            split=task.dev_split,
            examples=len(task.dev),
            recipe=measurer.recipe,
            strategy=chosen.strategy,
            original=original,
            subnetwork=subnetwork,
            compared=compared,
            retention=subnetwork.retention,
            provenance=made,
        )
        result.save(work / "metrics.json")
        write_figure(scores, work / "probes")
        write_text(work / "report.md", report(task, loaded.family, scores, chosen, result))
    return result


def prepare(config: RunConfig) -> tuple[Task, LoadedModel]:
    """Data and model, with everything that can be refused refused now: bad data, an impossible budget."""
    task = load_task(config.task, config.seed)
    check_probes(task, config)
    check_budget(config, len(task.train.names))
    source = config.model
    loaded = load_classifier(
        source.source, source.revision, task.train.names, config.seed, allow_pickle=source.allow_pickle
    )
    for number, prop in enumerate(config.task.probes):
        if prop.pooling == "cls" and loaded.tokenizer.cls_token_id is None:
            raise UserError(
                "this model's inputs do not begin with a token for the whole text",
                field=f"task.probes.{number}.pooling",
                hint="use mean, or auto",
            )
    return task, loaded


def strategies_of(config: RunConfig) -> list[str]:
    """The configured strategy, then those it is compared with."""
    return list(dict.fromkeys((config.selection.strategy, *config.compare)))


def _most(loaded: LoadedModel, config: RunConfig, costs: dict[Unit, Cost]) -> int:
    """The most layers that any of the strategies can keep."""
    budget = parse_budget(config.selection.budget, config.selection.k)
    parameters = count_parameters(loaded.model, loaded.family)
    structure = structure_of(config.selection)
    return max(largest(loaded.layers, budget, parameters, name, costs, structure) for name in strategies_of(config))


def _scores(
    work: Path, loaded: LoadedModel, task: Task, config: RunConfig, made: dict[str, Any], most: int
) -> ProbeScores:
    path = work / "scores.json"
    if not path.exists():
        probe(loaded, task, config, made).save(path)
    gather(load_scores(path), loaded, task, config, strategies_of(config), most).save(path)
    return load_scores(path)


def _selections(
    scores: ProbeScores, loaded: LoadedModel, config: RunConfig, costs: dict[Unit, Cost], made: dict[str, Any]
) -> list[Selection]:
    budget = parse_budget(config.selection.budget, config.selection.k)
    parameters = count_parameters(loaded.model, loaded.family)
    evidence, resamples, structure = evidence_of(scores), resampled(scores), structure_of(config.selection)
    return [
        select(evidence, budget, parameters, name, made, costs, structure, resamples) for name in strategies_of(config)
    ]


def _costs(path: Path, loaded: LoadedModel, config: RunConfig) -> dict[Unit, Cost]:
    """What layers cost in the budget's units. Kept: a time measured twice would not be the same."""
    asked = config.selection
    units = parse_budget(asked.budget, asked.k).units
    if units <= {"parameters"}:
        return {}
    if not path.exists():
        costs = costs_of(
            units,
            loaded.model.config,
            loaded.family,
            count_parameters(loaded.model, loaded.family),
            classes=len(loaded.model.config.id2label or ()),
            length=asked.length,
            batch_size=asked.batch_size,
            model=loaded.model,
        )
        write_json(path, {unit: cost.model_dump() for unit, cost in costs.items()})
    return {unit: Cost(**cost) for unit, cost in json.loads(path.read_text(encoding="utf-8")).items()}


class _Measurer:
    """Cuts, fine-tunes and evaluates; a subset that several strategies chose is trained once."""

    def __init__(self, work: Path, loaded: LoadedModel, task: Task, config: RunConfig, parameters: Parameters) -> None:
        self.work, self.loaded, self.task, self.config, self.parameters = work, loaded, task, config, parameters

    @property
    def recipe(self) -> str:
        r = self.config.recovery
        return (
            f"fine-tuning on {len(self.task.train):,} examples, epochs {r.epochs}, AdamW, learning rate "
            f"{r.learning_rate:g}, batch size {r.batch_size}, warm-up {r.warmup:g}, weight decay {r.weight_decay:g}, "
            f"{'' if r.dropout is None else f'dropout {r.dropout:g}, '}seed {self.config.seed}"
        )

    def measure(
        self, name: str, kept: tuple[int, ...], original: Measured | None = None, save_with: Selection | None = None
    ) -> Measured:
        """The figures of one subset, from an earlier part of this run where they are known."""
        path = self.work / "measured" / ("-".join(map(str, kept)) + ".json")
        model_folder = self.work / "model"
        if path.exists() and (save_with is None or model_folder.exists()):
            return Measured.load(path)
        started = time.perf_counter()
        model, value, spread = self._train(name, kept)
        against = value if original is None else original.value
        ratio_total, ratio_layers = self.parameters.ratios(kept)
        measured = Measured(
            kept=kept,
            params=self.parameters.of(kept),
            ratio_total=ratio_total,
            ratio_layers=ratio_layers,
            value=value,
            interval=spread,
            retention=value / against if against > 0 else None,
            seconds=round(time.perf_counter() - started, 1),
        )
        if save_with is not None:
            record = record_of(self.loaded, kept, model) | {"selection": save_with.model_dump(mode="json")}
            save_model(model, record, model_folder, overwrite=True)
        measured.save(path)
        return measured

    def _train(self, name: str, kept: tuple[int, ...]) -> tuple[LoadedModel, float, tuple[float, float]]:
        config, task, length = self.config, self.task, self.config.model.max_length
        model = extract(self.loaded, kept)
        wanted = parents_answers(self.loaded.model, self.loaded.family, kept)
        check_in_memory(model.model, model.family, wanted)  # before training: a wrong cut would only look weak
        recover(model, task.train, config.recovery, max_length=length, seed=config.seed, title=f"fine-tuning: {name}")
        predicted = predict(model, task.dev, max_length=length, title=f"evaluating: {name}")
        gold = np.array(task.dev.labels)
        with waiting("resampling"):
            return model, task.measure(gold, predicted), interval(task.measure, gold, predicted, config.seed)


def _partial(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


@contextmanager
def _work_folder(out: Path, config: RunConfig, made: dict[str, Any]) -> Iterator[Path]:
    """`out.partial`, with what an interrupted run of exactly this work left there; it becomes `out` at the end."""
    work = _partial(out)
    identity = json.dumps({**made, "command": None, "config": config.model_dump(mode="json")}, sort_keys=True)
    mark = work / "identity.json"
    if mark.is_file() and mark.read_text(encoding="utf-8") == identity:
        console.print(f"going on with the interrupted run in {work}", markup=False)
    else:
        shutil.rmtree(work, ignore_errors=True)
        write_text(work / "config.yaml", to_yaml(config))
        write_text(mark, identity)
    try:
        yield work
    except ProofFailed:
        raise  # not the settings are wrong: what was trained stays
    except UserError:
        shutil.rmtree(work)  # nothing here is worth going on with
        raise
    shutil.rmtree(work / "measured")
    mark.unlink()
    if out.exists():
        shutil.rmtree(out)
    work.rename(out)
