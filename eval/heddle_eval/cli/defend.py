"""Verbs of defences."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from heddle_eval.cli import app


@app.command()
def defend(
    data: Annotated[Path, typer.Argument(metavar="IN.parquet", help="A data set.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.parquet", help="File to write.")],
    how: Annotated[
        str,
        typer.Option("--with", help="Defences, with 'then' between them; heddle-eval defences lists them."),
    ],
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Apply defences to a data set, and print what they cost in bandwidth and in delay.

    For example:

      heddle-eval defend traces.parquet split.parquet --with split:weighted,paths=3,every=50p

      heddle-eval defend traces.parquet both.parquet --with 'wtf-pad then split:weighted,every=100ms' --seed 1
    """
    import numpy as np

    from heddle_eval import parquet
    from heddle_eval.defences import overhead, parse

    defence = parse(how)
    before = parquet.read(data)
    with _progress():
        start = time.process_time()
        after = defence.apply(before, np.random.default_rng(seed))
        seconds = time.process_time() - start
    cost = overhead(before, after)
    parquet.write(after, out, parquet.about(data) | {"defence": str(defence), "seed": seed})
    if as_json:
        answer = {"out": str(out), "defence": str(defence), "seed": seed, "traces": len(after), "cpu_s": seconds}
        print(json.dumps(answer | cost.as_json(), indent=2))
        return
    print(defence.describe())
    print(f"{out}: {len(before):,} traces became {len(after):,} in {seconds:.1f} s of CPU")
    print(cost.text())


@app.command()
def defences(
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """List defences: what each hides and what not, its presets, and its settings with their defaults.

    For example:

      heddle-eval defences
    """
    from heddle_eval.defences import DEFENCES

    if as_json:
        rows = [
            {"name": d.name, "claim": d.claim, "source": d.source, "presets": list(d.presets), "settings": d.settings()}
            for d in DEFENCES.values()
        ]
        print(json.dumps(rows, indent=2))
        return
    for d in DEFENCES.values():
        print(f"{d.name}{':' + '|'.join(d.presets) if d.presets else ''}\n  {d.claim}\n  {d.source}")
        for s in d.settings():
            print(f"    {s['key']}={s['default'] or '...'}  {s['about']}")
        print()
    print(
        "Write them as NAME:PRESET,key=value, with ' then ' between several; numbers of several paths as 0.5/0.3/0.2."
    )


@contextmanager
def _progress() -> Iterator[None]:
    """Show on stderr, where that is a terminal, how many traces are done."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from heddle_eval.defences.packets import telling

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("defending")
        token = telling.set(lambda done, total: bar.update(task, description=f"{done:,} of {total:,} traces"))
        try:
            yield
        finally:
            telling.reset(token)
