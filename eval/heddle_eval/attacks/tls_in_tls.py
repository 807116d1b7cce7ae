"""TLS in TLS: the handshake of a client's own TLS inside an encrypted connection (Xue et al., USENIX Security 2024).

Encryption hides neither the sizes nor the directions of packets, so a TLS handshake that a tunnel carries still looks
like one. The censor learns it from ordinary TLS connections, and needs no sample of the tunnel. It compares the first
data packets after the handshake of the connection itself in two ways, and both must find a handshake:

- 3-grams of packets, each by its direction and one of four groups of sizes. A connection is like what it is nearer to
  by the chi-squared distance of the frequencies of the 3-grams that tell most.
- Bursts, which are the bytes of successive packets of one direction. The Mahalanobis distance of three successive
  bursts from those that open TLS connections; the smallest one counts.

The paper has two thresholds, and so no ROC curve. Here each statistic is replaced by the share of the innocent training
connections that it exceeds, and the smaller of both shares is the score: both thresholds move together.

Simplified: one profile for all versions of TLS; one length of framing (``overhead``); Fisher's ratio for the choice of
3-grams. Session tickets of TLS 1.3 that come after the handshake count as data. Retransmissions count as packets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from heddle_eval.attacks.rules import Rule, connections
from heddle_eval.errors import EvalError
from heddle_eval.traces import Trace, Traces

GROUPS = (161, 601, 1211)
"""Payloads from which the next group of sizes begins: ChangeCipherSpec, ClientHello, rest, and full packets."""

CODES = (2 * (len(GROUPS) + 1)) ** 3
"""Different 3-grams."""

LEAST = 10
"""TLS connections to learn a handshake from."""

FINISHED = 128
"""Bytes that the record of a Finished has at most, in TLS 1.2; a second ClientHello has more."""

TINY = 1e-3
"""Added to frequencies and variances by which something is divided."""


class Packets(NamedTuple):
    """Successive packets with payload: bytes, positive from the client, and seconds."""

    size: NDArray[np.float64]
    time: NDArray[np.float64]


class Flow(NamedTuple):
    """One connection: its trace, its packets from the first and after its own handshake, and its round trip."""

    trace: int
    tls: bool
    whole: Packets
    inside: Packets
    round_trip: float


@dataclass(eq=False, repr=False)
class TLSInTLS(Rule, ClassifierMixin, BaseEstimator):
    """A trace's score is that of its connection that looks most as if it carried a TLS handshake.

    Parameters
    ----------
    packets
        First packets with payload that count.
    grams
        3-grams that count, those that tell most.
    bursts
        Successive bursts: three of a handshake of TLS 1.3, five of TLS 1.2.
    overhead
        Bytes that the record of a TLS connection adds to a packet inside.
    slack
        Bytes by which a burst may be longer or shorter, beside how much those of handshakes differ: framing, padding
        and other clients.
    learn
        What a handshake looks like: from ``tls``, the beginnings of innocent TLS connections; from ``suspects``, what
        they carry; ``auto`` takes these where there are fewer than ten of the former.
    seed
        Not used.

    """

    packets: int = 25
    grams: int = 100
    bursts: int = 3
    overhead: int = 22
    slack: float = 60.0
    learn: Literal["auto", "tls", "suspects"] = "auto"
    seed: int = 0

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn what handshakes and innocent contents look like."""
        suspect = self.two(X, y)
        flows = list(self._flows(X))
        innocent = [f for f in flows if not suspect[f.trace] and len(f.inside.size)]
        tls = [f for f in flows if not suspect[f.trace] and f.tls]
        few = self.learn == "auto" and len(tls) < LEAST
        self.learnt_from_ = "suspects" if few or self.learn == "suspects" else "tls"
        if self.learnt_from_ == "suspects":
            handshakes = [(f.inside, f.round_trip) for f in flows if suspect[f.trace] and len(f.inside.size)]
        else:
            handshakes = [(f.whole, f.round_trip) for f in tls]
        if not handshakes or not innocent:
            what = "innocent" if handshakes else "TLS" if self.learnt_from_ == "tls" else "suspect"
            raise EvalError("tls-in-tls", f"there is no {what} connection with contents to learn from")
        self._learn_grams([frequencies(p.size) for p, _ in handshakes], [frequencies(f.inside.size) for f in innocent])
        self._learn_bursts([bursts(p, r)[: self.bursts] for p, r in handshakes])
        self.innocent_ = np.sort([self._likeness(f) for f in innocent], axis=0)
        return self

    def score(self, X: Traces) -> NDArray[np.float64]:
        """(N,) the smaller share of innocent connections that look less like it; 0 for a trace without contents."""
        out, n = np.zeros(len(X)), len(self.innocent_)
        for flow in self._flows(X):
            shares = []
            for sorted_, mine in zip(self.innocent_.T, self._likeness(flow), strict=True):
                # What is above all innocent ones still has an order.
                shares.append((np.searchsorted(sorted_, mine) + mine) / (n + 1))
            out[flow.trace] = max(out[flow.trace], min(shares))
        return out

    def _flows(self, X: Traces) -> list[Flow]:
        X.needs("tls-in-tls", "connection", "payload", "first")
        return [self._flow(i, c) for i, c in connections(X, "tls-in-tls")]

    def _flow(self, trace: int, connection: Trace) -> Flow:
        assert connection.payload is not None
        assert connection.first is not None
        some = connection.payload > 0
        size = (np.sign(connection.size) * connection.payload)[some].astype(float)
        whole = Packets(size, connection.time[some])
        length, server_ends = client_handshake(connection.first[0][0])
        inside = whole
        if length:
            inside = after(whole, length, server_ends)
            shorter = np.maximum(np.abs(inside.size) - self.overhead, 1)
            inside = Packets(np.sign(inside.size) * shorter, inside.time)
        cut = [Packets(p.size[: self.packets], p.time[: self.packets]) for p in (whole, inside)]
        return Flow(trace, length > 0, cut[0], cut[1], round_trip(connection))

    def _learn_grams(self, handshakes: list[NDArray[np.float64]], innocent: list[NDArray[np.float64]]) -> None:
        """Take the 3-grams whose means differ most for how much they vary, and both means of each."""
        a, b = np.array(handshakes), np.array(innocent)
        fisher = (a.mean(0) - b.mean(0)) ** 2 / (a.var(0) + b.var(0) + TINY**2)
        self.grams_ = np.argsort(-fisher, kind="stable")[: self.grams]
        self.profiles_ = np.array([a.mean(0)[self.grams_], b.mean(0)[self.grams_]])

    def _learn_bursts(self, found: list[NDArray[np.float64]]) -> None:
        """Take the mean and the covariance of the bursts that begin a connection."""
        vectors = np.array([v for v in found if len(v) == self.bursts]).reshape(-1, self.bursts)
        self.mean_ = vectors.mean(0) if len(vectors) else None
        varies = np.cov(vectors, rowvar=False).reshape(self.bursts, self.bursts) if len(vectors) > 1 else 0
        self.inverse_ = np.linalg.inv(varies + self.slack**2 * np.eye(self.bursts))

    def _likeness(self, flow: Flow) -> tuple[float, float]:
        """By 3-grams and by bursts, each from 0 to 1 for a handshake."""
        mine = frequencies(flow.inside.size)
        if not mine.any():
            return 0.0, 0.0
        handshake, innocent = (((mine[self.grams_] - p) ** 2 / (p + TINY)).sum() for p in self.profiles_)
        return float(innocent / (handshake + innocent + TINY)), self._near(bursts(flow.inside, flow.round_trip))

    def _near(self, found: NDArray[np.float64]) -> float:
        if self.mean_ is None:
            return 1.0  # the bursts tell nothing: no handshake had so many
        if len(found) < self.bursts:
            return 0.0
        windows = np.lib.stride_tricks.sliding_window_view(found, self.bursts)
        off = windows - self.mean_
        return float(1 / (1 + np.sqrt(np.einsum("ni,ij,nj->n", off, self.inverse_, off).clip(0).min())))


