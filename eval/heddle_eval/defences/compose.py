"""One defence after another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heddle_eval.defences.base import Defence
from heddle_eval.traces import Traces


@dataclass(frozen=True)
class Then:
    """Defences in order: each gets what the one before it made, and takes its dummies for packets.

    With no defence at all, traces stay as they are.
    """

    steps: tuple[Defence, ...] = ()

    def apply(self, traces: Traces, rng: np.random.Generator) -> Traces:
        """Apply each in turn; see :class:`heddle_eval.defences.base.Defence`."""
        for step in self.steps:
            traces = step.apply(traces, rng)
        return traces

    def __str__(self) -> str:
        return " then ".join(map(str, self.steps)) or "none"

    def describe(self) -> str:
        """Say a line for each."""
        return "\n".join(step.describe() for step in self.steps) or "none: hides nothing"
