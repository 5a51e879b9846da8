"""study: many runs in one folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from probescale.cli.app import app
from probescale.cli.options import Config, Set, show
from probescale.errors import Unreachable, UserError
from probescale.utils.distributed import process_count

if TYPE_CHECKING:
    from probescale.study.scheduling import Progress


class RunByDefault(TyperGroup):
    """`study CONFIG` is `study run CONFIG`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's, as typer carries it
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


study = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Run models x tasks x strategies x budgets x seeds. `study CONFIG` is short for `study run CONFIG`.",
)
app.add_typer(study, name="study")
Out = Annotated[Path | None, typer.Option(help="Study folder.", show_default="runs/<name of CONFIG>")]


@study.command("run")
def study_run(config: Config, set_: Set = [], out: Out = None) -> None:  # noqa: B006 - typer reads it
    """Run every cell that is not done. After an interruption, the same command resumes the study."""
    from probescale.study.cells import load_study
    from probescale.utils.progress import spinner

    folder = out or Path("runs") / config.stem
    if process_count() > 1:
        raise UserError(
            f"a study starts its own processes, but this one was started {process_count()} times",
            field="study.workers",
            hint="start it once, without torchrun or `accelerate launch`",
        )
    with spinner("checking every cell"):
        loaded = load_study(config, set_)
        from probescale.study.folder import StudyFolder
        from probescale.study.report import write_study_report
        from probescale.study.run import run_study
        from probescale.study.tables import study_notes, study_tables
    with _LiveProgress() as report:
        results = run_study(loaded, folder, report)
    write_study_report(StudyFolder(folder), results)
    for table in study_tables(results):
        show(table.rich())
        show("")
    for line in study_notes(results):
        show(line)
    show(f"\nreport, results and cells: {folder}")
    if not results.complete:
        raise SystemExit(1)


class _LiveProgress:
    """A live table of running jobs and the time left; without a terminal, one line per change."""

    def __enter__(self) -> _LiveProgress:
        from rich.live import Live

        from probescale.utils.progress import console

        self.started, self.done_before, self.last_line = time.monotonic(), 0, ""
        self.console, self.live = console, Live(console=console, transient=True, refresh_per_second=4)
        if console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def __call__(self, progress: Progress) -> None:
        from probescale.study.tables import progress_line, progress_table

        if not progress.running and not self.last_line:
            self.done_before = len(progress.done)  # by an earlier start
        seconds, done = time.monotonic() - self.started, len(progress.done) - self.done_before
        left = seconds / done * (len(progress.waiting) + len(progress.running)) if done else None
        if self.console.is_terminal:
            self.live.update(progress_table(progress, left))
        elif (line := progress_line(progress)) != self.last_line:
            self.console.print(line, soft_wrap=True)
            self.last_line = line


@study.command("plan")
def study_plan(config: Config, set_: Set = []) -> None:  # noqa: B006
    """Show the cells with their estimated time (a few training batches are timed) and the disk space they need."""
    from probescale.study.cells import load_study
    from probescale.utils.progress import spinner

    with spinner("checking every cell"):
        loaded = load_study(config, set_)
    with spinner("timing a few training batches"):
        from probescale.study.planning import estimate_study
        from probescale.study.tables import plan_notes, plan_table

        try:
            estimate = estimate_study(loaded)
        except Unreachable:  # the rows are known all the same
            estimate = None
    show(plan_table(loaded, estimate).rich())
    for line in plan_notes(loaded, estimate):
        show(line)
