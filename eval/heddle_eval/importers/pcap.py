"""Captures: one file is what one observer saw of one page load, or of many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from heddle_eval.errors import EvalError
from heddle_eval.importers import heddle, names
from heddle_eval.importers.common import Bad, Options, Piece, Report

Visit = tuple[str, str | int]
"""Page, and visit, or the file's number where its name says no visit."""

SUFFIXES = (".pcap", ".pcapng", ".cap")
AT_ONCE = 100
"""Visits that heddle reads in one run."""


def is_capture(head: bytes) -> bool:
    """Whether the first four bytes of a file are those of a capture."""
    magic = (b"\x0a\x0d\x0d\x0a", b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1")
    return head[:4] in magic


def read(sources: Sequence[names.Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Give the traces of captures."""
    named = names.read(sources, options.label)
    names.distinct(named, sources)
    visits: dict[Visit, dict[str | None, Path]] = {}
    for i, (name, source) in enumerate(zip(named, sources, strict=True)):
        visits.setdefault((name.page, i if name.visit is None else name.visit), {})[name.path] = source.file
    done, order = 0, list(visits.items())
    for at in range(0, len(order), AT_ONCE):
        some = order[at : at + AT_ONCE]
        answers = heddle.read([{p or "": f for p, f in files.items()} for _, files in some], options, report)
        for (visit, files), answer in zip(some, answers, strict=True):
            # A page load of which one path cannot be read is left out whole: what is left would not be all paths.
            yield from [Bad(visit, answer)] if isinstance(answer, EvalError) else _pieces(visit, files, answer)
            done += len(files)
        options.progress(done, len(sources))


def _pieces(visit: Visit, files: dict[str | None, Path], loads: list[heddle.Load]) -> Iterator[Piece]:
    for n, load in enumerate(loads):
        for path, file in files.items():
            where = str(file) if len(loads) == 1 else f"{file}, part {n + 1}"
            trace = load[path or ""]
            yield Piece(where, visit[0], (*visit, n), trace.time, trace.size, path=path, more=trace.more())
