"""The tables and figures of StegoTorus (Weinberg et al., CCS 2012), and their like for today's detectors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from heddle_eval import experiment, metrics, parquet
from heddle_eval.errors import EvalError
from heddle_eval.experiment import Result
from heddle_eval.metrics import OTHER
from heddle_eval.sweep_jobs import Job, digest
from heddle_eval.sweep_store import Store
from heddle_eval.traces import Traces

TABLES = ("steg-2", "steg-detect")
FIGURES = ("steg-2", "steg-4", "steg-detect")

PAPER = {
    "google": (0.9697, 0.6928),
    "facebook": (0.9441, 0.5413),
    "youtube": (0.9947, 0.4125),
    "yahoo": (0.8775, 0.7400),
    "wikipedia": (0.9991, 0.7716),
    "windows live": (0.9403, 0.6763),
    "blogspot": (0.9825, 0.6209),
    "amazon": (0.9841, 0.8684),
    "twitter": (0.9944, 0.7366),
}
"""Table 2: area under the ROC curve of each site over Tor, and over StegoTorus, by an attack that learnt over Tor."""

VISITS = 10
"""Visits of each site that the paper's attack learns from."""

DETECTORS = (
    "tor-detector",
    "fully-encrypted",
    "byte-statistics",
    "ja3",
    "ja4",
    "header-order",
    "tls-in-tls",
    "cross-layer-rtt",
    "flow-forest",
)
"""Attacks of the table of detectors, unless others are named."""

POINTS = 200
"""At most so many points of a curve."""

_TITLES = {
    "steg-2": "Area under the ROC curve of each site against all others",
    "steg-detect": "Flows that a censor looks for among innocent ones",
}
_SOURCE = {"steg-2": "StegoTorus, table 2", "steg-detect": "after StegoTorus, section 5"}


@dataclass
class Plan:
    """What has to be done for a table, or for the figure of its curves."""

    name: str
    preset: str
    seeds: int
    train: str
    rows: list[tuple[str, str, list[Job]]] = field(default_factory=list)
    """Of each: data set, attack, and a job for each seed."""
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the classes that attacks learn, by data set."""

    @property
    def jobs(self) -> list[Job]:
        """Each job once, in the order of the rows."""
        return list(dict.fromkeys(j for _, _, jobs in self.rows for j in jobs))


def plan(
    name: str,
    data: Sequence[str | Path],
    *,
    train: str | Path = "",
    attacks: Sequence[str] = (),
    preset: str = "laptop",
    seeds: int = 0,
    visits: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Plan:
    """List what a table needs.

    Parameters
    ----------
    name
        One of :data:`TABLES`.
    data
        Data sets to tell. For ``steg-detect`` what a censor looks for is monitored, and innocent traces are not: see
        :func:`heddle_eval.detection.merge`.
    train
        Data set to learn from; without it half of the page loads of each.
    attacks
        Instead of those of the paper.
    preset, settings
        Of the attacks.
    seeds
        Repetitions; 0 for 5, or for 1 where ``train`` leaves nothing to draw.
    visits
        At most so many loads of each monitored class to tell; 0 for all.

    """
    if not data:
        raise EvalError(name, "it has no data set to tell", "name it by --data; heddle-eval import reads captures")
    detect = name == "steg-detect"
    out = Plan(name, preset, seeds or (1 if train else 5), Path(train).stem if train else "")
    shared: dict[str, Any] = {"world": "detect" if detect else "sites", "test": 0.5, "visits": visits, "preset": preset}
    if train:
        shared |= {"learn_file": str(train), "learn": digest(train)}
    if not detect:
        shared["learn_visits"] = VISITS
    for file in map(str, data):
        sha256, mine = digest(file), parquet.read(file)
        learnt = experiment.classes(parquet.read(train) if train else mine, shared["world"])[0]
        out.classes[Path(file).stem] = learnt.names
        for attack in attacks or (DETECTORS if detect else ("site-bayes",)):
            own = json.dumps((settings or {}).get(attack, {}), sort_keys=True)
            jobs = [Job(file, sha256, attack=attack, seed=s, settings=own, **shared) for s in range(out.seeds)]
            out.rows.append((Path(file).stem, attack, jobs))
    return out


def answer(plan: Plan, store: Store) -> dict[str, Any]:
    """Put a table together from the results that there are; ``columns`` says how to print its rows."""
    rows: list[dict[str, Any]] = []
    for data, attack, done in _done(plan, store):
        head = {"data": data, "attack": attack, "seeds": len(done)}
        if plan.name == "steg-detect":
            counts = {k: sum(int((r.truth == c).sum()) for r in done) for k, c in (("suspect", 0), ("innocent", OTHER))}
            rows.append(head | {"ours": experiment.measure(done), **counts})
            continue
        for c, found in experiment.of_sites(done).items():
            site = plan.classes[data][c]
            n = sum(int((r.truth == c).sum()) for r in done)
            rows.append(head | {"site": site, "ours": {"auc": found}, "paper": _paper(site), "n": n})
    if plan.name == "steg-2":
        there = {r["paper"]["site"] for r in rows if r["paper"]}
        rows += [
            {"data": None, "attack": None, "seeds": 0, "site": s, "ours": None, "paper": _paper(s), "n": 0}
            for s in PAPER
            if s not in there
        ]
    return {
        "table": plan.name,
        "title": _TITLES[plan.name],
        "source": _SOURCE[plan.name],
        "preset": plan.preset,
        "seeds": plan.seeds,
        "train": plan.train or None,
        "columns": _columns(plan.name),
        "rows": rows,
        "notes": _notes(plan),
    }


def _done(plan: Plan, store: Store) -> list[tuple[str, str, list[Result]]]:
    results = store.results(j.key for j in plan.jobs)
    rows = [(data, attack, [results[j.key] for j in jobs if j.key in results]) for data, attack, jobs in plan.rows]
    return [row for row in rows if row[2]]


def _paper(site: str) -> dict[str, Any] | None:
    """Give the paper's figures of a site that has such a name."""
    plain = "".join(c for c in site.lower() if c.isalnum())
    for name, (tor, cover) in PAPER.items():
        if name.replace(" ", "") in plain:
            return {"site": name, "tor": tor, "stegotorus": cover}
    return None


