"""Importers: what others recorded, as :class:`~heddle_eval.traces.Traces`. docs/traces.md tells of each format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from heddle_eval.errors import EvalError
from heddle_eval.importers import names, pcap
from heddle_eval.importers.common import Bad, Options, Piece, Report, collect
from heddle_eval.traces import Traces

__all__ = ["KINDS", "Options", "Report", "detect", "load"]

Reader = Callable[[Sequence[names.Source], Options, Report], Iterator[Piece | Bad]]


class Kind(NamedTuple):
    """A format: what it is, and the function that reads it, as MODULE:NAME of this package."""

    about: str
    reader: str


KINDS = {
    "pcap": Kind("captures, pcap or pcapng", "pcap:read"),
    "npz": Kind("arrays y, n, t, s and names", "arrays:read_flat"),
    "wflib": Kind("WFlib's arrays X and y: times that have the sign of the direction", "arrays:read_wflib"),
    "df": Kind("Deep Fingerprinting's pickles X_*.pkl and y_*.pkl: directions", "pickles:read"),
    "wang": Kind("Wang's cell files, one a trace: time and direction", "text:read_wang"),
    "comps": Kind("text files, one a trace: time and signed size", "text:read_comps"),
    "maybenot": Kind("Maybenot's text files, one a trace: nanoseconds, s or r, size", "text:read_maybenot"),
    "smith": Kind("Smith's HDF5: labels, sizes and timestamps", "hdf5:read"),
    "jsonl": Kind("lines of JSON as Smith's and CoMPS' collectors write: a capture or a trace each", "jsonl:read"),
}


def load(kind: str, inputs: Sequence[str | Path], options: Options | None = None) -> tuple[Traces, Report]:
    """Read a data set.

    Parameters
    ----------
    kind
        A key of :data:`KINDS`, or "auto".
    inputs
        Files and folders.
    options
        See :class:`~heddle_eval.importers.common.Options`.

    Raises
    ------
    EvalError
        For what cannot be read, and for traces that break a promise; nothing is left out without being counted.

    """
    options = options or Options()
    sources = names.files(inputs)
    if kind == "auto":
        kind = next((k for s in sources if (k := detect(s.file))), "")
        if not kind:
            raise EvalError(str(inputs[0]), "its format is not known", f"name one of {', '.join(KINDS)}")
    if kind not in KINDS:
        raise EvalError(kind, "there is no such format", f"there are {', '.join(KINDS)}")
    report = Report(kind)
    mine = _of_kind(kind, sources, inputs, report)
    report.inputs = len(mine)
    module, name = KINDS[kind].reader.split(":")
    reader: Reader = getattr(import_module(f"heddle_eval.importers.{module}"), name)
    return collect(reader(mine, options, report), options, report), report


def _of_kind(
    kind: str, sources: list[names.Source], inputs: Sequence[str | Path], report: Report
) -> list[names.Source]:
    """Leave aside files of folders that are something else; files that were named are read whatever they seem."""
    asked = {Path(i) for i in inputs}
    mine = [s for s in sources if s.file in asked or _may_be(kind, s.file)]
    report.count("files in the folders that are something else, left aside", len(sources) - len(mine))
    if not mine:
        raise EvalError(str(inputs[0]), f"there is no file of the format {kind} in it")
    return mine


def _may_be(kind: str, file: Path) -> bool:
    if kind == "pcap":
        return file.suffix in pcap.SUFFIXES
    found = detect(file)
    if kind not in _TEXTS:
        return found == kind
    # Text that is empty, or begins as numbers do, is the reader's to complain about.
    return found in _TEXTS or (found == "" and re.match(rb"\s*([-+.\d]|\Z)", _head(file)) is not None)


_TEXTS = ("wang", "comps", "maybenot")


def detect(file: Path) -> str:
    """Tell a file's format by how it begins; empty where that says nothing."""
    head = _head(file)
    if pcap.is_capture(head) or file.suffix in pcap.SUFFIXES:
        return "pcap"
    if head.startswith(b"\x89HDF"):
        return "smith"
    if head.startswith(b"PK\x03\x04") and file.suffix == ".npz":
        return import_module("heddle_eval.importers.arrays").detect(file)
    if file.suffix in (".pkl", ".pickle"):
        return "df"
    if head.lstrip()[:1] == b"{":
        return "jsonl"
    return import_module("heddle_eval.importers.text").detect(file, head)


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as f:
            return f.read(4096)
    except OSError as e:
        raise EvalError(str(file), f"it cannot be read: {e.strerror}") from e
