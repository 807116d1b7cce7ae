"""What defences share: sizes of dummies, putting packets into traces, and work in parts that fit the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from heddle_eval.traces import BARE, Traces

PART = 1_000_000
"""Packets that are worked on at once."""

telling: ContextVar[Callable[[int, int], None] | None] = ContextVar("telling", default=None)
"""Set it to be told how many traces are done, and of how many."""


def tell(done: int, total: int) -> None:
    """Report progress to whoever asked for it."""
    if to := telling.get():
        to(done, total)


def parts(traces: Traces, packets: int = PART) -> Iterator[slice]:
    """Give runs of traces of about so many packets each; every trace is in one of them."""
    start = 0
    while start < len(traces):
        end = int(np.searchsorted(traces.offset, traces.offset[start] + packets, side="right")) - 1
        end = min(max(end, start + 1), len(traces))
        yield slice(start, end)
        start = end
        tell(end, len(traces))


def typical(traces: Traces) -> tuple[int, int]:
    """Give the most frequent size in bytes from client to server, and from server to client.

    A dummy of that size looks like most packets do; in Tor's traces it is a cell. A direction without packets takes
    the other one's.
    """
    return _of_each_direction(traces, lambda sizes, counts: sizes[counts.argmax()])


def largest(traces: Traces) -> tuple[int, int]:
    """Give the largest size in bytes from client to server, and from server to client, as :func:`typical` does."""
    return _of_each_direction(traces, lambda sizes, counts: sizes.max())


def _of_each_direction(
    traces: Traces, choose: Callable[[NDArray[np.int64], NDArray[np.int64]], np.int64]
) -> tuple[int, int]:
    sizes, counts = np.unique(traces.size, return_counts=True)
    chosen = [int(choose(np.abs(sizes[at]), counts[at])) if at.any() else 0 for at in (sizes > 0, sizes < 0)]
    return chosen[0] or chosen[1] or 1, chosen[1] or chosen[0] or 1


def insert(traces: Traces, owner: NDArray[np.int64], time: NDArray[np.float64], size: NDArray[np.int32]) -> Traces:
    """Add dummies: (D,) the trace of each, its time and its signed size. At equal times real packets come first."""
    owner = np.concatenate([traces.owner, owner])
    time = np.concatenate([traces.time, time])
    order = np.lexsort((time, owner))
    return replace(
        traces,
        time=time[order],
        size=np.concatenate([traces.size, size.astype(np.int32)])[order],
        dummy=np.concatenate([traces.dummy, np.ones(len(size), bool)])[order],
        **BARE,
        offset=offsets(np.bincount(owner, minlength=len(traces))),
    )


def assemble(
    traces: Traces,
    owner: NDArray[np.int64],
    time: NDArray[np.float64],
    size: NDArray[np.int32],
    dummy: NDArray[np.bool_],
) -> Traces:
    """Give the same traces other packets, in any order; packets of equal time stay in the order that they have."""
    order = np.lexsort((time, owner))
    return replace(
        traces,
        time=time[order],
        size=size[order].astype(np.int32),
        dummy=dummy[order],
        **BARE,
        offset=offsets(np.bincount(owner, minlength=len(traces))),
    )


def offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N + 1,) where each run begins, of (N,) lengths."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def within(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count from 0 in each run, of (N,) lengths."""
    return np.arange(int(lengths.sum())) - np.repeat(offsets(lengths)[:-1], lengths)


def running_max(values: NDArray[np.float64], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Largest value so far within each run."""
    if not len(values):
        return values
    # Each run is lifted above all before it, so that one pass does for all of them.
    lift = np.repeat(np.arange(len(lengths)), lengths) * (values.max() - values.min() + 1)
    return np.maximum.accumulate(values + lift) - lift
