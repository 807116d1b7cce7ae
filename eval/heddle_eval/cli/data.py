"""Verbs over data sets: import, describe, and the risk of a user's own pages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from heddle_eval.cli import app
from heddle_eval.errors import EvalError

AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Label = Annotated[
    str,
    typer.Option(
        metavar="PATTERN",
        help="What files are called, such as '{page}-{visit}-{path}.pcapng'; * stands for anything. "
        "Without it folders decide: page/visit/path.pcapng, page/visit.pcapng or page.pcapng.",
    ),
]
Client = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        help="Address of the client, or a network such as 10.0.0.0/8, several times if it had several. "
        "Captures made by Heddle say it themselves.",
    ),
]
Filter = Annotated[
    str,
    typer.Option("--filter", metavar="EXPRESSION", help="Only packets that this expression of tcpdump lets through."),
]

Sort = Annotated[bool, typer.Option("--sort", help="Put packets in the order of time where times go backwards.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out page loads that cannot be read, and list them.")]
Salvage = Annotated[
    bool, typer.Option("--salvage", help="Take what comes before the damage of captures that are cut short.")
]


@app.command("import")
def import_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="pcap, npz, wflib, df, wang, comps, maybenot, smith, jsonl, or auto to find out."
        ),
    ],
    inputs: Annotated[list[Path], typer.Argument(metavar="IN...", help="Files and folders.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.parquet", help="File to write.")],
    label: Label = "",
    unmonitored: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Classes that the observer does not look for; * and ? stand for letters."),
    ] = None,
    client: Client = None,
    filter_: Filter = "",
    size: Annotated[
        Literal["ip", "payload"], typer.Option(help="Bytes of the IP packet, or of what UDP or TCP carries.")
    ] = "ip",
    per: Annotated[
        Literal["file", "flow", "gap"],
        typer.Option(
            help="What one page load is in a capture: the file, a conversation, or what lies between silences."
        ),
    ] = "file",
    gap: Annotated[float, typer.Option(min=0.001, help="Seconds of silence between page loads, for --per gap.")] = 5.0,
    sort: Sort = False,
    skip_bad: SkipBad = False,
    salvage: Salvage = False,
    min_packets: Annotated[int, typer.Option(min=0, help="Leave out traces of fewer packets.")] = 0,
    cell: Annotated[int, typer.Option(min=1, help="Bytes of a packet, for formats that keep directions only.")] = 512,
    paths: Annotated[
        int, typer.Option(min=1, help="Traces in a row that are of one page load, for wflib, smith and jsonl.")
    ] = 1,
    protocol: Annotated[str, typer.Option(help="Only traces of that protocol, for smith and jsonl.")] = "",
    contents: Annotated[
        bool,
        typer.Option(
            "--contents",
            help="Of captures, also keep entropy and printable share of payloads, and the first bytes of each "
            "connection, which may be private.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written, and write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read what was recorded elsewhere into one Parquet file of traces.

    The columns, and each format, are explained in docs/traces.md.

    For example:

      heddle-eval import pcap captures traces.parquet --label '{page}-{visit}-{path}.pcapng'

      heddle-eval import pcap day.pcap traces.parquet --client 192.0.2.7 --filter 'udp port 51820' --per gap

      heddle-eval import auto X_train_NoDef.pkl df.parquet
    """
    from heddle_eval import importers, parquet
    from heddle_eval.describe import summary

    options: dict[str, Any] = {
        "label": label,
        "unmonitored": tuple(unmonitored or ()),
        "filter": filter_,
        "size": size,
        "per": per,
        "gap": gap,
        "sort": sort,
        "skip_bad": skip_bad,
        "salvage": salvage,
        "min_packets": min_packets,
        "cell": cell,
        "paths": paths,
        "protocol": protocol,
        "contents": contents,
    }
    with progress("reading") as tell:
        read = importers.Options(**options, client=networks(client), progress=tell)
        traces, report = importers.load(kind, inputs, read)
    answer = {
        **({} if dry_run else {"out": str(out)}),
        "kind": report.kind,
        "inputs": report.inputs,
        **summary(traces),
        "path_names": report.paths,
        "counts": report.counts,
        "skipped": report.skipped,
        "notes": report.notes,
    }
    if not dry_run:
        kept = {k: answer[k] for k in ("kind", "path_names", "counts", "skipped", "notes")}
        changed = {k: v for k, v in options.items() if v != getattr(importers.Options(), k)}
        parquet.write(traces, out, {**kept, "from": [i.name for i in inputs], "options": changed})
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        _tell_import(answer)


