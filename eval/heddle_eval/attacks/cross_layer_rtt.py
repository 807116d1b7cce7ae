"""Round trips of two layers (Xue et al., The discriminative power of cross-layer RTTs, NDSS 2025).

A proxy acknowledges a request itself, but answers it only after it has asked the server. So the round trip of the
application, from a request to its answer, is longer than that of TCP, from a packet to its acknowledgement, wherever
the censor is between client and proxy. A server that answers by itself needs only the time to think.

An exchange is successive packets from the client and successive packets to it. A window slides over some exchanges. In
each window the round trip of TCP is the median of the client's packets, and that of the application is the delay by
which requests match answers best, in a cross-correlation that lets each answer be early or late (Laplace). A window is
inflated if the difference of both reaches a threshold. The ratio of the likelihoods that a proxy, and that a server,
gives such windows is multiplied up, window by window (sequential hypothesis testing). Threshold and likelihoods are
those of the paper, or learnt.

Simplified: a connection with fewer exchanges is one window, which the paper does not judge. Of a train of packets only
the end of a request and the beginning of an answer are matched, so that a long answer does not weigh more. Windows
count as independent; the paper corrects for their overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from heddle_eval.attacks.rules import Rule, connections
from heddle_eval.traces import Trace, Traces

MATCHED = (0.95, 0.50)
"""Probability that a window is not inflated by 15 ms, of a server and of a proxy: measured by the paper."""

WINDOWS = 100
"""Windows of a connection that count, the first ones; the paper's test ends once it is sure."""

PACKETS = 32
"""Packets of each direction in a window that are matched, the first ones."""


@dataclass(eq=False, repr=False)
class CrossLayerRTT(Rule, ClassifierMixin, BaseEstimator):
    """A trace's score is that of its connection for which a proxy is most likely.

    Parameters
    ----------
    inflated
        Seconds by which the round trip of the application is longer in an inflated window; 0 learns it, and how often
        windows of each class are inflated.
    pairs
        Exchanges in a window.
    jitter
        Seconds by which answers come earlier or later; packets that are closer are one train.
    longest
        Seconds that an answer takes at most.
    seed
        Not used.

    """

    inflated: float = 0.015
    pairs: int = 3
    jitter: float = 0.005
    longest: float = 1.0
    seed: int = 0

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn which two classes there are, and the threshold if it is not given."""
        suspect = self.two(X, y)
        self.inflated_, self.matched_ = self.inflated, MATCHED
        if self.inflated == 0:
            found: tuple[list[float], list[float]] = ([], [])
            for trace, more in self._of(X):
                found[int(suspect[trace])].extend(more)
            self.inflated_, self.matched_ = threshold(np.sort(found[0]), np.sort(found[1]))
        return self

    def score(self, X: Traces) -> NDArray[np.float64]:
        """(N,) highest logarithm of the ratio of likelihoods that a connection reaches, mapped to 0 to 1.

        0.5 is a ratio of 1, and a trace without a window.
        """
        best = np.full(len(X), -np.inf)
        for trace, more in self._of(X):
            if len(more):
                best[trace] = max(best[trace], self._ratio(more))
        best[np.isinf(best)] = 0
        return (1 + best / (1 + np.abs(best))) / 2

    def _of(self, X: Traces) -> list[tuple[int, NDArray[np.float64]]]:
        """Trace, and differences of the windows, of each connection."""
        X.needs("cross-layer-rtt", "connection", "payload", "ack_us")
        return [
            (i, differences(c, self.pairs, self.jitter, self.longest)) for i, c in connections(X, "cross-layer-rtt")
        ]

    def _ratio(self, more: NDArray[np.float64]) -> float:
        inflated = more >= self.inflated_
        if len(more) > 1 and not inflated[0]:
            inflated = inflated[1:]  # a proxy answers the handshake with itself at once
        direct, proxied = self.matched_
        steps = np.where(inflated, np.log((1 - proxied) / (1 - direct)), np.log(proxied / direct))
        return float(np.cumsum(steps).max())


def threshold(direct: NDArray[np.float64], proxied: NDArray[np.float64]) -> tuple[float, tuple[float, float]]:
    """Difference that parts the windows of two classes best, and the share of each class that is below it.

    Parameters
    ----------
    direct, proxied
        Differences of windows in order, in seconds.

    """
    at = np.unique(np.concatenate([direct, proxied]))
    if not len(at):
        return np.inf, (0.5, 0.5)
    below = [(np.searchsorted(d, at) + 1) / (len(d) + 2) for d in (direct, proxied)]
    best = int(np.argmax(below[0] - below[1]))
    if below[0][best] <= below[1][best]:
        return np.inf, (0.5, 0.5)
    return float(at[best]), (float(below[0][best]), float(below[1][best]))


def differences(connection: Trace, pairs: int, jitter: float, longest: float) -> NDArray[np.float64]:
    """(windows,) seconds by which the application's round trip is longer than that of TCP, at least 0.

    Windows of which one of the two cannot be told are left out.
    """
    assert connection.payload is not None
    assert connection.ack_us is not None
    some, up = connection.payload > 0, connection.size > 0
    syn = connection.ack_us[~some & up & (connection.ack_us >= 0)]
    time, out, ack = connection.time[some], up[some], connection.ack_us[some]
    begins = np.flatnonzero(out & ~np.concatenate([[False], out[:-1]]))
    if not len(begins):
        return np.empty(0)
    # The last exchange may have no answer.
    whole = len(begins) - int(out[-1])
    begins = np.append(begins, len(out))
    found = []
    for first in range(min(max(whole - pairs + 1, min(whole, 1)), WINDOWS)):
        at = slice(begins[first], begins[min(first + pairs, whole)])
        mine = ack[at][out[at] & (ack[at] >= 0)]
        if len(mine) or len(syn):
            transport = np.median(mine if len(mine) else syn[:1]) / 1e6
            found.append(delay(time[at][out[at]], time[at][~out[at]], transport, jitter, longest) - transport)
    more = np.array(found)
    return np.maximum(more[~np.isnan(more)], 0)


def delay(
    requests: NDArray[np.float64], answers: NDArray[np.float64], least: float, jitter: float, longest: float
) -> float:
    """Seconds after which answers follow requests most likely; NaN if none does from the least to the longest.

    The correlation is a sum of Laplace densities, which is highest at one of the observed delays.
    """
    requests = requests[np.append(np.diff(requests) > jitter, True)][:PACKETS]
    answers = answers[np.append(True, np.diff(answers) > jitter)][:PACKETS]
    observed = (answers[:, None] - requests[None, :]).ravel()
    observed = observed[observed > 0]
    # An answer that acknowledges its request is a little sooner than the median acknowledgement.
    shifts = np.unique(observed[(observed >= least - jitter) & (observed <= longest)])
    if not len(shifts):
        return np.nan
    return float(shifts[np.exp(-np.abs(shifts[:, None] - observed[None, :]) / jitter).sum(1).argmax()])
