"""WTF-PAD: adaptive padding at both ends (Juarez et al., ESORICS 2016), many traces in step.

Each end has a state (WAIT, BURST, GAP) and, for each state, a histogram of waiting times after a packet that it sent
and one after a packet that it received. An end that has waited so long without sending sends a dummy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from heddle_eval.defences.histograms import NEVER, Histograms, bin_of, tokens
from heddle_eval.defences.packets import insert, tell, typical
from heddle_eval.defences.spelling import Spelled, option
from heddle_eval.traces import Traces

WAIT, BURST, GAP = 0, 1, 2
SENT, RECEIVED = 0, 1
CLIENT, SERVER = 0, 1
AT_ONCE = 4096
"""Traces that go in step: enough that numpy's cost of a call does not count, few enough for the cache."""

NORMAL: dict[tuple[int, int, int], tuple[float, float, float]] = {
    (CLIENT, SENT, BURST): (9, 0.001564159, 0.052329599),
    (CLIENT, SENT, GAP): (21, 0.06129599, 0.03995375),
    (CLIENT, RECEIVED, BURST): (9, 0.0000128746, 0.0009227229),
    (CLIENT, RECEIVED, GAP): (21, 0.0001368523, 0.0009233190),
    (SERVER, SENT, BURST): (19, 0.00003600121, 0.02753485),
    (SERVER, SENT, GAP): (34, 0.01325997, 0.0973761),
    (SERVER, RECEIVED, BURST): (19, 0.000004053116, 0.01264329),
    (SERVER, RECEIVED, GAP): (34, 0.01325997, 0.0126454036),
}
"""End, event and state: (x, mu, sigma) in seconds, the setting ``normal_rcv`` of the published code.

Of waiting for ever there are ceil(tokens / x) tokens in a burst's histogram, ceil(tokens / (x - 1)) in a gap's.
"""


def templates(as_published: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """(8, bins) tokens, by :func:`which`; as published, the tables of gaps stand for those of bursts too."""
    out = np.zeros((8, NEVER + 1), np.int64)
    for (end, event, state), (x, mu, sigma) in NORMAL.items():
        out[which(end, event, state)] = tokens(mu, sigma, x - (state == GAP), rng)
    if as_published:
        for end, event in ((e, v) for e in (CLIENT, SERVER) for v in (SENT, RECEIVED)):
            out[which(end, event, BURST)] = out[which(end, event, GAP)]
    return out


def which(end, event, state):
    """Give the place of a histogram in the table: of numbers or of arrays of them."""
    return 4 * end + 2 * event + (state == GAP)


@dataclass(frozen=True)
class WTFPad(Spelled):
    """Adaptive padding, in one of two ways.

    ``correct``: WAIT until a real packet is sent or received; then BURST, and a timer after each real packet, drawn
    anew by the next one; if it ends first, a dummy and GAP. In GAP each dummy sets the next timer, until a real packet
    is sent or the end draws to wait for ever, which brings it back to BURST; waiting for ever in BURST is WAIT.
    Received dummies do nothing. A timer that ends takes its token away; one that is overtaken takes the token of the
    time that passed. Each load begins with full histograms.

    ``as-published``: what the authors' simulator does, and CoMPS with it. Each packet, dummies included, draws one
    waiting time for its own end and one for the other; a dummy is laid wherever the time ends before the next packet
    of that end, and stays. The table of gaps has overwritten that of bursts; an end goes BURST to GAP at the first
    packet after its first dummy, GAP to WAIT and WAIT to BURST at real ones; waiting for ever changes no state. Only
    here each load has tokens of its own, where the simulator goes on with those of the load before.

    Dummies have the data set's most frequent size of their direction.
    """

    variant: Literal["correct", "as-published"] = option(
        "correct", "the machine of the paper, or of its published code"
    )
    tail: float = option(0.0, "seconds after a load's last packet in which dummies may follow; as-published: none")

    name: ClassVar[str] = "wtf-pad"
    claim: ClassVar[str] = (
        "hides gaps between packets with dummies and delays nothing; does not hide sizes, volume or the order of bursts"
    )
    source: ClassVar[str] = "Juarez et al., ESORICS 2016"
    presets: ClassVar = {"correct": {"variant": "correct"}, "as-published": {"variant": "as-published"}}

    def __post_init__(self) -> None:
        self.check(0 <= self.tail <= 600, "tail", "it must be from 0 to 600 seconds")
        self.check(self.tail == 0 or self.variant == "correct", "tail", "the published code has none")

    def apply(self, traces: Traces, rng: np.random.Generator) -> Traces:
        """Add dummies; see :class:`heddle_eval.defences.base.Defence`."""
        published = self.variant == "as-published"
        table = templates(published, rng)
        owners, times, ends = [], [], []
        # Traces of like length go in step, so that few wait for one.
        order = np.argsort(traces.lengths, kind="stable")
        for start in range(0, len(order), AT_ONCE):
            rows = order[start : start + AT_ONCE]
            machine = (Published if published else Correct)(traces, rows, table, rng)
            for row, time, end in machine.dummies(self.tail):
                owners.append(rows[row])
                times.append(time)
                ends.append(end)
            tell(min(start + AT_ONCE, len(order)), len(order))
        up, down = typical(traces)
        none = np.empty(0, np.int64)
        size = np.where(np.concatenate([none, *ends]) == CLIENT, up, -down)
        return insert(traces, np.concatenate([none, *owners]), np.concatenate([np.empty(0), *times]), size)


Dummies = Iterator[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]]
"""Rows, seconds, and the ends that send."""


