"""What an attack is."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from heddle_eval.traces import Traces


class Attack(Protocol):
    """A scikit-learn classifier whose samples are traces; each is also a ``BaseEstimator`` with ``get_params``."""

    classes_: NDArray[np.int_]

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn from N traces and their (N,) classes."""
        ...

    def predict_proba(self, X: Traces) -> NDArray[np.float64]:
        """Give an (N, classes) matrix of confidence; each row sums to 1."""
        ...
