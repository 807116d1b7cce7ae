"""Intervals by the bootstrap over page loads, since the traces of a load are no independent samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
LEVEL = 0.95
AT_ONCE = 50
"""Resamples that are worked on together."""


def weights(
    load: NDArray[np.int64], stratum: NDArray[np.int64], resamples: int, rng: np.random.Generator
) -> Iterator[NDArray[np.float64]]:
    """Draw page loads with replacement, as many as there are in each stratum.

    Parameters
    ----------
    load
        (N,) page load of each trace.
    stratum
        (N,) what is drawn for itself, such as monitored and unmonitored loads, whose numbers were chosen and not
        found. A load has one stratum.
    resamples
        How often.
    rng
        Draws.

    Yields
    ------
    (at most :data:`AT_ONCE`, N) how often each trace counts.

    """
    _, first, of = np.unique(load, return_index=True, return_inverse=True)
    strata = [np.flatnonzero(stratum[first] == s) for s in np.unique(stratum)]
    for start in range(0, resamples, AT_ONCE):
        drawn = np.zeros((min(AT_ONCE, resamples - start), len(first)))
        for mine in strata:
            drawn[:, mine] = rng.multinomial(len(mine), np.full(len(mine), 1 / len(mine)), size=len(drawn))
        yield drawn[:, of]


def intervals(
    measure: Callable[[NDArray[np.float64]], dict[str, NDArray[np.float64]]],
    load: NDArray[np.int64],
    stratum: NDArray[np.int64],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> dict[str, dict[str, float | None]]:
    """Give each measure, and the percentile interval that resampling the loads gives it.

    Parameters
    ----------
    measure
        Takes (B, N) how often each trace counts, and gives (B,) values by name.
    load, stratum
        See :func:`weights`.
    resamples, level, seed
        Of the bootstrap.

    Returns
    -------
    dict
        For each measure ``value``, ``low`` and ``high``; None where it is not defined. Resamples in which it is not
        defined do not count.

    """
    point = measure(np.ones((1, len(load))))
    parts = [measure(w) for w in weights(load, stratum, resamples, np.random.default_rng(seed))]
    out = {}
    for name, value in point.items():
        drawn = np.concatenate([p[name] for p in parts]) if parts else np.empty(0)
        drawn = drawn[~np.isnan(drawn)]
        ends = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]) if len(drawn) else (np.nan, np.nan)
        out[name] = dict(zip(("value", "low", "high"), map(_number, (value[0], *ends)), strict=True))
    return out


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
