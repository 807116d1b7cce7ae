"""Captures, as ``heddle observe trace`` reads them: the one reader of captures that Heddle has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heddle_eval import parquet
from heddle_eval.errors import EvalError
from heddle_eval.importers.common import Options, Report
from heddle_eval.traces import Trace, Traces

BINARY = "HEDDLE_BINARY"
"""Environment variable that names the heddle binary; without it PATH is searched."""


Load = dict[str, Trace]
"""One page load: what was seen of it, by path."""


def read(visits: Sequence[dict[str, Path]], options: Options, report: Report) -> list[list[Load] | EvalError]:
    """Read the captures of visits, each given by path, and count in the report what was left out.

    Returns
    -------
    answers
        Of each visit its page loads, or why it cannot be read.

    Raises
    ------
    EvalError
        Where there is no heddle, or it cannot do what the options ask for.

    """
    with tempfile.TemporaryDirectory(prefix="heddle-eval-") as folder:
        sessions, out = Path(folder, "sessions.json"), Path(folder, "traces.parquet")
        listed = [{"label": str(i), "paths": {p: [str(f)] for p, f in v.items()}} for i, v in enumerate(visits)]
        sessions.write_text(json.dumps(listed))
        summary = _run(["--sessions", str(sessions), "--out", str(out), *_flags(options)])
        traces, names = parquet.read(out), parquet.about(out).get("paths", [])
    captures: list[list[dict[str, Any]]] = [[] for _ in visits]
    for c in summary["captures"]:
        captures[int(c["session"])].append(c)
    answers: list[list[Load] | EvalError] = [list(loads) for loads in _loads(traces, names, len(visits))]
    for i, seen in enumerate(captures):
        if error := _fault(seen, options):
            answers[i] = error
        _count(seen, options, report)
    for s in summary["skipped"]:
        answers[int(s["session"])] = EvalError(s["what"].removeprefix("capture "), s["why"], s.get("hint", ""))
    return answers


def _flags(options: Options) -> list[str]:
    flags = ["--skip-bad", "--json", "--size", options.size, "--per", options.per.replace("file", "dir")]
    flags += ["--gap", f"{options.gap}s", "--filter", options.filter, *(["--sort"] if options.sort else [])]
    flags += ["--contents"] if options.contents else []
    return flags + [f"--client={network}" for network in options.client]


def _run(arguments: list[str]) -> dict[str, Any]:
    binary = os.environ.get(BINARY) or shutil.which("heddle")
    hint = f"install heddle, or name its binary: {BINARY}=/path/to/heddle"
    if not binary:
        raise EvalError("heddle", "it is not installed, and it is what reads captures", hint)
    try:
        command = [binary, "observe", "trace", *arguments]
        run = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", errors="replace")
    except OSError as e:
        raise EvalError(binary, f"it cannot be started: {e.strerror}", hint) from e
    if run.returncode:
        why, _, said = run.stderr.strip().partition("\nhint: ")
        raise EvalError("heddle observe trace", why.removeprefix("heddle: "), said)
    try:
        return json.loads(run.stdout)
    except ValueError as e:
        raise EvalError(binary, "its answer is no JSON", "it may be of another version") from e


def _loads(traces: Traces, names: list[list[str]], visits: int) -> list[list[Load]]:
    """Sort the rows by visit, which is the label, and page load."""
    found: list[dict[int, Load]] = [{} for _ in range(visits)]
    for i in range(len(traces)):
        number = int(traces.load[i])
        load = found[int(traces.names[traces.label[i]])].setdefault(number, {})
        load[names[number][max(int(traces.path[i]), 0)]] = traces.trace(i)
    return [[load for _, load in sorted(loads.items())] for loads in found]


def _fault(captures: list[dict[str, Any]], options: Options) -> EvalError | None:
    """Say why a visit cannot be taken, though heddle could read it."""
    for c in captures:
        if c.get("stopped") and not options.salvage:
            hint = "--salvage takes what comes before, --skip-bad leaves the page load out"
            return EvalError(c["file"], c["stopped"], hint)
    if all(c["packets"] - (c["empty"] if options.size == "payload" else 0) == 0 for c in captures):
        return next((EvalError(c["file"], _why_nothing(c, options)) for c in captures), None)
    return None


def _why_nothing(c: dict[str, Any], options: Options) -> str:
    of_ip = c["packets"] + c["foreign"]
    if not of_ip + c["not_ip"] + c["filtered"]:
        return "the capture holds no packet"
    if not of_ip + c["not_ip"]:
        return f"no packet passes the filter {options.filter!r}"
    if not of_ip:
        return f"none of its {c['not_ip']} packets is an IP packet"
    if not c["packets"]:
        return f"none of its {of_ip} IP packets is from or to the client"
    return "no packet carries any payload"


def _count(captures: list[dict[str, Any]], options: Options, report: Report) -> None:
    for c in captures:
        report.count("captures that are damaged, read as far as they go", bool(c.get("stopped")))
        report.count("packets that captures say they missed", c["missed"])
        report.count("packets without IP, left out", c["not_ip"])
        report.count("packets neither from nor to the client, left out", c["foreign"])
        report.count(
            "captures whose client was guessed; --client names it", c["client_by"] == "guessed" and c["packets"] > 0
        )
        report.count("packets without payload, left out", c["empty"] if options.size == "payload" else 0)
        report.count("packets larger than 1500 bytes: several, joined before the capture", c["joined"])
        report.count("captures whose packets were put in the order of time", c["backwards"] > 0)
