"""Lines of JSON, a page load or one path of it each, as the collectors of Smith et al. and of CoMPS write them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from heddle_eval.errors import EvalError
from heddle_eval.importers import capture, direction, packets
from heddle_eval.importers.common import Bad, Options, Piece, Report
from heddle_eval.importers.names import Source
from heddle_eval.importers.pcap import JITTER


def read(sources: Sequence[Source], options: Options, report: Report) -> Iterator[Piece | Bad]:
    """Read lines that hold a capture (``packets``, base64 of a pcap file) or its ``trace``.

    A trace is a list of [seconds, 1 or -1, bytes], where 1 is from client to server. The class is the ``url`` (or
    ``domain``). Lines whose ``status`` is not ``success`` are failed loads, and left out.
    """
    for done, source in enumerate(sources):
        what = str(source.file)
        for i, line in enumerate(_lines(source)):
            where = f"{what}: line {i + 1}"
            load, path = (what, i // options.paths), str(i % options.paths) if options.paths > 1 else None
            try:
                record = _record(line, where)
                if record.get("status", "success") != "success":
                    report.count("failed page loads, left out")
                    continue
                if options.protocol and record.get("protocol") != options.protocol:
                    report.count("traces of another protocol, left out")
                    continue
                yield _piece(record, where, load, path, options, report)
            except EvalError as e:
                yield Bad(load, e)
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


def _piece(record: dict[str, Any], where: str, load: Any, path: str | None, options: Options, report: Report) -> Piece:
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
        raw = base64.b64decode(record["packets"], validate=True)
    except ValueError as e:
        raise EvalError(where, "its packets are not base64") from e
    return _captured(raw, where, label, load, path, options, report)


def _captured(
    raw: bytes, where: str, label: str, load: Any, path: str | None, options: Options, report: Report
) -> Piece:
    seen = capture.read(raw, where)
    if seen.damage and not options.salvage:
        raise EvalError(where, seen.damage, "--salvage takes what comes before")
    found = packets.decode(seen, where)
    out, known, _ = direction.orient(seen, found, options.client)
    size = np.where(out, found.size, -found.size)
    return Piece(where, label, load, seen.time[found.index][known], size[known], path=path, jitter=JITTER)
