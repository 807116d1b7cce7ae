"""Packet traces of page loads, as an observer has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heddle_eval.errors import EvalError

WHOLE = -1
"""Path of a trace that holds all packets of its load."""


PER_PACKET = ("connection", "payload", "ack_us", "entropy", "printable")
"""Columns of one value for each packet that a data set may lack."""

BARE: dict[str, Any] = dict.fromkeys((*PER_PACKET, "first"))
"""Changes of a data set whose packets are no longer those that were captured."""

First = tuple[tuple[bytes, bytes], ...]
"""Beginning of what client and server sent, for each connection of a trace."""


class Trace(NamedTuple):
    """One trace: views of the data set's arrays, each of one element per packet; ``first`` is of its connections."""

    time: NDArray[np.float64]
    size: NDArray[np.int32]
    dummy: NDArray[np.bool_]
    connection: NDArray[np.int32] | None = None
    payload: NDArray[np.int32] | None = None
    ack_us: NDArray[np.int32] | None = None
    entropy: NDArray[np.float32] | None = None
    printable: NDArray[np.float32] | None = None
    first: First | None = None

    def more(self) -> dict[str, Any]:
        """Give the optional columns, by name."""
        return {k: getattr(self, k) for k in BARE}


@dataclass(frozen=True, eq=False)
class Traces:
    """A data set of N traces with P packets in all; trace i is the packets ``offset[i]:offset[i + 1]``.

    It can stand for ``X`` in scikit-learn: it has a length and a shape, and an array of indices selects from it.

    Attributes
    ----------
    time
        (P,) seconds since the first packet of the page load, on any path; never negative, and never falls within a
        trace.
    size
        (P,) bytes of the packet, positive from client to server, negative from server to client, never 0.
    dummy
        (P,) whether a defence made the packet; no attack may look at it.
    offset
        (N + 1,) where each trace begins.
    label
        (N,) index into ``names``.
    load
        (N,) which page load the trace is of. Traces of one load are siblings: no train/test split may part them.
    path
        (N,) path that carried the packets, from 0, or :data:`WHOLE`.
    names
        Name of each class.
    monitored
        (classes,) whether the observer looks for the class; all others are one world of other pages.
    connection
        (P,) conversation of each packet, from 0 in each trace; None where it is not known, as the next five.
    payload
        (P,) bytes that the packet carries.
    ack_us
        (P,) microseconds until the other side acknowledged the packet by TCP; -1 where it did not.
    entropy
        (P,) of the packet's payload, in bits per byte.
    printable
        (P,) share of printable ASCII in the payload.
    first
        (N,) objects of type :data:`First`.

    """

    time: NDArray[np.float64]
    size: NDArray[np.int32]
    dummy: NDArray[np.bool_]
    offset: NDArray[np.int64]
    label: NDArray[np.int32]
    load: NDArray[np.int64]
    path: NDArray[np.int16]
    names: tuple[str, ...]
    monitored: NDArray[np.bool_]
    connection: NDArray[np.int32] | None = None
    payload: NDArray[np.int32] | None = None
    ack_us: NDArray[np.int32] | None = None
    entropy: NDArray[np.float32] | None = None
    printable: NDArray[np.float32] | None = None
    first: NDArray[np.object_] | None = None

    def __post_init__(self) -> None:
        """Refuse what breaks the promises of the attributes."""
        n, p = len(self.label), len(self.time)
        if len(self.offset) != n + 1 or self.offset[0] != 0 or self.offset[-1] != p or (np.diff(self.offset) < 0).any():
            raise EvalError("traces", "the offsets do not fit the packets")
        if not len(self.size) == len(self.dummy) == p or not len(self.load) == len(self.path) == n:
            raise EvalError("traces", "the columns differ in length")
        for name in PER_PACKET:
            if (column := getattr(self, name)) is not None and len(column) != p:
                raise EvalError("traces", f"the column {name} is not as long as the others")
        self._check_connections()
        if len(self.monitored) != len(self.names) or (
            n and not 0 <= self.label.min() <= self.label.max() < len(self.names)
        ):
            raise EvalError("traces", "a label has no name")
        if n and self.path.min() < WHOLE:
            raise EvalError("traces", f"there is a path {self.path.min()}", f"{WHOLE} stands for all of them")
        if not np.isfinite(self.time).all():
            raise EvalError(
                "traces", "a time is not a number", "drop the trace, or repair its times, before importing it"
            )
        if (self.size == 0).any():
            raise EvalError("traces", "a packet of size 0 has no direction")
        if len(self.time) and self.time.min() < 0:
            raise EvalError("traces", "a time is before the first packet of its load", "the first packet's time is 0")
        falls = np.flatnonzero(np.diff(self.time) < 0) + 1
        if len(bad := np.setdiff1d(falls, self.offset)):
            trace = int(np.searchsorted(self.offset, bad[0], side="right")) - 1
            raise EvalError(
                f"trace {trace}", "its times go backwards", "sort its packets by time if the capture is sound"
            )

    def _check_connections(self) -> None:
        if self.connection is not None and self.connection.min(initial=0) < 0:
            raise EvalError("traces", f"there is a connection {self.connection.min()}", "their numbers start at 0")
        if self.first is None:
            return
        if len(self.first) != len(self) or self.connection is None:
            raise EvalError("traces", "there are first bytes of connections, but not of each trace's")
        highest = np.full(len(self), -1)
        np.maximum.at(highest, self.owner, self.connection)
        if short := [i for i, f in enumerate(self.first) if len(f) <= highest[i]]:
            raise EvalError(f"trace {short[0]}", "a connection has no first bytes")

    @classmethod
    def build(
        cls,
        traces: Iterable[tuple[ArrayLike, ArrayLike]],
        labels: Sequence[str],
        *,
        load: ArrayLike | None = None,
        path: ArrayLike | None = None,
        unmonitored: Iterable[str] = (),
    ) -> Traces:
        """Make a data set of (times, sizes) pairs; the classes are the labels in sorted order.

        Each trace is a load of its own unless ``load`` says otherwise, and whole unless ``path`` does.
        """
        pairs = [(np.asarray(t, np.float64), np.asarray(s, np.int32)) for t, s in traces]
        for i, (t, s) in enumerate(pairs):
            if t.shape != s.shape or t.ndim != 1:
                raise EvalError(f"trace {i}", f"{t.size} times and {s.size} sizes")
        if len(pairs) != len(labels):
            raise EvalError("traces", f"{len(pairs)} traces and {len(labels)} labels")
        names, label = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
        other = set(unmonitored)
        return cls(
            time=np.concatenate([np.empty(0), *(t for t, _ in pairs)]),
            size=np.concatenate([np.empty(0, np.int32), *(s for _, s in pairs)]),
            dummy=np.zeros(sum(len(t) for t, _ in pairs), bool),
            offset=np.cumsum([0, *(len(t) for t, _ in pairs)], dtype=np.int64),
            label=label.astype(np.int32),
            load=np.arange(len(pairs)) if load is None else np.asarray(load, np.int64),
            path=np.full(len(pairs), WHOLE, np.int16) if path is None else np.asarray(path, np.int16),
            names=tuple(map(str, names)),
            monitored=np.array([n not in other for n in names], bool),
        )

    def __len__(self) -> int:
        return len(self.label)

    @property
    def shape(self) -> tuple[int]:
        """(N,): by it scikit-learn knows how many samples there are."""
        return (len(self),)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) packets of each trace."""
        return np.diff(self.offset)

    @property
    def owner(self) -> NDArray[np.int64]:
        """(P,) the trace that each packet belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def position(self) -> NDArray[np.int64]:
        """(P,) which packet of its trace each one is, from 0."""
        return np.arange(len(self.time)) - np.repeat(self.offset[:-1], self.lengths)

    @property
    def labels(self) -> NDArray[np.str_]:
        """(N,) the name of each trace's class."""
        return np.array(self.names, dtype=str)[self.label]

    def trace(self, i: int) -> Trace:
        """Packets of trace i."""
        at = slice(self.offset[i], self.offset[i + 1])
        columns = {k: None if (v := getattr(self, k)) is None else v[at] for k in PER_PACKET}
        first = None if self.first is None else self.first[i]
        return Trace(self.time[at], self.size[at], self.dummy[at], **columns, first=first)

    def __iter__(self) -> Iterator[Trace]:
        return (self.trace(i) for i in range(len(self)))

    def __getitem__(self, which: NDArray[np.int_] | NDArray[np.bool_] | Sequence[int] | slice) -> Traces:
        """Those traces, in that order: by indices, by a mask, or by a slice. Classes keep their numbers."""
        index = np.arange(len(self))[which]
        if index.ndim != 1:
            raise TypeError("select traces by an array or a slice; trace(i) gives one")
        lengths = self.lengths[index]
        offset = np.concatenate([[0], np.cumsum(lengths)])
        packets = np.arange(offset[-1]) + np.repeat(self.offset[index] - offset[:-1], lengths)
        columns: dict[str, Any] = {k: None if (v := getattr(self, k)) is None else v[packets] for k in PER_PACKET}
        return replace(
            self,
            time=self.time[packets],
            size=self.size[packets],
            dummy=self.dummy[packets],
            offset=offset,
            label=self.label[index],
            load=self.load[index],
            path=self.path[index],
            first=None if self.first is None else self.first[index],
            **columns,
        )

    @staticmethod
    def concat(parts: Sequence[Traces]) -> Traces:
        """Join data sets of the same classes; page loads keep their numbers.

        A column that one of them lacks is dropped.
        """
        first = parts[0]
        for other in parts[1:]:
            if other.names != first.names or (other.monitored != first.monitored).any():
                raise EvalError("traces", "data sets of different classes cannot be joined")
        ends = np.cumsum([0, *(p.offset[-1] for p in parts)])
        joined: dict[str, Any] = {
            k: None if any(getattr(p, k) is None for p in parts) else np.concatenate([getattr(p, k) for p in parts])
            for k in ("time", "size", "dummy", "label", "load", "path", *BARE)
        }
        return replace(
            first,
            **joined,
            offset=np.concatenate([[0], *(p.offset[1:] + e for p, e in zip(parts, ends, strict=False))]),
        )

    def needs(self, what: str, *columns: str) -> None:
        """Refuse a data set that lacks columns that something needs."""
        if missing := [c for c in columns if getattr(self, c) is None]:
            raise EvalError(
                what,
                f"the data set has no {missing[0]!r}",
                "import the captures again, with --contents; a defence drops what it would make untrue",
            )

    def by_connection(self) -> Traces:
        """One trace for each connection, in the order of the traces and their connections; times stay.

        A trace of no packets stays, as one without connections.
        """
        self.needs("connections", "connection")
        assert self.connection is not None
        span = int(self.connection.max(initial=0)) + 1
        key = self.owner * span + self.connection
        empty = np.flatnonzero(self.lengths == 0) * span
        keys, inverse = np.unique(np.concatenate([key, empty]), return_inverse=True)
        group = inverse[: len(key)]
        order = np.argsort(group, kind="stable")
        of, number = keys // span, keys % span
        first = None
        if self.first is not None:
            first = objects(self.first[i][c : c + 1] for i, c in zip(of, number, strict=True))
        columns: dict[str, Any] = {k: None if (v := getattr(self, k)) is None else v[order] for k in PER_PACKET[1:]}
        return replace(
            self,
            time=self.time[order],
            size=self.size[order],
            dummy=self.dummy[order],
            offset=np.concatenate([[0], np.cumsum(np.bincount(group, minlength=len(keys)))]).astype(np.int64),
            label=self.label[of],
            load=self.load[of],
            path=self.path[of],
            connection=np.zeros(len(key), np.int32),
            first=first,
            **columns,
        )

    def only(self, names: Iterable[str]) -> Traces:
        """Keep the traces of some classes, which are then all there are."""
        wanted = set(names)
        if missing := wanted - set(self.names):
            raise EvalError("traces", f"no class is called {sorted(missing)[0]!r}")
        kept = [i for i, n in enumerate(self.names) if n in wanted]
        number = np.full(len(self.names), -1, np.int32)
        number[kept] = np.arange(len(kept))
        out = self[np.isin(self.label, kept)]
        return replace(
            out, label=number[out.label], names=tuple(self.names[i] for i in kept), monitored=self.monitored[kept]
        )

    def padded(self, values: NDArray[np.generic], length: int) -> NDArray[np.float32]:
        """Matrix (N, length) of one value per packet, cut at or filled with 0 up to that length."""
        out = np.zeros((len(self), length), np.float32)
        position = self.position
        short = position < length
        out[self.owner[short], position[short]] = values[short]
        return out


def objects(values: Iterable[Any]) -> NDArray[np.object_]:
    """(N,) array of any values, which NumPy must not take for rows of a matrix."""
    values = list(values)
    out = np.empty(len(values), object)
    out[:] = values
    return out
