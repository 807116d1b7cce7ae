"""The papers' tables and figures: which experiments they are, and our figures beside theirs.

What each has, and what the paper printed, is in ``papers/*.json``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heddle_eval import experiment, metrics, plugins, report
from heddle_eval.errors import EvalError
from heddle_eval.sweep_jobs import Job, chosen, digest
from heddle_eval.sweep_store import Store
from heddle_eval.traces import WHOLE

RECORDED = "recorded"
"""Stands for the defence of a data set that was recorded split."""


class Data(NamedTuple):
    """A data set that a table is made on, and what there is of it once the preset has chosen."""

    file: str
    sha256: str
    split: bool
    """Whether it was recorded split."""
    monitored: int
    """Classes."""
    unmonitored: int
    loads: int
    traces: int

    @property
    def name(self) -> str:
        """Name of the file without its ending."""
        return Path(self.file).stem


@dataclass(frozen=True)
class Row:
    """A row of a table, or a curve of a figure."""

    words: str
    defence: str
    attack: str
    paper: dict[str, float] | None = None
    panel: str = ""
    jobs: tuple[Job, ...] = ()
    """One for each seed."""


@dataclass
class Plan:
    """All that has to be done for a table or a figure."""

    kind: str
    name: str
    preset: str
    seeds: int
    data: list[Data]
    rows: list[list[Row]]
    """For each data set."""
    notes: list[str] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)

    @property
    def jobs(self) -> list[Job]:
        """Each job once, in the order of the rows."""
        return list(dict.fromkeys(j for rows in self.rows for row in rows for j in row.jobs))


@cache
def paper(name: str) -> dict[str, Any]:
    """Read a paper's tables and figures."""
    return json.loads(files("heddle_eval").joinpath(f"papers/{name}.json").read_text())


def names(kind: str) -> list[str]:
    """Name the ``tables`` or ``figures`` that there are."""
    found = sorted(p.name for p in files("heddle_eval").joinpath("papers").iterdir() if p.name.endswith(".json"))
    return [n for p in found for n in paper(p.removesuffix(".json"))[kind]]


