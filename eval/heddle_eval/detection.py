"""Data sets of detection: flows of what a censor looks for, monitored, and innocent flows, which are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.traces import Traces


def merge(suspect: Traces, innocent: Sequence[Traces], *, flows: bool = False) -> Traces:
    """Join data sets: all classes of the first are monitored, and no class of the others is.

    Names of the innocent classes begin with ``innocent:``, since both may have loaded the same pages. Page loads get
    new numbers. Columns that one data set lacks are dropped.

    Parameters
    ----------
    suspect, innocent
        What a censor looks for, and what it must not block.
    flows
        Make each connection a trace: a filter decides on each alone. Connections without packets are left out.

    """
    parts = [suspect, *innocent]
    if not len(suspect) or not any(len(i) for i in innocent):
        raise EvalError("detection", "there are no traces of one of the two kinds")
    if flows:
        parts = [p.by_connection() for p in parts]
        parts = [p[p.lengths > 0] for p in parts]
    names = [[f"innocent:{n}" if i else n for n in p.names] for i, p in enumerate(parts)]
    known = tuple(sorted({n for some in names for n in some}))
    monitored = np.array([not n.startswith("innocent:") or n in names[0] for n in known])
    if both := set(names[0]) & {n for some in names[1:] for n in some}:
        raise EvalError(sorted(both)[0], "a class of the first data set has the name of an innocent one")
    place = {n: i for i, n in enumerate(known)}
    renamed, loads = [], 0
    for part, mine in zip(parts, names, strict=True):
        _, load = np.unique(part.load, return_inverse=True)
        label = np.array([place[n] for n in mine], np.int32)[part.label]
        renamed.append(replace(part, names=known, monitored=monitored, label=label, load=load + loads))
        loads += int(load.max(initial=-1)) + 1
    return Traces.concat(renamed)


def times(trained: Sequence[tuple[Any, Traces, NDArray[np.int32]]]) -> dict[str, dict[str, float | None]]:
    """How soon flows are detected by an attack that decides packet by packet, as :meth:`TorDetector.detected` does.

    Parameters
    ----------
    trained
        Trained attacks, with traces of the two classes that they have not seen, and their classes.

    Returns
    -------
    dict
        For ``suspect`` and ``innocent`` traces the ``share`` that is detected, and the ``median_s`` until then, in
        seconds from the first packet; None where none is.

    """
    out: dict[str, dict[str, float | None]] = {}
    for side, name in ((-1, "suspect"), (0, "innocent")):
        found = np.concatenate([f.detected(t[y == f.classes_[side]]) for f, t, y in trained])
        seconds = found[~np.isnan(found)]
        out[name] = {
            "share": len(seconds) / len(found) if len(found) else None,
            "median_s": float(np.median(seconds)) if len(seconds) else None,
        }
    return out
