"""How a deep attack learns: one loop over batches, on JAX.

The state of a training is three lists of arrays, which :class:`Program` turns into the next ones; everything else (the
order of traces, the learning rate) follows from the seed, the epoch and the history. So a training that was killed goes
on from its last epoch as if nothing had been.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from heddle_eval.attacks import networks
from heddle_eval.attacks.backend import jax, keras
from heddle_eval.errors import EvalError
from heddle_eval.files import atomically

Inputs = tuple[NDArray[np.float32], ...]
Epoch = dict[str, float]
"""Of one epoch: ``epoch`` from 1, ``loss``, ``rate``, ``seconds``, and ``val_loss``, ``val_accuracy`` if measured."""


class State(NamedTuple):
    """All that changes in training: weights, what is not trained (averages, seeds of dropout), and the optimiser's."""

    weights: list[Any]
    other: list[Any]
    optimizer: list[Any]


class Program:
    """A network and its optimiser, compiled once and used for any weights of that shape."""

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.rate_at = next(i for i, v in enumerate(optimizer.variables) if v is optimizer.learning_rate)
        self.step, self.forward = jax.jit(self._step), jax.jit(self._forward)

    def _step(
        self, state: State, rate: jax.Array, inputs: list[jax.Array], codes: jax.Array
    ) -> tuple[State, jax.Array]:
        def loss(weights: list[jax.Array]) -> tuple[jax.Array, tuple]:
            logits, other, penalties = self.model.stateless_call(
                weights, state.other, _alone(inputs), training=True, return_losses=True
            )
            return _cross_entropy(logits, codes).mean() + sum(penalties), other

        (value, other), gradients = jax.value_and_grad(loss, has_aux=True)(state.weights)
        optimizer = list(state.optimizer)
        optimizer[self.rate_at] = rate
        weights, optimizer = self.optimizer.stateless_apply(optimizer, gradients, state.weights)
        return State(weights, other, optimizer), value

    def _forward(self, weights: list[jax.Array], other: list[jax.Array], inputs: list[jax.Array]) -> jax.Array:
        logits, _ = self.model.stateless_call(weights, other, _alone(inputs), training=False)
        return logits

    def logits(self, state: State, inputs: Inputs, batch: int) -> NDArray[np.float32]:
        """(N, classes) what the network says, by batches of one size, so that it is compiled once."""
        out = []
        for start in range(0, len(inputs[0]), batch):
            part = [a[start : start + batch] for a in inputs]
            short = batch - len(part[0])
            whole = [np.pad(a, [(0, short)] + [(0, 0)] * (a.ndim - 1)) for a in part] if short else part
            out.append(np.asarray(self.forward(state.weights, state.other, whole))[: len(part[0])])
        return np.concatenate(out)


def _alone(inputs: list[Any]) -> Any:
    """Take a single input out of its list, as Keras wants it."""
    return inputs[0] if len(inputs) == 1 else inputs


def _cross_entropy(logits: Any, codes: Any) -> Any:
    return -jax.numpy.take_along_axis(jax.nn.log_softmax(logits), codes[:, None], 1)[:, 0]


PROGRAMS = 16
"""Compiled networks that are kept at most."""
_programs: dict[str, Program] = {}