class _Machine:
    """Both ends of n page loads, each at its own place in time."""

    def __init__(
        self, traces: Traces, rows: NDArray[np.int64], table: NDArray[np.int64], rng: np.random.Generator
    ) -> None:
        n = len(rows)
        self.time, self.up = traces.time, traces.size > 0
        self.next, self.stop = traces.offset[rows].copy(), traces.offset[rows + 1]
        self.histograms, self.rng = Histograms(table, n), rng
        self.state = np.full((n, 2), WAIT, np.int8)

    def real(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Time of the next real packet of each row, or inf."""
        more = self.next[rows] < self.stop[rows]
        out = np.full(len(rows), np.inf)
        out[more] = self.time[self.next[rows[more]]]
        return out


class Correct(_Machine):
    """The machine of the paper."""

    def __init__(self, *given) -> None:
        super().__init__(*given)
        n = len(self.next)
        self.last = np.where(self.stop > self.next, self.time[self.stop - 1] if len(self.time) else 0, -np.inf)
        # Each end has a timer of each event: when it was set, when it ends, and the bin and histogram it is of.
        self.ends = np.full((n, 4), np.inf)
        self.set = np.zeros((n, 4))
        self.bin = np.zeros((n, 4), np.int64)
        self.of = np.zeros((n, 4), np.int64)

    def dummies(self, tail: float) -> Dummies:
        """Run until nothing is left to happen; give dummies as they are sent."""
        rows = np.arange(len(self.next))
        while len(rows):
            real = self.real(rows)
            timer = self.ends[rows].argmin(1)
            ends = self.ends[rows, timer]
            # At equal times the real packet comes first.
            is_real = real <= ends
            now = np.minimum(real, ends)
            over = (now > self.last[rows] + tail) | ~np.isfinite(now)
            rows, timer, now, is_real = rows[~over], timer[~over], now[~over], is_real[~over]
            if (~is_real).any():
                yield self._expire(rows[~is_real], timer[~is_real], now[~is_real])
            if is_real.any():
                self._packet(rows[is_real], now[is_real])

    def _expire(self, rows, timer, now):
        end = timer // 2
        self.histograms.take(rows, self.of[rows, timer], self.bin[rows, timer])
        self.ends[rows, 2 * end] = self.ends[rows, 2 * end + 1] = np.inf
        self.state[rows, end] = GAP
        self._wait(rows, end, np.full(len(rows), SENT), now)
        return rows, now, end

    def _packet(self, rows, now):
        sender = np.where(self.up[self.next[rows]], CLIENT, SERVER)
        self.next[rows] += 1
        for event in (SENT, RECEIVED):
            self._overtaken(rows, 2 * sender + event, now)
        self.state[rows, sender] = BURST
        self._wait(rows, sender, np.full(len(rows), SENT), now)
        receiver = 1 - sender
        self._overtaken(rows, 2 * receiver + RECEIVED, now)
        woken = self.state[rows, receiver] == WAIT
        self.state[rows[woken], receiver[woken]] = BURST
        self._wait(rows, receiver, np.full(len(rows), RECEIVED), now)

    def _overtaken(self, rows, timer, now):
        """Stop timers that something came before: each takes the token of the time that passed, not the one it drew."""
        running = np.isfinite(self.ends[rows, timer])
        rows, timer, now = rows[running], timer[running], now[running]
        self.histograms.take(rows, self.of[rows, timer], bin_of(now - self.set[rows, timer]))
        self.ends[rows, timer] = np.inf

    def _wait(self, rows, end, event, now):
        """Set a timer; who draws to wait for ever in GAP draws again in BURST, and then may be back to WAIT."""
        for state in (GAP, BURST):
            mine = self.state[rows, end] == state
            r, e, v, t = rows[mine], end[mine], event[mine], now[mine]
            table = which(e, v, state)
            wait, bin_ = self.histograms.sample(r, table, self.rng)
            timer = 2 * e + v
            self.ends[r, timer], self.set[r, timer], self.bin[r, timer] = t + wait, t, bin_
            self.of[r, timer] = table
            never = bin_ == NEVER
            r, e = r[never], e[never]
            self.histograms.take(r, table[never], bin_[never])
            if state == GAP:
                self.state[r, e] = BURST
            else:
                idle = ~np.isfinite(self.ends[r[:, None], 2 * e[:, None] + [SENT, RECEIVED]]).any(1)
                self.state[r[idle], e[idle]] = WAIT


class Published(_Machine):
    """The machine of the published simulator."""

    def __init__(self, *given) -> None:
        super().__init__(*given)
        n = len(self.next)
        self.state[:] = BURST
        self.padded = np.zeros((n, 2), bool)
        # Dummies that are laid and yet to come: each is laid before those that are there, so the last is the next.
        self.laid = np.full((n, 2, 8), np.inf)
        self.depth = np.zeros((n, 2), np.int64)
        self.following = _following(self.up, self.time, self.next, self.stop)

    def dummies(self, tail: float) -> Dummies:
        """Run until no packet is left; give dummies as they are sent. There is no tail."""
        rows = np.arange(len(self.next))
        while len(rows):
            # A dummy goes before a real packet of the same time.
            due = np.stack([self._top(rows, CLIENT), self._top(rows, SERVER), self.real(rows)], 1)
            kind = due.argmin(1)
            now = due[np.arange(len(rows)), kind]
            alive = np.isfinite(now)
            rows, kind, now = rows[alive], kind[alive], now[alive]
            if not len(rows):
                return
            is_real = kind == 2
            end = np.where(
                is_real, np.where(self.up[np.minimum(self.next[rows], len(self.up) - 1)], CLIENT, SERVER), kind
            )
            self.depth[rows[~is_real], end[~is_real]] -= 1
            self.next[rows[is_real]] += 1
            if (~is_real).any():
                yield rows[~is_real], now[~is_real], end[~is_real]
            self._change(rows, end, is_real)
            self._pad(rows, end, SENT, now)
            self._pad(rows, 1 - end, RECEIVED, now)

    def _top(self, rows, end):
        depth = self.depth[rows, end]
        return np.where(depth > 0, self.laid[rows, end, np.maximum(depth - 1, 0)], np.inf)

    def _change(self, rows, end, is_real):
        state = self.state[rows, end]
        new = np.where((state == BURST) & self.padded[rows, end], GAP, state)
        new = np.where((state == WAIT) & is_real, BURST, new)
        self.state[rows, end] = np.where((state == GAP) & is_real, WAIT, new)

    def _pad(self, rows, end, event, now):
        state = self.state[rows, end]
        upcoming = np.minimum(self._top(rows, end), self._real_of(rows, end))
        # Without a packet to come the simulator pads no more; without room it draws, and that is all.
        room = (state != WAIT) & np.isfinite(upcoming) & (upcoming > now)
        rows, end, now, gap = rows[room], end[room], now[room], (upcoming - now)[room]
        table = which(end, event, state[room])
        wait, _ = self.histograms.sample(rows, table, self.rng)
        ends = wait < gap
        self.histograms.take(rows, table, bin_of(np.minimum(wait, gap)))
        rows, end = rows[ends], end[ends]
        depth = self.depth[rows, end]
        if len(depth) and depth.max() >= self.laid.shape[2]:
            self.laid = np.concatenate([self.laid, np.full_like(self.laid, np.inf)], axis=2)
        self.laid[rows, end, depth] = now[ends] + wait[ends]
        self.depth[rows, end] += 1
        self.padded[rows, end] = True

    def _real_of(self, rows, end):
        """Time of the next real packet that an end sends, or inf."""
        at = self.next[rows]
        return np.where(at < self.stop[rows], self.following[np.minimum(at, len(self.time) - 1), end], np.inf)


def _following(up, time, start, stop):
    """(P, 2) time of the first packet of each direction at or after each packet of its trace, or inf."""
    out = np.full((len(time), 2), np.inf)
    if not len(time):
        return out
    last = np.zeros(len(time), np.int64)
    keep = stop > start
    for a, b in zip(start[keep], stop[keep], strict=True):
        last[a:b] = b
    for end, mine in ((CLIENT, up), (SERVER, ~up)):
        after = np.minimum.accumulate(np.where(mine, np.arange(len(up)), len(up))[::-1])[::-1]
        found = after < last
        out[found, end] = time[after[found]]
    return out
