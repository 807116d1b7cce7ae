"""A random forest on features of a flow (after Wang et al., CCS 2015, and Barradas et al., USENIX Security 2018).

Both show that a classifier on sizes, times and entropy finds tunnels that imitate another protocol.
:meth:`FlowForest.telling` names the features that tell, by permutation importance (Breiman, Machine Learning 45, 2001).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier

from heddle_eval import metrics
from heddle_eval.attacks.base import FromProba, checked
from heddle_eval.traces import Trace, Traces

FIRST = 10
"""First packets with payload whose lengths are features."""

REPEATS = 5
"""Times that each feature is shuffled."""


@dataclass(eq=False, repr=False)
class FlowForest(FromProba, ClassifierMixin, BaseEstimator):
    """A random forest on :func:`features`.

    Parameters
    ----------
    trees
        Of the forest.
    jobs
        Threads; -1 is one for each core.
    seed
        Of the forest.

    """

    trees: int = 200
    jobs: int = 1
    seed: int = 0

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn from N traces and their (N,) classes."""
        self.classes_, codes = checked(X, y)
        self.names_, values = features(X)
        self.forest_ = RandomForestClassifier(self.trees, random_state=self.seed, n_jobs=self.jobs).fit(values, codes)
        return self

    def predict_proba(self, X: Traces) -> NDArray[np.float64]:
        """Give an (N, classes) matrix of confidence; each row sums to 1."""
        return self.forest_.predict_proba(features(X)[1]) if len(X) else np.empty((0, len(self.classes_)))

    @staticmethod
    def telling(parts: Sequence[tuple[FlowForest, Traces, NDArray[np.int_]]], most: int = 10) -> list[dict[str, Any]]:
        """Name the features without which detection is worse.

        Parameters
        ----------
        parts
            Trained forests, with traces of two classes that they have not seen, and their classes.
        most
            At most so many features.

        Returns
        -------
        list of dict
            ``name``, and by how much the AUC ``falls`` where its values are shuffled among the traces: the mean of all
            parts, for those above 0, the largest first.

        """
        falls = np.mean([_falls(*part) for part in parts], axis=0)
        order = np.argsort(-falls)[:most]
        return [{"name": parts[0][0].names_[i], "falls": float(falls[i])} for i in order if falls[i] > 0]


def _falls(forest: FlowForest, traces: Traces, y: NDArray[np.int_]) -> NDArray[np.float64]:
    values, positive, rng = features(traces)[1], y == forest.classes_[-1], np.random.default_rng(forest.seed)

    def areas(these: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give the (copies,) AUC of each copy of the traces, in one call: of few traces it takes most of the time."""
        parts = forest.forest_.predict_proba(these)[:, -1].reshape(-1, len(values))
        return np.array([metrics.auc(positive, part) for part in parts], float)

    whole, out = areas(values)[0], np.zeros(values.shape[1])
    for i in range(values.shape[1]):
        shuffled = np.tile(values, (REPEATS, 1))
        shuffled[:, i] = np.concatenate([rng.permutation(values[:, i]) for _ in range(REPEATS)])
        out[i] = whole - areas(shuffled).mean()
    return out


def features(traces: Traces) -> tuple[list[str], NDArray[np.float64]]:
    """Names, and (N, features) values; -1 where a trace has nothing to measure.

    Lengths are of payload where it is known. Entropy and printable share are among them where the data set has them.
    """
    rows = [_of(t) for t in traces]
    names = list(rows[0]) if rows else []
    return names, np.array([list(r.values()) for r in rows], float).reshape(len(rows), len(names))


def _of(trace: Trace) -> dict[str, float]:
    some = np.ones(len(trace.size), bool) if trace.payload is None else trace.payload > 0
    length = np.abs(trace.size) if trace.payload is None else trace.payload
    out = {
        "packets": float(len(trace.size)),
        "seconds": float(np.ptp(trace.time)) if len(trace.time) else -1.0,
        "share of packets with payload": _mean(some),
    }
    for side, mine in (("up", some & (trace.size > 0)), ("down", some & (trace.size < 0))):
        out |= {f"{side}: packets": float(mine.sum()), f"{side}: bytes": float(length[mine].sum())}
        out |= _spread(f"{side}: length", length[mine])
        out[f"{side}: share of the commonest length"] = _commonest(length[mine])
        out |= _spread(f"{side}: gap", np.diff(trace.time[mine]))
        for name in ("entropy", "printable"):
            if (column := getattr(trace, name)) is not None:
                out[f"{side}: {name}"] = _mean(column[mine])
    signed = (np.sign(trace.size) * length)[some][:FIRST]
    for i in range(FIRST):
        out[f"length of packet {i + 1}"] = float(signed[i]) if i < len(signed) else 0.0
    return out


def _mean(values: NDArray[np.generic]) -> float:
    return float(values.mean()) if len(values) else -1.0


def _commonest(values: NDArray[np.generic]) -> float:
    return float(np.unique(values, return_counts=True)[1].max() / len(values)) if len(values) else -1.0


def _spread(name: str, values: NDArray[np.number]) -> dict[str, float]:
    found = np.quantile(values, (0.1, 0.5, 0.9)) if len(values) else (-1.0, -1.0, -1.0)
    quantiles = dict(zip(("10 %", "median", "90 %"), map(float, found), strict=True))
    spread = {"mean": _mean(values), "deviation": float(values.std()) if len(values) else -1.0}
    return {f"{name}, {k}": v for k, v in (spread | quantiles).items()}
