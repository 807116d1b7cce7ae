"""Verbs of attacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle_eval.cli import app
from heddle_eval.errors import EvalError

if TYPE_CHECKING:
    from heddle_eval.traces import Traces


@app.command()
def attack(
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA.parquet]", help="A data set, of which a tenth is told.")
    ] = None,
    *,
    name: Annotated[
        str,
        typer.Option("--with", help="The attack; heddle-eval attacks lists them. MODULE:CLASS is one of your own."),
    ],
    train: Annotated[
        Path | None, typer.Option(metavar="A.parquet", help="Instead of DATA: learn from all of this data set.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="B.parquet", help="Instead of DATA: tell all of this data set.")
    ] = None,
    train_visits: Annotated[
        int, typer.Option("--train-visits", min=0, help="Learn from at most so many loads of each class; 0: all.")
    ] = 0,
    folds: Annotated[
        int, typer.Option(min=0, help="Tell every trace once, in so many parts, instead of a tenth of them.")
    ] = 0,
    png: Annotated[Path | None, typer.Option("--png", help="Draw the ROC curve of detection into this file.")] = None,
    preset: Annotated[str, typer.Option(help="laptop, or paper: as published.")] = "laptop",
    world: Annotated[
        str,
        typer.Option(
            help="closed; open: unmonitored pages are there too; detect: only whether a trace is monitored; sites: "
            "each page against all others."
        ),
    ] = "closed",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the parting and of the training.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the attack; may be repeated.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder that keeps each epoch; a killed training goes on from there.")
    ] = None,
    see: Annotated[
        int, typer.Option(min=0, help="Paths that the observer sees and joins by time; 0: an observer on each path.")
    ] = 0,
    unmonitored_share: Annotated[
        float,
        typer.Option(min=0, max=1, help="Make this share of the pages unmonitored, for data that have none of them."),
    ] = 0.0,
    unseen: Annotated[bool, typer.Option("--unseen", help="Test on unmonitored pages that it never saw.")] = False,
    r: Annotated[float, typer.Option(min=0, help="Unmonitored visits for each monitored one, in r-precision.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Train an attack on nine tenths of the page loads, test it on the others, and print what it could tell.

    With --train and --test it learns from one data set and tells another.

    For example:

      heddle-eval attack traces.parquet --with k-fp

      heddle-eval attack traces.parquet --with df --set sees=size --set epochs=20 --checkpoint runs --seed 1

      heddle-eval attack split.parquet --with k-fp --see 2

      heddle-eval attack --train tor.parquet --test cover.parquet --with site-bayes --world sites --train-visits 10
    """
    import sys

    import numpy as np

    from heddle_eval import experiment, parquet
    from heddle_eval.attacks import make
    from heddle_eval.defences.join import observe
    from heddle_eval.traces import WHOLE

    chosen = make(name, preset, seed, **parsed(settings or []))
    own = chosen.get_params()
    if checkpoint:
        if "checkpoint" not in own:
            raise EvalError("--checkpoint", f"{name} has no epochs to keep", "leave it out: its training is short")
        chosen.set_params(checkpoint=str(checkpoint))
    if "progress" in own and sys.stderr.isatty():
        chosen.set_params(progress=True)
    if (train is None) != (test is None) or (data is None) == (train is None):
        raise EvalError("attack", "it is not clear what to learn from", "DATA alone, or both --train A and --test B")
    if folds and train:
        raise EvalError("--folds", "with --train there is nothing to part", "leave it out")
    if folds and (unseen or train_visits):
        raise EvalError("--folds", "it has no effect on --unseen and --train-visits", "leave them out")
    if png and world != "detect":
        raise EvalError("--png", f"there is no ROC curve in the world {world!r}", "--world detect")

    def seen_of(file: Path) -> Traces:
        traces = parquet.read(file)
        if unmonitored_share:
            traces = experiment.unmonitor(traces, unmonitored_share)
        if see:
            if (traces.path == WHOLE).all():
                raise EvalError("--see", "no trace of the data set is split", "heddle-eval defend splits them")
            traces = observe(traces, see, np.random.default_rng([seed, 0x5EE]))
        return traces

    tested = data or test
    assert tested is not None
    trained: list[Any] = []
    what: dict[str, Any] = {"world": world, "seed": seed}
    if folds:
        results, trained = experiment.folds(seen_of(tested), chosen, folds, **what)
    else:
        learn = seen_of(train) if train else None
        results = [
            experiment.run(seen_of(tested), chosen, learn=learn, unseen=unseen, learn_visits=train_visits, **what)
        ]
    found = results[0]
    measures = experiment.measure(results, r)
    extra = _detection(chosen, results, trained, png) if world == "detect" else {}
    if as_json:
        params = {k: v for k, v in chosen.get_params().items() if k != "progress"}
        head = {"attack": name, "preset": preset, "world": world, "seed": seed, "see": see, "parameters": params}
        told = sum(len(x.truth) for x in results)
        sizes = {"train": found.train, "test": told, "fit_s": found.fit_s, "predict_s": found.predict_s}
        print(json.dumps(head | sizes | {"measures": measures} | extra, indent=2))
        return
    seen = f", {see} paths seen" if see else ""
    print(
        f"{name}, {preset}, {world} world{seen}: learnt {found.train:,} traces in {found.fit_s:.1f} s, "
        f"told {sum(len(x.truth) for x in results):,} in {sum(x.predict_s for x in results):.1f} s"
    )
    for measure, row in measures.items():
        print(f"  {measure:<14} {_said(row)}")
    for feature in extra.get("features", []):
        print(f"  AUC falls by {feature['falls']:.3f} without {feature['name']}")
    for name, at in extra.get("detected", {}).items():
        when = "" if at["median_s"] is None else f", after {at['median_s']:.2f} s at the median"
        print(f"  {at['share']:.3f} of the {name} traces are detected{when}")
    if png:
        print(png)


