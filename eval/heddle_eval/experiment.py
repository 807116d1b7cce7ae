"""One experiment: parts a data set by page load, trains an attack, and keeps what it told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold

from heddle_eval import bootstrap, metrics
from heddle_eval.errors import EvalError
from heddle_eval.metrics import OTHER
from heddle_eval.traces import Traces

World = Literal["closed", "open", "detect", "sites"]
"""``closed``: which monitored page; ``open``: the others are one class more; ``detect``: monitored or not, two classes;
``sites``: each monitored page against all others."""


@dataclass(frozen=True, eq=False)
class Result:
    """What an attack told of N test traces.

    Attributes
    ----------
    world
        One of :data:`World`.
    load
        (N,) page load of each.
    truth, told
        (N,) index into the data set's names, or :data:`~heddle_eval.metrics.OTHER`.
    confidence
        (N,) of the class that was told.
    score
        (N,) confidence that the trace is of any monitored page; in the closed world, that of its own page.
    scores
        (N, classes) in the world of sites: the logarithm of the confidence that the trace is of each class, or else
        the confidence; (N, 0) in others.
    classes
        (classes,) of the columns of ``scores``.
    train, train_loads
        Traces and page loads that the attack learnt from.
    fit_s, predict_s
        Seconds.

    """

    world: World
    load: NDArray[np.int64]
    truth: NDArray[np.int32]
    told: NDArray[np.int32]
    confidence: NDArray[np.float32]
    score: NDArray[np.float32]
    train: int
    train_loads: int
    fit_s: float
    predict_s: float
    scores: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    classes: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def measures(self, r: float = metrics.R, **options: Any) -> dict[str, dict[str, float | None]]:
        """Measures with their intervals; see :func:`measure`."""
        return measure([self], r, **options)


def run(
    traces: Traces,
    attack: Any,
    *,
    world: World = "closed",
    seed: int = 0,
    test: float = 0.1,
    unseen: bool = False,
    learn: Traces | None = None,
    learn_visits: int = 0,
) -> Result:
    """Train an attack on nine tenths of the page loads and let it tell the others (CoMPS section 4.1).

    With ``learn`` it trains on all of that data set, and tells all traces of the other.

    A split data set gives one sample for each load and path, and the attack sees each alone, as each path's observer
    does (CoMPS section 4.3). The siblings of a load are all in the training part, or all in the test part.

    Parameters
    ----------
    traces
        The data set, defended already: the observer knows the defence and learns from data that have it.
    attack
        A classifier over traces; a fresh copy is trained.
    world
        See :data:`World`. ``closed`` and ``sites``: classes that are not monitored are left out.
    seed
        Of the parting.
    test
        Share of the loads of each class to test on; at least one load.
    unseen
        Test only on unmonitored pages of which the attack has seen no load.
    learn
        The data set to learn from, whose classes have the same names, with what the traces to tell show besides.
    learn_visits
        Learn from at most so many loads of each class (StegoTorus: 10), drawn by a fixed seed; 0 takes all.

    Raises
    ------
    EvalError
        Where a class has one visit only, or there are no classes to tell apart.

    """
    learnt, of_learnt, asked, truth = parted(traces, world, seed, test, unseen, learn)
    if learn_visits:
        kept = _first_visits(learnt, of_learnt, learn_visits)
        learnt, of_learnt = learnt[kept], of_learnt[kept]
    return told(attack, world, learnt, of_learnt, asked, truth)[0]


def told(
    attack: Any,
    world: World,
    learnt: Traces,
    of_learnt: NDArray[np.int32],
    asked: Traces,
    truth: NDArray[np.int32],
) -> tuple[Result, Any]:
    """Train a fresh copy of an attack on traces and their classes, and let it tell others; give it back trained."""
    began = time.perf_counter()
    trained = clone(attack).fit(learnt, of_learnt)
    fitted = time.perf_counter()
    confidence = np.asarray(trained.predict_proba(asked))
    ended = time.perf_counter()
    known = np.asarray(trained.classes_)
    if confidence.shape != (len(asked), len(known)) or not np.isfinite(confidence).all():
        raise EvalError(type(attack).__name__, "what it says of the test traces are no confidences")
    best = confidence.argmax(1)
    rows = np.arange(len(asked))
    place = np.minimum(np.searchsorted(known, truth), len(known) - 1)
    if world in ("open", "detect"):
        score = 1 - confidence[:, known == OTHER].sum(1)
    else:
        score = np.where(known[place] == truth, confidence[rows, place], 0)
    result = Result(
        world=world,
        load=asked.load,
        truth=truth,
        told=known[best].astype(np.int32),
        confidence=confidence[rows, best].astype(np.float32),
        score=score.astype(np.float32),
        train=len(learnt),
        train_loads=len(np.unique(learnt.load)),
        fit_s=fitted - began,
        predict_s=ended - fitted,
        scores=_each(trained, asked, confidence) if world == "sites" else np.empty((len(asked), 0), np.float32),
        classes=known.astype(np.int32) if world == "sites" else np.empty(0, np.int32),
    )
    return result, trained


def _each(trained: Any, asked: Traces, confidence: NDArray[np.float64]) -> NDArray[np.float32]:
    """Score of each class: logarithms where the attack has them, because confidences near 0 and 1 are rounded."""
    scores = trained.predict_log_proba(asked) if hasattr(trained, "predict_log_proba") else confidence
    return np.maximum(scores, np.finfo(np.float32).min).astype(np.float32)


def parted(
    traces: Traces, world: World, seed: int, test: float, unseen: bool, learn: Traces | None
) -> tuple[Traces, NDArray[np.int32], Traces, NDArray[np.int32]]:
    """Give the traces to learn from and their classes, and those to tell and theirs; see :func:`run`."""
    if learn is None:
        traces, y = classes(traces, world)
        held = part(traces, y, test, np.random.default_rng([seed, 0x5EED]), unseen=unseen)
        return traces[~held], y[~held], traces[held], y[held]
    if unseen:
        raise EvalError("unseen", "with a data set to learn from nothing is parted", "leave out one of them")
    learn, of_learn = classes(learn, world)
    watched = traces.monitored[traces.label]
    asked = traces if world in ("open", "detect") else traces[watched]
    if not len(asked):
        raise EvalError("the data set to test on", "it has no trace that counts in this world")
    number = {n: 0 if world == "detect" else i for i, n in enumerate(learn.names) if learn.monitored[i]}
    known = [number.get(n) if m else OTHER for n, m in zip(asked.names, asked.monitored, strict=True)]
    if world == "detect":
        known = [0 if m else OTHER for m in asked.monitored]
    if strange := [asked.names[c] for c in np.unique(asked.label) if known[c] is None]:
        raise EvalError(
            strange[0], "the data set to learn from does not monitor this class", "record the same pages for both"
        )
    of = np.array([OTHER if k is None else k for k in known], np.int32)
    return learn, of_learn, asked, of[asked.label]


def _first_visits(traces: Traces, y: NDArray[np.int32], visits: int) -> NDArray[np.bool_]:
    """(N,) which traces are of at most so many loads of each class."""
    rng = np.random.default_rng(0x1EA2)
    loads, first = np.unique(traces.load, return_index=True)
    kept = [rng.permutation(loads[y[first] == c])[:visits] for c in np.unique(y)]
    return np.isin(traces.load, np.concatenate(kept))


def folds(
    traces: Traces, attack: Any, k: int, *, world: World = "closed", seed: int = 0
) -> tuple[list[Result], list[tuple[Any, Traces, NDArray[np.int32]]]]:
    """Tell every trace once, in k parts by page load, each by an attack that learnt from the other parts.

    Returns
    -------
    results, trained
        Of each part the result, and the trained attack with the traces that it has not seen and their classes.

    """
    traces, y = classes(traces, world)
    splitter = StratifiedGroupKFold(k, shuffle=True, random_state=seed)
    results, trained = [], []
    least = min(len(np.unique(traces.load[y == c])) for c in np.unique(y))
    if k < 2 or least < k:
        raise EvalError("--folds", f"{k} parts, and a class with {least} page loads", "2 up to that number")
    for learnt, asked in splitter.split(np.zeros(len(traces)), y, traces.load):
        result, fitted = told(attack, world, traces[learnt], y[learnt], traces[asked], y[asked])
        results.append(result)
        trained.append((fitted, traces[asked], y[asked]))
    return results, trained


def classes(traces: Traces, world: World) -> tuple[Traces, NDArray[np.int32]]:
    """Give the traces that count in a world and the (N,) class of each: monitored ones by label, others as one."""
    watched = traces.monitored[traces.label]
    if world in ("closed", "sites"):
        traces = traces[watched]
        y = traces.label
    elif world in ("open", "detect"):
        if watched.all():
            raise EvalError(
                "open world",
                "the data set has no unmonitored classes",
                "measure the closed world, or make some unmonitored by --unmonitored-share",
            )
        y = np.where(watched, 0 if world == "detect" else traces.label, OTHER).astype(np.int32)
    else:
        raise EvalError("world", f"{world!r} is not one", f"it is {', '.join(get_args(World))}")
    pages = len(np.unique(y[y != OTHER]))
    if pages < (2 if world in ("closed", "sites") else 1):
        raise EvalError(f"{world} world", f"the data set has {pages} monitored classes", "there is nothing to tell")
    return traces, y


def part(
    traces: Traces, y: NDArray[np.int32], test: float, rng: np.random.Generator, *, unseen: bool = False
) -> NDArray[np.bool_]:
    """(N,) which traces are for testing: that share of each class's page loads, siblings together.

    Raises
    ------
    EvalError
        Where a class has one load only, or a load is of two classes.

    """
    if not 0 < test < 1:
        raise EvalError("test", f"{test:g} is no share", "it lies between 0 and 1; the papers use 0.1")
    loads, first, of = np.unique(traces.load, return_index=True, return_inverse=True)
    if (y[first][of] != y).any():
        mixed = int(traces.load[(y[first][of] != y).argmax()])
        raise EvalError(f"load {mixed}", "its traces are of different classes", "give each page load its own number")
    held = np.zeros(len(loads), bool)
    for c in np.unique(y):
        mine = np.flatnonzero(y[first] == c)
        what = "the unmonitored pages" if c == OTHER else traces.names[c]
        # What must not be parted: a load, or all loads of an unmonitored page.
        units = traces.label[first][mine] if unseen and c == OTHER else mine
        groups, unit = np.unique(units, return_inverse=True)
        if len(groups) < 2:
            raise EvalError(
                what,
                "there is one visit, and one page only" if unseen and c == OTHER else "there is one visit only",
                "each class needs a visit to learn from and one to test on: visit it again, or leave it out",
            )
        count = min(max(1, round(test * len(groups))), len(groups) - 1)
        chosen = np.zeros(len(groups), bool)
        chosen[rng.permutation(len(groups))[:count]] = True
        held[mine] = chosen[unit]
    return held[of]


def fewer(traces: Traces, visits: int = 0, unmonitored: int = 0) -> Traces:
    """Keep at most so many page loads of each monitored class, and of all unmonitored ones together; 0 keeps all.

    They are drawn by a fixed seed. Unmonitored loads are taken from as many pages as there are.
    """
    rng = np.random.default_rng(0xFE3E)
    loads, first = np.unique(traces.load, return_index=True)
    label = traces.label[first]
    order = rng.permutation(len(loads))
    # Which load of its class each one is, in that order.
    rank = np.empty(len(loads), np.int64)
    grouped = order[np.argsort(label[order], kind="stable")]
    sizes = np.bincount(label)
    rank[grouped] = np.arange(len(loads)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    watched = traces.monitored[label]
    keep = ~watched | (rank < visits) if visits else np.ones(len(loads), bool)
    if unmonitored:
        others = np.flatnonzero(~watched)
        keep[others[np.lexsort((rng.random(len(others)), rank[others]))[unmonitored:]]] = False
    return traces if keep.all() else traces[np.isin(traces.load, loads[keep])]


def unmonitor(traces: Traces, share: float) -> Traces:
    """Make that share of the monitored classes unmonitored ones, drawn by a fixed seed.

    For data sets that were recorded for the closed world. Their unmonitored pages are then few and visited often, so
    that an attack knows them better than the rest of the web.
    """
    watched = np.flatnonzero(traces.monitored)
    count = round(share * len(watched))
    if not 0 < share < 1 or not 0 < count < len(watched):
        raise EvalError(
            "--unmonitored-share", f"{share:g} of {len(watched)} pages", "it lies between 0 and 1, such as 0.2"
        )
    monitored = traces.monitored.copy()
    monitored[np.random.default_rng(0x0DD).permutation(watched)[:count]] = False
    return replace(traces, monitored=monitored)


def measure(
    results: Sequence[Result], r: float = metrics.R, *, resamples: int = bootstrap.RESAMPLES, seed: int = 0
) -> dict[str, dict[str, float | None]]:
    """Measures over the answers of all repetitions, each with its 95 % interval by bootstrap over page loads.

    A load that several repetitions tested is drawn with all its answers.

    Returns
    -------
    dict
        ``value``, ``low`` and ``high`` of: in the open world r_precision, recall, f1, wpr, fpr, auc; in the closed
        world accuracy, macro_precision, macro_recall, macro_f1; for detection auc, blocked (share of innocent traces
        that are taken for others where 90 % of the others are found); for sites auc, the mean of all sites.

    """
    world = results[0].world
    if any(x.world != world for x in results):
        raise EvalError("measure", "the results are of different worlds")
    load, truth, told, score = (
        np.concatenate([getattr(x, k) for x in results]) for k in ("load", "truth", "told", "score")
    )

    if world == "open":
        sorts = np.array(metrics.counts(truth, told), float).T
        monitored = truth != OTHER

        def measured(weight: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
            return metrics.open_world(weight @ sorts, r) | {"auc": metrics.auc(monitored, score, weight)}
    elif world == "detect":

        def measured(weight: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
            positive = truth != OTHER
            return {
                "auc": metrics.auc(positive, score, weight),
                "blocked": metrics.blocked(positive, score, weight),
            }
    elif world == "sites":
        return _mean_of_sites(results, resamples=resamples, seed=seed)
    else:
        known = np.unique(np.concatenate([truth, told]))
        right, as_told, as_is = (
            _columns(v, known) for v in (np.where(told == truth, truth, np.int64(OTHER)), told, truth)
        )

        def measured(weight: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
            return metrics.closed_world(weight @ right, weight @ as_told, weight @ as_is)

    return bootstrap.intervals(measured, load, (truth != OTHER).astype(np.int64), resamples=resamples, seed=seed)


def of_sites(
    results: Sequence[Result], *, resamples: int = bootstrap.RESAMPLES, seed: int = 0
) -> dict[int, dict[str, float | None]]:
    """Area under the ROC curve of each site against all others, with its 95 % interval, by class."""
    load, truth, scores, known = _sites(results)

    def measured(weight: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        return {str(c): metrics.auc(truth == c, scores[:, i], weight) for i, c in enumerate(known)}

    found = bootstrap.intervals(measured, load, truth.astype(np.int64), resamples=resamples, seed=seed)
    return {int(c): v for c, v in found.items()}


def _mean_of_sites(results: Sequence[Result], **options: Any) -> dict[str, dict[str, float | None]]:
    load, truth, scores, known = _sites(results)

    def measured(weight: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        areas = [metrics.auc(truth == c, scores[:, i], weight) for i, c in enumerate(known) if (truth == c).any()]
        return {"auc": np.mean(areas, axis=0)}

    return bootstrap.intervals(measured, load, truth.astype(np.int64), **options)


def _sites(
    results: Sequence[Result],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """Join results of the world of sites: loads, classes, scores and the classes of their columns."""
    known = results[0].classes
    if not len(known) or any(not np.array_equal(r.classes, known) for r in results):
        raise EvalError("sites", "the results are not of the same sites", "run them in the world of sites")
    joined = [np.concatenate([getattr(r, k) for r in results]) for k in ("load", "truth", "scores")]
    return joined[0], joined[1], joined[2], known


def _columns(values: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.float64]:
    """(N, classes) ones where a trace has that class."""
    return (values[:, None] == known).astype(float)
