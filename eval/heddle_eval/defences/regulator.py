"""RegulaTor: downloads in surges that decay, uploads in step with them (Holland and Hopper, PETS 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from heddle_eval.defences.packets import assemble, largest, offsets, tell, within
from heddle_eval.defences.spelling import Spelled, option
from heddle_eval.traces import Traces

AT_ONCE = 4096
"""Traces that go in step."""
FIRST = 10
"""The server's packet, from 0, whose arrival begins the first surge; those before it set up the connection."""


@dataclass(frozen=True)
class RegulaTor(Spelled):
    """The server sends at rate x decay^(seconds since the surge began), at least one packet a second.

    A surge begins when more than ``surge`` x the rate now packets wait. Where none waits, a dummy goes, until as many
    were sent as drawn below ``budget``. Before the first surge the server sends ten dummies a second and the client
    five. The client sends one packet for each ``ratio`` of the server's, at times of theirs drawn at random; a packet
    that finds no such time within ``cap`` seconds goes by itself when they are over. So does the published
    simulator, whose order of steps this follows. Every packet has the data set's largest size of its direction.
    What a packet would have caused is not delayed with it, so latency is a lower bound.
    """

    rate: float = option(277.0, "packets a second at the beginning of a surge")
    decay: float = option(0.94, "part of the rate that is left after a second")
    surge: float = option(3.55, "a surge begins when more than this times the rate wait")
    budget: int = option(3550, "the number of dummies of the server is drawn below it")
    ratio: float = option(3.95, "packets of the server for one of the client")
    cap: float = option(1.77, "seconds that a packet of the client waits at most")

    name: ClassVar[str] = "regulator"
    claim: ClassVar[str] = (
        "hides bursts and sizes behind surges of one shape; does not hide when surges begin, nor all of the volume"
    )
    source: ClassVar[str] = "Holland and Hopper, PETS 2022"
    presets: ClassVar = {
        "heavy": {},
        "light": {"rate": 260.0, "decay": 0.86, "surge": 3.75, "budget": 2080, "ratio": 4.02, "cap": 2.08},
    }

    def __post_init__(self) -> None:
        self.check(1 <= self.rate <= 1e6, "rate", "it must be from 1 to a million")
        self.check(0 < self.decay <= 1, "decay", "it must be above 0 and at most 1")
        self.check(0 <= self.surge < np.inf, "surge", "it cannot be negative")
        self.check(0 <= self.budget <= 10**7, "budget", "it must be from 0 to ten million")
        self.check(0 < self.ratio < np.inf, "ratio", "it must be above 0")
        self.check(0 <= self.cap <= 3600, "cap", "it must be from 0 to 3600 seconds")

    def apply(self, traces: Traces, rng: np.random.Generator) -> Traces:
        """Shape traffic; see :class:`heddle_eval.defences.base.Defence`."""
        sizes = largest(traces)
        order = np.argsort(traces.lengths, kind="stable")
        done = []
        for start in range(0, len(order), AT_ONCE):
            done.append(self._some(traces[order[start : start + AT_ONCE]], sizes, rng))
            tell(min(start + AT_ONCE, len(order)), len(order))
        return Traces.concat(done)[np.argsort(order)] if done else traces

    def _some(self, traces: Traces, sizes: tuple[int, int], rng: np.random.Generator) -> Traces:
        down, up = _Flow(traces, up=False), _Flow(traces, up=True)
        moment = np.zeros(len(traces))
        some = down.counts > 0
        moment[some] = down.time[down.offset[:-1][some] + np.minimum(FIRST, down.counts[some] - 1)]
        server = self._download(down, moment, rng)
        client = self._upload(up, server, moment, rng)
        owner, time, dummy = (np.concatenate(c) for c in zip(server, client, strict=True))
        size = np.repeat([-sizes[1], sizes[0]], [len(server[0]), len(client[0])])
        return assemble(traces, owner, time, size, dummy)

    def _download(self, down: _Flow, moment: NDArray[np.float64], rng: np.random.Generator) -> Packets:
        """Run all surges in step: one step is one packet that each server may send."""
        n = len(moment)
        rows = np.flatnonzero(down.counts > 0)
        budget = rng.integers(0, self.budget, n) if self.budget else np.zeros(n, np.int64)
        now, begin = moment.copy(), moment.copy()
        sent = np.zeros(n, np.int64)
        out = [_steady(moment, 0.1, down.counts > 0), self._first(down, rows, moment)]
        sent[rows] = 1
        while len(rows := rows[sent[rows] < down.counts[rows]]):
            rate = np.maximum(1.0, self.rate * self.decay ** (now[rows] - begin[rows]))
            waiting = down.before(rows, now[rows]) - sent[rows]
            begin[rows] = np.where(waiting > self.surge * rate, now[rows], begin[rows])
            now[rows] += 1 / rate
            real = waiting > 0
            dummy = ~real & (budget[rows] > 0)
            budget[rows[dummy]] -= 1
            went = real | dummy
            made = dummy[went]
            # A dummy of a defence before this one is a packet here, and stays marked.
            made[~made] = down.dummy[down.offset[rows[real]] + sent[rows[real]]]
            out.append((rows[went], now[rows[went]], made))
            sent[rows[real]] += 1
        return joined(out)

    def _first(self, down: _Flow, rows: NDArray[np.int64], moment: NDArray[np.float64]) -> Packets:
        return rows, moment[rows], down.dummy[down.offset[:-1][rows]]

    def _upload(self, up: _Flow, server: Packets, moment: NDArray[np.float64], rng: np.random.Generator) -> Packets:
        """Lay out the client's times, and then put its packets on them, the k-th of each trace at once."""
        n = len(moment)
        owner, time, _ = server
        counts = np.bincount(owner, minlength=n)
        by_owner = np.argsort(owner, kind="stable")
        picks = (counts / self.ratio).astype(np.int64)
        row = np.repeat(np.arange(n), picks)
        at = offsets(counts)[row] + (rng.random(len(row)) * counts[row]).astype(np.int64)
        steady = _steady(moment, 0.2, counts > 0)
        slots = _Slots(np.concatenate([row, steady[0]]), np.concatenate([time[by_owner][at], steady[1]]), n)
        alone = [(np.empty(0, np.int64), np.empty(0), np.empty(0, bool))]
        for k in range(int(up.counts.max(initial=0))):
            rows = np.flatnonzero(up.counts > k)
            packet = up.offset[rows] + k
            late = slots.take(rows, up.time[packet], self.cap, up.dummy[packet])
            alone.append((rows[late], up.time[packet[late]] + self.cap, up.dummy[packet[late]]))
        scheduled = (slots.owner, slots.time, slots.dummy)
        return joined([scheduled, *alone])


