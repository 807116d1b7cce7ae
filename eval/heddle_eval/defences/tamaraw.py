"""Tamaraw: packets of one size at fixed times, and a coarse number of them (Cai et al., CCS 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from heddle_eval.defences.packets import assemble, largest, parts, running_max, within
from heddle_eval.defences.spelling import Spelled, option
from heddle_eval.traces import Traces


@dataclass(frozen=True)
class Tamaraw(Spelled):
    """Each direction sends at every tick of its clock, from the load's first packet on: a real packet if one waits.

    Both go on until all real packets are out, and then until they have sent a multiple of L packets. Every packet has
    the data set's largest size of its direction. What a packet would have caused is not delayed with it: a simulation
    on recorded traces cannot know it, so latency is a lower bound.
    """

    out: float = option(0.012, "seconds between packets of the client")
    into: float = option(0.004, "seconds between packets of the server")
    multiple: int = option(100, "L: the number of packets of a direction is a multiple of it")

    name: ClassVar[str] = "tamaraw"
    claim: ClassVar[str] = (
        "hides sizes, timing and order, and all of the volume but multiples of L; costs much delay and bandwidth"
    )
    source: ClassVar[str] = "Cai et al., CCS 2014"

    def __post_init__(self) -> None:
        self.check(1e-6 <= self.out <= 10, "out", "it must be from a microsecond to 10 seconds")
        self.check(1e-6 <= self.into <= 10, "into", "it must be from a microsecond to 10 seconds")
        self.check(1 <= self.multiple <= 10**6, "multiple", "it must be from 1 to a million")

    def apply(self, traces: Traces, rng: np.random.Generator) -> Traces:
        """Put packets on the clock; see :class:`heddle_eval.defences.base.Defence`. Nothing is drawn."""
        sizes = largest(traces)
        done = [self._some(traces[part], sizes) for part in parts(traces, 200_000)]
        return Traces.concat(done) if done else traces

    def _some(self, traces: Traces, sizes: tuple[int, int]) -> Traces:
        n, owner = len(traces), traces.owner
        begin = np.zeros(n)
        begin[traces.lengths > 0] = traces.time[traces.offset[:-1][traces.lengths > 0]]
        ways = []
        for up, gap in ((True, self.out), (False, self.into)):
            mine = (traces.size > 0) == up
            counts = np.bincount(owner[mine], minlength=n)
            ways.append((up, gap, mine, counts, _ticks(traces.time[mine] - begin[owner[mine]], counts, gap)))
        end = np.full(n, -1.0)
        for _, gap, mine, _, tick in ways:
            np.maximum.at(end, owner[mine], tick * gap)
        packets = [self._way(traces, begin, end, *way, sizes[0] if way[0] else -sizes[1]) for way in ways]
        return assemble(traces, *(np.concatenate(column) for column in zip(*packets, strict=True)))

    def _way(self, traces, begin, end, up, gap, mine, counts, tick, size):
        """Give one direction's owner, time, size and dummy of each packet."""
        owner = traces.owner[mine]
        # A tick at the very end counts, whatever its product with the gap is rounded to.
        sent = np.where(end < 0, 0, np.floor(end / gap + 1e-6).astype(np.int64) + 1)
        sent = -(-sent // self.multiple) * self.multiple
        owners = np.repeat(np.arange(len(traces)), sent)
        time = begin[owners] + within(sent) * gap
        dummy = np.ones(len(owners), bool)
        at = (np.cumsum(sent) - sent)[owner] + tick
        dummy[at] = traces.dummy[mine]
        return owners, time, np.full(len(owners), size, np.int32), dummy


def _ticks(time: NDArray[np.float64], counts: NDArray[np.int64], gap: float) -> NDArray[np.int64]:
    """Tick at which each packet goes: the first one not before it, and after the packet before it."""
    ready = np.ceil(time / gap - 1e-6)
    position = within(counts)
    return np.rint(running_max(ready - position, counts)).astype(np.int64) + position
