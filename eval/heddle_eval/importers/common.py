"""What all importers share: their options, one trace on its way in, and the checks that each trace passes."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.importers.names import natural
from heddle_eval.traces import BARE, PER_PACKET, WHOLE, Traces, objects

CELL = 512
"""Bytes of a Tor cell, for formats that keep directions only."""


@dataclass(frozen=True)
class Options:
    """How to read; each field is the command's option of that name.

    Attributes
    ----------
    label
        Pattern of file names, such as ``{page}-{visit}-{path}.pcapng``; empty for the folders' names.
    unmonitored
        Patterns (``*`` and ``?``) of the classes that the observer does not look for.
    sort
        Put packets in the order of time where a trace's times go backwards, which is an error otherwise.
    skip_bad
        Leave out page loads that cannot be read, and list them, instead of stopping at the first.
    salvage
        Take what can be read of captures that are damaged or cut short.
    min_packets
        Leave out traces of fewer packets than that, and count them.
    client
        Networks that the client's addresses are in.
    filter
        Expression for tcpdump.
    size
        "ip" for the length of the IP packet, "payload" for that of what UDP or TCP carries, in bytes.
    per
        What one page load is: "file", "flow" or "gap".
    gap
        Seconds of silence between page loads, for "gap".
    cell
        Bytes of a packet, for formats that keep directions only.
    paths
        How many traces in a row are of one load, for formats that do not say.
    protocol
        Only traces of that protocol, where the format names one.
    progress
        Called with how many inputs are done, and how many there are.

    """

    label: str = ""
    unmonitored: tuple[str, ...] = ()
    sort: bool = False
    skip_bad: bool = False
    salvage: bool = False
    min_packets: int = 0
    client: tuple[IPv4Network | IPv6Network, ...] = ()
    filter: str = ""
    size: str = "ip"
    per: str = "file"
    gap: float = 5.0
    cell: int = CELL
    paths: int = 1
    protocol: str = ""
    contents: bool = False
    progress: Callable[[int, int], None] = lambda done, total: None


@dataclass
class Piece:
    """One trace as a file has it.

    Attributes
    ----------
    where
        What to call it in an error, such as the file's name.
    label
        Its class.
    load
        Anything that all traces of one page load have in common, and no others.
    time
        (P,) seconds, or nanoseconds as integers, since whatever moment, the same for all traces of the load.
    size
        (P,) bytes, plus from client to server.
    path
        Name of the path, or None for a whole trace.
    monitored
        Whether the observer looks for the class.
    more
        Optional columns of :class:`~heddle_eval.traces.Trace`, by name.

    """

    where: str
    label: str
    load: Any
    time: NDArray[np.generic]
    size: NDArray[np.generic]
    path: str | None = None
    monitored: bool = True
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class Bad:
    """A page load that cannot be read, and why."""

    load: Any
    error: EvalError


@dataclass
class Report:
    """What came of an import, beside the traces."""

    kind: str
    inputs: int = 0
    paths: dict[str, int] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def count(self, what: str, n: int = 1) -> None:
        """Add to the number of times that something happened."""
        if n:
            self.counts[what] = self.counts.get(what, 0) + int(n)


def collect(items: Iterable[Piece | Bad], options: Options, report: Report) -> Traces:
    """Make a data set of what an importer found.

    Raises
    ------
    EvalError
        For the first trace that breaks a promise of :class:`~heddle_eval.traces.Traces` and that ``sort`` cannot
        repair, unless ``skip_bad``; and where nothing is left.

    """
    pieces: list[Piece] = []
    bad: dict[Any, EvalError] = {}
    for item in items:
        try:
            if isinstance(item, Bad):
                raise item.error
            pieces.append(_sound(item, options, report))
        except EvalError as e:
            if not options.skip_bad:
                raise EvalError(e.what, e.why, e.hint or "--skip-bad leaves such page loads out and lists them") from e
            bad.setdefault(item.load, e)
    report.skipped += [{"what": e.what, "why": e.why} for e in bad.values()]
    pieces = [p for p in pieces if p.load not in bad]
    pieces = _not_silent(pieces, report)
    begin = _begin(pieces)
    pieces = _long_enough(pieces, options, report)
    if not pieces:
        raise EvalError(
            "import", "no trace is left" if bad or report.counts else "there is no trace in the input", _reasons(report)
        )
    return _assemble(pieces, begin, options, report)


def _reasons(report: Report) -> str:
    said = [f"{s['what']}: {s['why']}" for s in report.skipped[:3]]
    return "; ".join(said + [f"{n} {what}" for what, n in report.counts.items()])


def _sound(piece: Piece, options: Options, report: Report) -> Piece:
    """Check one trace, and sort it where that is allowed."""
    time, size = np.asarray(piece.time), np.asarray(piece.size)
    if time.ndim != 1 or time.shape != size.shape:
        raise EvalError(piece.where, f"it has {time.size} times and {size.size} sizes")
    if not np.issubdtype(time.dtype, np.integer):
        time = time.astype(np.float64)
        if not np.isfinite(time).all():
            at = int(np.flatnonzero(~np.isfinite(time))[0])
            raise EvalError(piece.where, f"the time of packet {at + 1} is not a number")
    if not np.isfinite(size.astype(np.float64)).all() or (size == 0).any():
        at = int(np.flatnonzero(~np.isfinite(size.astype(np.float64)) | (size == 0))[0])
        raise EvalError(piece.where, f"packet {at + 1} has size {size[at]}, which has no direction")
    if (np.abs(size.astype(np.float64)) > np.iinfo(np.int32).max).any():
        raise EvalError(piece.where, "a packet is larger than 2 GB")
    if np.issubdtype(size.dtype, np.floating) and (size != np.rint(size)).any():
        raise EvalError(piece.where, "a size is no whole number of bytes")
    if (np.diff(time) < 0).any():
        if not options.sort:
            at = int(np.flatnonzero(np.diff(time) < 0)[0]) + 2
            raise EvalError(
                piece.where, f"its times go backwards at packet {at}", "--sort puts packets in the order of time"
            )
        order = np.argsort(time, kind="stable")
        time, size = time[order], size[order]
        piece.more |= {k: v[order] for k, v in piece.more.items() if k in PER_PACKET and v is not None}
        report.count("traces whose packets were put in the order of time")
    piece.time, piece.size = time, size.astype(np.int32)
    return piece


def _not_silent(pieces: list[Piece], report: Report) -> list[Piece]:
    """Drop page loads of which no path saw anything; keep the empty trace of a path that saw nothing of a load."""
    heard = {p.load for p in pieces if len(p.time)}
    report.count("page loads without a packet, left out", len({p.load for p in pieces} - heard))
    kept = [p for p in pieces if p.load in heard]
    report.count("traces of paths that saw nothing of the page load", sum(not len(p.time) for p in kept))
    report.count("traces of one packet", sum(len(p.time) == 1 for p in kept))
    return kept


def _long_enough(pieces: list[Piece], options: Options, report: Report) -> list[Piece]:
    kept = [p for p in pieces if len(p.time) >= options.min_packets]
    report.count(f"traces of fewer than {options.min_packets} packets, left out", len(pieces) - len(kept))
    return kept


def _begin(pieces: Sequence[Piece]) -> dict[Any, Any]:
    """When each page load began, on any path."""
    begin: dict[Any, Any] = {}
    for p in pieces:
        if len(p.time):
            begin[p.load] = min(begin.get(p.load, p.time[0]), p.time[0])
    return begin


def _assemble(pieces: Sequence[Piece], begin: dict[Any, Any], options: Options, report: Report) -> Traces:
    loads = {load: i for i, load in enumerate(dict.fromkeys(p.load for p in pieces))}
    names = sorted({p.path for p in pieces if p.path is not None}, key=natural)
    report.paths = {name: i for i, name in enumerate(names)}
    seen_on: dict[Any, set[str | None]] = {}
    for p in pieces:
        seen_on.setdefault(p.load, set()).add(p.path)
    lacking = sum(on != set(names) for on in seen_on.values() if names)
    report.count("page loads that lack a path which others have", lacking)
    mixed = {p.label for p in pieces if p.monitored} & {p.label for p in pieces if not p.monitored}
    if mixed:
        raise EvalError(sorted(mixed)[0], "the class is both monitored and not")
    other = {p.label for p in pieces if not p.monitored}
    other |= {p.label for p in pieces if any(fnmatch.fnmatchcase(p.label, u) for u in options.unmonitored)}
    for pattern in options.unmonitored:
        if not any(fnmatch.fnmatchcase(p.label, pattern) for p in pieces):
            report.notes.append(f"--unmonitored {pattern}: no class has such a name")
    made = Traces.build(
        [(_seconds(p.time, begin[p.load]), p.size) for p in pieces],
        [p.label for p in pieces],
        load=[loads[p.load] for p in pieces],
        path=[WHOLE if p.path is None else report.paths[p.path] for p in pieces],
        unmonitored=other,
    )
    return replace(made, **_more(pieces))


def _more(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Join the optional columns that all traces have."""
    there = [k for k in BARE if all(p.more.get(k) is not None for p in pieces)]
    return {
        k: objects(p.more[k] for p in pieces) if k == "first" else np.concatenate([p.more[k] for p in pieces])
        for k in there
    }


def _seconds(time: NDArray[np.generic], begin: Any) -> NDArray[np.float64]:
    since = time - begin
    return since / 1e9 if np.issubdtype(time.dtype, np.integer) else since.astype(np.float64)


def in_rows(traces: Iterable[Piece | Bad], paths: int) -> Iterator[Piece | Bad]:
    """Give each ``paths`` traces in a row one load, and their place in the row for a path."""
    for i, piece in enumerate(traces):
        if paths > 1 and isinstance(piece, Piece):
            piece.load, piece.path = (piece.where.split(":")[0], i // paths), str(i % paths)
        yield piece