@app.command()
def merge(
    suspect: Annotated[Path, typer.Argument(metavar="SUSPECT.parquet", help="Flows that a censor looks for.")],
    innocent: Annotated[list[Path], typer.Option("--innocent", help="Flows that it must not block; may be repeated.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.parquet", help="File to write.")],
    flows: Annotated[
        bool, typer.Option("--flows", help="Make each connection a trace, as a filter that decides on each alone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make one data set for --world detect of two kinds of traces: the first monitored, the others not.

    For example:

      heddle-eval merge cover.parquet both.parquet --innocent browsing.parquet --flows
    """
    from heddle_eval import detection, parquet

    made = detection.merge(parquet.read(suspect), [parquet.read(i) for i in innocent], flows=flows)
    parquet.write(made, out, {"suspect": suspect.name, "innocent": [i.name for i in innocent], "flows": flows})
    watched = made.monitored[made.label]
    answer = {"out": str(out), "suspect": int(watched.sum()), "innocent": int((~watched).sum())}
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        print(f"{out}: {answer['suspect']} traces that a censor looks for, {answer['innocent']} innocent")


def _tell_import(answer: dict[str, Any]) -> None:
    done = f"{answer['out']}: " if "out" in answer else "would write "
    print(
        f"{done}{answer['traces']} traces of {answer['loads']} page loads, {answer['classes']} classes"
        f" ({answer['unmonitored_classes']} unmonitored), {answer['packets']} packets"
    )
    for name, number in answer["path_names"].items():
        print(f"  path {number}: {name}")
    for what, n in answer["counts"].items():
        print(f"  {n} {what}")
    for skipped in answer["skipped"]:
        print(f"  left out {skipped['what']}: {skipped['why']}")
    for note in answer["notes"]:
        print(f"  {note}")


@app.command()
def describe(
    data: Annotated[Path, typer.Argument(metavar="DATA.parquet", help="A data set.")],
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it into this file.")] = None,
    classes: Annotated[int, typer.Option(min=0, help="Rows of the table of classes; 0 for all.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Count traces, packets and bytes, in all, of each class and of each path, and draw how they are spread.

    For example:

      heddle-eval describe traces.parquet --png traces.png
    """
    from heddle_eval import describe as d
    from heddle_eval import parquet

    traces = parquet.read(data)
    answer = d.describe(traces, parquet.about(data))
    if png:
        d.draw(traces, png, answer)
    print(json.dumps(answer, indent=2) if as_json else d.text(answer, classes or None))


@app.command()
def risk(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Captures: several visits of several pages.")],
    label: Label = "",
    client: Client = None,
    filter_: Filter = "",
    attack: Annotated[str, typer.Option(metavar="NAME", help="The attack that stands for the observer.")] = "k-fp",
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the answer into this file.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds and of the attack.")] = 0,
    sort: Sort = False,
    skip_bad: SkipBad = False,
    salvage: Salvage = False,
    as_json: AsJson = False,
) -> None:
    """Say how well someone on each path could tell your own pages apart.

    Visit each page several times, with a capture on each path (heddle up --capture page/visit), and name the folder.
    It may also be a Parquet file of traces.

    For example:

      heddle-eval risk captures --label '{page}-{visit}-{path}.pcapng' --png risk.png
    """
    from heddle_eval import importers, parquet
    from heddle_eval import risk as r
    from heddle_eval.describe import path_names

    if folder.suffix == ".parquet" and folder.is_file():
        traces = parquet.read(folder)
        paths = path_names(parquet.about(folder))
    else:
        with progress("reading") as tell:
            read = importers.Options(
                label=label,
                client=networks(client),
                filter=filter_,
                sort=sort,
                skip_bad=skip_bad,
                salvage=salvage,
                progress=tell,
            )
            traces, report = importers.load("pcap", [folder], read)
        paths = report.paths
        for what, n in report.counts.items():
            print(f"{n} {what}", file=sys.stderr)
        for skipped in report.skipped:
            print(f"left out {skipped['what']}: {skipped['why']}", file=sys.stderr)
    with progress("attacking") as tell:
        answer = r.assess(traces, paths, attack=attack, seed=seed, progress=tell)
    if png:
        r.draw(answer, png)
    print(json.dumps(answer, indent=2) if as_json else r.text(answer))


def networks(clients: list[str] | None) -> tuple[Any, ...]:
    """Read addresses and networks."""
    try:
        return tuple(ip_network(c, strict=False) for c in clients or ())
    except ValueError as e:
        raise EvalError("--client", str(e), "give an address such as 192.0.2.7, or a network such as 10.0.0.0/8") from e


@contextmanager
def progress(what: str) -> Iterator[Any]:
    """Show a bar on stderr, where that is a terminal; give the function to call with how much is done, and of what."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
