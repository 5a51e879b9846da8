"""Runs a study: shared preparations first, then the cells. Finished jobs are skipped."""

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


def run_study(study: Study, out: Path, report: Callable[[Progress], None] = lambda _: None) -> Results:
    """Run every cell that is not done. A failed cell is listed in the results and does not stop the others."""
    folder = StudyFolder(out)
    folder.open(study)
    jobs = list_jobs(study)
    folder.clear_failures(jobs)
    for name in study.preparations:
        folder.mend_preparation(name)
    done = [job for job in jobs if folder.is_done(job)]
    with create_engine(folder, study.settings) as engine:
        progress = run_jobs(jobs, engine, study.settings.retries, done=done, report=report)
    for job in progress.failed:
        if folder.read_failure(job) is None:
            preparation = jobs[job]
            folder.record_failure(
                job, f"{preparation} failed" if preparation in progress.failed else "its process died; see its log"
            )
    results = read_results(folder, study)
    write_results(out, results)
    return results


def list_jobs(study: Study) -> dict[str, str | None]:
    """Every job with the job it waits for: each preparation, followed by its cells."""
    jobs: dict[str, str | None] = {}
    for preparation, cells in study.preparations.items():
        jobs |= {preparation: None} | {cell.name: preparation for cell in cells}
    return jobs


def create_engine(folder: StudyFolder, settings: StudyConfig) -> AbstractContextManager[Engine]:
    """The engine that the settings name."""
    if settings.engine == "ray":
        from probescale.study.ray_engine import RayEngine

        return RayEngine(folder, settings.address, settings.cpus or 1, settings.gpus)
    return LocalEngine(folder, settings.workers, settings.cpus)
