"""k-fingerprinting (Hayes and Danezis, USENIX Security 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from heddle_eval.attacks.base import FromProba, checked
from heddle_eval.attacks.kfp_features import features
from heddle_eval.traces import Traces

ROWS_AT_ONCE = 500


@dataclass(eq=False, repr=False)
class KFingerprinting(FromProba, ClassifierMixin, BaseEstimator):
    """A forest on the features of :mod:`heddle_eval.attacks.kfp_features`, and the nearest neighbours by its leaves.

    Parameters
    ----------
    trees
        Trees of the forest.
    forest
        ``random``, as published, or ``extra``: thresholds drawn instead of searched, many times faster to train.
    neighbours
        0: the forest decides, as in the authors' closed world. k: the k training traces that share most leaves with a
        trace do; the confidence is their share, so that the authors' rule, all must agree, is a threshold of 1.
    sizes
        Also the features of packet sizes.
    jobs
        Threads; -1 is one for each core.
    seed
        Of the forest.

    """

    trees: int = 1000
    forest: Literal["random", "extra"] = "random"
    neighbours: int = 0
    sizes: bool = True
    jobs: int = 1
    seed: int = 0

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn from N traces and their (N,) classes."""
        self.classes_, codes = checked(X, y)
        kind = {"random": RandomForestClassifier, "extra": ExtraTreesClassifier}[self.forest]
        values = features(X, self.sizes)
        self.forest_ = kind(self.trees, random_state=self.seed, n_jobs=self.jobs).fit(values, codes)
        if self.neighbours:
            self.codes_ = codes
            self.first_leaf_ = np.concatenate([[0], np.cumsum([t.tree_.node_count for t in self.forest_.estimators_])])
            self.leaves_ = self._leaves(values).T.tocsr()
        return self

    def predict_proba(self, X: Traces) -> NDArray[np.float64]:
        """Give an (N, classes) matrix of confidence; each row sums to 1."""
        out = np.empty((len(X), len(self.classes_)))
        if not len(X):
            return out
        values = features(X, self.sizes)
        if not self.neighbours:
            return self.forest_.predict_proba(values)
        for start in range(0, len(values), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            out[part] = self._vote((self._leaves(values[part]) @ self.leaves_).toarray())
        return out

    def _leaves(self, values: NDArray[np.float32]) -> csr_array:
        """(N, leaves) which leaf of each tree a trace falls into, as ones."""
        column = (self.forest_.apply(values) + self.first_leaf_[:-1]).ravel()
        rows = np.arange(len(values) + 1) * self.trees
        ones = np.ones(len(column), np.float32)
        return csr_array((ones, column, rows), shape=(len(values), int(self.first_leaf_[-1])))

    def _vote(self, shared: NDArray[np.float32]) -> NDArray[np.float64]:
        """Confidence by the nearest of the training traces, given the leaves shared with each of them."""
        k = min(self.neighbours, shared.shape[1])
        nearest = np.argpartition(-shared, k - 1, axis=1)[:, :k]
        # Who shares no leaf is no neighbour, as in the authors' code.
        weight = np.take_along_axis(shared, nearest, 1) > 0
        votes = np.zeros((len(shared), len(self.classes_)))
        np.add.at(votes, (np.arange(len(shared))[:, None], self.codes_[nearest]), weight)
        votes[votes.sum(1) == 0] = 1
        return votes / votes.sum(1, keepdims=True)
