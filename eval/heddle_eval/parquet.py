"""The one file format of traces: Parquet, a row for each trace. docs/traces.md explains each column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from heddle_eval.errors import EvalError
from heddle_eval.files import write_parquet
from heddle_eval.traces import PER_PACKET, Traces, objects

SCHEMA: dict[str, Any] = {
    "label": pl.String,
    "monitored": pl.Boolean,
    "load": pl.Int64,
    "path": pl.Int16,
    "time_us": pl.List(pl.Int32),
    "size": pl.List(pl.Int32),
    "dummy": pl.List(pl.Boolean),
    "connection": pl.List(pl.Int32),
    "payload": pl.List(pl.Int32),
    "ack_us": pl.List(pl.Int32),
    "entropy": pl.List(pl.Float32),
    "printable": pl.List(pl.Float32),
    "first_up": pl.List(pl.Binary),
    "first_down": pl.List(pl.Binary),
}
"""Columns."""

FIRST = ("first_up", "first_down")
OPTIONAL = ("dummy", *PER_PACKET, *FIRST)
"""Columns that may be missing, or empty in each row. Without ``dummy`` no packet is one."""

VERSION = 2
"""Of the columns. Version 1, without a mention in the file, ended with ``connection``."""


def write(traces: Traces, file: str | Path, about: dict[str, Any] | None = None) -> None:
    """Write a data set, whole or not at all; ``about`` is kept with it as JSON."""
    microseconds = np.rint(traces.time * 1e6)
    if len(traces.time) and microseconds.max() > np.iinfo(np.int32).max:
        raise EvalError(str(file), "a trace is longer than 35 minutes", "cut such traces first")
    columns: dict[str, Any] = {
        "label": traces.labels,
        "monitored": traces.monitored[traces.label],
        "load": traces.load,
        "path": traces.path,
        "time_us": _lists(microseconds.astype(np.int32), traces),
        "size": _lists(traces.size, traces),
    }
    if traces.dummy.any():
        columns["dummy"] = _lists(traces.dummy, traces)
    for name in PER_PACKET:
        if (values := getattr(traces, name)) is not None:
            columns[name] = _lists(values, traces)
    if traces.first is not None:
        for side, name in enumerate(FIRST):
            columns[name] = [[c[side] for c in connections] for connections in traces.first]
    frame = pl.DataFrame(columns, schema={k: SCHEMA[k] for k in columns})
    kept = {"heddle": json.dumps(about or {}, sort_keys=True), "heddle.columns": str(VERSION)}
    write_parquet(frame, file, compression="zstd", compression_level=12, metadata=kept)


def _lists(values: np.ndarray, traces: Traces) -> pl.Series:
    return pl.Series(
        np.split(values, traces.offset[1:-1]) if len(traces) else [], dtype=pl.List(pl.Series(values[:1]).dtype)
    )


def read(file: str | Path) -> Traces:
    """Read a data set."""
    try:
        version = pl.read_parquet_metadata(file).get("heddle.columns", "1")
        frame = pl.read_parquet(file)
    except FileNotFoundError:
        raise EvalError(str(file), "there is no such file") from None
    except (pl.exceptions.PolarsError, OSError) as e:
        raise EvalError(
            str(file), f"it is no Parquet file that can be read: {e}", "heddle-eval import makes one"
        ) from e
    if version not in map(str, range(1, VERSION + 1)):
        why = f"its columns have version {version}, and this heddle-eval knows versions up to {VERSION}"
        raise EvalError(str(file), why, "use a newer heddle-eval")
    if missing := [c for c in SCHEMA if c not in frame.columns and c not in OPTIONAL]:
        raise EvalError(str(file), f"it has no column {missing[0]!r}", "docs/traces.md lists the columns")
    frame = frame.select(c for c in SCHEMA if c in frame.columns)
    for column in frame.columns:
        try:
            frame = frame.with_columns(pl.col(column).cast(SCHEMA[column]))
        except pl.exceptions.PolarsError as e:
            raise EvalError(
                str(file),
                f"column {column!r} does not hold {SCHEMA[column]}, or a number is too large or none",
                "docs/traces.md lists the columns",
            ) from e
    try:
        return _traces(frame, str(file))
    except EvalError as e:
        raise EvalError(str(file) if e.what == str(file) else f"{file}: {e.what}", e.why, e.hint) from e


def _traces(frame: pl.DataFrame, file: str) -> Traces:
    columns = [c for c in frame.columns if isinstance(SCHEMA[c], pl.List)]
    # Some writers leave out a list that is empty.
    frame = frame.with_columns(pl.col(columns).fill_null([]))
    empty = [c for c in OPTIONAL if c in columns and not frame[c].list.len().sum()]
    frame = frame.drop(empty)
    columns = [c for c in columns if c not in (*empty, *FIRST)]
    lengths = frame["time_us"].list.len()
    if any((frame[c].list.len() != lengths).any() for c in columns):
        raise EvalError(file, "a trace has more times than sizes, or fewer")
    flat = {c: frame[c].filter(lengths > 0).explode() for c in columns}
    if any(v.null_count() for v in (*flat.values(), *(frame[c] for c in ("label", "monitored", "load", "path")))):
        raise EvalError(file, "a value is missing")
    names = sorted(set(frame["label"]))
    seen = dict(frame.select("label", "monitored").unique().iter_rows())
    if frame.select("label", "monitored").n_unique() > len(names):
        raise EvalError(file, "a class is both monitored and not")
    number = {n: i for i, n in enumerate(names)}
    return Traces(
        time=flat["time_us"].to_numpy() / 1e6,
        size=flat["size"].to_numpy(),
        dummy=flat["dummy"].to_numpy() if "dummy" in flat else np.zeros(len(flat["size"]), np.bool_),
        offset=np.concatenate([[0], np.cumsum(lengths.to_numpy(), dtype=np.int64)]),
        label=np.array([number[n] for n in frame["label"]], np.int32),
        load=frame["load"].to_numpy(),
        path=frame["path"].to_numpy(),
        names=tuple(names),
        monitored=np.array([seen[n] for n in names], bool),
        **{c: flat[c].to_numpy() for c in PER_PACKET if c in flat},
        first=_first(frame, file),
    )


def _first(frame: pl.DataFrame, file: str) -> np.ndarray | None:
    """Give what each connection of each trace began with; see :data:`heddle_eval.traces.First`."""
    if not any(c in frame.columns for c in FIRST):
        return None
    if not all(c in frame.columns for c in (*FIRST, "connection")):
        lacking = next(c for c in (*FIRST, "connection") if c not in frame.columns)
        raise EvalError(file, f"it has first bytes of connections, but no {lacking!r}")
    up, down = (frame[c].to_list() for c in FIRST)
    if any(len(u) != len(d) for u, d in zip(up, down, strict=True)):
        raise EvalError(file, "a trace has more first bytes of one side than of the other")
    if any(v is None for side in (*up, *down) for v in side):
        raise EvalError(file, "a value is missing")
    return objects(tuple(zip(u, d, strict=True)) for u, d in zip(up, down, strict=True))


def about(file: str | Path) -> dict[str, Any]:
    """Give what was kept with a data set; nothing where other programs wrote something else there."""
    try:
        kept = json.loads(pl.read_parquet_metadata(file).get("heddle", "{}"))
    except (ValueError, RecursionError):
        return {}
    return kept if isinstance(kept, dict) else {}