class Recipe(Protocol):
    """What the loop must know of an attack."""

    seed: int
    epochs: int
    batch: int
    patience: int | None
    least: int
    validation: float
    checkpoint: str | None

    def architecture(self) -> tuple[str, dict[str, Any]]:
        """Name the function of :mod:`heddle_eval.attacks.networks`, and its arguments."""

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Make the optimiser."""

    def rate(self, step: int, history: list[Epoch], epochs: int) -> float:
        """Learning rate of a batch, given its number, the epochs before, and how many there may be."""

    def identity(self) -> dict[str, Any]:
        """All parameters on which the result depends."""


def network(recipe: Recipe, classes: int, seed: int | None) -> keras.Model:
    """Make the network of an attack; without a seed, its weights are all 0."""
    name, arguments = recipe.architecture()
    return getattr(networks, name)(**arguments, classes=classes, seed=seed)


def build(recipe: Recipe, classes: int) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """Make a network, its first weights, and its optimiser."""
    model = network(recipe, classes, recipe.seed)
    optimizer = recipe.optimizer()
    optimizer.build(model.trainable_variables)
    return model, optimizer


def program(recipe: Recipe, classes: int) -> Program:
    """Give the compiled network of an attack; all attacks of the same network and optimiser share it."""
    key = json.dumps([recipe.architecture(), classes, type(recipe.optimizer()).__name__])
    if key not in _programs:
        while len(_programs) >= PROGRAMS:
            _programs.pop(next(iter(_programs)))
        _programs[key] = Program(*build(recipe, classes))
    return _programs[key]


def fresh(recipe: Recipe, classes: int) -> State:
    """Give the state in which a training begins."""
    model, optimizer = build(recipe, classes)
    lists = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    return State(*([v.value for v in variables] for variables in lists))


def hold_out(load: NDArray[np.int64], codes: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """(N,) which traces are kept for validation: that share of each class's page loads, all traces of a load together.

    At least one load of a class of three or more, none of a smaller one.
    """
    loads, first, of = np.unique(load, return_index=True, return_inverse=True)
    kept = np.zeros(len(loads), bool)
    rng = np.random.default_rng([seed, 1])
    for c in np.unique(codes[first]) if share > 0 else ():
        mine = rng.permutation(np.flatnonzero(codes[first] == c))
        kept[mine[: max(1, round(share * len(mine))) if len(mine) > 2 else 0]] = True
    return kept[of]


def batches(traces: int, batch: int, seed: int, epoch: int) -> Iterator[NDArray[np.int64]]:
    """Give the indices of each batch, in an order of this epoch.

    All are of one size, so that it is compiled once: the last is filled up from the beginning of the order.
    """
    order = np.random.default_rng([seed, 2, epoch]).permutation(traces)
    order = np.resize(order, -(-traces // batch) * batch)
    return iter(order.reshape(-1, batch))


def train(
    recipe: Recipe, inputs: Inputs, codes: NDArray[np.int64], load: NDArray[np.int64], on_epoch: Callable[[Epoch], None]
) -> tuple[State, list[Epoch]]:
    """Train to the best epoch.

    Parameters
    ----------
    recipe
        The attack.
    inputs
        Arrays of N rows that the network takes.
    codes
        (N,) class of each, from 0.
    load
        (N,) page load of each.
    on_epoch
        Called after each epoch, once it is in the checkpoint.

    Returns
    -------
    The state of the epoch of highest validation accuracy (of those, lowest loss), or of the last epoch where no trace
    could be held out; and the history.

    """
    classes = int(codes.max()) + 1
    compiled = program(recipe, classes)
    held = hold_out(load, codes, recipe.validation, recipe.seed)
    rows, kept = np.flatnonzero(~held), np.flatnonzero(held)
    batch = min(recipe.batch, len(rows))
    steps = -(-len(rows) // batch)
    run = Run.begin(recipe, steps, fresh(recipe, classes), inputs, codes, load)
    for epoch in range(len(run.history), 0 if run.done else run.epochs):
        began = time.perf_counter()
        losses = []
        for i, part in enumerate(batches(len(rows), batch, recipe.seed, epoch)):
            rate = recipe.rate(epoch * steps + i, run.history, run.epochs)
            at = rows[part]
            run.state, loss = compiled.step(run.state, np.float32(rate), [a[at] for a in inputs], codes[at])
            losses.append(loss)
        row = {"epoch": epoch + 1, "loss": float(np.mean(losses)), "rate": float(rate)}
        if len(kept):
            logits = compiled.logits(run.state, tuple(a[kept] for a in inputs), batch)
            row["val_loss"] = float(_cross_entropy(logits, codes[kept]).mean())
            row["val_accuracy"] = float((logits.argmax(1) == codes[kept]).mean())
        run.add(row | {"seconds": time.perf_counter() - began})
        on_epoch(run.history[-1])
        if run.done:
            break
    return run.best, run.history


@dataclass
class Run:
    """A training so far, and where it is kept."""

    epochs: int
    patience: int | None
    state: State
    best: State
    history: list[Epoch] = field(default_factory=list)
    file: Path | None = None

    @classmethod
    def begin(
        cls, recipe: Recipe, steps: int, state: State, inputs: Inputs, codes: NDArray[np.int64], load: NDArray[np.int64]
    ) -> Run:
        """Start, or go on from the checkpoint of the same attack on the same data.

        An epoch of so few steps that all would be less than the recipe's least counts for less: there are more of them,
        and more patience.
        """
        more = max(1.0, recipe.least / (recipe.epochs * steps))
        patience = None if recipe.patience is None else math.ceil(recipe.patience * more)
        run = cls(math.ceil(recipe.epochs * more), patience, state, state)
        if recipe.checkpoint:
            digest = hashlib.blake2b(json.dumps([type(recipe).__qualname__, recipe.identity()]).encode(), digest_size=8)
            for array in (*inputs, codes, load):
                digest.update(np.ascontiguousarray(array).data)
            run.file = Path(recipe.checkpoint) / f"{type(recipe).__name__.lower()}-{digest.hexdigest()}.npz"
            if run.file.exists():
                run._load()
        return run

    @property
    def done(self) -> bool:
        """Whether all epochs are over, or the last ones brought nothing better."""
        late = self.patience is not None and len(self.history) - self._best_epoch() >= self.patience
        return len(self.history) >= self.epochs or (late and "val_loss" in self.history[-1])

    def _best_epoch(self) -> int:
        """Count the epochs up to the best one."""
        if not self.history or "val_loss" not in self.history[-1]:
            return len(self.history)
        return 1 + max(range(len(self.history)), key=lambda i: _merit(self.history[i]))

    def add(self, row: Epoch) -> None:
        """Note an epoch and write the checkpoint."""
        self.history.append(row)
        if self._best_epoch() == len(self.history):
            self.best = self.state
        if self.file:
            self._save()

    def _save(self) -> None:
        # What is over needs only its best state.
        states = {"best": self.best} if self.done else {"best": self.best, "state": self.state}
        arrays: dict[str, Any] = {
            f"{name}/{part}/{i}": np.asarray(a)
            for name, state in states.items()
            for part, values in state._asdict().items()
            for i, a in enumerate(values)
        }
        assert self.file is not None
        with atomically(self.file) as out:
            np.savez(out, history=json.dumps(self.history), **arrays)

    def _load(self) -> None:
        assert self.file is not None
        try:
            with np.load(self.file) as stored:
                self.history = json.loads(str(stored["history"]))

                def state(name: str) -> State:
                    like = self.state._asdict()
                    return State(*([stored[f"{name}/{p}/{i}"] for i in range(len(v))] for p, v in like.items()))

                self.best = state("best")
                self.state = self.best if self.done else state("state")
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as e:
            raise EvalError(
                str(self.file), f"it is no checkpoint of this attack: {e}", "delete it to start anew"
            ) from e


def _merit(row: Epoch) -> tuple[float, float]:
    return row["val_accuracy"], -row["val_loss"]


def reductions(scores: list[float], patience: int, least: float = 1e-4) -> int:
    """Count the times that a score stood still for so many epochs, since it last rose or was last counted."""
    best, still, count = -np.inf, 0, 0
    for score in scores:
        if score > best + least:
            best, still = score, 0
        elif (still := still + 1) >= patience:
            still, count = 0, count + 1
    return count
