"""CUMUL (Panchenko et al., Website Fingerprinting at Internet Scale, NDSS 2016, section IV)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC

from heddle_eval.attacks.base import FromProba, checked
from heddle_eval.traces import Traces

C_GRID = tuple(2.0**e for e in (11, 13, 15, 17))
GAMMA_GRID = tuple(2.0**e for e in (-3, -1, 1, 3))
"""The values among which the authors choose by cross-validation."""


def features(traces: Traces, points: int = 100) -> NDArray[np.float64]:
    """Give four totals and points of the curve of cumulated sizes.

    Returns
    -------
    (N, 4 + points): incoming packets, outgoing packets, incoming bytes, outgoing bytes; then the sum of sizes (here
    positive when incoming) at equidistant points of the sum of absolute sizes, from the first packet, exclusive, to
    the last. A trace without packets has only zeros.

    """
    n, owner = len(traces), traces.owner
    size = -traces.size.astype(float)
    inward = size > 0
    out = np.zeros((n, 4 + points))
    for column, side in enumerate((inward, ~inward)):
        out[:, column] = np.bincount(owner[side], minlength=n)
        out[:, 2 + column] = np.bincount(owner[side], np.abs(size[side]), n)
    some = traces.lengths > 0
    if not some.any():
        return out
    # One axis for all traces: the sum of absolute sizes over the whole data set rises strictly, so that the points of
    # a trace lie among its own packets.
    axis, curve = np.cumsum(np.abs(size)), np.cumsum(size)
    first, last = traces.offset[:-1][some], traces.offset[1:][some] - 1
    before = curve[first] - size[first]
    share = np.arange(1, points + 1) / points
    at = axis[first, None] + (axis[last] - axis[first])[:, None] * share
    at[:, -1] = axis[last]
    out[some, 4:] = np.interp(at, axis, curve) - before[:, None]
    return out


@dataclass(eq=False, repr=False)
class Cumul(FromProba, ClassifierMixin, BaseEstimator):
    """CUMUL's features, scaled to [-1, 1], in a support vector machine with a Gaussian kernel.

    Parameters
    ----------
    points
        Points of the curve.
    C, gamma
        Of the support vector machine.
    search
        Choose C and gamma from the authors' grid by cross-validation over page loads; costs 16 x ``folds`` trainings.
    folds
        Parts of that cross-validation.
    solver
        ``libsvm``: exact, one machine for each pair of classes; confidences are coupled from those of the pairs.
        ``nystroem``: the kernel approximated by ``landmarks`` training traces, and a linear model on it; time grows
        with the traces, not with their square.
    landmarks
        For ``nystroem``.
    steepness
        How fast a pair's confidence grows with the distance from its border (``libsvm``).
    seed
        Of the folds and the landmarks.

    """

    points: int = 100
    C: float = 2.0**11
    gamma: float = 2.0**-1
    search: bool = False
    folds: int = 3
    solver: Literal["libsvm", "nystroem"] = "libsvm"
    landmarks: int = 1000
    steepness: float = 6.0
    seed: int = 0

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn from N traces and their (N,) classes."""
        self.classes_, codes = checked(X, y)
        self.scale_ = MinMaxScaler((-1, 1), clip=False)
        values = self.scale_.fit_transform(features(X, self.points))
        self.C_, self.gamma_ = self._best(values, codes, X.load) if self.search else (self.C, self.gamma)
        self.machine_ = self._machine(self.C_, self.gamma_, len(values)).fit(values, codes)
        return self

    def predict_proba(self, X: Traces) -> NDArray[np.float64]:
        """Give an (N, classes) matrix of confidence; each row sums to 1."""
        if not len(X):
            return np.empty((0, len(self.classes_)))
        values = self.scale_.transform(features(X, self.points))
        if self.solver == "nystroem":
            return self.machine_.predict_proba(values)
        return coupled(self.machine_.decision_function(values), len(self.classes_), self.steepness)

    def _machine(self, C: float, gamma: float, traces: int) -> BaseEstimator:
        if self.solver == "nystroem":
            kernel = Nystroem(gamma=gamma, n_components=min(self.landmarks, traces), random_state=self.seed)
            return make_pipeline(kernel, LogisticRegression(C=C, max_iter=300))
        return SVC(C=C, gamma=gamma, decision_function_shape="ovo", cache_size=500)

    def _best(self, values: NDArray[np.float64], codes: NDArray[np.int64], load: NDArray[np.int64]) -> tuple:
        split = StratifiedGroupKFold(self.folds, shuffle=True, random_state=self.seed)
        folds = list(split.split(values, codes, load))

        def accuracy(pair: tuple[float, float]) -> float:
            scores = [
                self._machine(*pair, len(train)).fit(values[train], codes[train]).score(values[test], codes[test])
                for train, test in folds
            ]
            return float(np.mean(scores))

        return max(product(C_GRID, GAMMA_GRID), key=accuracy)


def coupled(margins: NDArray[np.float64], classes: int, steepness: float) -> NDArray[np.float64]:
    """Make confidences of the margins between pairs (Price et al., Pairwise neural network classifiers, NIPS 1994).

    Parameters
    ----------
    margins
        (N, pairs) distance from the border of classes i < j in units of the margin, positive on the side of i; for two
        classes (N,), positive on the side of the second.
    classes
        How many there are.
    steepness
        The confidence in i against j is 1 / (1 + exp(-steepness * margin)).

    """
    if margins.ndim == 1:
        margins = -margins[:, None]
    lower, upper = np.triu_indices(classes, 1)
    # 1 / p of each side of a pair; where it is huge the class is out anyway.
    against = np.exp(np.clip(steepness * np.abs(margins), 0, 16))
    loser, winner = 1 + against, 1 + 1 / against
    first = np.where(margins > 0, winner, loser)
    second = np.where(margins > 0, loser, winner)
    total = np.zeros((len(margins), classes))
    for i in range(classes):
        total[:, i] = first[:, lower == i].sum(1) + second[:, upper == i].sum(1)
    confidence = 1 / np.maximum(total - (classes - 2), 1e-12)
    return confidence / confidence.sum(1, keepdims=True)
