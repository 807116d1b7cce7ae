"""Padding of sizes: each packet grows to one of few sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from heddle_eval.defences.spelling import Spelled, option
from heddle_eval.traces import BARE, Traces


@dataclass(frozen=True)
class Padding(Spelled):
    """Sizes grow to the next multiple, but a packet that fits the MTU not beyond it.

    A packet above the MTU stands for several that a network card joined: it is full ones and a rest, and the rest
    grows.
    """

    multiple: int = option(0, "bytes: sizes grow to the next multiple; 0: to the MTU")
    mtu: int = option(1500, "bytes of the largest packet that the network carries")

    name: ClassVar[str] = "pad"
    claim: ClassVar[str] = "hides sizes of packets up to the multiple; does not hide their number, order or times"
    source: ClassVar[str] = "Dyer et al., IEEE S&P 2012, section III"
    presets: ClassVar = {"mtu": {}, "128": {"multiple": 128}, "512": {"multiple": 512}}

    def __post_init__(self) -> None:
        self.check(1 <= self.mtu <= 65535, "mtu", "it must be from 1 to 65535")
        self.check(0 <= self.multiple <= self.mtu, "multiple", "it must be from 0 to the MTU")

    def apply(self, traces: Traces, rng: np.random.Generator) -> Traces:
        """Let packets grow; see :class:`heddle_eval.defences.base.Defence`. Nothing is drawn."""
        size = np.abs(traces.size.astype(np.int64))
        full, rest = np.divmod(size, self.mtu)
        step = self.multiple or self.mtu
        grown = full * self.mtu + np.minimum(-(-rest // step) * step, self.mtu)
        return replace(traces, size=(np.sign(traces.size) * grown).astype(np.int32), **BARE)
