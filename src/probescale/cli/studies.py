"""study: many runs in one folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from probescale.cli.app import app
from probescale.cli.options import Config, Set, show
from probescale.errors import UserError
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
    help="Models x tasks x strategies x budgets x seeds, every cell a run. `study CONFIG` is `study run CONFIG`.",
)
app.add_typer(study, name="study")
Out = Annotated[Path | None, typer.Option(help="Study folder.", show_default="runs/<name of CONFIG>")]


@study.command("run")
def study_run(config: Config, set_: Set = [], out: Out = None) -> None:  # noqa: B006 - typer reads it
    """Run every cell that is not done yet; the same command goes on after an interruption."""
    from probescale.study.cells import load_study
    from probescale.utils.progress import spinner

    folder = out or Path("runs") / config.stem
    if process_count() > 1:
        raise UserError(
            f"a study starts its own processes, and this one was started {process_count()} times",
            field="study.workers",
            hint="start it once, without torchrun or `accelerate launch`",
        )
    with spinner("checking every cell"):
        wanted = load_study(config, set_)
        from probescale.study.folder import StudyFolder
        from probescale.study.report import write_study_report
        from probescale.study.run import run_study
        from probescale.study.tables import study_notes, study_tables
    with _live() as note:
        results = run_study(wanted, folder, note)
    write_study_report(StudyFolder(folder), results)
    for table in study_tables(results):
        show(table.rich())
        show("")
    for line in study_notes(results):
        show(line)
    show(f"\nreport, results and cells: {folder}")
    if not results.complete:
        raise SystemExit(1)


class _live:  # noqa: N801 - used as a function
    """What is done, running and left, and the time that is left: a table that stays up to date."""

    def __enter__(self) -> _live:
        from rich.live import Live

        from probescale.utils.progress import console

        self.started, self.before, self.said = time.monotonic(), 0, ""
        self.console, self.live = console, Live(console=console, transient=True, refresh_per_second=4)
        if console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def __call__(self, at: Progress) -> None:
        from probescale.study.tables import progress_line, progress_table

        if not at.running and not self.said:
            self.before = len(at.done)  # of an earlier start
        passed, fresh = time.monotonic() - self.started, len(at.done) - self.before
        left = passed / fresh * (len(at.waiting) + len(at.running)) if fresh else None
        if self.console.is_terminal:
            self.live.update(progress_table(at, left))
        elif (line := progress_line(at)) != self.said:  # a log gets a line whenever something changes
            self.console.print(line, soft_wrap=True)
            self.said = line


@study.command("plan")
def study_plan(config: Config, set_: Set = []) -> None:  # noqa: B006
    """Show the cells, the time they will take (a few batches are trained to measure it) and the disk they need."""
    from probescale.study.cells import load_study
    from probescale.utils.progress import spinner

    with spinner("checking every cell"):
        wanted = load_study(config, set_)
    with spinner("training a few batches"):
        from probescale.study.planning import estimate_study
        from probescale.study.tables import plan_notes, plan_table

        found = estimate_study(wanted)
    show(plan_table(wanted, found).rich())
    for line in plan_notes(wanted, found):
        show(line)
