"""Entropy and printable share of the first packets (after Wang et al., Seeing through protocol obfuscation, CCS 2015).

The paper compares the entropy of the first packets, which obfuscation makes uniform and other protocols do not. Here a
naive Bayes classifier has it beside the printable share, for each direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import GaussianNB

from heddle_eval.attacks.base import FromProba, checked
from heddle_eval.traces import Traces


@dataclass(eq=False, repr=False)
class ByteStatistics(FromProba, ClassifierMixin, BaseEstimator):
    """Gaussian naive Bayes on what :func:`statistics` gives.

    Parameters
    ----------
    packets
        First packets with payload of each direction that count.
    smoothing
        Share of the largest variance that is added to all.
    seed
        Not used.

    """

    packets: int = 3
    smoothing: float = 1e-3
    seed: int = 0

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn mean and variance of each class."""
        self.classes_, codes = checked(X, y)
        priors = np.full(len(self.classes_), 1 / len(self.classes_))
        self.bayes_ = GaussianNB(priors=priors, var_smoothing=self.smoothing).fit(statistics(X, self.packets), codes)
        return self

    def predict_proba(self, X: Traces) -> NDArray[np.float64]:
        """Give an (N, classes) matrix of confidence; each row sums to 1."""
        if not len(X):
            return np.empty((0, len(self.classes_)))
        return self.bayes_.predict_proba(statistics(X, self.packets))


def statistics(traces: Traces, packets: int) -> NDArray[np.float64]:
    """(N, 4) of the first packets with payload: entropy and printable share from the client, then of those to it.

    Entropy is a share of what payloads of that length can have, and means weigh by length. A direction without payload
    gives 0.
    """
    traces.needs("byte-statistics", "payload", "entropy", "printable")
    assert traces.payload is not None
    assert traces.entropy is not None
    assert traces.printable is not None
    out = np.zeros((len(traces), 4))
    most = np.minimum(8, np.log2(np.maximum(traces.payload, 2)))
    for side, sign in enumerate((1, -1)):
        some = (traces.payload > 0) & (np.sign(traces.size) == sign)
        before = np.concatenate([[0], some.cumsum()])
        rank = before[:-1] - before[traces.offset[traces.owner]]
        some &= rank < packets
        owner, weight = traces.owner[some], traces.payload[some].astype(float)
        total = np.maximum(np.bincount(owner, weight, len(traces)), 1)
        out[:, 2 * side] = np.bincount(owner, weight * (traces.entropy / most)[some], len(traces)) / total
        out[:, 2 * side + 1] = np.bincount(owner, weight * traces.printable[some], len(traces)) / total
    return out
