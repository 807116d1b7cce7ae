"""Files that are whole or not there."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from heddle_eval.errors import EvalError

if TYPE_CHECKING:
    import polars as pl


@contextmanager
def atomically(file: str | Path) -> Iterator[IO[bytes]]:
    """Open a file that takes its name only once all was written; until then what was there stays.

    Raises
    ------
    EvalError
        Where the disk is full or the folder cannot be written.

    """
    file = Path(file)
    part = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as out:
            part = out.name
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.chmod(part, 0o644)
        os.replace(part, file)
    except BaseException as e:
        if part:
            with suppress(OSError):
                os.unlink(part)
        if isinstance(e, OSError):
            raise EvalError(
                str(file), f"it cannot be written: {e.strerror}", "make room, or choose another place"
            ) from e
        raise


def write_parquet(frame: pl.DataFrame, file: str | Path, **options: Any) -> None:
    """Write a table, whole or not at all; options are those of Polars, compression and metadata.

    Raises
    ------
    EvalError
        Where the disk is full or the folder cannot be written.

    """
    # In memory first: what Polars raises where it cannot write does not say so by its kind.
    made = io.BytesIO()
    frame.write_parquet(made, **options)
    with atomically(file) as out:
        out.write(made.getbuffer())
