"""Numbers of many traces in one array: statistics of each trace at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Ragged:
    """N rows of different lengths; row i is ``values[offset[i]:offset[i + 1]]``.

    The statistics of an empty row are 0.

    Attributes
    ----------
    values
        (V,) the rows, one after the other.
    offset
        (N + 1,) where each row begins.

    """

    values: NDArray[np.float64]
    offset: NDArray[np.int64]

    @classmethod
    def of(cls, values: NDArray[np.generic], owner: NDArray[np.int64], rows: int) -> Ragged:
        """Make rows of values that are in the order of their owners, given the (V,) row of each."""
        counts = np.bincount(owner, minlength=rows)
        return cls(np.asarray(values, np.float64), np.concatenate([[0], np.cumsum(counts)]))

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(N,) length of each row."""
        return np.diff(self.offset)

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """(V,) row of each value."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def position(self) -> NDArray[np.int64]:
        """(V,) place of each value in its row, from 0."""
        return np.arange(len(self.values)) - np.repeat(self.offset[:-1], self.counts)

    def gaps(self) -> Ragged:
        """Give the differences of neighbours; a row of n values has n - 1, one of none has none."""
        inner = np.flatnonzero(self.position > 0)
        return Ragged.of(self.values[inner] - self.values[inner - 1], self.owner[inner], len(self.counts))

    def ordered(self) -> Ragged:
        """Sort each row, smallest first."""
        values = self.values.copy()
        # Rows sorted in place one by one beat one sort of all by two keys: each fits the cache.
        for a, b in zip(self.offset[:-1].tolist(), self.offset[1:].tolist(), strict=True):
            values[a:b].sort()
        return Ragged(values, self.offset)

    @cached_property
    def sum(self) -> NDArray[np.float64]:
        """(N,) sum of each row."""
        return np.bincount(self.owner, self.values, len(self.counts)).astype(np.float64, copy=False)

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """(N,) mean of each row."""
        return self.sum / np.maximum(self.counts, 1)

    @cached_property
    def variance(self) -> NDArray[np.float64]:
        """(N,) variance of each row, as of a whole population."""
        squares = (self.values - self.mean[self.owner]) ** 2
        return np.bincount(self.owner, squares, len(self.counts)) / np.maximum(self.counts, 1)

    @property
    def std(self) -> NDArray[np.float64]:
        """(N,) standard deviation of each row, as of a whole population."""
        return np.sqrt(self.variance)

    def quantile(self, q: float) -> NDArray[np.float64]:
        """(N,) quantile of rows that are in order, interpolated linearly, as :func:`numpy.quantile` does."""
        if not len(self.values):
            return np.zeros(len(self.counts))
        last = np.maximum(self.counts - 1, 0)
        at = q * last
        low = np.floor(at).astype(np.int64)
        start = np.minimum(self.offset[:-1], len(self.values) - 1)
        below = self.values[np.minimum(start + low, len(self.values) - 1)]
        above = self.values[np.minimum(start + np.minimum(low + 1, last), len(self.values) - 1)]
        return np.where(self.counts > 0, below + (above - below) * (at - low), 0.0)

    def head(self, length: int) -> NDArray[np.float64]:
        """(N, length) matrix of each row's beginning, filled with 0."""
        out = np.zeros((len(self.counts), length))
        position = self.position
        short = position < length
        out[self.owner[short], position[short]] = self.values[short]
        return out

    def pieces(self, number: int) -> NDArray[np.float64]:
        """(N, number) sums of each row's pieces; of n values, piece i begins at floor(i n / number)."""
        counts = self.counts[self.owner]
        # The last piece whose beginning is not behind the value: floor(((p + 1) * number - 1) / n).
        piece = ((self.position + 1) * number - 1) // np.maximum(counts, 1)
        flat = np.bincount(self.owner * number + piece, self.values, len(self.counts) * number)
        return flat.reshape(len(self.counts), number).astype(np.float64, copy=False)
