"""What a data set holds: counts, lengths and sizes, of all of it, of each class and of each path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle_eval.figures import COLOURS, DASHES, save
from heddle_eval.traces import WHOLE, Traces

SHORT = 10
"""Traces of that many packets or fewer are counted as short: CoMPS' evaluation leaves them out."""


def summary(traces: Traces) -> dict[str, Any]:
    """Count what there is."""
    size = traces.size.astype(np.int64)
    return {
        "traces": len(traces),
        "loads": len(np.unique(traces.load)),
        "classes": len(traces.names),
        "unmonitored_classes": int((~traces.monitored).sum()),
        "paths": sorted(int(p) for p in np.unique(traces.path) if p != WHOLE),
        "packets": len(size),
        "bytes_up": int(size[size > 0].sum()),
        "bytes_down": int(-size[size < 0].sum()),
        "dummy_packets": int(traces.dummy.sum()),
        "short_traces": int((traces.lengths <= SHORT).sum()),
        "empty_traces": int((traces.lengths == 0).sum()),
    }


def describe(traces: Traces, about: dict[str, Any] | None = None) -> dict[str, Any]:
    """Count and measure; sizes in bytes, times in seconds; spreads are (5 %, 25 %, 50 %, 75 %, 95 %)."""
    per = _each(traces)
    called = {number: name for name, number in path_names(about or {}).items()}
    return {
        **summary(traces),
        "packets_per_trace": _spread(per["packets"]),
        "bytes_per_trace": _spread(per["bytes"]),
        "seconds_per_trace": _spread(per["seconds"]),
        "size_up": _spread(traces.size[traces.size > 0]),
        "size_down": _spread(-traces.size[traces.size < 0]),
        "per_class": [
            {"class": name, "monitored": bool(traces.monitored[i]), **_group(traces, per, traces.label == i)}
            for i, name in enumerate(traces.names)
        ],
        "per_path": [
            {"path": int(p), "name": "whole" if p == WHOLE else called.get(int(p), ""), **_group(traces, per, here)}
            for p in np.unique(traces.path)
            if (here := traces.path == p).any()
        ],
        "about": about or {},
    }


def path_names(about: dict[str, Any]) -> dict[str, int]:
    """Names of the paths and their numbers, as import keeps them or as ``heddle observe trace`` does."""
    if isinstance(names := about.get("path_names"), dict):
        return names
    lists = about.get("paths")
    if isinstance(lists, list) and lists and all(isinstance(of, list) and of == lists[0] for of in lists):
        return {str(name): i for i, name in enumerate(lists[0])}
    return {}


def _each(traces: Traces) -> dict[str, NDArray[np.float64]]:
    """(N,) packets, bytes, share of the bytes that went up, and seconds from first to last packet, of each trace."""
    n, owner = len(traces), traces.owner
    size = traces.size.astype(np.float64)
    total = np.bincount(owner, np.abs(size), n).astype(np.float64, copy=False)
    up = np.bincount(owner, np.maximum(size, 0), n).astype(np.float64, copy=False)
    some = traces.lengths > 0
    seconds = np.zeros(n)
    seconds[some] = traces.time[traces.offset[1:][some] - 1] - traces.time[traces.offset[:-1][some]]
    return {"packets": traces.lengths.astype(np.float64), "bytes": total, "up": up, "seconds": seconds}


def _group(traces: Traces, per: dict[str, NDArray[np.float64]], here: NDArray[np.bool_]) -> dict[str, Any]:
    total = per["bytes"][here].sum()
    return {
        "traces": int(here.sum()),
        "loads": len(np.unique(traces.load[here])),
        "median_packets": _median(per["packets"][here]),
        "median_bytes": _median(per["bytes"][here]),
        "median_seconds": _median(per["seconds"][here]),
        "share_up": float(per["up"][here].sum() / total) if total else 0.0,
    }


def _median(values: NDArray[np.float64]) -> float:
    return float(np.median(values)) if len(values) else 0.0


def _spread(values: NDArray[np.number]) -> list[float]:
    return [float(v) for v in np.percentile(values, (5, 25, 50, 75, 95))] if len(values) else []


