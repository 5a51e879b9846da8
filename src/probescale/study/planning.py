"""What a study will take, from a short measurement: time of every job, and disk."""

from __future__ import annotations

from dataclasses import dataclass

from probescale.models.counting import count_parameters
from probescale.pipeline.estimates import estimate_phases
from probescale.pipeline.pace import Pace, measure_pace
from probescale.pipeline.prepare import prepare
from probescale.pipeline.workbench import Workbench
from probescale.recovery.automatic import count_available
from probescale.study.cells import Study

BYTES = 4  # of a parameter in float32
PREPARED = ("probing", "training the original", "comparison")  # phases that the cells of a preparation share


@dataclass(frozen=True)
class StudyEstimate:
    """The time and disk space that a study needs."""

    seconds: dict[str, float]  # by job, on this machine, one at a time
    disk: int  # bytes that stay: models, and predictions of teachers


def estimate_study(study: Study) -> StudyEstimate:
    """Estimate time and disk space: every model and task is loaded once, and a few batches are trained."""
    seconds: dict[str, float] = {}
    disk = 0
    measured: dict[tuple[str, str], tuple[Workbench, Pace]] = {}
    for preparation, cells in study.preparations.items():
        first = cells[0]
        key = first.model, first.task
        if key not in measured:
            bench = prepare(first.config)
            measured[key] = bench, measure_pace(bench)
        bench, pace = measured[key]
        bench = bench.with_config(first.config)
        parameters = count_parameters(bench.loaded.model, bench.loaded.family).total
        phases = estimate_phases(bench, bench.chosen_recipe, pace)
        seconds[preparation] = sum(phases.get(name, 0.0) for name in PREPARED)
        for cell in cells:
            own = bench.with_config(cell.config)
            share = own.most_layers() / bench.loaded.layers
            phases = estimate_phases(own, own.chosen_recipe, pace._replace(train_cut=share * pace.train))
            seconds[cell.name] = sum(time for name, time in phases.items() if name not in PREPARED)
            disk += round(share * parameters * BYTES)
        recovery = first.config.recovery
        answered = count_available(recovery, bench.situation, bench.chosen_recipe.augment)
        disk += answered * max(len(bench.task.train.names), 1) * BYTES
        if recovery.distil and recovery.start == "teacher":
            disk += parameters * BYTES
    return StudyEstimate(seconds, disk)
