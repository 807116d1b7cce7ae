"""Results: one Parquet file with a row for each job done, which several processes may write at once.

Each row has the job's parameters, how long it took, its measures (r = 20), and, as lists over the test traces, the page
load, the true class, the class that was told, the confidence in it and the score that the trace is monitored: so that
curves, intervals and other measures need no new run.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl

from heddle_eval.errors import EvalError
from heddle_eval.experiment import Result
from heddle_eval.files import write_parquet

SCHEMA: dict[str, Any] = {
    "key": pl.String,
    "file": pl.String,
    "data": pl.String,
    "defence": pl.String,
    "attack": pl.String,
    "preset": pl.String,
    "settings": pl.String,
    "world": pl.String,
    "seed": pl.Int64,
    "test": pl.Float64,
    "unseen": pl.Boolean,
    "visits": pl.Int64,
    "unmonitored": pl.Int64,
    "unmonitored_share": pl.Float64,
    "see": pl.Int64,
    "train": pl.Int64,
    "train_loads": pl.Int64,
    "tested": pl.Int64,
    "tested_loads": pl.Int64,
    "bytes_added": pl.Float64,
    "defend_s": pl.Float64,
    "fit_s": pl.Float64,
    "predict_s": pl.Float64,
    "made": pl.Float64,
    "r_precision": pl.Float64,
    "recall": pl.Float64,
    "f1": pl.Float64,
    "wpr": pl.Float64,
    "fpr": pl.Float64,
    "auc": pl.Float64,
    "accuracy": pl.Float64,
    "blocked": pl.Float64,
    "learn": pl.String,
    "learn_visits": pl.Int64,
    "load": pl.List(pl.Int64),
    "truth": pl.List(pl.Int32),
    "told": pl.List(pl.Int32),
    "confidence": pl.List(pl.Float32),
    "score": pl.List(pl.Float32),
    "scores": pl.List(pl.Float32),
    "classes": pl.List(pl.Int32),
}
"""Columns: parameters of the job (see :class:`~heddle_eval.sweep_jobs.Job`), then what came of it.

``bytes_added`` is the share of dummy bytes; times are in seconds, ``made`` since 1970.
"""


class Store:
    """The file of results.

    Beside it lies a hidden folder ``.FILE.locks`` while it is in use: a lock for the file, and one for each job that is
    being done. The kernel lets go of the locks of a process that dies.
    """

    def __init__(self, file: str | Path) -> None:
        self.file = Path(file)
        self.locks = self.file.parent / f".{self.file.name}.locks"

    def keys(self) -> set[str]:
        """Name the jobs that are done."""
        return set(self.frame(["key"])["key"])

    def __contains__(self, key: str) -> bool:
        return key in self.keys()

    def frame(self, columns: Iterable[str] | None = None, keys: Iterable[str] | None = None) -> pl.DataFrame:
        """Read results, of some jobs, or of all."""
        wanted = list(columns or SCHEMA)
        if not self.file.exists():
            return pl.DataFrame(schema={c: SCHEMA[c] for c in wanted})
        try:
            # Opened once: given a name, polars opens it again and again, and another process may put a new file there.
            with self.file.open("rb") as opened:
                rows = pl.scan_parquet(opened)
                if keys is not None:
                    rows = rows.filter(pl.col("key").is_in(list(keys)))
                # A file of an earlier version lacks the columns that came later.
                there = [c for c in SCHEMA if c not in LATER or c in rows.collect_schema()]
                missing = [pl.lit(None, SCHEMA[c]).alias(c) for c in wanted if c not in there]
                return (
                    rows.select(*(pl.col(c).cast(SCHEMA[c]) for c in wanted if c in there), *missing)
                    .select(wanted)
                    .collect()
                )
        except (pl.exceptions.PolarsError, OSError) as e:
            why = str(e).partition("\n")[0]  # the rest is the plan of the query
            raise EvalError(
                str(self.file), f"it is no file of results: {why}", "move it away, or name another with --results"
            ) from e

    def results(self, keys: Iterable[str]) -> dict[str, Result]:
        """Give what was told in each of those jobs, if they are done."""
        columns = ["key", "world", *_LISTS, "train", "train_loads", "fit_s", "predict_s"]
        out = {}
        for row in self.frame(columns, keys).iter_rows(named=True):
            lists: dict[str, Any] = {c: pl.Series(row.pop(c) or [], dtype=SCHEMA[c].inner).to_numpy() for c in _LISTS}
            lists["scores"] = lists["scores"].reshape(len(lists["load"]), len(lists["classes"]))
            key = row.pop("key")
            out[key] = Result(**lists, **row)
        return out

    def add(self, row: dict[str, Any]) -> None:
        """Keep the result of a job, unless there is one already."""
        new = pl.DataFrame({c: [row.get(c)] for c in SCHEMA}, schema=SCHEMA)
        with self._locked("file"):
            old = self.frame()
            if row["key"] in set(old["key"]):
                return
            write_parquet(pl.concat([old, new]), self.file, compression="zstd")

    @contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Take a job: False where another process is at it."""
        with self._locked(key, wait=False) as mine:
            yield mine

    @contextmanager
    def _locked(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        lock = self._lock(self.locks / name, wait)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                # Unlinked before it is let go: who waited for it sees that, and makes a new one.
                with suppress(OSError):
                    os.unlink(self.locks / name)
                os.close(lock)
                with suppress(OSError):
                    os.rmdir(self.locks)

    def _lock(self, path: Path, wait: bool) -> int | None:
        while True:
            try:
                self.locks.mkdir(parents=True, exist_ok=True)
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                continue  # another process has just removed the folder
            except OSError as e:
                if isinstance(e, FileExistsError) and not self.locks.is_file():
                    continue  # it went between being found there and being looked at
                raise EvalError(str(self.file), f"it cannot be locked: {e.strerror}", "choose another folder") from e
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                if os.path.samestat(os.fstat(lock), os.stat(path)):
                    return lock
            except BlockingIOError:
                os.close(lock)
                return None
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)


LATER = ("blocked", "learn", "learn_visits", "scores", "classes")
"""Columns that files of earlier versions lack."""

_LISTS = ("load", "truth", "told", "confidence", "score", "scores", "classes")
