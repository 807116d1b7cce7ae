"""Captures: one file is what one observer saw of one page load, or of many."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.importers import capture, direction, names, packets
from heddle_eval.importers.common import Bad, Options, Piece, Report

Visit = tuple[str, str | int]
"""Page, and visit, or the file's number where its name says no visit."""

JITTER = 0.01
"""Seconds: threads that capture both directions write their packets a little out of order."""


def read(sources: Sequence[names.Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Give the traces of captures."""
    named = names.read(sources, options.label)
    names.distinct(named, sources)
    visits: dict[Visit, list[int]] = {}
    for i, name in enumerate(named):
        visits.setdefault((name.page, i if name.visit is None else name.visit), []).append(i)
    done = 0
    for visit, members in visits.items():
        seen: list[_Seen] = []
        bad: list[EvalError] = []
        for i in members:
            try:
                seen.append(_see(sources[i], named[i].path, options, report))
            except EvalError as e:
                bad.append(e)
            done += 1
            options.progress(done, len(sources))
        if not bad and not any(len(s.time) for s in seen):
            bad = [EvalError(s.where, s.nothing) for s in seen]
        # A page load of which one path cannot be read is left out whole: what is left would not be all paths.
        yield from [Bad(visit, e) for e in bad] if bad else _pieces(visit, seen, options)


@dataclass
class _Seen:
    """What one observer saw: nanoseconds, signed bytes and conversation of each packet, or why there is none."""

    where: str
    path: str | None
    time: NDArray[np.int64]
    size: NDArray[np.int64]
    flow: NDArray[np.int64]
    nothing: str


def _see(source: names.Source, path: str | None, options: Options, report: Report) -> _Seen:
    what = str(source.file)
    try:
        raw = source.file.read_bytes()
    except OSError as e:
        raise EvalError(what, f"it cannot be read: {e.strerror}") from e
    original = capture.read(raw, what)
    if original.damage and not options.salvage:
        raise EvalError(what, original.damage, "--salvage takes what comes before, --skip-bad leaves the page load out")
    report.count("captures that are damaged, read as far as they go", bool(original.damage))
    report.count("packets that captures say they missed", original.dropped)
    client, seen, found = options.client, original, packets.decode(original, what)
    if options.filter and len(original):
        client = client or tuple(direction.clients(original, found))
        seen = capture.read(_filtered(raw, options.filter, what, salvage=bool(original.damage)), what)
        found = packets.decode(seen, what)
    out, known, by = direction.orient(seen, found, client)
    report.count("packets without IP, left out", len(seen) - len(found))
    report.count("packets neither from nor to the client, left out", (~known).sum())
    report.count("captures whose client was guessed; --client names it", by == "guessed" and len(found) > 0)
    kept, out = found.select(known), out[known]
    size = kept.payload if options.size == "payload" else kept.size
    report.count("packets without payload, left out", (size == 0).sum())
    report.count("packets larger than 1500 bytes: several, joined before the capture", (size > 1500).sum())
    some = size > 0
    return _Seen(
        what,
        path,
        seen.time[kept.index][some],
        np.where(out, size, -size)[some],
        direction.conversations(kept)[some],
        _why_nothing(original, seen, found, kept, options),
    )


def _why_nothing(
    original: capture.Capture, seen: capture.Capture, found: packets.Packets, kept: packets.Packets, options: Options
) -> str:
    if not len(original):
        return "the capture holds no packet"
    if not len(seen):
        return f"no packet passes the filter {options.filter!r}"
    if not len(found):
        return f"none of its {len(seen)} packets is an IP packet"
    if not len(kept):
        return f"none of its {len(found)} IP packets is from or to the client"
    return "no packet carries any payload"


def _filtered(raw: bytes, expression: str, what: str, *, salvage: bool) -> bytes:
    """Give the capture with only those packets that a BPF expression lets through, as tcpdump writes it."""
    program = shutil.which("tcpdump")
    if program is None:
        raise EvalError("--filter", "tcpdump is not installed, and it is what reads the expression", "install tcpdump")
    # By its input, since tcpdump gives up root's rights, by which the file may be readable.
    command = [program, "--nano", "-n", "-r", "-", "-w", "-", "--", expression]
    run = subprocess.run(command, input=raw, capture_output=True, check=False)
    if run.returncode and not (salvage and run.stdout):
        lines = run.stderr.decode("utf-8", "replace").splitlines()
        said = " ".join(line.removeprefix("tcpdump: ") for line in lines if "reading from" not in line)
        raise EvalError(f"--filter {expression}", f"tcpdump says of {what}: {said}", "see man pcap-filter")
    return run.stdout


def _pieces(visit: Visit, seen: list[_Seen], options: Options) -> Iterator[Piece | Bad]:
    """Cut what the observers of the same time saw into page loads."""
    if options.per == "flow" and len(seen) > 1:
        why = f"{len(seen)} captures are of one visit, and conversations on several paths cannot be matched"
        yield Bad(visit, EvalError(visit[0], why, "use --per file or --per gap, or a --label without {path}"))
        return
    bounds = _silences([s.time for s in seen], options.gap) if options.per == "gap" else np.empty(0, np.int64)
    for s in seen:
        part = s.flow if options.per == "flow" else np.searchsorted(bounds, s.time, side="right")
        for n in np.unique(part) if options.per == "flow" else range(len(bounds) + 1):
            here = part == n
            where = s.where if options.per == "file" else f"{s.where}, part {n + 1}"
            yield Piece(where, visit[0], (*visit, int(n)), s.time[here], s.size[here], path=s.path, jitter=JITTER)


def _silences(times: list[NDArray[np.int64]], gap: float) -> NDArray[np.int64]:
    """When page loads begin, but for the first: after a silence on all paths."""
    time = np.sort(np.concatenate(times))
    return time[1:][np.diff(time) >= gap * 1e9]
