"""Lines of JSON, a page load or one path of it each, as the collectors of Smith et al. and of CoMPS write them."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heddle_eval.errors import EvalError
from heddle_eval.importers import heddle
from heddle_eval.importers.common import Bad, Options, Piece, Report
from heddle_eval.importers.names import Source
from heddle_eval.importers.pcap import AT_ONCE


class _Captured(NamedTuple):
    """A line whose trace is a capture."""

    where: str
    label: str
    load: Any
    path: str | None
    raw: bytes


def read(sources: Sequence[Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Read lines that hold a capture (``packets``, base64 of a pcap file) or its ``trace``.

    A trace is a list of [seconds, 1 or -1, bytes], where 1 is from client to server. The class is the ``url`` (or
    ``domain``). Lines whose ``status`` is not ``success`` are failed loads, and left out.
    """
    for done, source in enumerate(sources):
        what = str(source.file)
        items: list[Piece | Bad | _Captured] = []
        for i, line in enumerate(_lines(source)):
            where = f"{what}: line {i + 1}"
            load, path = (what, i // options.paths), str(i % options.paths) if options.paths > 1 else None
            if len(items) >= AT_ONCE and i % options.paths == 0:
                yield from _decoded(items, options, report)
                items = []
            try:
                record = _record(line, where)
                if record.get("status", "success") != "success":
                    report.count("failed page loads, left out")
                    continue
                if options.protocol and record.get("protocol") != options.protocol:
                    report.count("traces of another protocol, left out")
                    continue
                items.append(_piece(record, where, load, path))
            except EvalError as e:
                items.append(Bad(load, e))
        yield from _decoded(items, options, report)
        options.progress(done + 1, len(sources))


def _lines(source: Source) -> Iterator[bytes]:
    try:
        with source.file.open("rb") as f:
            yield from (line for line in f if line.strip())
    except OSError as e:
        raise EvalError(str(source.file), f"it cannot be read: {e.strerror}") from e


def _record(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise EvalError(where, f"it is no JSON: {e}") from e
    if not isinstance(record, dict):
        raise EvalError(where, "it is no JSON object")
    return record


def _piece(record: dict[str, Any], where: str, load: Any, path: str | None) -> Piece | _Captured:
    label = record.get("url") or record.get("domain")
    if not isinstance(label, str):
        raise EvalError(where, "it names no url")
    if record.get("trace") is not None:
        try:
            rows = np.array(record["trace"], np.float64).reshape(-1, 3)
        except (ValueError, TypeError) as e:
            raise EvalError(where, "its trace is no list of [seconds, direction, bytes]") from e
        return Piece(where, label, load, rows[:, 0], rows[:, 1] * rows[:, 2], path=path)
    if not isinstance(record.get("packets"), str):
        raise EvalError(where, "it has neither packets nor a trace")
    try:
        return _Captured(where, label, load, path, base64.b64decode(record["packets"], validate=True))
    except ValueError as e:
        raise EvalError(where, "its packets are not base64") from e


def _decoded(items: Sequence[Piece | Bad | _Captured], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Give the traces of captures in their place; lines of one page load are paths of one visit."""
    visits: dict[Any, dict[str, Path]] = {}
    answers: dict[Any, list[heddle.Load] | EvalError] = {}
    with tempfile.TemporaryDirectory(prefix="heddle-eval-") as folder:
        for n, item in enumerate(items):
            if isinstance(item, _Captured):
                file = visits.setdefault(item.load, {})[item.path or ""] = Path(folder, f"{n}.pcap")
                file.write_bytes(item.raw)
        if visits:
            found = heddle.read(list(visits.values()), replace(options, per="file"), report)
            answers = dict(zip(visits, found, strict=True))
    for item in items:
        if not isinstance(item, _Captured):
            yield item
        elif isinstance(answer := answers[item.load], EvalError):
            yield Bad(item.load, EvalError(item.where, answer.why, answer.hint))
        else:
            trace = answer[0][item.path or ""]
            yield Piece(item.where, item.label, item.load, trace.time, trace.size, path=item.path, more=trace.more())
