"""What an attack is."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.traces import Traces


class Attack(Protocol):
    """A scikit-learn classifier whose samples are traces; each is also a ``BaseEstimator``."""

    classes_: NDArray[np.int_]

    def get_params(self) -> dict[str, Any]:
        """Give the parameters by name."""
        ...

    def set_params(self, **parameters: Any) -> Self:
        """Change some of them."""
        ...

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn from N traces and their (N,) classes."""
        ...

    def predict_proba(self, X: Traces) -> NDArray[np.float64]:
        """Give an (N, classes) matrix of confidence; each row sums to 1."""
        ...


def checked(X: Traces, y: NDArray[np.int_]) -> tuple[NDArray[np.int_], NDArray[np.int64]]:
    """Refuse what no attack can learn from; give the classes and the (N,) place of each trace's class among them."""
    if not isinstance(X, Traces):
        raise EvalError("attack", f"it learns from Traces, not from {type(X).__name__}", "heddle_eval.parquet.read")
    y = np.asarray(y)
    if y.shape != X.shape:
        raise EvalError("attack", f"{len(X)} traces and labels of shape {y.shape}")
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise EvalError("attack", f"{len(classes)} class in the training data", "there must be two to tell apart")
    return classes, codes


class FromProba:
    """Predicts the class of the highest confidence."""

    def predict(self: Attack, X: Traces) -> NDArray[np.int_]:
        """(N,) most likely class of each trace."""
        return self.classes_[self.predict_proba(X).argmax(1)]
