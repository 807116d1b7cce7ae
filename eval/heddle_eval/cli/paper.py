"""Verbs that print the papers' tables and figures with our figures beside theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heddle_eval.cli import app
from heddle_eval.cli.sweep import DryRun, Jobs, On, Results, finish, list_jobs, work
from heddle_eval.errors import EvalError

if TYPE_CHECKING:
    from heddle_eval.paper import Plan
    from heddle_eval.sweep_store import Store

DataFiles = Annotated[
    list[Path] | None,
    typer.Option(
        help="Data set, Parquet or flat .npz; may be repeated. Without it, those in the project's eval/data, and "
        "explainwf's in the folder that HEDDLE_DATA names, as far as they fit."
    ),
]
Preset = Annotated[
    Literal["laptop", "paper"],
    typer.Option(
        help="laptop: part of the data, k-FP, CUMUL, and DF of half width on some of the rows; paper: all data, all "
        "attacks on all rows."
    ),
]
Attacks = Annotated[
    list[str] | None, typer.Option("--attack", help="Only this attack, whatever the preset has; may be repeated.")
]
Seeds = Annotated[int, typer.Option(min=0, help="Repetitions with other seeds; 0 leaves it to the preset.")]
Share = Annotated[
    float,
    typer.Option(
        "--unmonitored-share",
        min=0,
        max=1,
        help="Where a data set has no unmonitored pages, make this share of its pages unmonitored. The attack then "
        "knows them better than it would know the rest of the web.",
    ),
]
Visits = Annotated[
    int | None,
    typer.Option(min=0, help="At most so many loads of each monitored page; 0: all. The preset's by default."),
]
Unmonitored = Annotated[
    int | None, typer.Option(min=0, help="At most so many loads of unmonitored pages; 0: all. The preset's by default.")
]
Unseen = Annotated[bool, typer.Option("--unseen", help="Test on unmonitored pages that the attack never saw.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Picture = Annotated[Path | None, typer.Option("--png", help="Also draw it into this file (.png, .svg or .pdf).")]


@app.command()
def table(
    name: Annotated[str, typer.Argument(help="comps-3, comps-4, comps-5 or comps-6.")],
    data: DataFiles = None,
    preset: Preset = "laptop",
    attack: Attacks = None,
    seeds: Seeds = 0,
    unmonitored_share: Share = 0.0,
    visits: Visits = None,
    unmonitored: Unmonitored = None,
    unseen: Unseen = False,
    results: Results = Path("results.parquet"),
    jobs: Jobs = 1,
    on: On = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Answer in Markdown.")] = False,
    png: Picture = None,
) -> None:
    """Print a paper's table: our figures, with 95 % intervals, beside the paper's.

    Experiments whose results are in --results are not done again, so that what was interrupted goes on.

    For example:

      heddle-eval table comps-5 --preset laptop --jobs 2 --markdown
    """
    from heddle_eval import paper, report

    if as_json and markdown:
        raise EvalError("table", "--json and --markdown exclude each other")
    plan = _plan("tables", name, data, preset, attack, seeds, unmonitored_share, visits, unmonitored, unseen)
    if (store := _done(plan, results, jobs, on, dry_run, as_json)) is None:
        return
    answer = paper.answer(plan, store)
    if png:
        from heddle_eval import figures

        figures.save(figures.points(answer, report.title(answer)), png)
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        print(report.markdown(answer) if markdown else report.text(answer), end="")


@app.command()
def figure(
    name: Annotated[str, typer.Argument(help="comps-6 or comps-7.")],
    png: Annotated[Path | None, typer.Option("--png", help="File to draw into (.png, .svg or .pdf).")] = None,
    data: DataFiles = None,
    preset: Preset = "laptop",
    attack: Attacks = None,
    seeds: Seeds = 0,
    unmonitored_share: Share = 0.0,
    visits: Visits = None,
    unmonitored: Unmonitored = None,
    unseen: Unseen = False,
    results: Results = Path("results.parquet"),
    jobs: Jobs = 1,
    on: On = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Draw a paper's precision-recall curves from our experiments.

    The points of a curve differ in the confidence from which on the attack's answer counts.

    For example:

      heddle-eval figure comps-7 --attack k-fp --png comps-7.png
    """
    from heddle_eval import paper

    if not (png or as_json or dry_run):
        raise EvalError("figure", "there is nowhere to draw", "name a file by --png, or ask for --json")
    plan = _plan("figures", name, data, preset, attack, seeds, unmonitored_share, visits, unmonitored, unseen)
    if (store := _done(plan, results, jobs, on, dry_run, as_json)) is None:
        return
    curves = paper.curves(plan, store)
    if png:
        from heddle_eval import figures

        figures.save(figures.precision_recall(curves, f"{plan.spec['title']} ({plan.spec['source']}), {preset}"), png)
    if as_json:
        said: dict[str, Any] = {"figure": name, "preset": preset, "r": plan.spec["r"], "notes": plan.notes}
        print(json.dumps(said | {"curves": curves}, indent=2))
    else:
        for line in [*plan.notes, str(png)]:
            print(line)


def _plan(
    kind: str,
    name: str,
    data: list[Path] | None,
    preset: str,
    attacks: list[str] | None,
    seeds: int,
    share: float,
    visits: int | None,
    unmonitored: int | None,
    unseen: bool,
) -> Plan:
    """List what has to be done, by the options that all papers' verbs have."""
    from heddle_eval import paper

    limits = {"visits": visits, "unmonitored": unmonitored, "unseen": unseen, "unmonitored_share": share}
    return paper.plan(kind, name, data or (), preset=preset, seeds=seeds, attacks=attacks or (), **limits)


def _done(plan: Plan, results: Path, jobs: int, on: str, dry_run: bool, as_json: bool) -> Store | None:
    """Do what is not done; None where only the list was asked for."""
    from heddle_eval.sweep_store import Store

    store = Store(results)
    if dry_run:
        list_jobs(plan.jobs, store, as_json)
        return None
    finish(work(plan.jobs, store, jobs, on))
    return store
