"""The HDF5 of Smith et al., "Website Fingerprinting in the Age of QUIC" (PETS 2021), and of its fork for CoMPS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.importers.common import Bad, Options, Piece, Report, in_rows
from heddle_eval.importers.names import Source

_ROWS = 2000  # read at a time


def read(sources: Sequence[Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Read data sets of three columns.

    ``labels`` (N,) of records with ``class`` (-1 is unmonitored, and then ``group`` tells the page), or ``url``; and
    ``protocol`` and ``region``. ``sizes`` (N,) lists of bytes, plus from client to server. ``timestamps`` (N,) lists of
    seconds.
    """
    import h5py

    for source in sources:
        what = str(source.file)
        try:
            with h5py.File(source.file, "r") as file:
                if missing := {"labels", "sizes", "timestamps"} - set(file):
                    raise EvalError(what, f"it has no data set {sorted(missing)[0]!r}", f"it has {', '.join(file)}")
                yield from in_rows(_rows(file, what, options), options.paths)
        except (OSError, RuntimeError, KeyError) as e:
            raise EvalError(what, f"it cannot be read as HDF5: {e}") from e


def _rows(file: Any, what: str, options: Options) -> Iterator[Piece | Bad]:
    labels = file["labels"][:]
    if labels.dtype.names is None or not {"class", "url"} & set(labels.dtype.names):
        raise EvalError(what, "the labels have neither a class nor a url")
    if not len(labels) == len(file["sizes"]) == len(file["timestamps"]):
        raise EvalError(what, "labels, sizes and timestamps differ in length")
    kept = _chosen(labels, what, options)
    for begin in range(0, len(labels), _ROWS):
        sizes, times = (file[k][begin : begin + _ROWS] for k in ("sizes", "timestamps"))
        for i in range(begin, min(begin + _ROWS, len(labels))):
            if kept[i]:
                name, monitored = _class(labels[i])
                where = f"{what}: trace {i}"
                yield Piece(where, name, (what, i), times[i - begin], sizes[i - begin], monitored=monitored)
        options.progress(min(begin + _ROWS, len(labels)), len(labels))


def _chosen(labels: NDArray[np.void], what: str, options: Options) -> NDArray[np.bool_]:
    if not options.protocol:
        return np.ones(len(labels), bool)
    if "protocol" not in (labels.dtype.names or ()):
        raise EvalError(what, "it does not tell protocols apart", "leave --protocol out")
    kept = labels["protocol"] == options.protocol.encode()
    if not kept.any():
        held = sorted({p.decode("utf-8", "replace") for p in labels["protocol"]})
        raise EvalError(what, f"no trace is of protocol {options.protocol!r}", f"there are {', '.join(held)}")
    return kept


def _class(label: np.void) -> tuple[str, bool]:
    if "class" not in (label.dtype.names or ()):
        return label["url"].decode("utf-8", "replace"), True
    number = int(label["class"])
    if number >= 0:
        return str(number), True
    group = int(label["group"]) if "group" in (label.dtype.names or ()) else 0
    return f"unmonitored{group}" if group else "unmonitored", False
