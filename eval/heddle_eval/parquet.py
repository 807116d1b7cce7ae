"""The one file format of traces: Parquet, a row for each trace. docs/traces.md explains each column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from heddle_eval.errors import EvalError
from heddle_eval.files import atomically
from heddle_eval.traces import Traces

SCHEMA = {
    "label": pl.String,
    "monitored": pl.Boolean,
    "load": pl.Int64,
    "path": pl.Int16,
    "time_us": pl.List(pl.Int32),
    "size": pl.List(pl.Int32),
    "dummy": pl.List(pl.Boolean),
}
"""Columns. ``dummy`` may be missing: then no packet is one."""


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
    frame = pl.DataFrame(columns, schema={k: SCHEMA[k] for k in columns})
    with atomically(file) as out:
        frame.write_parquet(
            out, compression="zstd", compression_level=12, metadata={"heddle": json.dumps(about or {}, sort_keys=True)}
        )


def _lists(values: np.ndarray, traces: Traces) -> pl.Series:
    return pl.Series(
        np.split(values, traces.offset[1:-1]) if len(traces) else [], dtype=pl.List(pl.Series(values[:1]).dtype)
    )


def read(file: str | Path) -> Traces:
    """Read a data set."""
    try:
        frame = pl.read_parquet(file)
    except FileNotFoundError:
        raise EvalError(str(file), "there is no such file") from None
    except (pl.exceptions.PolarsError, OSError) as e:
        raise EvalError(
            str(file), f"it is no Parquet file that can be read: {e}", "heddle-eval import makes one"
        ) from e
    for column, kind in SCHEMA.items():
        if column == "dummy" and column not in frame.columns:
            continue
        if column not in frame.columns:
            raise EvalError(str(file), f"it has no column {column!r}", "docs/traces.md lists the columns")
        try:
            frame = frame.with_columns(pl.col(column).cast(kind))
        except pl.exceptions.PolarsError as e:
            raise EvalError(str(file), f"column {column!r} does not hold {kind}") from e
    return _traces(frame, str(file))


def _traces(frame: pl.DataFrame, file: str) -> Traces:
    if frame.select(pl.any_horizontal(pl.all().is_null().any())).item():
        raise EvalError(file, "a value is missing")
    lengths = frame["time_us"].list.len().to_numpy()
    if (lengths != frame["size"].list.len().to_numpy()).any():
        raise EvalError(file, "a trace has more times than sizes, or fewer")
    # A list without elements explodes to a null, which is no packet.
    flat = {c: frame[c].explode().drop_nulls().to_numpy() for c in frame.columns if isinstance(SCHEMA[c], pl.List)}
    names = sorted(set(frame["label"]))
    seen = dict(frame.select("label", "monitored").unique().iter_rows())
    if frame.select("label", "monitored").n_unique() > len(names):
        raise EvalError(file, "a class is both monitored and not")
    number = {n: i for i, n in enumerate(names)}
    return Traces(
        time=flat["time_us"] / 1e6,
        size=flat["size"].astype(np.int32),
        dummy=flat.get("dummy", np.zeros(int(lengths.sum()), bool)),
        offset=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        label=np.array([number[n] for n in frame["label"]], np.int32),
        load=frame["load"].to_numpy(),
        path=frame["path"].to_numpy(),
        names=tuple(names),
        monitored=np.array([seen[n] for n in names], bool),
    )


def about(file: str | Path) -> dict[str, Any]:
    """Give what was kept with a data set."""
    return json.loads(pl.read_parquet_metadata(file).get("heddle", "{}"))
