"""The site classifier: naive Bayes on cumulative bytes (Weinberg et al., StegoTorus, CCS 2012, section 5, table 2)."""

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
class SiteBayes(FromProba, ClassifierMixin, BaseEstimator):
    """Independent Gaussians, one for each packet's place and direction, over the bytes of that direction until there.

    All sites are equally likely beforehand. The paper says nothing of places whose bytes never vary: here each variance
    grows by a share of the largest, as scikit-learn has it.

    Parameters
    ----------
    packets
        First packets of a visit that count; a shorter visit stays at its totals.
    smoothing
        Share of the largest variance that is added to all.
    seed
        Not used.

    """

    packets: int = 250
    smoothing: float = 1e-9
    seed: int = 0

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn mean and variance of each class."""
        self.classes_, codes = checked(X, y)
        priors = np.full(len(self.classes_), 1 / len(self.classes_))
        self.bayes_ = GaussianNB(priors=priors, var_smoothing=self.smoothing)
        self.bayes_.fit(cumulative(X, self.packets), codes)
        return self

    def predict_proba(self, X: Traces) -> NDArray[np.float64]:
        """Give an (N, classes) matrix of confidence; each row sums to 1."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Traces) -> NDArray[np.float64]:
        """Give the (N, classes) logarithms of the confidence, which still differ where it is rounded to 0."""
        if not len(X):
            return np.empty((0, len(self.classes_)))
        return self.bayes_.predict_log_proba(cumulative(X, self.packets))


def cumulative(traces: Traces, packets: int) -> NDArray[np.float64]:
    """(N, 2 * packets) bytes from the client until each of the first packets, then bytes to it."""
    size = traces.padded(traces.size, packets).astype(float)
    return np.concatenate([np.maximum(size, 0).cumsum(1), np.maximum(-size, 0).cumsum(1)], axis=1)
