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
    from heddle_eval import steg
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
Train = Annotated[Path | None, typer.Option(help="Learn from this data set, and tell all traces of each --data.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Picture = Annotated[Path | None, typer.Option("--png", help="Also draw it into this file (.png, .svg or .pdf).")]


@app.command()
def table(
    name: Annotated[str, typer.Argument(help="comps-3, comps-4, comps-5, comps-6, steg-2 or steg-detect.")],
    data: DataFiles = None,
    preset: Preset = "laptop",
    attack: Attacks = None,
    seeds: Seeds = 0,
    unmonitored_share: Share = 0.0,
    visits: Visits = None,
    unmonitored: Unmonitored = None,
    unseen: Unseen = False,
    train: Train = None,
    defence: Annotated[
        list[str] | None, typer.Option(help="Also a row with this defence, for comps; may be repeated.")
    ] = None,
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

      heddle-eval table steg-2 --train tor.parquet --data tor-again.parquet --data cover.parquet --png roc.png
    """
    from heddle_eval import paper, report, steg

    if as_json and markdown:
        raise EvalError("table", "--json and --markdown exclude each other")
    if name in steg.TABLES:
        fixed = {"--unmonitored": unmonitored, "--unmonitored-share": unmonitored_share, "--unseen": unseen}
        _refuse(name, fixed | {"--defence": defence})
        chosen = steg.plan(
            name, data or (), train=train or "", attacks=attack or (), preset=preset, seeds=seeds, visits=visits or 0
        )
        if (store := _done(chosen, results, jobs, on, dry_run, as_json)) is None:
            return
        answer = steg.answer(chosen, store)
        if png:
            from heddle_eval import figures

            figures.save(figures.roc(steg.curves(chosen, store), report.title(answer)), png)
        _print(answer, as_json, markdown)
        return
    plan = _plan(
        "tables", name, data, preset, attack, seeds, unmonitored_share, visits, unmonitored, unseen, train, defence
    )
    if (store := _done(plan, results, jobs, on, dry_run, as_json)) is None:
        return
    answer = paper.answer(plan, store)
    if png:
        from heddle_eval import figures

        figures.save(figures.points(answer, report.title(answer)), png)
    _print(answer, as_json, markdown)


def _print(answer: dict[str, Any], as_json: bool, markdown: bool) -> None:
    from heddle_eval import report

    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        print(report.markdown(answer) if markdown else report.text(answer), end="")


def _refuse(name: str, options: dict[str, Any]) -> None:
    """Refuse options that mean nothing for a table or figure, rather than leave them aside."""
    if given := [option for option, value in options.items() if value]:
        raise EvalError(given[0], f"it means nothing for {name}", "leave it out")


@app.command()
def figure(
    name: Annotated[str, typer.Argument(help="comps-6, comps-7, steg-2, steg-4 or steg-detect.")],
    png: Annotated[Path | None, typer.Option("--png", help="File to draw into (.png, .svg or .pdf).")] = None,
    data: DataFiles = None,
    preset: Preset = "laptop",
    attack: Attacks = None,
    seeds: Seeds = 0,
    unmonitored_share: Share = 0.0,
    visits: Visits = None,
    unmonitored: Unmonitored = None,
    unseen: Unseen = False,
    train: Train = None,
    results: Results = Path("results.parquet"),
    jobs: Jobs = 1,
    on: On = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Draw a paper's curves from our data: precision-recall of comps, ROC of steg-2 and steg-detect.

    The points of such a curve differ in the confidence from which on the attack's answer counts. steg-4 draws
    distributions of each --data, and how far each is from the first.

    For example:

      heddle-eval figure comps-7 --attack k-fp --png comps-7.png

      heddle-eval figure steg-4 --data browsing.parquet --data tor.parquet --data cover.parquet --png steg-4.png
    """
    from heddle_eval import paper, steg

    if not (png or as_json or dry_run):
        raise EvalError("figure", "there is nowhere to draw", "name a file by --png, or ask for --json")
    if name in steg.FIGURES:
        fixed = {"--unmonitored": unmonitored, "--unmonitored-share": unmonitored_share, "--unseen": unseen}
        _refuse(name, fixed)
        if name == "steg-4":
            _refuse(name, {"--train": train, "--attack": attack, "--seeds": seeds, "--visits": visits})
            _distributions(data or [], png, as_json)
            return
        chosen = steg.plan(
            name, data or (), train=train or "", attacks=attack or (), preset=preset, seeds=seeds, visits=visits or 0
        )
        if (store := _done(chosen, results, jobs, on, dry_run, as_json)) is None:
            return
        found, about = steg.curves(chosen, store), steg.answer(chosen, store)
        if png:
            from heddle_eval import figures, report

            figures.save(figures.roc(found, report.title(about)), png)
        if as_json:
            print(json.dumps({"figure": name, "preset": preset, "notes": about["notes"], "curves": found}, indent=2))
        else:
            for line in [*about["notes"], str(png)]:
                print(line)
        return
    plan = _plan("figures", name, data, preset, attack, seeds, unmonitored_share, visits, unmonitored, unseen, train)
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


def _distributions(data: list[Path], png: Path | None, as_json: bool) -> None:
    from heddle_eval import figures, parquet, steg

    if len({d.stem for d in data}) < len(data):
        raise EvalError("steg-4", "two data sets have the same name", "rename a file")
    found = steg.distributions({d.stem: parquet.read(d) for d in data})
    if png:
        title = f"Connections and packets, StegoTorus figure 4; KS distance from {found['reference']}"
        figures.save(figures.distributions(found, steg.PANELS, title), png)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for name, by_panel in found["distances"].items():
        for panel, distance in by_panel.items():
            print(f"{name} from {found['reference']}, {steg.PANELS[panel]}: KS distance {distance:.3f}")
    if png:
        print(png)


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
    train: Path | None = None,
    defences: list[str] | None = None,
) -> Plan:
    """List what has to be done, by the options that all papers' verbs have."""
    from heddle_eval import paper

    return paper.plan(
        kind,
        name,
        data or (),
        preset=preset,
        seeds=seeds,
        attacks=attacks or (),
        visits=visits,
        unmonitored=unmonitored,
        unseen=unseen,
        unmonitored_share=share,
        train=train or "",
        defences=defences or (),
    )


def _done(plan: Plan | steg.Plan, results: Path, jobs: int, on: str, dry_run: bool, as_json: bool) -> Store | None:
    """Do what is not done; None where only the list was asked for."""
    from heddle_eval.sweep_store import Store

    store = Store(results)
    if dry_run:
        list_jobs(plan.jobs, store, as_json)
        return None
    finish(work(plan.jobs, store, jobs, on))
    return store