def of(kind: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give the paper, and the table or figure of that name, such as ``comps-3``."""
    if name not in names(kind):
        raise EvalError(name, f"it is none of the {kind} known here", f"there are {', '.join(names(kind))}")
    whole = paper(name.rsplit("-", 1)[0])
    return whole, whole[kind][name]


def found() -> list[Path]:
    """Find the data sets of this tree, and the one of explainwf in the folder that ``HEDDLE_DATA`` names."""
    mine = sorted((Path(__file__).parents[1] / "data").glob("*.parquet"))
    if folder := os.environ.get("HEDDLE_DATA"):
        mine += sorted(Path(folder).glob("explainwf-*.npz"))
    return mine


def plan(
    kind: str,
    name: str,
    data: Sequence[str | Path] = (),
    *,
    preset: str = "laptop",
    seeds: int = 0,
    attacks: Iterable[str] = (),
    unmonitored_share: float = 0.0,
    visits: int | None = None,
    unmonitored: int | None = None,
    unseen: bool = False,
    train: str | Path = "",
    defences: Iterable[str] = (),
) -> Plan:
    """List what a table or figure needs.

    Parameters
    ----------
    kind, name
        ``tables`` or ``figures``, and which.
    data
        Files; without them those that :func:`found` finds, as far as they fit.
    preset
        ``laptop`` or ``paper``; both take the settings below from the paper's file.
    seeds
        How many repetitions.
    attacks
        Only these; also MODULE:CLASS.
    train
        Data set to learn from, instead of nine tenths of each of ``data``.
    defences
        Of a table: rows besides the paper's, for each attack.
    unmonitored_share
        For data sets without unmonitored classes: see :func:`heddle_eval.experiment.unmonitor`.
    visits, unmonitored
        See :func:`heddle_eval.experiment.fewer`.
    unseen
        See :func:`heddle_eval.experiment.run`.

    Raises
    ------
    EvalError
        Where a data set does not fit, or none is there.

    """
    whole, spec = of(kind, name)
    if preset not in whole["presets"]:
        raise EvalError("preset", f"there is no {preset!r}", f"there are {', '.join(whole['presets'])}")
    chosen_by = whole["presets"][preset]
    limits: dict[str, Any] = {
        "visits": chosen_by["visits"] if visits is None else visits,
        "unmonitored": chosen_by["unmonitored"] if unmonitored is None else unmonitored,
    }
    # What the user asks for by name is done whole.
    given = list(attacks)
    wanted = {a: chosen_by.get("only", {}).get(a) if not given else None for a in given or chosen_by["attacks"]}
    own: dict[str, dict[str, Any]] = {a: {"name": a, "settings": {}} for a in wanted if plugins.is_own(a)}
    whole = whole | {"attacks": whole["attacks"] | own}
    spec = spec | {"more": list(defences)}
    if unknown := [a for a in wanted if a not in whole["attacks"]]:
        raise EvalError("attack", f"{name} has no {unknown[0]!r}", f"it has {', '.join(whole['attacks'])}")
    out = Plan(kind, name, preset, seeds or chosen_by["seeds"], [], [], spec=spec | {"r": whole["r"]})
    for file in data or found():
        try:
            share, about = _look(str(file), limits, unmonitored_share)
            rows = list(_rows(whole, spec, kind, wanted, about, out.notes))
        except EvalError as e:
            if data:
                raise
            out.notes.append(f"{Path(file).name} was left out: {e}{f' ({e.hint})' if e.hint else ''}.")
            continue
        out.data.append(about)
        learn: dict[str, Any] = {"learn_file": str(train), "learn": digest(train)} if train else {}
        base = Job(about.file, about.sha256, unmonitored_share=share, unseen=unseen, **limits, **learn)
        out.rows.append([_with_jobs(r, base, whole, spec, preset, out.seeds) for r in rows])
    out.notes = list(dict.fromkeys(out.notes))
    if not out.data:
        why = " ".join(out.notes) or "there is no data set"
        raise EvalError(name, why, "name one by --data; heddle lab collect makes one, heddle-eval import reads one")
    return out


def _look(file: str, limits: dict[str, int], share: float) -> tuple[float, Data]:
    """Give the share of classes to make unmonitored, and what the data set is then."""
    sha256 = digest(file)
    traces = chosen(file, sha256, limits["visits"], limits["unmonitored"], 0.0)
    if traces.monitored.all():
        if not share:
            raise EvalError(
                file, "it has no unmonitored classes", "--unmonitored-share 0.2 makes that share of its pages so"
            )
        traces = chosen(file, sha256, limits["visits"], limits["unmonitored"], share)
    else:
        share = 0.0
    split = (traces.path != WHOLE).any()
    there = np.unique(traces.label)
    watched = int(traces.monitored[there].sum())
    loads = len(np.unique(traces.load))
    return share, Data(file, sha256, bool(split), watched, len(there) - watched, loads, len(traces))


def _rows(
    whole: dict[str, Any],
    spec: dict[str, Any],
    kind: str,
    attacks: dict[str, list[str] | None],
    data: Data,
    notes: list[str],
) -> Iterable[Row]:
    """Give the rows on a data set. ``attacks``: each with the defences that it is run on, or None for all."""
    simulated: Any = spec.get("recorded")
    if data.split and not simulated:
        raise EvalError(data.file, "it was recorded split", "this one splits what was recorded whole")
    if simulated and not data.split:
        notes.append(f"{data.name} was recorded whole: here it is split by simulation ({simulated}).")
    if kind == "figures":
        yield from _curves(whole, spec, attacks, notes)
        return
    given = [Row(r["words"], r["defence"], r["attack"], r["paper"]) for r in spec["rows"]]
    if left := sorted({whole["attacks"][r.attack]["name"] for r in given if r.attack not in attacks}):
        notes.append(f"Not run with these attacks: {', '.join(left)}; the rows have the paper's figures only.")
    first = {r.defence: r for r in reversed(given)}
    extra = [
        replace(r, attack=a, paper=None)
        for a in attacks
        if a not in {g.attack for g in given}
        for r in reversed(first.values())
    ]
    extra += [Row(d, d, a) for d in spec["more"] for a in attacks]
    short: dict[str, list[str]] = {}
    for row in given + extra:
        if ran := row.attack in attacks:
            ran = row.defence in spec["more"] or _has(attacks[row.attack], row.defence)
            if not ran:
                short.setdefault(row.attack, []).append(row.words)
        defence = ("none" if data.split else simulated) if row.defence == RECORDED else row.defence
        if ran or row.paper:
            yield replace(row, defence=defence if ran else "")
    for attack, words in short.items():
        notes.append(
            f"The preset leaves out {whole['attacks'][attack]['name']} on: {'; '.join(words)}. --preset paper has them,"
            f" and so has --attack {attack}."
        )


def _curves(
    whole: dict[str, Any], spec: dict[str, Any], attacks: dict[str, list[str] | None], notes: list[str]
) -> Iterable[Row]:
    """Give the curves of a figure: of every attack, or, where defences are compared, of the first that has them all."""
    needed = {c["defence"] for panel in spec["panels"] for c in panel["curves"]}
    able = [a for a, only in attacks.items() if all(_has(only, d) for d in needed)]
    if spec["by"] == "defence" and able[:1] != list(attacks)[:1]:
        first = next(iter(attacks))
        if not able:
            raise EvalError("figure", "no attack of the preset is run on all of its defences", f"--attack {first}")
        name, other = (whole["attacks"][a]["name"] for a in (able[0], first))
        notes.append(
            f"The curves are of {name}: the preset runs {other} on some of the defences only. --preset paper has them"
            f" of {other}, and so has --attack {first}."
        )
    for panel in spec["panels"]:
        for attack in attacks if spec["by"] == "attack" else able[:1]:
            name = f"{whole['attacks'][attack]['name']}, " if spec["by"] == "attack" else ""
            for c in panel["curves"]:
                if _has(attacks[attack], c["defence"]):
                    yield Row(name + c["words"], c["defence"], attack, panel=panel["title"])


def _has(only: list[str] | None, defence: str) -> bool:
    """Whether an attack that is run on these defences only, or on all, is run on that one."""
    return only is None or defence in only


def _with_jobs(row: Row, base: Job, whole: dict[str, Any], spec: dict[str, Any], preset: str, seeds: int) -> Row:
    if not row.defence:
        return row
    attack = whole["attacks"][row.attack]
    settings = attack["settings"] | attack.get(preset, {})
    if preset == "paper" and "wtf-pad" in row.defence and row.attack == "df":
        settings = settings | {"epochs": 40}  # as in the authors' evaluation of WTF-PAD
    job = replace(
        base, defence=row.defence, attack=row.attack, preset=preset, settings=json.dumps(settings, sort_keys=True)
    )
    return replace(row, jobs=tuple(replace(job, seed=s) for s in range(seeds)))


def answer(plan: Plan, store: Store, measure: Callable[..., dict] = experiment.measure) -> dict[str, Any]:
    """Put a table together from the results that there are.

    Returns
    -------
    dict
        ``table``, ``title``, ``source``, ``preset``, ``seeds``, ``r``, ``data`` (see :class:`Data`), ``notes``;
        ``rows``: each with ``data``, ``row``, ``attack``, ``defence``, ``paper`` (its figures, or None), ``ours``
        (measures with intervals, or None where it was not run), ``n`` (traces tested), ``n_loads`` (page loads tested,
        each counted once) and ``seeds`` that are done;
        ``claims``: each with ``data``, ``attack``, ``says``, ``measure``, ``values``, ``holds``, and ``apart``,
        whether the intervals do not touch.

    """
    results = store.results(j.key for j in plan.jobs)
    rows: list[Any] = []
    claims: list[Any] = []
    for data, mine in zip(plan.data, plan.rows, strict=True):
        cells = [_cell(row, data, results, plan.spec["r"], measure) for row in mine]
        rows += cells
        for claim in plan.spec.get("claims", []):
            claims += _claims(claim, data, cells)
    return {
        plan.kind.removesuffix("s"): plan.name,
        "title": plan.spec["title"],
        "source": plan.spec["source"],
        "preset": plan.preset,
        "seeds": plan.seeds,
        "r": plan.spec["r"],
        "data": [{"name": d.name, **d._asdict(), "file": Path(d.file).name} for d in plan.data],
        "columns": _columns(),
        "rows": rows,
        "claims": claims,
        "notes": plan.notes,
    }


def _columns() -> list[dict[str, str]]:
    """How :func:`heddle_eval.report.cells` writes the rows."""
    columns = [(k, k, "text") for k in ("data", "attack", "row")]
    for name, words in report.MEASURES.items():
        columns += [(f"ours.{name}", words, "interval"), (f"paper.{name}", "paper", "number")]
    columns += [("n", "traces", "count"), ("n_loads", "loads", "count"), ("seeds", "seeds", "count")]
    return [dict(zip(("key", "words", "kind"), c, strict=True)) for c in columns]


def _cell(row: Row, data: Data, results: dict[str, Any], r: float, measure: Callable[..., dict]) -> dict[str, Any]:
    done = [results[j.key] for j in row.jobs if j.key in results]
    return {
        "data": data.name,
        "row": row.words,
        "attack": row.attack,
        "defence": row.defence or None,
        "paper": row.paper,
        "ours": measure(done, r) if done else None,
        "n": sum(len(x.load) for x in done),
        "n_loads": len(np.unique(np.concatenate([x.load for x in done]))) if done else 0,
        "seeds": len(done),
    }


def _claims(claim: dict[str, Any], data: Data, cells: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Say for each attack whether what the paper found holds here."""
    for attack in dict.fromkeys(c["attack"] for c in cells):
        at = {c["defence"]: c["ours"] for c in cells if c["attack"] == attack and c["ours"]}
        for name in claim["of"]:
            values = [at[d][name] for d in claim["falling"] if d in at]
            if len(values) < len(claim["falling"]) or any(v["value"] is None for v in values):
                continue
            pairs = list(pairwise(values))
            yield {
                "data": data.name,
                "attack": attack,
                "says": claim["says"],
                "measure": name,
                "values": [v["value"] for v in values],
                "holds": all(a["value"] > b["value"] for a, b in pairs),
                "apart": all(a["low"] > b["high"] for a, b in pairs),
            }


def curves(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """Give the precision-recall curve of each row of a figure, over the answers of all seeds.

    Returns
    -------
    list of dict
        ``data``, ``panel``, ``row``, and the points ``threshold``, ``r_precision`` and ``recall``, at most 200.

    """
    results = store.results(j.key for j in plan.jobs)
    out = []
    for data, rows in zip(plan.data, plan.rows, strict=True):
        for row in rows:
            done = [results[j.key] for j in row.jobs if j.key in results]
            if not done:
                continue
            truth = np.concatenate([x.truth for x in done])
            told = np.concatenate([x.told for x in done])
            confidence = np.concatenate([x.confidence for x in done])
            points = metrics.curve(truth, told, confidence, plan.spec["r"])
            some = np.unique(np.linspace(0, len(points.recall) - 1, min(200, len(points.recall))).astype(int))
            out.append(
                {"data": data.name, "panel": row.panel, "row": row.words}
                | {k: np.round(v[some], 6).tolist() for k, v in points._asdict().items()}
            )
    return out
