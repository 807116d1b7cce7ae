"""The deep attacks, as scikit-learn classifiers over traces."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from heddle_eval.attacks import inputs, training
from heddle_eval.attacks.backend import keras
from heddle_eval.attacks.base import FromProba, checked
from heddle_eval.errors import EvalError
from heddle_eval.traces import Traces

if TYPE_CHECKING:
    from rich.progress import Progress

TRACES_AT_ONCE = 4096


@dataclass(eq=False, repr=False)
class Deep(FromProba, ClassifierMixin, BaseEstimator, ABC):
    """What the deep attacks have in common.

    Parameters
    ----------
    width
        Scales filters and dense units; 1 is the published network.
    epochs
        At most.
    patience
        Stop after so many epochs without a better one; None never does.
    least
        Batches at least: on few traces the epochs, and the patience, become more in proportion, as the averages of the
        normalisations need some hundred batches to settle. 0 leaves the epochs as published.
    validation
        Share of each class's page loads that is held out to find the best epoch.
    batch
        Traces of a batch.
    learning_rate
        At the beginning.
    falls
        Let the learning rate fall over the epochs to nothing, by half a cosine (Loshchilov and Hutter, ICLR 2017,
        without restarts), where the attack has no schedule of its own: few epochs then end as well as many would.
    checkpoint
        Folder in which each epoch is kept; the same training begun again goes on from there, or, where it was over,
        is not done again.
    progress
        True shows each epoch on standard error; a function is given it.
    seed
        Of weights, dropout, held-out loads and the order of traces.

    """

    width: float = 1.0
    epochs: int = 30
    patience: int | None = None
    least: int = 0
    validation: float = 0.1
    batch: int = 128
    learning_rate: float = 0.002
    falls: bool = False
    checkpoint: str | None = None
    progress: bool | Callable[[training.Epoch], None] = False
    seed: int = 0

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn from N traces and their (N,) classes; siblings of a page load stay together in the held-out part."""
        self.classes_, codes = checked(X, y)
        self._prepare(X)
        with Reporter(self) as report:
            self.state_, self.history_ = training.train(self, self.inputs(X), codes.astype(np.int32), X.load, report)
        weights, other = ([np.asarray(a) for a in part] for part in self.state_[:2])
        self.state_ = training.State(weights, other, [])
        return self

    def predict_proba(self, X: Traces) -> NDArray[np.float64]:
        """Give an (N, classes) matrix of confidence; each row sums to 1."""
        logits = [np.empty((0, len(self.classes_)), np.float32)]
        if len(X):
            program = training.program(self, len(self.classes_))
        for start in range(0, len(X), TRACES_AT_ONCE):
            logits.append(program.logits(self.state_, self.inputs(X[start : start + TRACES_AT_ONCE]), self.batch))
        raised = np.concatenate(logits).astype(np.float64)
        raised = np.exp(raised - raised.max(1, keepdims=True, initial=-np.inf))
        return raised / raised.sum(1, keepdims=True)

    def _prepare(self, X: Traces) -> None:
        """Learn from the training traces what :meth:`inputs` needs."""

    @abstractmethod
    def inputs(self, X: Traces) -> training.Inputs:
        """Arrays of N rows that the network takes."""

    @abstractmethod
    def architecture(self) -> tuple[str, dict[str, Any]]:
        """Name the function of :mod:`heddle_eval.attacks.networks`, and its arguments."""

    def parameters(self, classes: int) -> int:
        """Count the weights of the network, with the averages of its normalisations."""
        return training.network(self, classes, None).count_params()

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Make the optimiser."""
        return keras.optimizers.Adamax(self.learning_rate)

    def rate(self, step: int, history: list[training.Epoch], epochs: int) -> float:
        """Learning rate of a batch, given its number, the epochs before, and how many there may be."""
        if not self.falls:
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * (len(history) + 0.5) / epochs)) / 2

    def identity(self) -> dict[str, Any]:
        """All parameters on which the result depends."""
        return {k: v for k, v in self.get_params().items() if k not in ("checkpoint", "progress")}


class Reporter:
    """Says on standard error how a training goes, or tells a function."""

    def __init__(self, attack: Deep) -> None:
        self.attack = attack
        self.bar: Progress | None = None

    def __enter__(self) -> Self:
        if self.attack.progress is True:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            text = TextColumn("{task.description}")
            self.bar = Progress(
                text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True)
            )
            self.bar.start()
            self.task = self.bar.add_task(type(self.attack).__name__, total=self.attack.epochs)
        return self

    def __call__(self, epoch: training.Epoch) -> None:
        """Take note of an epoch."""
        if self.bar:
            said = f"loss {epoch['loss']:.3f}"
            if "val_accuracy" in epoch:
                said += f", accuracy {epoch['val_accuracy']:.3f}"
            self.bar.update(self.task, completed=epoch["epoch"], description=f"{type(self.attack).__name__} {said}")
        elif callable(self.attack.progress):
            self.attack.progress(epoch)

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()


@dataclass(eq=False, repr=False)
class DF(Deep):
    """Deep Fingerprinting (Sirinam et al., CCS 2018): Adamax at 0.002, batches of 128, 30 epochs.

    Parameters are those of :class:`Deep`, and:

    Parameters
    ----------
    length
        Values that the network takes: one for each of the first packets.
    sees
        ``direction``, as published, or ``size``, the signed size, as in CoMPS; see :mod:`heddle_eval.attacks.inputs`.
    tail
        That share of the values, the last ones, stand for several packets each where training traces are longer than
        the network: for as many as let 99 of 100 traces be seen to their end. Of many pages the first packets are
        alike, and only how they go on, and how long, tells them apart. 0 leaves out what is beyond the length, as
        published.

    """

    length: int = 5000
    sees: str = "direction"
    tail: float = 0.0

    def _prepare(self, X: Traces) -> None:
        if not 0 <= self.tail < 1:
            raise EvalError("tail", f"{self.tail:g} is no share of the values", "it is less than 1; 0 for none")
        tail = round(self.tail * self.length)
        beyond = np.quantile(X.lengths, 0.99) - (self.length - tail)
        self.tail_ = (tail, max(1, math.ceil(beyond / tail))) if tail else (0, 1)

    def inputs(self, X: Traces) -> training.Inputs:
        """(N, length, 1)."""
        return (inputs.sequence(X, self.sees, self.length, *self.tail_),)

    def architecture(self) -> tuple[str, dict[str, Any]]:
        """Name the network and its arguments."""
        return "df", {"length": self.length, "width": self.width}


@dataclass(eq=False, repr=False)
class TikTok(DF):
    """Tik-Tok (Rahman et al., PETS 2020): the network of DF on direction x time, 40 epochs."""

    epochs: int = 40
    sees: str = "signed-time"


@dataclass(eq=False, repr=False)
class P1FP(DF):
    """p1-FP(C) (Oh et al., PETS 2019): plain gradient descent at 0.05 x 0.96 per 1000 batches, 40 epochs.

    Parameters are those of :class:`DF`.
    """

    epochs: int = 40
    batch: int = 64
    learning_rate: float = 0.05

    def architecture(self) -> tuple[str, dict[str, Any]]:
        """Name the network and its arguments."""
        return "p1fp", {"length": self.length, "width": self.width}

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Make the optimiser."""
        return keras.optimizers.SGD(self.learning_rate)

    def rate(self, step: int, history: list[training.Epoch], epochs: int) -> float:
        """Learning rate of a batch, given its number, the epochs before, and how many there may be."""
        return self.learning_rate * 0.96 ** (step / 1000)