def _detection(chosen: Any, results: list[Any], trained: list[Any], png: Path | None) -> dict[str, Any]:
    """Draw the ROC curve; where parts were told, name the features that tell and the time to detection."""
    import numpy as np

    from heddle_eval import detection, metrics

    positive = np.concatenate([x.truth for x in results]) != metrics.OTHER
    points = metrics.roc(positive, np.concatenate([x.score for x in results]))
    curve = {"fpr": points.fpr.tolist(), "tpr": points.tpr.tolist()}
    if png:
        from heddle_eval import figures

        name = type(chosen).__name__
        figures.save(figures.roc([curve | {"data": "detection", "panel": name, "row": name}], "ROC"), png)
    out: dict[str, Any] = {"roc": curve}
    if trained and hasattr(chosen, "telling"):
        out["features"] = chosen.telling(trained)
    if trained and hasattr(chosen, "detected"):
        out["detected"] = detection.times(trained)
    return out


@app.command()
def strategies(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]DATA.parquet...", help="A data set of each strategy; the first is compared with."
        ),
    ],
    attack: Annotated[
        list[str] | None,
        typer.Option("--attack", help="Only this attack; may be repeated. k-fp, cumul and df otherwise."),
    ] = None,
    preset: Annotated[str, typer.Option(help="laptop, or paper: as published.")] = "laptop",
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions with other parts of the loads.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Answer in Markdown.")] = False,
) -> None:
    """Compare strategies of a defence: how well attacks tell the loads of each apart, and what a load costs.

    For example:

      heddle-eval strategies none=pages-none.parquet pieces=pages-pieces.parquet pad-pow2=pages-pad-pow2.parquet
    """
    import sys

    from heddle_eval import parquet
    from heddle_eval import strategies as table

    if as_json and markdown:
        raise EvalError("strategies", "--json and --markdown exclude each other")
    sets = {}
    for one in data:
        name, equals, file = one.rpartition("=")
        name = name if equals else Path(file).stem
        if name in sets:
            raise EvalError(name, "two data sets have this name", "give them names, as NAME=DATA.parquet")
        sets[name] = parquet.read(file)
    chosen = attack or ["k-fp", "cumul", "df"]
    said = (lambda what: print(what, file=sys.stderr)) if sys.stderr.isatty() else (lambda what: None)
    answer = table.compare(sets, chosen, preset=preset, seeds=seeds, progress=said)
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        print(table.markdown(answer) if markdown else table.text(answer), end="")


def _said(row: dict[str, float | None]) -> str:
    """Write a measure and its interval."""
    value, low, high = (row.get(k) for k in ("value", "low", "high"))
    if value is None:
        return "not defined"
    return f"{value:.3f}" + (f"  ({low:.3f} to {high:.3f})" if low is not None and high is not None else "")


def parsed(settings: list[str]) -> dict[str, Any]:
    """Read KEY=VALUE: a value is a number, true, false or none where it looks like one, else text."""
    out: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            raise EvalError("--set", f"{setting!r} is not KEY=VALUE", "such as --set epochs=20")
        try:
            out[key] = None if value == "none" else json.loads(value)
        except ValueError:
            out[key] = value
    return out


@app.command()
def attacks(
    classes: Annotated[int, typer.Option(min=2, help="Classes to tell apart, on which the count depends.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """List attacks: what each is, its parameters in each preset, and the weights of its networks.

    For example:

      heddle-eval attacks --classes 50
    """
    from heddle_eval.attacks import PRESETS, about, make, names

    rows: list[dict[str, Any]] = []
    for name in names():
        presets: dict[str, Any] = {}
        for preset in PRESETS:
            made = make(name, preset)
            weights = made.parameters(classes) if hasattr(made, "parameters") else None
            hidden = ("checkpoint", "progress", "seed", "jobs")
            own = {k: v for k, v in made.get_params().items() if k not in hidden}
            presets[preset] = {"weights": weights, "parameters": own}
        rows.append({"name": name, "about": about(name), "presets": presets})
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(f"{row['name']}\n  {row['about']}")
        for preset, made in row["presets"].items():
            weights = f"{made['weights']:,} weights; " if made["weights"] else ""
            print(f"    {preset}: {weights}{', '.join(f'{k}={v}' for k, v in made['parameters'].items())}")
        print()