def client_handshake(up: bytes) -> tuple[int, bool]:
    """Bytes that the client's part of the TLS handshake has which it begins with, and whether the server ends it.

    0 for what is no TLS. In TLS 1.2 (RFC 5246) the client's Finished is the record of a handshake behind its
    ChangeCipherSpec, and the server's comes after it. In TLS 1.3 (RFC 8446) it is the first record of application data.
    """
    if up[:2] != b"\x16\x03" or up[5:6] != b"\x01":
        return 0, False
    at, before = 0, 0
    while up[at : at + 1] in (b"\x14", b"\x16", b"\x17") and len(up) >= at + 5:
        kind, length = up[at], int.from_bytes(up[at + 3 : at + 5])
        at += 5 + length
        if kind == 0x17:
            return at, False
        if kind == 0x16 and before == 0x14 and length <= FINISHED:
            return at, True
        before = kind
    return at, False


def after(packets: Packets, length: int, server_ends: bool) -> Packets:
    """Give the packets after the client's first bytes, and after the server's answer to them if that ends something.

    A packet of which only a part is left counts with that part.
    """
    sent = np.cumsum(np.maximum(packets.size, 0))
    last = int(np.searchsorted(sent, length))
    if last == len(sent):
        return Packets(packets.size[:0], packets.time[:0])
    size, time = packets.size[last:].copy(), packets.time[last:]
    size[0] = sent[last] - length
    begin = int(size[0] == 0)
    if begin and server_ends:
        later = np.flatnonzero(size > 0)
        begin = int(later[0]) if len(later) else len(size)
    return Packets(size[begin:], time[begin:])


def round_trip(connection: Trace) -> float:
    """Seconds from the client's SYN to its next packet behind the server's first; infinity if the SYN was not seen."""
    assert connection.payload is not None
    up = connection.size > 0
    if not len(up) or not up[0] or connection.payload[0] or up.all():
        return np.inf
    answered = int(np.argmin(up))
    if not up[answered:].any():
        return np.inf
    took = connection.time[answered + int(np.argmax(up[answered:]))] - connection.time[0]
    return float(took) if took > 0 else np.inf


def frequencies(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """(CODES,) share of each 3-gram; all 0 for fewer than three packets."""
    word = np.digitize(np.abs(size), GROUPS) + (len(GROUPS) + 1) * (size < 0)
    base = 2 * (len(GROUPS) + 1)
    code = (word[:-2] * base + word[1:-1]) * base + word[2:]
    return np.bincount(code, minlength=CODES) / max(len(code), 1)


def bursts(packets: Packets, round_trip: float) -> NDArray[np.float64]:
    """Bytes of each burst: successive packets of one direction, without a pause of three round trips."""
    if not len(packets.size):
        return np.empty(0)
    ends = np.diff(np.sign(packets.size)) != 0
    ends |= np.diff(packets.time) > 3 * round_trip
    return np.add.reduceat(packets.size, np.concatenate([[0], np.flatnonzero(ends) + 1]))
