"""Pictures that can be read without colour: precision-recall curves, and tables as points with their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle_eval.errors import EvalError
from heddle_eval.files import atomically
from heddle_eval.report import MEASURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ["#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"]
"""Okabe and Ito's, which most eyes can tell apart."""
MARKERS = "osD^vPX*"
DASHES = ["-", "--", "-.", ":"]


def save(figure: Figure, file: str | Path) -> None:
    """Write a picture, whole or not at all; the ending of its name says what kind."""
    kind = Path(file).suffix.removeprefix(".") or "png"
    if kind not in ("png", "svg", "pdf"):
        raise EvalError(str(file), f"{kind!r} is no kind of picture", "png, svg or pdf")
    with atomically(file) as out:
        figure.savefig(out, format=kind, dpi=150)


def _new(columns: int, rows: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False).tolist()


def precision_recall(curves: list[dict[str, Any]], title: str) -> Figure:
    """Draw curves of :func:`heddle_eval.paper.curves`: a row for each data set, a column for each panel."""
    if not curves:
        raise EvalError("figure", "no experiment is done yet")
    data, panels = (list(dict.fromkeys(c[k] for c in curves)) for k in ("data", "panel"))
    figure, axes = _new(len(panels), len(data), 0.6 + 3.4 * len(panels), 0.6 + 3.2 * len(data))
    for y, name in enumerate(data):
        for x, panel in enumerate(panels):
            mine = [c for c in curves if c["data"] == name and c["panel"] == panel]
            _panel(axes[y][x], mine, f"{name}: {panel}")
    figure.suptitle(title)
    return figure


def _panel(axis: Axes, curves: list[dict[str, Any]], title: str) -> None:
    for i, c in enumerate(curves):
        axis.plot(
            c["recall"],
            c["r_precision"],
            color=COLOURS[i % len(COLOURS)],
            linestyle=DASHES[i % len(DASHES)],
            marker=MARKERS[i % len(MARKERS)],
            # Not at the same places, so that curves that meet stay apart.
            markevery=_spaced(c["recall"], i),
            markersize=5,
            linewidth=1.2,
            label=c["row"],
        )
    axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="recall", ylabel="r-precision", title=title)
    axis.title.set_fontsize(9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)


def roc(curves: list[dict[str, Any]], title: str) -> Figure:
    """Draw ROC curves of :func:`heddle_eval.steg.curves`: a column for each data set, a row for each panel."""
    if not curves:
        raise EvalError("figure", "no experiment is done yet")
    data, panels = (list(dict.fromkeys(c[k] for c in curves)) for k in ("data", "panel"))
    figure, axes = _new(len(data), len(panels), 0.6 + 3.6 * len(data), 0.8 + 3.4 * len(panels))
    for x, name in enumerate(data):
        for y, panel in enumerate(panels):
            axis = axes[y][x]
            axis.plot([0, 1], [0, 1], color="#bbbbbb", linewidth=1)
            mine = [c for c in curves if c["data"] == name and c["panel"] == panel]
            for i, c in enumerate(mine):
                axis.plot(c["fpr"], c["tpr"], label=c["row"], **_style(i))
            axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="false positives", ylabel="true positives")
            axis.set_title(f"{name}: {panel}", fontsize=9)
            axis.grid(alpha=0.3)
            axis.legend(fontsize=7)
    figure.suptitle(title, fontsize=10)
    return figure


def distributions(found: dict[str, Any], panels: dict[str, str], title: str) -> Figure:
    """Draw what :func:`heddle_eval.steg.distributions` found: a panel for each, over a logarithmic axis."""
    figure, axes = _new(len(panels), 1, 0.6 + 3.6 * len(panels), 3.8)
    for axis, (panel, words) in zip(axes[0], panels.items(), strict=True):
        for i, c in enumerate(c for c in found["curves"] if c["panel"] == panel):
            far = found["distances"].get(c["data"], {}).get(panel)
            label = c["data"] if far is None else f"{c['data']}, KS {far:.2f}"
            # A logarithmic axis has no 0: connections of one packet stand at a millisecond.
            x = np.maximum(c["x"], 1e-3)
            axis.step([x[0], *x], [0, *c["share"]], where="post", label=label, **_style(i))
        axis.set_xscale("log")
        axis.set(ylim=(-0.02, 1.02), xlabel=words, ylabel="share")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.suptitle(title, fontsize=10)
    return figure


def _style(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)], "linewidth": 1.2}


def _spaced(recall: list[float], turn: int) -> list[int]:
    """Places of about eight markers, evenly along the recall."""
    if not recall:
        return []
    goals = np.linspace(0, recall[-1], 9)[1:] - recall[-1] / 8 * (turn % 4) / 4
    return sorted({min(int(i), len(recall) - 1) for i in np.searchsorted(recall, goals)})


def points(table: dict[str, Any], title: str) -> Figure:
    """Draw a table: for each row and measure our value with its interval (filled), and the paper's (hollow)."""
    rows = table["rows"]
    figure, axes = _new(len(MEASURES), 1, 3.6 + 2.6 * len(MEASURES), 1.2 + 0.28 * len(rows))
    places = np.arange(len(rows))[::-1]
    for x, (name, words) in enumerate(MEASURES.items()):
        axis = axes[0][x]
        for place, row in zip(places, rows, strict=True):
            if row["paper"] and row["paper"].get(name) is not None:
                axis.plot(row["paper"][name], place, "D", mfc="none", mec=COLOURS[2], ms=6)
            ours = row["ours"] and row["ours"].get(name)
            if ours and ours["value"] is not None:
                if ours["low"] is not None:
                    axis.hlines(place, ours["low"], ours["high"], color=COLOURS[1], lw=1.5)
                axis.plot(ours["value"], place, "o", color=COLOURS[1], ms=4)
        axis.set(xlim=(-0.03, 1.03), ylim=(-0.7, len(rows) - 0.3), xlabel=words)
        labels = [f"{r['data']}, {r['attack']}: {r['row']}" for r in rows] if x == 0 else []
        axis.set_yticks(places if x == 0 else [], labels=labels, fontsize=7)
        axis.grid(alpha=0.3)
    axes[0][0].plot([], [], "o-", color=COLOURS[1], ms=4, label="ours, 95 % interval")
    axes[0][0].plot([], [], "D", mfc="none", mec=COLOURS[2], label="paper")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure
