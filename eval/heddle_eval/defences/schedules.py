"""Which path each packet takes: pure, for all traces at once.

A run is a trace, or one direction of one. A schedule cuts each run into batches and gives each batch a path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from heddle_eval.defences.packets import offsets, within
from heddle_eval.errors import EvalError

Strategy = Literal["weighted", "uniform", "round-robin", "fixed"]


@dataclass(frozen=True)
class Every:
    """How long a batch is: so many packets, or so many microseconds."""

    packets: int = 0
    microseconds: int = 0

    @classmethod
    def read(cls, text: str) -> Every:
        """Read ``50p``, ``100ms``, ``2s`` or ``500us``."""
        match = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)(p|us|ms|s)", text)
        if match and match[2] == "p" and "." not in match[1] and int(match[1]) > 0:
            return cls(packets=int(match[1]))
        if match and match[2] != "p":
            microseconds = round(float(match[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[match[2]])
            if microseconds > 0:
                return cls(microseconds=microseconds)
        raise EvalError("every", f"{text!r} is no length of a batch", "50p are packets, 100ms or 2s are time")

    def batches(self, lengths: NDArray[np.int64], time: NDArray[np.float64]) -> NDArray[np.int64]:
        """Give the batch within its run that each packet falls into; time counts from 0 of the page load."""
        if self.packets:
            return within(lengths) // self.packets
        return np.rint(time * 1e6).astype(np.int64) // self.microseconds


def by_strategy(
    strategy: Strategy,
    paths: int,
    weights: Sequence[float],
    batch: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Give the (P,) path of each packet, by the batch that it is in.

    Round robin begins at path 0. Uniform draws each batch's path alone. Weighted draws one set of probabilities for
    each run, from Dirichlet(1, .., 1) (CoMPS section 4.2.1, after TrafficSliver). Fixed has its probabilities from
    the user.
    """
    if strategy == "round-robin":
        return batch % paths
    begins = np.ones(len(batch), bool)
    begins[1:] = batch[1:] != batch[:-1]
    begins[offsets(lengths)[:-1][lengths > 0]] = True
    first = np.flatnonzero(begins)
    if strategy == "uniform":
        chosen = rng.integers(paths, size=len(first))
    else:
        runs = np.repeat(np.arange(len(lengths)), lengths)[first]
        chosen = draw(probabilities(strategy, paths, weights, len(lengths), rng), runs, rng)
    return np.repeat(chosen, np.diff(np.append(first, len(batch))))


def probabilities(
    strategy: Strategy, paths: int, weights: Sequence[float], runs: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Give (runs, paths) probabilities."""
    if strategy == "weighted":
        return rng.dirichlet(np.ones(paths), size=runs)
    return np.tile(np.asarray(weights, float) / sum(weights), (runs, 1))


def draw(chances: NDArray[np.float64], runs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw a path for each of (B,) runs by (runs, paths) chances."""
    below = np.cumsum(chances, axis=1)[:, :-1]
    u = rng.random(len(runs))
    path = np.zeros(len(runs), np.intp)
    for column in below.T:
        path += u >= column[runs]
    return path


def random_batches(
    lengths: NDArray[np.int64], sizes: NDArray[np.int64], per_run: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut runs into batches of drawn sizes.

    Parameters
    ----------
    lengths
        (N,) packets of each run.
    sizes
        (sum of per_run,) drawn sizes of batches, run after run, enough for each run.
    per_run
        (N,) how many were drawn for each.

    Returns
    -------
    run, packets
        (B,) the run of each batch, and how many packets are in it; none is empty.

    """
    run = np.repeat(np.arange(len(lengths)), per_run)
    ends = np.cumsum(sizes)
    ends -= np.repeat(np.concatenate([[0], ends])[offsets(per_run)[:-1]], per_run)
    starts = ends - sizes
    packets = np.minimum(ends, lengths[run]) - np.minimum(starts, lengths[run])
    kept = packets > 0
    return run[kept], packets[kept]
