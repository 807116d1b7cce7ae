"""Data sets of one text file a trace, one line a packet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.importers import names
from heddle_eval.importers.common import Bad, Options, Piece, Report

Columns = tuple[NDArray[np.generic], NDArray[np.generic]]
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?nan|[-+]?inf"
_PACKET = re.compile(rf"({_NUMBER})[\t ,]+([-+]?\d+(?:\.0*)?)(?:[\t ,]+({_NUMBER}))?\s*", re.IGNORECASE)


def detect(file: Path, head: bytes) -> str:
    """Tell the formats apart by their first lines: "maybenot", "wang" (directions), "comps" (sizes), or ""."""
    try:
        lines = head.decode("ascii").splitlines()
    except UnicodeDecodeError:
        return ""
    whole = [line for line in (lines[:-1] if len(head) == 4096 else lines) if line.strip()]
    if whole and all(re.fullmatch(r"\d+,[sr],\d+\s*", line) for line in whole):
        return "maybenot"
    matches = [_PACKET.fullmatch(line) for line in whole]
    if not whole or not all(matches):
        return ""
    return "wang" if all(abs(float(m[2])) == 1 for m in matches if m) else "comps"


def read_wang(sources: Sequence[names.Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Read cell files: ``SITE-INSTANCE`` of monitored sites, ``NUMBER`` of one visit to another page each.

    A line is seconds, a tab, and 1 from client to server or -1; a third column is the size in bytes.
    """

    def columns(rows: list[list[str]]) -> Columns:
        values = np.array(rows, np.float64)
        if not np.isin(values[:, 1], (-1, 1)).all():
            raise ValueError(f"line {int(np.flatnonzero(np.abs(values[:, 1]) != 1)[0]) + 1} has no direction 1 or -1")
        return values[:, 0], values[:, 1] * (values[:, 2] if values.shape[1] == 3 else options.cell)

    report.notes.append(f"where lines have no size, each packet is taken to be {options.cell} bytes")
    yield from _read(sources, options, columns, widths=(2, 3), numbers_are_unmonitored=True)


def read_comps(sources: Sequence[names.Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Read text files whose lines are seconds, a tab, and bytes, plus from client to server."""

    def columns(rows: list[list[str]]) -> Columns:
        values = np.array(rows, np.float64)
        return values[:, 0], values[:, 1]

    yield from _read(sources, options, columns, widths=(2,))


def read_maybenot(sources: Sequence[names.Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Read Maybenot's text files: nanoseconds, ``s`` for sent by the client or ``r`` for received, bytes."""

    def columns(rows: list[list[str]]) -> Columns:
        sign = np.array([{"s": 1, "r": -1}[row[1]] for row in rows])
        return np.array([int(row[0]) for row in rows], np.int64), sign * np.array([int(row[2]) for row in rows])

    yield from _read(sources, options, columns, widths=(3,))


def _read(
    sources: Sequence[names.Source],
    options: Options,
    columns: Callable[[list[list[str]]], Columns],
    *,
    widths: tuple[int, ...],
    numbers_are_unmonitored: bool = False,
) -> Iterator[Piece | Bad]:
    named = (
        names.read(sources, options.label) if options.label else [_named(s, numbers_are_unmonitored) for s in sources]
    )
    names.distinct(named, sources)
    for i, (source, name) in enumerate(zip(sources, named, strict=True)):
        load = (name.page, i if name.visit is None else name.visit)
        try:
            time, size = _columns(source.file, columns, widths)
            other = numbers_are_unmonitored and not options.label and name.page.startswith(_OTHER)
            yield Piece(str(source.file), name.page, load, time, size, path=name.path, monitored=not other)
        except EvalError as e:
            yield Bad(load, e)
        options.progress(i + 1, len(sources))


_OTHER = "unmonitored-"


def _named(source: names.Source, numbers_are_unmonitored: bool) -> names.Name:
    stem = Path(source.parts[-1]).stem
    if match := re.fullmatch(r"(.+)-(\d+)", stem):
        return names.Name(match[1], match[2], None)
    if numbers_are_unmonitored and stem.isdecimal():
        return names.Name(_OTHER + stem, None, None)
    return names.read([source], "")[0]


def _columns(file: Path, columns: Callable[[list[list[str]]], Columns], widths: tuple[int, ...]) -> Columns:
    what = str(file)
    try:
        lines = file.read_bytes().decode("ascii").splitlines()
    except OSError as e:
        raise EvalError(what, f"it cannot be read: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise EvalError(what, "it is no text of numbers") from e
    rows = [line.replace(",", " ").split() for line in lines]
    kept = [row for row in rows if row]
    if not kept:
        raise EvalError(what, "the file is empty")
    width = len(kept[0])
    if width not in widths or any(len(row) != width for row in kept):
        odd = next((i for i, row in enumerate(rows) if row and (len(row) != width or width not in widths)), 0)
        raise EvalError(what, f"line {odd + 1} has {len(rows[odd])} columns, not {' or '.join(map(str, widths))}")
    try:
        return columns(kept)
    except (ValueError, KeyError, OverflowError) as e:
        raise EvalError(what, f"a line is not understood: {e}") from e
