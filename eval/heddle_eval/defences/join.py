"""The observer of several paths: what was split comes together again, as far as that observer sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from heddle_eval.defences.packets import offsets
from heddle_eval.errors import EvalError
from heddle_eval.traces import BARE, WHOLE, Traces


def observe(
    traces: Traces, paths: int | Sequence[int], rng: np.random.Generator, *, of: int = 0, every_choice: bool = False
) -> Traces:
    """Join what an observer of k paths sees of each load, in order of time.

    Parameters
    ----------
    traces
        Split traces. Traces that are whole come through as they are.
    paths
        How many paths the observer sees, drawn anew for each load; or which ones, the same for every load.
    rng
        Draws the paths.
    of
        How many paths there are; 0 for as many as the data have. A path on which a load sent nothing counts too.
    every_choice
        Give one trace for each choice of k paths, instead of one at random: several traces are then of one load,
        and share packets.

    Returns
    -------
    Traces
        One for each load (and choice); its path is the lowest of those joined, or :data:`WHOLE` where the observer sees
        all of them. A load that sent nothing on them gives none.

    Raises
    ------
    EvalError
        Where there are not so many paths.

    """
    whole, split = traces[traces.path == WHOLE], traces[traces.path != WHOLE]
    of = of or int(split.path.max(initial=-1)) + 1
    if not len(split):
        return whole
    if split.path.max() >= of:
        raise EvalError("observe", f"a trace has path {split.path.max()}, and there are {of} paths")
    loads, load = np.unique(split.load, return_inverse=True)
    seen = _choices(paths, of, len(loads), rng, every_choice)
    joined = [_joined(split, load, mine, of) for mine in seen]
    return Traces.concat([whole, *joined]) if len(whole) else Traces.concat(joined)


def _choices(
    paths: int | Sequence[int], of: int, loads: int, rng: np.random.Generator, every_choice: bool
) -> list[NDArray[np.bool_]]:
    """List of (loads, of) matrices: which paths are seen of each load."""
    k = paths if isinstance(paths, int) else len(set(paths))
    if not 1 <= k <= of or (not isinstance(paths, int) and not all(0 <= p < of for p in paths)):
        raise EvalError("observe", f"paths {paths} of {of}", f"see 1 to {of} of them; their numbers start at 0")
    if isinstance(paths, int) and not every_choice:
        rank = rng.random((loads, of)).argsort(1).argsort(1)
        return [rank < k]
    sets = combinations(range(of), k) if isinstance(paths, int) else [tuple(paths)]
    return [np.tile(np.isin(np.arange(of), s), (loads, 1)) for s in sets]


def _joined(split: Traces, load: NDArray[np.intp], seen: NDArray[np.bool_], of: int) -> Traces:
    kept = np.flatnonzero(seen[load, split.path])
    rows, first, group = np.unique(load[kept], return_index=True, return_inverse=True)
    mine = split[kept]
    owner = np.repeat(group, mine.lengths)
    order = np.lexsort((mine.time, owner))
    lowest = seen.argmax(1)[rows]
    return replace(
        mine,
        time=mine.time[order],
        size=mine.size[order],
        dummy=mine.dummy[order],
        **BARE,
        offset=offsets(np.bincount(owner, minlength=len(rows))),
        label=mine.label[first],
        load=mine.load[first],
        path=np.where(seen[rows].sum(1) == of, WHOLE, lowest).astype(np.int16),
    )