@dataclass(eq=False, repr=False)
class RF(Deep):
    """Robust Fingerprinting (Shen et al., USENIX Security 2023).

    Adam at 0.0005, falling to a fifth over the 30 epochs, weight decay 0.001, batches of 200. Parameters are those of
    :class:`Deep`, and:

    Parameters
    ----------
    slots
        Of the traffic aggregation matrix.
    window
        Seconds that it covers.

    """

    batch: int = 200
    learning_rate: float = 0.0005
    slots: int = 1800
    window: float = inputs.WINDOW

    def inputs(self, X: Traces) -> training.Inputs:
        """(N, 2, slots, 1)."""
        return (inputs.aggregation(X, self.slots, self.window),)

    def architecture(self) -> tuple[str, dict[str, Any]]:
        """Name the network and its arguments."""
        return "rf", {"slots": self.slots, "width": self.width}

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Make the optimiser."""
        return keras.optimizers.Adam(self.learning_rate, epsilon=1e-8)

    def rate(self, step: int, history: list[training.Epoch], epochs: int) -> float:
        """Learning rate of a batch, given its number, the epochs before, and how many there may be."""
        return self.learning_rate * 0.2 ** (len(history) / epochs)


@dataclass(eq=False, repr=False)
class VarCNN(Deep):
    """One network of Var-CNN (Bhat et al., PETS 2019).

    Adam at 0.001, x sqrt(0.1) after 5 epochs without a better validation accuracy, stopped after 10, at most 150;
    batches of 50; 5 % of the loads held out. Parameters are those of :class:`Deep`, and:

    Parameters
    ----------
    length
        Packets that are seen.
    parts
        What it sees, joined by ``+``: sequences (``direction``, ``size``, ``gap``) and at most one of ``metadata``
        (7 totals) and ``size-metadata`` (12, as in CoMPS).

    """

    epochs: int = 150
    patience: int | None = 10
    validation: float = 0.05
    batch: int = 50
    learning_rate: float = 0.001
    length: int = 5000
    parts: str = "direction+metadata"

    def _split(self) -> tuple[list[str], list[str]]:
        parts = self.parts.split("+")
        totals = [p for p in parts if p.endswith("metadata")]
        unknown = set(parts) - {*inputs.SEQUENCES, "metadata", "size-metadata"}
        if unknown or len(totals) > 1:
            what = f"it cannot see {unknown.pop()!r}" if unknown else "it sees metadata twice"
            raise EvalError("Var-CNN", what, "parts is such as direction+metadata, or gap+size-metadata")
        return [p for p in parts if p not in totals], totals

    def _prepare(self, X: Traces) -> None:
        for part in self._split()[1]:
            totals = inputs.metadata(X, part == "size-metadata").astype(np.float64)
            deviation = totals.std(0)
            self.mean_, self.deviation_ = totals.mean(0), np.where(deviation > 0, deviation, 1)

    def inputs(self, X: Traces) -> training.Inputs:
        """(N, length, 1) for each sequence, then the standardised metadata."""
        sequences, totals = self._split()
        arrays = [inputs.sequence(X, s, self.length) for s in sequences]
        for part in totals:
            scaled = (inputs.metadata(X, part == "size-metadata") - self.mean_) / self.deviation_
            arrays.append(scaled.astype(np.float32))
        return tuple(arrays)

    def architecture(self) -> tuple[str, dict[str, Any]]:
        """Name the network and its arguments."""
        sequences, totals = self._split()
        columns = {"metadata": 7, "size-metadata": 12}[totals[0]] if totals else 0
        return "varcnn", {"lengths": [self.length] * len(sequences), "metadata": columns, "width": self.width}

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Make the optimiser."""
        return keras.optimizers.Adam(self.learning_rate)

    def rate(self, step: int, history: list[training.Epoch], epochs: int) -> float:
        """Learning rate of a batch, given its number, the epochs before, and how many there may be."""
        scores = [row["val_accuracy"] for row in history if "val_accuracy" in row]
        return max(1e-5, self.learning_rate * 0.1 ** (training.reductions(scores, 5) / 2))


