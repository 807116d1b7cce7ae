"""Splitting: each observer sees one path's packets (CoMPS sections 3.3 and 4.2; TrafficSliver; HyWF)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from heddle_eval.defences.packets import offsets, parts, running_max, within
from heddle_eval.defences.schedules import Every, Strategy, by_strategy, draw, random_batches
from heddle_eval.defences.spelling import Spelled, option
from heddle_eval.errors import EvalError
from heddle_eval.traces import BARE, WHOLE, Traces

Directions = Literal["both", "own", "follow"]


@dataclass(frozen=True)
class _Splitting(Spelled, ABC):
    """What all ways of splitting share.

    Of each load comes one trace for each path that carried anything, in order of load and path; a path without
    packets gives no trace.
    """

    paths: int = option(3, "how many paths there are")
    directions: Directions = option(
        "both",
        "both: one schedule over all packets, as CoMPS simulates; own: one for each direction; "
        "follow: the client's packets have one, and the server answers on the path that it last heard from",
    )
    latency: tuple[float, ...] = option((), "seconds that each path adds to its packets' times, one for each path")
    jitter: float = option(0.0, "seconds up to which each packet is late besides, evenly drawn; none overtakes another")
    drop: int = option(0, "leave out sub-traces of so many packets or fewer; CoMPS's simulator: 10")
    rezero: bool = option(False, "start the time of each sub-trace at 0, as CoMPS's simulator")

    def __post_init__(self) -> None:
        self.check(1 <= self.paths <= 1000, "paths", "there must be 1 to 1000")
        self.check(len(self.latency) in (0, self.paths), "latency", f"give one for each of {self.paths} paths")
        self.check(all(0 <= v < 60 for v in self.latency), "latency", "each must be from 0 to 60 seconds")
        self.check(0 <= self.jitter < 60, "jitter", "it must be from 0 to 60 seconds")
        self.check(self.drop >= 0, "drop", "it cannot be negative")

    @abstractmethod
    def _schedule(
        self, lengths: NDArray[np.int64], time: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.intp]:
        """(P,) path of each packet of runs of those lengths."""

    def _left_whole(self, lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(N,) which traces are not split at all."""
        return np.zeros(len(lengths), bool)

    def apply(self, traces: Traces, rng: np.random.Generator) -> Traces:
        """Split each whole trace; see :class:`heddle_eval.defences.base.Defence`."""
        if (traces.path != WHOLE).any():
            raise EvalError(self.name, "the traces are split already", "split what was recorded on one path")
        # All packets stay, so the answer is filled in place: joining parts would copy everything once more.
        time, size, dummy = np.empty_like(traces.time), np.empty_like(traces.size), np.empty_like(traces.dummy)
        counts = np.zeros((len(traces), self.paths), np.int64)
        whole = self._left_whole(traces.lengths)
        for part in parts(traces):
            here = slice(traces.offset[part.start], traces.offset[part.stop])
            lengths = traces.lengths[part]
            path = self._paths(lengths, traces.time[here], traces.size[here], rng)
            path[np.repeat(whole[part], lengths)] = 0
            order, counts[part] = _grouped(path, lengths, self.paths)
            time[here], size[here], dummy[here] = (
                traces.time[here][order],
                traces.size[here][order],
                traces.dummy[here][order],
            )
            time[here] = self._late(time[here], counts[part], rng)
        row, path = np.nonzero(counts)
        split = replace(
            traces,
            time=time,
            size=size,
            dummy=dummy,
            offset=offsets(counts[row, path]),
            label=traces.label[row],
            load=traces.load[row],
            path=np.where(whole[row], WHOLE, path).astype(np.int16),
            **BARE,
        )
        return self._as_simulated(split)

    def _paths(
        self,
        lengths: NDArray[np.int64],
        time: NDArray[np.float64],
        size: NDArray[np.int32],
        rng: np.random.Generator,
    ) -> NDArray[np.intp]:
        if self.directions == "both":
            return self._schedule(lengths, time, rng)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        path = np.zeros(len(time), np.intp)
        up = size > 0
        for mine in (up, ~up) if self.directions == "own" else (up,):
            path[mine] = self._schedule(np.bincount(owner[mine], minlength=len(lengths)), time[mine], rng)
        if self.directions == "follow":
            _answer(path, up, lengths)
        return path

    def _late(
        self, time: NDArray[np.float64], counts: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Give times as each path's observer has them; packets are grouped by trace and path."""
        per_path = counts.ravel()
        if self.latency:
            time = time + np.repeat(np.tile(self.latency, len(counts)), per_path)
        if self.jitter:
            time = running_max(time + rng.uniform(0, self.jitter, len(time)), per_path)
        return time

    def _as_simulated(self, split: Traces) -> Traces:
        """Do what CoMPS's simulator does besides, where asked for."""
        if self.drop:
            split = split[split.lengths > self.drop]
        if self.rezero:
            starts = split.time[split.offset[:-1][split.lengths > 0]]
            time = split.time - np.repeat(starts, split.lengths[split.lengths > 0])
            split = replace(split, time=time)
        return split


def _grouped(
    path: NDArray[np.intp], lengths: NDArray[np.int64], paths: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order that puts packets by trace, path and time, and the (N, paths) number of packets of each."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    counts = np.bincount(owner * paths + path, minlength=len(lengths) * paths).reshape(-1, paths)
    starts = offsets(counts.ravel())[:-1].reshape(-1, paths)
    order = np.empty(len(path), np.int64)
    for p in range(paths):
        order[np.repeat(starts[:, p], counts[:, p]) + within(counts[:, p])] = np.flatnonzero(path == p)
    return order, counts


def _answer(path: NDArray[np.intp], up: NDArray[np.bool_], lengths: NDArray[np.int64]) -> None:
    """Give each packet of the server the path of the client's packet before it, or of the client's first."""
    starts = offsets(lengths)[:-1]
    last = np.maximum.accumulate(np.where(up, np.arange(len(up)), -1))
    begin = np.repeat(starts, lengths)
    after = np.minimum.accumulate(np.where(up, np.arange(len(up)), len(up))[::-1])[::-1]
    heard = np.where(last >= begin, last, np.where(after < begin + np.repeat(lengths, lengths), after, -1))
    # A trace without packets of the client stays on path 0.
    path[~up] = np.where(heard >= 0, path[heard], 0)[~up]


@dataclass(frozen=True)
class Split(_Splitting):
    """Batches of packets or of time, each sent over a path that the strategy names (CoMPS section 4.2.1)."""

    strategy: Strategy = option("weighted", "how a batch's path is chosen; weighted: Dirichlet(1..1) for each load")
    every: str = option("50p", "length of a batch: packets as 50p, time as 100ms")
    weights: tuple[float, ...] = option((), "share of each path, for fixed")
    keep_short: bool = option(False, "leave traces of at most paths x every packets whole, as CoMPS's simulator")

    name: ClassVar[str] = "split"
    claim: ClassVar[str] = (
        "hides from each network what went over the others; does not hide from who sees all paths; changes no packet"
    )
    source: ClassVar[str] = "CoMPS, 2022, section 4.2"
    presets: ClassVar = {s: {"strategy": s} for s in ("weighted", "uniform", "round-robin", "fixed")}

    def __post_init__(self) -> None:
        super().__post_init__()
        every = Every.read(self.every)
        fixed = self.strategy == "fixed"
        self.check(len(self.weights) == (self.paths if fixed else 0), "weights", "fixed takes one for each path")
        self.check(not fixed or (min(self.weights) >= 0 and 0 < sum(self.weights) < np.inf), "weights", "they sum to 0")
        self.check(not self.keep_short or every.packets > 0, "keep_short", "it goes with batches of packets")

    def _schedule(
        self, lengths: NDArray[np.int64], time: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.intp]:
        batch = Every.read(self.every).batches(lengths, time)
        return by_strategy(self.strategy, self.paths, self.weights, batch, lengths, rng)

    def _left_whole(self, lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self.keep_short & (lengths <= self.paths * Every.read(self.every).packets)


@dataclass(frozen=True)
class TrafficSliver(_Splitting):
    """Batched weighted random: batches of an evenly drawn number of packets, weights from Dirichlet(1..1)."""

    paths: int = option(5, "how many paths there are")
    smallest: int = option(50, "fewest packets of a batch")
    largest: int = option(70, "most packets of a batch")

    name: ClassVar[str] = "trafficsliver"
    claim: ClassVar[str] = Split.claim
    source: ClassVar[str] = "De la Cadena et al., CCS 2020"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(1 <= self.smallest <= self.largest, "smallest", "it must be from 1 to largest")

    def _schedule(
        self, lengths: NDArray[np.int64], time: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.intp]:
        per_run = -(-lengths // self.smallest)
        sizes = rng.integers(self.smallest, self.largest + 1, int(per_run.sum()))
        run, packets = random_batches(lengths, sizes, per_run)
        chances = rng.dirichlet(np.ones(self.paths), size=len(lengths))
        return np.repeat(draw(chances, run, rng), packets)


@dataclass(frozen=True)
class HyWF(_Splitting):
    """Two paths, and bursts of a geometrically drawn number of packets.

    With ``redraw=burst`` each burst draws the share of path 1 anew and its packets take a path each by it; with
    ``redraw=load`` the load draws it once and each burst goes over one path as a whole.
    """

    paths: int = option(2, "how many paths there are: two")
    mean: float = option(20.0, "packets of a burst on average")
    redraw: Literal["burst", "load"] = option("burst", "when the probability of the second path is drawn anew")

    name: ClassVar[str] = "hywf"
    claim: ClassVar[str] = Split.claim
    source: ClassVar[str] = "Henri et al., PETS 2020"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(self.paths == 2, "paths", "HyWF has two")
        self.check(1 <= self.mean < np.inf, "mean", "it must be at least 1")

    def _schedule(
        self, lengths: NDArray[np.int64], time: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.intp]:
        run, packets = random_batches(lengths, rng.geometric(1 / self.mean, int(lengths.sum())), lengths)
        if self.redraw == "load":
            chance = rng.random(len(lengths))
            return np.repeat((rng.random(len(run)) < chance[run]).astype(np.intp), packets)
        chance = np.repeat(rng.random(len(run)), packets)
        return (rng.random(len(chance)) < chance).astype(np.intp)