def _columns(name: str) -> list[dict[str, str]]:
    columns = [("data", "data", "text"), ("attack", "attack", "text")]
    if name == "steg-2":
        columns += [("site", "site", "text"), ("ours.auc", "AUC", "interval"), ("paper.tor", "paper, Tor", "number")]
        columns += [("paper.stegotorus", "paper, StegoTorus", "number"), ("n", "traces", "count")]
    else:
        columns += [("ours.auc", "AUC", "interval"), ("ours.blocked", "innocent blocked at TPR 0.9", "interval")]
        columns += [("suspect", "suspect", "count"), ("innocent", "innocent", "count")]
    columns.append(("seeds", "seeds", "count"))
    return [dict(zip(("key", "words", "kind"), c, strict=True)) for c in columns]


def _notes(plan: Plan) -> list[str]:
    notes = ["Brackets: 95 % intervals by bootstrap over page loads. An AUC of 0.5 is chance."]
    if plan.name == "steg-2":
        notes.append(
            f"The attack learns from {VISITS} visits of each site. The paper's AUCs are of other sites, in 2012."
        )
    if plan.train:
        notes.append(f"The attacks learnt from {plan.train} alone, and told all traces of each data set.")
    else:
        notes.append("The attacks learnt from a part of each data set, and told the other half of its page loads.")
    return notes


def curves(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """Give the ROC curves of a table's rows, over the answers of all seeds.

    Returns
    -------
    list of dict
        ``data``, ``panel``, ``row``, and the points ``threshold`` (None for the first), ``fpr`` and ``tpr``.

    """
    out = []
    for data, attack, done in _done(plan, store):
        truth = np.concatenate([r.truth for r in done])
        if plan.name == "steg-detect":
            score = np.concatenate([r.score for r in done])
            out.append({"data": data, "panel": "detectors", "row": attack} | _roc(truth != OTHER, score))
            continue
        scores = np.concatenate([r.scores for r in done])
        for place, c in enumerate(done[0].classes):
            if (truth == c).any():
                found = _roc(truth == c, scores[:, place])
                out.append({"data": data, "panel": attack, "row": plan.classes[data][c]} | found)
    return out


def _roc(positive: NDArray[np.bool_], score: NDArray[np.float32]) -> dict[str, list[float | None]]:
    points = metrics.roc(positive, score)
    some = _some(len(points.fpr))
    threshold = [None if np.isinf(t) else float(t) for t in points.threshold[some]]
    return {"threshold": threshold, "fpr": points.fpr[some].tolist(), "tpr": points.tpr[some].tolist()}


def _some(n: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, n - 1, min(POINTS, n)).astype(int))


PANELS = {
    "seconds": "connection length, seconds",
    "bytes": "bytes per connection",
    "payload": "payload per packet, bytes",
}
"""Figure 4. Bytes are payload, both ways; packets without payload do not count."""


def distributions(sets: Mapping[str, Traces]) -> dict[str, Any]:
    """Cumulative distributions of figure 4, and how far each data set is from the first.

    Returns
    -------
    dict
        ``curves``: each with ``data``, ``panel``, ``x``, ``share`` of the values up to x, and ``n`` values;
        ``distances``: the Kolmogorov-Smirnov distance of each data set but the first, by panel: the largest difference
        of two shares.

    """
    if not sets:
        raise EvalError("steg-4", "there is no data set", "name it by --data, the innocent one first")
    values = {name: _values(name, traces) for name, traces in sets.items()}
    first = next(iter(values))
    curves = []
    for panel in PANELS:
        for name, mine in values.items():
            x = np.sort(mine[panel])
            last = np.unique(x, return_index=True)[1][1:] - 1
            at = np.append(last, len(x) - 1)
            at = at[_some(len(at))]
            shares = (at + 1) / len(x)
            curves.append({"data": name, "panel": panel, "x": x[at].tolist(), "share": shares.tolist(), "n": len(x)})
    distances = {
        name: {panel: float(ks_2samp(values[first][panel], mine[panel]).statistic) for panel in PANELS}
        for name, mine in values.items()
        if name != first
    }
    return {"figure": "steg-4", "reference": first, "curves": curves, "distances": distances}


def _values(name: str, traces: Traces) -> dict[str, NDArray[np.float64]]:
    traces.needs(name, "connection", "payload")
    flows = traces.by_connection()
    flows = flows[flows.lengths > 0]
    assert flows.payload is not None
    if not flows.payload.any():
        raise EvalError(name, "no packet of it carries anything")
    return {
        "seconds": flows.time[flows.offset[1:] - 1] - flows.time[flows.offset[:-1]],
        "bytes": np.bincount(flows.owner, flows.payload, len(flows)),
        "payload": flows.payload[flows.payload > 0].astype(float),
    }
