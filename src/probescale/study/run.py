"""A whole study: shared work first, then every cell; what is done is not done again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from probescale.study.cells import Study
from probescale.study.folder import StudyFolder
from probescale.study.local import LocalEngine
from probescale.study.results import Results, read_results, write_results
from probescale.study.scheduling import Engine, Progress, run_jobs
from probescale.study.settings import StudyConfig


def run_study(study: Study, out: Path, note: Callable[[Progress], None] = lambda _: None) -> Results:
    """All cells that are not done yet. Faults of cells are in the results; the others go on."""
    folder = StudyFolder(out)
    folder.open(study)
    folder.forget_faults()
    jobs = jobs_of(study)
    done = [job for job in jobs if folder.is_done(job)]
    with engine_of(folder, study.settings) as engine:
        at = run_jobs(jobs, engine, study.settings.retries, done=done, note=note)
    for job in at.failed:
        if folder.fault(job) is None:
            before = jobs[job]
            folder.fail(job, f"{before} failed" if before in at.failed else "its process died; see its log")
    results = read_results(folder, study.cells)
    write_results(out, results)
    return results


def jobs_of(study: Study) -> dict[str, str | None]:
    """Every job with the one it has to wait for; a ground's cells come right behind it."""
    jobs: dict[str, str | None] = {}
    for ground, cells in study.grounds.items():
        jobs |= {ground: None} | {cell.name: ground for cell in cells}
    return jobs


def engine_of(folder: StudyFolder, settings: StudyConfig) -> AbstractContextManager[Engine]:
    if settings.engine == "ray":
        from probescale.study.on_ray import RayEngine

        return RayEngine(folder, settings.address, settings.cpus or 1, settings.gpus)
    return LocalEngine(folder, settings.workers, settings.cpus)
