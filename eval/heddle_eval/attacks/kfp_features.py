"""The features of k-fingerprinting (Hayes and Danezis, USENIX Security 2016, section 4.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle_eval.attacks.ragged import Ragged
from heddle_eval.traces import Traces

CHUNK = 20
"""Packets of a chunk whose outgoing ones are counted."""
EDGE = 30
"""Packets at the beginning and at the end that are counted apart."""
PIECES, SECONDS = 70, 20
"""Pieces into which the counts of chunks and of seconds are summed."""
LEADING = 34
"""First counts of chunks that are features themselves; with them the set has the published number, 175."""
TRACES_AT_ONCE = 2000

_SIDES = ("in", "out", "all")


def feature_names(sizes: bool = True) -> list[str]:
    """Name each column of :func:`features`."""
    names = [f"gap {stat} {side}" for stat in ("max", "mean", "std", "p75") for side in _SIDES]
    names += [f"time p{q} {side}" for side in _SIDES for q in (25, 50, 75, 100)]
    names += [f"packets {side}" for side in _SIDES]
    names += [f"{end} {EDGE} {side}" for end in ("first", "last") for side in ("in", "out")]
    names += [f"chunk {stat}" for stat in ("std", "mean", "median", "max")]
    names += [f"second {stat}" for stat in ("mean", "std", "median", "min", "max")]
    names += [f"order {stat} {side}" for stat in ("mean", "std") for side in ("out", "in")]
    names += ["share in", "share out"]
    names += [f"chunks piece {i}" for i in range(PIECES)] + [f"seconds piece {i}" for i in range(SECONDS)]
    names += [f"sum {what}" for what in ("chunks", "seconds", "gaps", "times", "packets")]
    names += [f"chunk {i}" for i in range(LEADING)]
    if sizes:
        names += [f"size {stat} {side}" for stat in ("sum", "mean", "var", "std") for side in _SIDES]
        names += ["size max in", "size max out"]
    return names


def features(traces: Traces, sizes: bool = True) -> NDArray[np.float32]:
    """Give the features of each trace.

    They are those of the authors' published code, with three things put right: its lists of uneven length are cut into
    70 and 20 pieces exactly, a direction of one packet or none has gaps of 0, and the means of positions are
    named for the direction they are of.

    Parameters
    ----------
    traces
        N traces; times in seconds, sizes in bytes.
    sizes
        Also the 14 features of packet sizes, which the paper leaves out for Tor, whose cells have one size.

    Returns
    -------
    (N, 175), or with sizes (N, 189); a trace without packets has only zeros.

    """
    width = len(feature_names(sizes))
    out = np.zeros((len(traces), width), np.float32)
    for start in range(0, len(traces), TRACES_AT_ONCE):
        part = slice(start, start + TRACES_AT_ONCE)
        out[part] = np.column_stack(_columns(traces[part], sizes))
    return out


def _columns(traces: Traces, sizes: bool) -> list[NDArray[np.float64]]:
    n, owner = len(traces), traces.owner
    inward = traces.size < 0
    sides = [Ragged.of(traces.time[mask], owner[mask], n) for mask in (inward, ~inward)]
    sides.append(Ragged(traces.time, traces.offset))
    gaps = [side.gaps().ordered() for side in sides]
    chunks, seconds = _chunks(traces), _seconds(traces)

    gap_stats = [g.quantile(1) for g in gaps] + [g.mean for g in gaps] + [g.std for g in gaps]
    gap_stats += [g.quantile(0.75) for g in gaps]
    time_stats = [side.quantile(q) for side in sides for q in (0.25, 0.5, 0.75, 1)]
    counts = [side.counts.astype(float) for side in sides]
    ordered, busy = chunks.ordered(), seconds.ordered()
    columns = [*gap_stats, *time_stats, *counts, *_edges(traces, inward)]
    columns += [chunks.std, chunks.mean, ordered.quantile(0.5), ordered.quantile(1)]
    columns += [seconds.mean, seconds.std, busy.quantile(0.5), busy.quantile(0), busy.quantile(1)]
    position = traces.position
    order = [Ragged.of(position[mask], owner[mask], n) for mask in (~inward, inward)]
    columns += [o.mean for o in order] + [o.std for o in order]
    columns += [c / np.maximum(counts[2], 1) for c in counts[:2]]
    columns += [chunks.pieces(PIECES), seconds.pieces(SECONDS)]
    columns += [chunks.sum, seconds.sum, *(sum(c, start=np.zeros(n)) for c in (gap_stats, time_stats, counts))]
    columns += [chunks.head(LEADING)]
    return columns + _sizes(traces, inward) if sizes else columns


def _chunks(traces: Traces) -> Ragged:
    """Outgoing packets in each chunk of 20."""
    return _histogram(traces, traces.position // CHUNK, -(-traces.lengths // CHUNK), traces.size > 0)


def _seconds(traces: Traces) -> Ragged:
    """Packets in each second: second i is from i, exclusive, to i + 1, inclusive, and the first has time 0 too."""
    second = np.maximum(np.ceil(traces.time) - 1, 0).astype(np.int64)
    last = np.zeros(len(traces), np.int64)
    some = traces.lengths > 0
    last[some] = second[traces.offset[1:][some] - 1] + 1
    return _histogram(traces, second, last, np.ones(len(second), bool))


def _histogram(
    traces: Traces, bucket: NDArray[np.int64], buckets: NDArray[np.int64], counted: NDArray[np.bool_]
) -> Ragged:
    """Count packets in the buckets of each trace, given the (P,) bucket of each and the (N,) number of buckets."""
    offset = np.concatenate([[0], np.cumsum(buckets)])
    flat = np.repeat(offset[:-1], traces.lengths) + bucket
    return Ragged(np.bincount(flat[counted], minlength=offset[-1]).astype(float), offset)


def _edges(traces: Traces, inward: NDArray[np.bool_]) -> list[NDArray[np.float64]]:
    n, owner, position = len(traces), traces.owner, traces.position
    from_end = np.repeat(traces.lengths, traces.lengths) - 1 - position
    return [
        np.bincount(owner[near & side], minlength=n).astype(float)
        for near in (position < EDGE, from_end < EDGE)
        for side in (inward, ~inward)
    ]


def _sizes(traces: Traces, inward: NDArray[np.bool_]) -> list[NDArray[np.float64]]:
    n, owner, size = len(traces), traces.owner, np.abs(traces.size)
    sides = [Ragged.of(size[mask], owner[mask], n) for mask in (inward, ~inward, np.ones(len(size), bool))]
    columns = [side.sum for side in sides] + [side.mean for side in sides]
    columns += [side.variance for side in sides] + [side.std for side in sides]
    return columns + [side.ordered().quantile(1) for side in sides[:2]]
