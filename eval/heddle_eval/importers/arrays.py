"""Data sets in NumPy's ``.npz``: flat arrays, and WFlib's matrices."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.importers.common import Bad, Options, Piece, Report, in_rows
from heddle_eval.importers.names import Source

_FLAT = ("y", "n", "t", "s")


def detect(file: Path) -> str:
    """Tell "npz" from "wflib" by the arrays' names."""
    try:
        with zipfile.ZipFile(file) as z:
            held = {n.removesuffix(".npy") for n in z.namelist()}
    except (zipfile.BadZipFile, OSError):
        return ""
    if held >= set(_FLAT):
        return "npz"
    return "wflib" if held >= {"X", "y"} else ""


def _open(file: Path, wanted: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[np.generic]]:
    """Read the arrays of a file; pickled ones are refused, since reading those runs code."""
    try:
        with np.load(file, allow_pickle=False) as data:
            if missing := [w for w in wanted if w not in data.files]:
                raise EvalError(str(file), f"it has no array {missing[0]!r}", f"it has {', '.join(data.files)}")
            return {k: data[k] for k in (*wanted, *optional) if k in data.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as e:
        raise EvalError(str(file), f"it cannot be read as arrays: {e}") from e


def read_flat(sources: Sequence[Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Read arrays of all packets one after another.

    ``y`` (N,) class; ``n`` (N,) packets of each trace; ``t`` (P,) seconds; ``s`` (P,) bytes, plus from client to
    server; ``names`` (classes,), optional.
    """
    for done, source in enumerate(sources):
        what = str(source.file)
        a = _open(source.file, _FLAT, ("names",))
        y, n, t, s = (np.asarray(a[k]) for k in _FLAT)
        if any(v.ndim != 1 for v in (y, n, t, s)) or len(y) != len(n) or len(t) != len(s):
            raise EvalError(what, "the arrays y, n, t and s do not fit each other")
        if (n < 0).any() or int(n.sum()) != len(t):
            raise EvalError(what, f"n counts {int(n.sum())} packets, and there are {len(t)}")
        named = a.get("names")
        if named is not None and len(y) and not 0 <= y.min() <= y.max() < len(named):
            raise EvalError(what, "a class in y has no name")
        called = _called(named, report)
        ends = np.cumsum(n.astype(np.int64))
        for i, (end, length, label) in enumerate(zip(ends, n, y, strict=True)):
            at = slice(int(end - length), int(end))
            name = called[label] if called else str(label)
            yield Piece(f"{what}: trace {i}", name, (what, i), t[at], s[at])
        options.progress(done + 1, len(sources))


def _called(names: NDArray[np.generic] | None, report: Report) -> list[str]:
    """Give the classes' names; two that share one are told apart by their numbers."""
    called = [] if names is None else [str(n) for n in names]
    twice = {n for n in called if called.count(n) > 1}
    report.notes += [f"several classes are called {n}; their numbers were added to the names" for n in sorted(twice)]
    return [f"{n} ({i})" if n in twice else n for i, n in enumerate(called)]


def read_wflib(sources: Sequence[Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Read WFlib's matrices.

    ``X`` (N, length): seconds times +1 from client to server, -1 to the client; zeros fill the end. ``y`` (N,) class.
    A packet at second 0 has lost its direction (unless it is -0.0); those at the beginning are taken to be the
    client's, since a page load begins with what it asks.
    """
    report.notes.append(f"the format keeps directions only: each packet is taken to be {options.cell} bytes")
    for done, source in enumerate(sources):
        a = _open(source.file, ("X", "y"))
        yield from in_rows(matrix(a["X"], a["y"], str(source.file), options, report, timed=True), options.paths)
        options.progress(done + 1, len(sources))


def matrix(
    X: NDArray[np.generic], y: NDArray[np.generic], what: str, options: Options, report: Report, *, timed: bool
) -> Iterator[Piece | Bad]:
    """Read a matrix of a row per trace, filled up with zeros: directions, or ``timed`` by them."""
    if X.ndim == 3 and 1 in X.shape[1:]:
        X = X.reshape(len(X), -1)
    if y.ndim != 1:
        raise EvalError(
            what, "a trace has several classes", "each trace has one here: several tabs at once cannot be read"
        )
    if X.ndim != 2 or len(X) != len(y):
        raise EvalError(what, f"X is {X.shape} and y {y.shape}: a row of X and a class are wanted for each trace")
    for i, (row, label) in enumerate(zip(X, y, strict=True)):
        where, load = f"{what}: trace {i}", (what, i)
        used = np.flatnonzero(row != 0)  # NaN is a time too, and then an error
        row = row[: used[-1] + 1] if len(used) else row[:0]
        try:
            time, sign = _signed(row.astype(np.float64), where, report) if timed else _plain(row, where)
        except EvalError as e:
            yield Bad(load, e)
            continue
        yield Piece(where, _class(label), load, time, np.where(sign, -options.cell, options.cell))


def _class(label: np.generic) -> str:
    value = label.item() if isinstance(label, np.generic) else label
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _signed(row: NDArray[np.float64], where: str, report: Report) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    zero = np.flatnonzero(row == 0)
    if (zero != np.arange(len(zero))).any():
        raise EvalError(where, "there is a 0 between packets, which has no direction")
    report.count("packets at second 0, which have lost their direction, taken to be the client's", len(zero))
    return np.abs(row), np.signbit(row)


def _plain(row: NDArray[np.number], where: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    if not np.isin(row, (-1, 1)).all():
        raise EvalError(where, "a direction is neither 1 nor -1")
    return np.zeros(len(row)), row < 0
