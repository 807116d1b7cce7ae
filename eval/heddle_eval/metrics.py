"""How well an attack does: closed world, and open world as CoMPS section 4.1 measures it (after Wang, S&P 2020).

Classes are whole numbers from 0; :data:`OTHER` stands for all pages that the observer does not look for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heddle_eval.errors import EvalError

OTHER = -1
"""The class of every unmonitored page."""

R = 20.0
"""Visits to unmonitored pages for each visit to a monitored one (CoMPS section 4.1)."""


class Rates(NamedTuple):
    """Shares of the open world; each may be an array."""

    tpr: NDArray[np.float64]
    """Monitored traces that were told as what they are, of all monitored ones."""
    wpr: NDArray[np.float64]
    """Monitored traces that were told as another monitored page, of all monitored ones."""
    fpr: NDArray[np.float64]
    """Unmonitored traces that were told as a monitored page, of all unmonitored ones."""


class Counts(NamedTuple):
    """(N,) what each trace adds to: one of the three positives, and one of the two worlds."""

    true: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    false: NDArray[np.bool_]
    monitored: NDArray[np.bool_]
    unmonitored: NDArray[np.bool_]


def counts(truth: ArrayLike, told: ArrayLike) -> Counts:
    """Sort (N,) answers into those of the open world; both arguments hold classes or :data:`OTHER`."""
    truth, told = _pair(truth, told)
    positive, monitored = told != OTHER, truth != OTHER
    right = told == truth
    return Counts(
        positive & monitored & right, positive & monitored & ~right, positive & ~monitored, monitored, ~monitored
    )


def rates(truth: ArrayLike, told: ArrayLike) -> Rates:
    """Give the shares of true, wrong and false positives; a world without traces has the share NaN."""
    return rates_of(np.array([c.sum() for c in counts(truth, told)], float))


def rates_of(sums: NDArray[np.float64]) -> Rates:
    """Give the shares, of (..., 5) sums in the order of :class:`Counts`."""
    true, wrong, false, monitored, unmonitored = np.moveaxis(np.asarray(sums, float), -1, 0)
    return Rates(ratio(true, monitored), ratio(wrong, monitored), ratio(false, unmonitored))


def r_precision(found: Rates, r: float = R) -> NDArray[np.float64]:
    """TPR / (TPR + WPR + r FPR): how often a positive is right where r pages of r + 1 are unmonitored.

    NaN where nothing was told as monitored: there is no positive to be right or wrong.
    """
    return ratio(found.tpr, found.tpr + found.wpr + r * found.fpr)


def f1(precision: ArrayLike, recall: ArrayLike) -> NDArray[np.float64]:
    """Harmonic mean; 0 where either is 0 or, for want of positives, NaN."""
    p, r = np.nan_to_num(np.asarray(precision, float)), np.nan_to_num(np.asarray(recall, float))
    return np.nan_to_num(ratio(2 * p * r, p + r))


def open_world(sums: NDArray[np.float64], r: float = R) -> dict[str, NDArray[np.float64]]:
    """Measures of (..., 5) sums in the order of :class:`Counts`; recall is TPR."""
    found = rates_of(sums)
    precision = r_precision(found, r)
    return {
        "r_precision": precision,
        "recall": found.tpr,
        "f1": f1(precision, found.tpr),
        "wpr": found.wpr,
        "fpr": found.fpr,
    }


def closed_world(right: NDArray[np.float64], told: NDArray[np.float64], truth: NDArray[np.float64]) -> dict:
    """Accuracy and macro means of precision, recall and F1.

    Parameters
    ----------
    right, told, truth
        (..., classes) traces of each class that were told right, that were told as it, and that are of it. Classes
        of which there is no trace do not count; the precision of a class that was never told is 0.

    """
    there = truth > 0
    precision, recall = np.nan_to_num(ratio(right, told)), np.nan_to_num(ratio(right, truth))
    return {
        "accuracy": ratio(right.sum(-1), truth.sum(-1)),
        "macro_precision": ratio((precision * there).sum(-1), there.sum(-1)),
        "macro_recall": ratio((recall * there).sum(-1), there.sum(-1)),
        "macro_f1": ratio((f1(precision, recall) * there).sum(-1), there.sum(-1)),
    }


def confusion(truth: ArrayLike, told: ArrayLike, classes: ArrayLike) -> NDArray[np.int64]:
    """(classes, classes) how many traces of each class (row) were told as each (column), in the order given."""
    truth, told = _pair(truth, told)
    classes = np.asarray(classes)
    order = np.argsort(classes)
    place = [order[np.minimum(np.searchsorted(classes, v, sorter=order), len(classes) - 1)] for v in (truth, told)]
    if any((classes[p] != v).any() for p, v in zip(place, (truth, told), strict=True)):
        raise EvalError("confusion", "a trace is of a class that is not listed")
    n = len(classes)
    return np.bincount(place[0] * n + place[1], minlength=n * n).reshape(n, n)


class Curve(NamedTuple):
    """Points of a precision-recall curve, one for each threshold, from the highest down."""

    threshold: NDArray[np.float64]
    r_precision: NDArray[np.float64]
    recall: NDArray[np.float64]


def curve(truth: ArrayLike, told: ArrayLike, confidence: ArrayLike, r: float = R) -> Curve:
    """Give r-precision and recall where a positive counts only from some confidence on.

    Parameters
    ----------
    truth, told
        (N,) classes or :data:`OTHER`.
    confidence
        (N,) of the class that was told. What is told as monitored below the threshold is told as unmonitored
        instead, as in the evaluations of DF and Var-CNN, so that the last point is that of no threshold.
    r
        Unmonitored visits for each monitored one.

    """
    sorts = counts(truth, told)
    confidence = np.asarray(confidence, float)
    order = np.argsort(-confidence, kind="stable")
    positive = np.array(sorts[:3], float)[:, order].cumsum(1)
    ends = np.flatnonzero(np.append(np.diff(confidence[order]) < 0, True)) if len(order) else order
    totals = np.broadcast_to([[c.sum()] for c in sorts[3:]], (2, len(ends)))
    found = rates_of(np.concatenate([positive[:, ends], totals]).T)
    precision = r_precision(found, r)
    known = ~np.isnan(precision)
    return Curve(confidence[order][ends][known], precision[known], found.tpr[known])


def auc(positive: ArrayLike, score: ArrayLike, weight: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Area under the ROC curve: the chance that a positive has a higher score than a negative, ties half.

    Parameters
    ----------
    positive
        (N,) which traces are positives.
    score
        (N,) higher for what looks more like one.
    weight
        (B, N) how often each trace counts, for B resamples; without it once.

    Returns
    -------
    (B,), or one number: NaN where there are only positives or only negatives.

    """
    positive, score = np.asarray(positive, bool), np.asarray(score, float)
    rows = np.ones((1, len(score))) if weight is None else weight
    ups, downs = _by_threshold(positive, score, rows)
    above = downs.cumsum(1) - downs / 2
    won = (ups * (downs.sum(1, keepdims=True) - above)).sum(1)
    area = ratio(won, ups.sum(1) * downs.sum(1))
    return area if weight is not None else area[0]


