"""Deep Fingerprinting's data set (Sirinam et al., CCS 2018): pickled matrices of directions."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.importers.arrays import matrix
from heddle_eval.importers.common import Bad, Options, Piece, Report
from heddle_eval.importers.names import Source

_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),  # how protocols 0 to 2 write bytes
    *((f"numpy.{core}.multiarray", f) for core in ("core", "_core") for f in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
}


class _Unpickler(pickle.Unpickler):
    """Makes arrays, lists and numbers, and nothing else: a pickle can otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, and only arrays and lists of numbers are read")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def unpickle(file: Path) -> NDArray[np.generic]:
    """Read one array, or a list of numbers or of lists of them, of any Python's pickle."""
    try:
        value = _Unpickler(io.BytesIO(file.read_bytes()), encoding="latin1").load()
        if isinstance(value, np.ndarray) and value.dtype != object:
            return value
        rows = list(value)
        if rows and isinstance(rows[0], (list, tuple, np.ndarray)):
            out = np.zeros((len(rows), max(map(len, rows))))
            for i, row in enumerate(rows):
                out[i, : len(row)] = row
            return out
        return np.asarray(rows, np.float64)
    except OSError as e:
        raise EvalError(str(file), f"it cannot be read: {e.strerror}") from e
    except Exception as e:  # a damaged pickle raises whatever its bytes lead to
        raise EvalError(str(file), f"it is no pickle that can be read: {e}") from e


def read(sources: Sequence[Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Read pairs of files ``X_NAME.pkl`` (N, length) of 1 and -1, filled up with zeros, and ``y_NAME.pkl`` (N,)."""
    report.notes.append("the format keeps no times: all are 0, so attacks that look at time have nothing to see")
    report.notes.append(f"the format keeps directions only: each packet is taken to be {options.cell} bytes")
    data = {s.file for s in sources if s.file.name.startswith("X")}
    data |= {s.file.with_name("X" + s.file.name[1:]) for s in sources if s.file.name.startswith("y")}
    if not data:
        raise EvalError(str(sources[0].file), "no file is called X_NAME.pkl", "y_NAME.pkl goes beside it")
    for done, file in enumerate(sorted(data)):
        classes = file.with_name("y" + file.name[1:])
        for f in (file, classes):
            if not f.is_file():
                raise EvalError(str(f), "there is no such file, and X and y are wanted both")
        yield from matrix(unpickle(file), unpickle(classes), str(file), options, report, timed=False)
        options.progress(done + 1, len(data))
