"""Detectors by a fingerprint of what the client sent first: how often each was seen of what a censor looks for.

A censor that has a list of fingerprints blocks those that suspects use and others do not. Here the list is learnt.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from typing import Self

import numpy as np
from numpy.typing import NDArray

from heddle_eval.attacks.rules import Rule
from heddle_eval.traces import Traces

NONE = "none"
"""Fingerprint of a connection that has none."""


class Fingerprint(Rule):
    """A trace's score is that of its connection that looks most like what is looked for.

    The score of a fingerprint is its share among the suspects' over the sum of its shares among both, after half a
    connection more of it in each. A fingerprint never seen has a score of 0.5.
    """

    @abstractmethod
    def fingerprint(self, first: bytes) -> str:
        """Name what a connection begins with, or :data:`NONE`."""

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Count the fingerprints of each class."""
        positive = self.two(X, y)
        found: tuple[list[str], list[str]] = ([], [])
        for mine, suspect in zip(self._of(X), positive, strict=True):
            found[int(suspect)].extend(mine)
        counts, totals = [Counter(f) for f in found], [max(len(f), 1) for f in found]
        self.scores_ = {}
        for name in sorted({*found[0], *found[1]}):
            innocent, suspect = ((c[name] + 0.5) / t for c, t in zip(counts, totals, strict=True))
            self.scores_[name] = suspect / (suspect + innocent)
        return self

    def score(self, X: Traces) -> NDArray[np.float64]:
        """(N,) highest score of a connection; 0 for a trace without connections."""
        return np.array([max((self.scores_.get(f, 0.5) for f in mine), default=0.0) for mine in self._of(X)])

    def _of(self, X: Traces) -> list[list[str]]:
        X.needs(type(self).__name__, "first")
        assert X.first is not None
        return [[self.fingerprint(up) for up, _ in connections] for connections in X.first]
