"""What a defence is."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from heddle_eval.traces import Traces


class Defence(Protocol):
    """Changes what an observer gets. Implementations are frozen dataclasses, whose fields are the parameters."""

    def apply(self, traces: Traces, rng: np.random.Generator) -> Traces:
        """Give the defended data set; the original is left as it is.

        Real packets keep their order within each direction and are neither lost nor made; made packets are marked
        as dummies. Loads, labels and names stay.
        """
        ...

    def describe(self) -> str:
        """Say in a line what it is, and what it hides."""
        ...
