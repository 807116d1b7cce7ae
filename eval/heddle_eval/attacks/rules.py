"""What detectors share that learn no more than which two classes there are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from heddle_eval.attacks.base import FromProba, checked
from heddle_eval.errors import EvalError
from heddle_eval.traces import PER_PACKET, Trace, Traces


class Rule(FromProba, ABC):
    """A detector by a score of each trace, from 0 to 1; the higher of its two classes is what it looks for."""

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn which two classes there are."""
        self.two(X, y)
        return self

    def two(self, X: Traces, y: NDArray[np.int_]) -> NDArray[np.bool_]:
        """Take the two classes, and give (N,) which traces are of the one that is looked for."""
        self.classes_, codes = checked(X, y)
        if len(self.classes_) != 2:
            raise EvalError(type(self).__name__, f"it tells two classes, not {len(self.classes_)}", "--world detect")
        return codes == 1

    @abstractmethod
    def score(self, X: Traces) -> NDArray[np.float64]:
        """(N,) how much each trace looks like what is looked for."""

    def predict_proba(self, X: Traces) -> NDArray[np.float64]:
        """(N, 2) one less the score, and the score."""
        score = np.asarray(self.score(X), float)
        return np.column_stack([1 - score, score])


def connections(traces: Traces, what: str) -> Iterator[tuple[int, Trace]]:
    """Give the trace, and the packets, of each connection; its first bytes are the only ones of its ``first``."""
    traces.needs(what, "connection")
    for i, trace in enumerate(traces):
        assert trace.connection is not None
        order = np.argsort(trace.connection, kind="stable")
        ends = np.flatnonzero(np.diff(trace.connection[order])) + 1
        for mine in np.split(order, ends) if len(order) else []:
            columns = {k: None if (v := getattr(trace, k)) is None else v[mine] for k in PER_PACKET}
            first = None if trace.first is None else (trace.first[trace.connection[mine[0]]],)
            yield i, Trace(trace.time[mine], trace.size[mine], trace.dummy[mine], **columns, first=first)


def first_packets(traces: Traces, what: str) -> Iterator[tuple[int, bytes]]:
    """Give the trace, and the first packet that the client sent with payload, of each connection that has one."""
    traces.needs(what, "payload", "first")
    for i, connection in connections(traces, what):
        assert connection.payload is not None
        assert connection.first is not None
        sent = connection.payload[(connection.size > 0) & (connection.payload > 0)]
        if len(sent):
            yield i, connection.first[0][0][: sent[0]]
