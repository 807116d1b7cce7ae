"""Histograms of waiting times with tokens, many copies at once (WTF-PAD, ESORICS 2016, section 4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BINS = 30
SPAN = 10.0
SAMPLES = 10_000
NEVER = BINS
"""The bin of waiting for ever."""
EDGES = np.concatenate([[0.0], SPAN / 2.0 ** np.arange(BINS - 1, -1, -1)])
"""(BINS + 1,) seconds: the last bin is from 5 to 10, each before it half as wide, the first from 0."""


def tokens(mu: float, sigma: float, never: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Give (BINS + 1,) tokens: those of 10,000 draws of Normal(mu, sigma) above 0, and ceil(sum / never)."""
    drawn = rng.normal(mu, sigma, SAMPLES)
    counts, _ = np.histogram(drawn[drawn > 0], EDGES)
    return np.append(counts, np.ceil(counts.sum() / never)).astype(np.int64)


class Histograms:
    """A copy of K histograms for each of n rows.

    Parameters
    ----------
    templates
        (K, BINS + 1) tokens at the start, and again whenever a histogram has run out.
    n
        Rows.

    """

    def __init__(self, templates: NDArray[np.int64], n: int) -> None:
        self.templates = templates.astype(np.int32)
        self.left = np.repeat(self.templates[None], n, axis=0)

    def sample(
        self, rows: NDArray[np.int64], which: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw a waiting time for each of (m,) rows, from one of its histograms: seconds (inf for ever), and the bin.

        Each token is as likely; within its bin the time is evenly drawn. No token is taken away.
        """
        below = self.left[rows, which].cumsum(axis=1)
        token = rng.random(len(rows)) * below[:, -1]
        bin_ = (below <= token[:, None]).sum(1)
        low, high = EDGES[np.minimum(bin_, BINS - 1)], EDGES[np.minimum(bin_, BINS - 1) + 1]
        wait = high - (high - low) * rng.random(len(rows))
        return np.where(bin_ == NEVER, np.inf, wait), bin_

    def take(self, rows: NDArray[np.int64], which: NDArray[np.int64], bin_: NDArray[np.int64]) -> None:
        """Take a token away: of the bin, else of the nearest one below that has any, else of the lowest that has.

        No pair of row and histogram may come twice.
        """
        empty = self.left[rows, which, bin_] == 0
        if empty.any():
            has = self.left[rows[empty], which[empty]] > 0
            below = has & (np.arange(BINS + 1) <= bin_[empty, None])
            highest_below = BINS - below[:, ::-1].argmax(1)
            bin_ = bin_.copy()
            bin_[empty] = np.where(below.any(1), highest_below, has.argmax(1))
        self.left[rows, which, bin_] -= 1
        # The last token of a histogram is hardly ever taken, so only those whose bin ran out are looked at.
        out = np.flatnonzero(self.left[rows, which, bin_] == 0)
        if len(out):
            out = out[self.left[rows[out], which[out]].sum(1) == 0]
            self.left[rows[out], which[out]] = self.templates[which[out]]


def bin_of(wait: NDArray[np.float64]) -> NDArray[np.int64]:
    """(m,) bin that each waiting time falls into; an edge belongs to the bin below it."""
    return np.searchsorted(EDGES[1:], wait, side="left")