def blocked(
    positive: ArrayLike, score: ArrayLike, weight: NDArray[np.float64] | None = None, tpr: float = 0.9
) -> NDArray[np.float64]:
    """Share of negatives that are at or above the highest threshold that finds that share of the positives.

    It is what a filter that wants to block so many of the positives blocks of the others. Parameters and the shape of
    the answer are those of :func:`auc`.
    """
    positive, score = np.asarray(positive, bool), np.asarray(score, float)
    rows = np.ones((1, len(score))) if weight is None else weight
    ups, downs = _by_threshold(positive, score, rows)
    if not ups.shape[1]:
        return np.full(len(rows), np.nan) if weight is not None else np.asarray(np.nan)
    found = ratio(ups.cumsum(1), ups.sum(1, keepdims=True))
    # Rounding of the weights' sum must not cost a whole group of equal scores.
    at = (found >= tpr - 1e-12).argmax(1)
    share = ratio(downs.cumsum(1), downs.sum(1, keepdims=True))[np.arange(len(rows)), at]
    share = np.where(np.isnan(found).any(1), np.nan, share)
    return share if weight is not None else share[0]


class Roc(NamedTuple):
    """Points of a ROC curve, one for each threshold, from the highest down; the first is the origin."""

    threshold: NDArray[np.float64]
    fpr: NDArray[np.float64]
    tpr: NDArray[np.float64]


def roc(positive: ArrayLike, score: ArrayLike) -> Roc:
    """Give the shares of negatives and of positives that reach each score; see :func:`auc`."""
    positive, score = np.asarray(positive, bool), np.asarray(score, float)
    ups, downs = (c[0] for c in _by_threshold(positive, score, np.ones((1, len(score)))))
    threshold = np.concatenate([[np.inf], np.unique(score)[::-1]])
    shares = [ratio(np.concatenate([[0], c.cumsum()]), c.sum()) for c in (downs, ups)]
    return Roc(threshold, *shares)


def _by_threshold(
    positive: NDArray[np.bool_], score: NDArray[np.float64], rows: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(B, scores) weight of the positives and of the negatives of each score, from the highest down."""
    known, group = np.unique(-score, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(known)))
    if not len(known):
        return np.zeros((len(rows), 0)), np.zeros((len(rows), 0))
    ups, downs = (np.add.reduceat((rows * side)[:, order], starts, axis=1) for side in (positive, ~positive))
    return ups, downs


def ratio(part: ArrayLike, whole: ArrayLike) -> NDArray[np.float64]:
    """Divide; NaN where the divisor is 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, float), np.asarray(whole, float))
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole != 0)


def _pair(truth: ArrayLike, told: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    truth, told = np.asarray(truth), np.asarray(told)
    if truth.shape != told.shape or truth.ndim != 1:
        raise EvalError("metrics", f"{truth.shape} traces and {told.shape} answers")
    return truth, told
