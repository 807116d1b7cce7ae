"""Attacks and data for tests, which other processes can import too."""

from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from heddle_eval.errors import EvalError
from heddle_eval.traces import Traces


class ByLength(ClassifierMixin, BaseEstimator):
    """Tells a trace as the class whose training traces have the nearest mean length.

    ``log`` is a file that gets a line for each training.
    """

    def __init__(self, log="", fails=False, sleeps=0.0):
        self.log, self.fails, self.sleeps = log, fails, sleeps

    def fit(self, X, y):
        if self.fails:
            raise EvalError("fake", "it fails")
        if self.log:
            with Path(self.log).open("a") as f:
                f.write("fit\n")
        if self.sleeps:
            import time

            time.sleep(self.sleeps)
        self.classes_ = np.unique(y)
        self.mean_ = np.array([X.lengths[y == c].mean() for c in self.classes_])
        self.loads_ = set(X.load.tolist())
        return self

    def predict_proba(self, X):
        near = -np.abs(X.lengths[:, None] - self.mean_)
        raised = np.exp(near - near.max(1, keepdims=True))
        return raised / raised.sum(1, keepdims=True)


def pages(counts, paths=1, other=0, seed=0):
    """Page i has about 10 * (i + 1) packets on each path; others have about 5."""
    rng = np.random.default_rng(seed)
    lengths, labels, loads, path = [], [], [], []
    visits = [(f"p{i}", 10 * (i + 1)) for i, n in enumerate(counts) for _ in range(n)]
    visits += [(f"x{i:03}", 5) for i in range(other)]
    for load, (name, mean) in enumerate(visits):
        for p in range(paths):
            lengths.append(mean + rng.integers(-2, 3))
            labels.append(name)
            loads.append(load)
            path.append(p if paths > 1 else -1)
    sized = [(np.arange(n) / 100, np.where(np.arange(n) % 3, -1400, 90)) for n in lengths]
    return Traces.build(sized, labels, load=loads, path=path, unmonitored=[f"x{i:03}" for i in range(other)])