@dataclass(eq=False, repr=False)
class VarCNNEnsemble(VarCNN):
    """Var-CNN whole: the mean confidence of a network on packets and one on the gaps between them.

    Parameters are those of :class:`VarCNN`, but:

    Parameters
    ----------
    parts
        What the first network sees.
    time_parts
        What the second sees.

    """

    time_parts: str = "gap+metadata"

    def members(self) -> list[VarCNN]:
        """Give the two networks."""
        params = {k: v for k, v in self.get_params().items() if k != "time_parts"}
        return [VarCNN(**params), VarCNN(**(params | {"parts": self.time_parts}))]

    def fit(self, X: Traces, y: NDArray[np.int_]) -> Self:
        """Learn from N traces and their (N,) classes."""
        self.members_ = [member.fit(X, y) for member in self.members()]
        self.classes_ = self.members_[0].classes_
        self.history_ = [row for member in self.members_ for row in member.history_]
        return self

    def predict_proba(self, X: Traces) -> NDArray[np.float64]:
        """Give an (N, classes) matrix of confidence; each row sums to 1."""
        return np.mean([member.predict_proba(X) for member in self.members_], 0)

    def parameters(self, classes: int) -> int:
        """Count the weights of both networks."""
        return sum(member.parameters(classes) for member in self.members())
