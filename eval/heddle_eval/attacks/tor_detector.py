"""The detector of Tor: packets of the length that a cell has (Weinberg et al., StegoTorus, CCS 2012, section 5).

The paper's packets carry 586 bytes: Tor 0.2 sent a cell of 512 bytes in a record of TLS 1.0, behind an empty one. Today
a cell has 514 bytes, and a record of TLS 1.3 adds 5 bytes of header, 1 of content type and 16 of tag (RFC 8446, section
5.2). In a capture of three downloads of 1 MB by Tor 0.4.9.11 over a bridge, 62 % of the packets from the client that
carried anything carried 536 bytes, and 13 % of those to it: there a record has up to seven cells, 514 k + 22 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from sklearn.base import BaseEstimator, ClassifierMixin

from heddle_eval.attacks.rules import Rule
from heddle_eval.errors import EvalError
from heddle_eval.traces import Traces

CELL = 514 + 5 + 1 + 16
"""Bytes of payload of a packet with one cell, in today's Tor."""


@dataclass(eq=False, repr=False)
class TorDetector(Rule, ClassifierMixin, BaseEstimator):
    """Averages exponentially over packets whether each carries a cell; the highest average is the score.

    Learns nothing but the two classes, unless ``cell`` is 0.

    Parameters
    ----------
    cell
        Bytes of payload of a packet with one cell; 0 takes the length that the two classes differ most in.
    weight
        Of the average so far in the new one: tau = weight * tau + (1 - weight) * [the packet carries that].
    threshold
        Above which a flow is taken for Tor, for the time to detection.
    seed
        Not used.

    """

    cell: int = CELL
    weight: float = 0.1
    threshold: float = 0.4
    seed: int = 0

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn which two classes there are, of which the higher is Tor's, and the length if it is not given."""
        positive = self.two(X, y)
        self.length_ = self.cell or characteristic(X, positive)
        return self

    def score(self, X: Traces) -> NDArray[np.float64]:
        """(N,) the highest average; 0 for a trace without payload."""
        return np.array([average.max(initial=0) for average, _ in self._averages(X)])

    def detected(self, X: Traces) -> NDArray[np.float64]:
        """(N,) seconds from the first packet of each trace until its average is above the threshold; NaN for never."""
        out = np.full(len(X), np.nan)
        for i, (average, time) in enumerate(self._averages(X)):
            above = np.flatnonzero(average > self.threshold)
            if len(above):
                out[i] = time[above[0]] - X.time[X.offset[i]]
        return out

    def _averages(self, X: Traces) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Average after each packet that carries something, and the packet's time, of each trace."""
        X.needs("tor-detector", "payload")
        out = []
        for trace in X:
            assert trace.payload is not None
            some = trace.payload > 0
            hit = (trace.payload[some] == self.length_).astype(float)
            out.append((lfilter([1 - self.weight], [1, -self.weight], hit), trace.time[some]))
        return out


def characteristic(traces: Traces, positive: NDArray[np.bool_]) -> int:
    """Length of payload whose share of the packets with payload differs most between the positives and the others."""
    traces.needs("tor-detector", "payload")
    assert traces.payload is not None
    some = traces.payload > 0
    mine = positive[traces.owner][some]
    lengths, place = np.unique(traces.payload[some], return_inverse=True)
    if not mine.any() or mine.all():
        raise EvalError("tor-detector", "one of the two classes has no packet with payload")
    more = np.bincount(place, mine / mine.sum()) - np.bincount(place, ~mine / (~mine).sum())
    return int(lengths[more.argmax()])