def text(answer: dict[str, Any], classes: int | None = None) -> str:
    """Write the description as text, with a table of that many classes."""
    out = [
        f"{answer['traces']} traces of {answer['loads']} page loads; {answer['classes']} classes,"
        f" {answer['unmonitored_classes']} of them unmonitored",
        f"{answer['packets']} packets, {answer['dummy_packets']} of them dummies; {_bytes(answer['bytes_up'])} up,"
        f" {_bytes(answer['bytes_down'])} down",
        f"{answer['empty_traces']} empty traces, {answer['short_traces']} of {SHORT} packets or fewer",
        "",
        f"{'':<20}{'5 %':>12}{'25 %':>12}{'50 %':>12}{'75 %':>12}{'95 %':>12}",
    ]
    rows = {
        "packets per trace": answer["packets_per_trace"],
        "bytes per trace": answer["bytes_per_trace"],
        "seconds per trace": answer["seconds_per_trace"],
        "bytes of a packet up": answer["size_up"],
        "bytes, down": answer["size_down"],
    }
    out += [f"{name:<20}" + "".join(f"{v:>12.6g}" for v in spread) for name, spread in rows.items()]
    head = f"{'traces':>8}{'loads':>8}{'packets':>10}{'bytes':>12}{'seconds':>9}{'up':>7}"
    out += ["", f"{'path (medians)':<32}{head}"]
    out += [f"{p['path']:>3} {p['name']:<28.28}{_row(p)}" for p in answer["per_path"]]
    shown = answer["per_class"][:classes]
    out += ["", f"{'class (medians)':<32}{head}"]
    out += [f"{c['class'] + ('' if c['monitored'] else ' (unmonitored)'):<32.32}{_row(c)}" for c in shown]
    if left := len(answer["per_class"]) - len(shown):
        out.append(f"and {left} more; --classes 0 shows all")
    return "\n".join(out)


def _row(g: dict[str, Any]) -> str:
    return (
        f"{g['traces']:>8}{g['loads']:>8}{g['median_packets']:>10.6g}{g['median_bytes']:>12.0f}"
        f"{g['median_seconds']:>9.3g}{g['share_up']:>7.1%}"
    )


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.4g} {unit}"
        n /= 1000
    return ""


def draw(traces: Traces, file: str | Path, answer: dict[str, Any]) -> None:
    """Draw lengths, durations and sizes, and the classes' lengths, as a picture."""
    from matplotlib.figure import Figure

    per = _each(traces)
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    figure.suptitle(
        f"{answer['traces']} traces of {answer['loads']} page loads, {answer['classes']} classes,"
        f" {answer['packets']} packets"
    )
    called = {
        p["path"]: f"path {p['path']} {p['name']}".strip() if p["path"] >= 0 else "whole" for p in answer["per_path"]
    }
    for ax, key, label in ((axes[0], "packets", "packets of a trace"), (axes[1], "seconds", "seconds of a trace")):
        _spread_by_path(ax, traces, per[key], called, label)
    _sizes(axes[2], traces)
    _classes(axes[3], traces, per["packets"])
    save(figure, file)


def _spread_by_path(ax: Any, traces: Traces, values: NDArray[np.float64], called: dict[int, str], label: str) -> None:
    top = max(float(np.percentile(values, 99)) if len(values) else 1.0, 1e-6)
    bins = np.linspace(0, top, int(np.clip(2 * np.sqrt(len(values) / max(len(called), 1)), 10, 60)))
    for i, (path, name) in enumerate(called.items()):
        here = np.minimum(values[traces.path == path], bins[-1])
        ax.hist(here, bins, histtype="step", label=name, color=COLOURS[i % len(COLOURS)], ls=DASHES[i % len(DASHES)])
    ax.set(xlabel=f"{label} (the longest 1 % in the last bar)", ylabel="traces")
    if len(called) > 1:
        ax.legend()


def _sizes(ax: Any, traces: Traces) -> None:
    top = max(1500, int(np.percentile(np.abs(traces.size), 99))) if len(traces.size) else 1500
    bins = np.linspace(0, top, 76)
    ways = (("up", traces.size[traces.size > 0]), ("down", -traces.size[traces.size < 0]))
    for i, (name, sizes) in enumerate(ways):
        share = np.full(len(sizes), 100 / max(len(sizes), 1))
        ax.hist(
            np.minimum(sizes, top), bins, weights=share, histtype="step", label=name, color=COLOURS[i], ls=DASHES[i]
        )
    ax.set(xlabel="bytes of a packet (larger ones in the last bar)", ylabel="% of the direction")
    ax.legend()


def _classes(ax: Any, traces: Traces, packets: NDArray[np.float64]) -> None:
    """Median, and the middle half, of each class, in the order of the medians."""
    quartiles = [np.percentile(packets[traces.label == i], (25, 50, 75)) for i in np.unique(traces.label)]
    if not quartiles:
        return
    low, middle, high = np.array(sorted(quartiles, key=lambda q: q[1])).T
    at = np.arange(len(middle))
    ax.fill_between(at, low, high, alpha=0.3, step="mid", label="the middle half")
    ax.step(at, middle, where="mid", label="median")
    ax.set(xlabel="classes, by their median", ylabel="packets of a trace")
    ax.legend()
