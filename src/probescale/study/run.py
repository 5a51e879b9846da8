"""A whole study: shared work first, then every cell; what is done is not done again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from probescale.study.cells import Study
from probescale.study.folder import StudyFolder
from probescale.study.local_engine import LocalEngine
from probescale.study.results import Results, read_results, write_results
from probescale.study.scheduling import Engine, Progress, run_jobs
from probescale.study.settings import StudyConfig


def run_study(study: Study, out: Path, note: Callable[[Progress], None] = lambda _: None) -> Results:
    """All cells that are not done yet. Faults of cells are in the results; the others go on."""
    folder = StudyFolder(out)
    folder.open(study)
    folder.clear_failures()
    jobs = list_jobs(study)
    done = [job for job in jobs if folder.is_done(job)]
    with create_engine(folder, study.settings) as engine:
        at = run_jobs(jobs, engine, study.settings.retries, done=done, note=note)
    for job in at.failed:
        if folder.read_failure(job) is None:
            before = jobs[job]
            folder.record_failure(job, f"{before} failed" if before in at.failed else "its process died; see its log")
    results = read_results(folder, study.cells)
    write_results(out, results)
    return results


def list_jobs(study: Study) -> dict[str, str | None]:
    """Every job with the one it has to wait for; a preparation's cells come right behind it."""
    jobs: dict[str, str | None] = {}
    for preparation, cells in study.preparations.items():
        jobs |= {preparation: None} | {cell.name: preparation for cell in cells}
    return jobs


def create_engine(folder: StudyFolder, settings: StudyConfig) -> AbstractContextManager[Engine]:
    if settings.engine == "ray":
        from probescale.study.ray_engine import RayEngine

        return RayEngine(folder, settings.address, settings.cpus or 1, settings.gpus)
    return LocalEngine(folder, settings.workers, settings.cpus)
