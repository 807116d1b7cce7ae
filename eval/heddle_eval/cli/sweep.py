"""Verbs of sweeps."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle_eval.cli import app
from heddle_eval.errors import EvalError

if TYPE_CHECKING:
    from heddle_eval.sweep_jobs import Job
    from heddle_eval.sweep_run import Report
    from heddle_eval.sweep_store import Store

Results = Annotated[
    Path,
    typer.Option(
        help="Parquet file of results, shared by tables, figures and sweeps; what is in it is not done again."
    ),
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes at once; with --on, jobs at once.")]
On = Annotated[str, typer.Option(help="Work on a Ray cluster: ray for one on this machine, or ray://HOST:PORT.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the jobs, and which of them are done, and do none.")]


@app.command()
def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="Data sets, axes and settings.")],
    results: Results = Path("results.parquet"),
    jobs: Jobs = 1,
    on: On = "",
    dry_run: DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Run every combination of defences, attacks and seeds; a run that was cut short goes on where it was.

    What SWEEP.toml may hold is in docs/evaluation.md.

    For example:

      heddle-eval sweep sweep.toml --jobs 2 --results results.parquet
    """
    from heddle_eval import sweep as sweeps
    from heddle_eval.sweep_store import Store

    planned = list(dict.fromkeys(sweeps.read(spec).jobs()))
    store = Store(results)
    if dry_run:
        list_jobs(planned, store, as_json)
        return
    report = work(planned, store, jobs, on)
    said = {"jobs": len(planned), "done": report.done, "before": report.before, "elsewhere": report.elsewhere}
    failed = [{"job": str(job), "why": why} for job, why in report.failed]
    if as_json:
        print(json.dumps({"results": str(results), **said, "failed": failed}, indent=2))
    else:
        print(f"{report.done} jobs done, {report.before + report.elsewhere} were done already, {len(failed)} failed")
        print(f"results: {results}")
    if failed:
        sys.exit(1)


def list_jobs(planned: Sequence[Job], store: Store, as_json: bool) -> None:
    """Print the jobs."""
    done = store.keys()
    for job in planned:
        job.check()
    if as_json:
        print(json.dumps([{"key": j.key, **j.parameters, "done": j.key in done} for j in planned], indent=2))
        return
    for job in planned:
        print(f"{'done' if job.key in done else 'to do'}  {job}")
    left = sum(j.key not in done for j in planned)
    print(f"{len(planned)} jobs, {left} to do", file=sys.stderr)


def work(planned: Sequence[Job], store: Store, jobs: int, on: str) -> Report:
    """Do jobs and show how it goes on standard error; an interrupt ends it with exit code 130."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from heddle_eval import sweep_run

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("jobs", total=len(planned))

        def told(report: Report, job: Job | None) -> None:
            over = report.before + report.done + report.elsewhere + len(report.failed)
            bar.update(task, completed=over)
            if not job:
                return
            if report.failed and report.failed[-1][0] is job:
                console.print(f"failed: {job}: {report.failed[-1][1]}", markup=False, highlight=False, soft_wrap=True)
            else:
                console.print(f"{over}/{len(planned)} {job}", markup=False, highlight=False, soft_wrap=True)

        try:
            return sweep_run.run(planned, store, workers=jobs if jobs else 1, on=on, progress=told)
        except KeyboardInterrupt:
            bar.stop()
            print("heddle-eval: interrupted; what was done is kept, the same command goes on", file=sys.stderr)
            sys.exit(130)


def finish(report: Report) -> None:
    """Say what failed, if anything did."""
    if report.failed:
        job, why = report.failed[0]
        raise EvalError(
            f"{len(report.failed)} jobs failed", f"the first is {job}: {why}", "the same command tries them again"
        )