Packets = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]
"""Owner, seconds and dummy of each."""


def joined(parts: list[Packets]) -> Packets:
    """All of them, one after another."""
    owner, time, dummy = zip(*parts, strict=True)
    return np.concatenate(owner), np.concatenate(time), np.concatenate(dummy)


class _Sorted:
    """Times of n owners, sorted within each, that can be searched for all owners at once."""

    def __init__(self, owner: NDArray[np.int64], time: NDArray[np.float64], n: int) -> None:
        self.owner, self.time = owner, time
        self.counts = np.bincount(owner, minlength=n)
        self.offset = offsets(self.counts)

    def before(self, rows: NDArray[np.int64], time: NDArray[np.float64]) -> NDArray[np.int64]:
        """How many of each row's times are before the given one; a bisection in step."""
        low, high = self.offset[rows].copy(), self.offset[rows + 1].copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            less = open_ & (self.time[np.minimum(middle, len(self.time) - 1)] < time)
            low = np.where(less, middle + 1, low)
            high = np.where(open_ & ~less, middle, high)
        return low - self.offset[rows]


class _Flow(_Sorted):
    """One direction of all traces."""

    def __init__(self, traces: Traces, *, up: bool) -> None:
        mine = (traces.size > 0) == up
        super().__init__(traces.owner[mine], traces.time[mine], len(traces))
        self.dummy = traces.dummy[mine]


class _Slots(_Sorted):
    """Times at which clients may send; what no packet takes is a dummy."""

    def __init__(self, owner: NDArray[np.int64], time: NDArray[np.float64], n: int) -> None:
        order = np.lexsort((time, owner))
        super().__init__(owner[order], time[order], n)
        self.dummy = np.ones(len(owner), bool)
        self.free = self.offset[:-1].copy()

    def take(
        self, rows: NDArray[np.int64], time: NDArray[np.float64], cap: float, dummy: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Give each row's packet the first free slot not before it; say which found none soon enough."""
        slot = np.maximum(self.free[rows], self.offset[rows] + self.before(rows, time))
        found = slot < self.offset[rows + 1]
        if len(self.time):
            found &= self.time[np.minimum(slot, len(self.time) - 1)] - time < cap
        self.free[rows[found]] = slot[found] + 1
        self.dummy[slot[found]] = dummy[found]
        return ~found


def _steady(moment: NDArray[np.float64], gap: float, some: NDArray[np.bool_]) -> Packets:
    """Dummies at even times from 0, before the first surge."""
    counts = np.where(some, (moment / gap).astype(np.int64), 0)
    owner = np.repeat(np.arange(len(moment)), counts)
    return owner.astype(np.int64, copy=False), (within(counts) * gap).astype(np.float64), np.ones(len(owner), bool)
