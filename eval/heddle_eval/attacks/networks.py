"""The networks of the deep attacks, as published; they give logits, to which the attack applies the softmax.

``width`` scales the number of filters and of dense units: 1 is the published network. ``seed`` is of the first weights
and of the dropout; without one all weights are 0, which is quick and enough to count them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heddle_eval.attacks.backend import keras

Tensor: TypeAlias = keras.KerasTensor
layers: Any = keras.layers
ops: Any = keras.ops


BELL = 0.8796256610342398
"""Deviation of a normal variable that is drawn again when beyond 2."""


def scaled(units: int, width: float) -> int:
    """Units of a layer of which the published network has so many."""
    return max(1, round(units * width))


class Draw:
    """Draws first weights, and seeds of dropout layers. Keras would compile a program for each shape to do so."""

    def __init__(self, seed: int | None) -> None:
        self.rng = None if seed is None else np.random.default_rng(seed)

    def scaled(self, scale: float, fan: str, kind: str) -> Callable[..., NDArray[np.float32]]:
        """Give an initialiser of variance scale / fan, where fan is ``in``, ``out`` or their ``mean``."""

        def weights(shape: tuple[int, ...], dtype: object = None) -> NDArray[np.float32]:
            field = np.prod(shape[:-2])
            fans = {"in": field * shape[-2], "out": field * shape[-1], "mean": field * (shape[-2] + shape[-1]) / 2}
            deviation = (scale / fans[fan]) ** 0.5
            if kind == "truncated":
                return self.bell(deviation / BELL)(shape)
            if self.rng is None:
                return np.zeros(shape, np.float32)
            if kind == "normal":
                return self.rng.normal(0, deviation, shape).astype(np.float32)
            return self.rng.uniform(-(3**0.5) * deviation, 3**0.5 * deviation, shape).astype(np.float32)

        return weights

    def bell(self, deviation: float) -> Callable[..., NDArray[np.float32]]:
        """Give an initialiser of normal weights, drawn again when beyond two deviations."""

        def weights(shape: tuple[int, ...], dtype: object = None) -> NDArray[np.float32]:
            if self.rng is None:
                return np.zeros(shape, np.float32)
            out = self.rng.standard_normal(shape, np.float32)
            while (far := np.abs(out) > 2).any():
                out[far] = self.rng.standard_normal(int(far.sum()), np.float32)
            return np.float32(deviation) * out

        return weights

    def glorot(self) -> Callable[..., NDArray[np.float32]]:
        """Give the initialiser that is Keras' own where none is named."""
        return self.scaled(1, "mean", "uniform")

    def dropout(self, rate: float, name: str) -> keras.layers.Layer:
        """Make a dropout layer."""
        seed = 0 if self.rng is None else int(self.rng.integers(2**31))
        return layers.Dropout(rate, seed=seed, name=name)


def df(length: int, classes: int, width: float = 1, seed: int | None = 0) -> keras.Model:
    """Deep Fingerprinting (Sirinam et al., CCS 2018, section 4 and appendix A).

    Takes (length, 1). Four blocks of two convolutions of kernel 8, then two dense layers.
    """
    draw = Draw(seed)
    x = inputs = keras.Input((length, 1))
    for block, filters in enumerate((32, 64, 128, 256), 1):
        for number in (1, 2):
            conv = layers.Conv1D(
                scaled(filters, width),
                8,
                padding="same",
                kernel_initializer=draw.glorot(),
                name=f"block{block}_conv{number}",
            )
            x = conv(x)
            x = layers.BatchNormalization(name=f"block{block}_norm{number}")(x)
            x = layers.Activation("elu" if block == 1 else "relu", name=f"block{block}_act{number}")(x)
        x = layers.MaxPooling1D(8, 4, padding="same", name=f"block{block}_pool")(x)
        x = draw.dropout(0.1, f"block{block}_dropout")(x)
    x = layers.Flatten(name="flatten")(x)
    for number, dropout in ((1, 0.7), (2, 0.5)):
        x = layers.Dense(scaled(512, width), kernel_initializer=draw.glorot(), name=f"fc{number}")(x)
        x = layers.BatchNormalization(name=f"fc{number}_norm")(x)
        x = layers.Activation("relu", name=f"fc{number}_act")(x)
        x = draw.dropout(dropout, f"fc{number}_dropout")(x)
    return keras.Model(inputs, layers.Dense(classes, kernel_initializer=draw.glorot(), name="logits")(x))


class LocalResponseNormalization(keras.layers.Layer):
    """Divides by (1 + alpha * sum of squares over neighbouring channels) ^ beta (Krizhevsky et al., NIPS 2012)."""

    def __init__(self, radius: int = 5, alpha: float = 1e-4, beta: float = 0.75, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.radius, self.alpha, self.beta = radius, alpha, beta

    def call(self, x: Tensor) -> Tensor:
        """Normalise over the last axis."""
        channels = x.shape[-1]
        around = ops.pad(ops.square(x), [(0, 0)] * (len(x.shape) - 1) + [(self.radius, self.radius)])
        squares = sum(around[..., i : i + channels] for i in range(2 * self.radius + 1))
        return x / ops.power(1 + self.alpha * squares, self.beta)


def p1fp(length: int, classes: int, width: float = 1, seed: int | None = 0) -> keras.Model:
    """p1-FP(C) (Oh et al., PETS 2019, section 5), with the initial weights and the decay of the authors' library.

    Takes (length, 1). The authors hold it as an image one packet high: kernels of 1 x 12, and pools of 10 of which
    only the length matters.
    """
    draw = Draw(seed)
    x = inputs = keras.Input((length, 1))
    x = layers.Reshape((1, length, 1), name="image")(x)
    for block in (1, 2):
        x = layers.Conv2D(
            scaled(128, width),
            (1, 12),
            padding="same",
            activation="relu",
            kernel_initializer=draw.scaled(1, "in", "uniform"),
            kernel_regularizer=keras.regularizers.L2(0.0005),
            name=f"conv{block}",
        )(x)
        x = layers.MaxPooling2D((1, 10), padding="same", name=f"pool{block}")(x)
        x = LocalResponseNormalization(name=f"norm{block}")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(scaled(256, width), activation="tanh", kernel_initializer=draw.bell(0.02), name="fc")(x)
    x = draw.dropout(0.2, "dropout")(x)
    return keras.Model(inputs, layers.Dense(classes, kernel_initializer=draw.bell(0.02), name="logits")(x))


def varcnn(lengths: Sequence[int], metadata: int, classes: int, width: float = 1, seed: int | None = 0) -> keras.Model:
    """Var-CNN (Bhat et al., PETS 2019, section 4): a dilated residual network for each sequence, and metadata.

    Takes (length, 1) for each of the sequences, then (metadata,) where that is not 0.
    """
    draw = Draw(seed)
    inputs, parts = [], []
    for number, length in enumerate(lengths):
        inputs.append(keras.Input((length, 1), name=f"sequence{number}"))
        parts.append(_residual(inputs[-1], width, f"sequence{number}_", draw))
    if metadata:
        inputs.append(keras.Input((metadata,), name="metadata"))
        x = layers.Dense(scaled(32, width), kernel_initializer=draw.glorot(), name="metadata_fc")(inputs[-1])
        x = layers.BatchNormalization(name="metadata_norm")(x)
        parts.append(layers.Activation("relu", name="metadata_act")(x))
    x = parts[0]
    if len(parts) > 1:
        x = layers.Concatenate(name="together")(parts)
        x = layers.Dense(scaled(1024, width), kernel_initializer=draw.glorot(), name="fc")(x)
        x = layers.BatchNormalization(name="fc_norm")(x)
        x = layers.Activation("relu", name="fc_act")(x)
        x = draw.dropout(0.5, "fc_dropout")(x)
    return keras.Model(inputs, layers.Dense(classes, kernel_initializer=draw.glorot(), name="logits")(x))


def _residual(x: Tensor, width: float, name: str, draw: Draw) -> Tensor:
    """Eight residual blocks in four stages; each stage but the first halves the length."""

    def conv(x: Tensor, filters: int, kernel: int, at: str, stride: int = 1, dilation: int = 1) -> Tensor:
        x = layers.Conv1D(
            scaled(filters, width),
            kernel,
            strides=stride,
            dilation_rate=dilation,
            padding="causal" if kernel == 3 else "valid",
            use_bias=False,
            kernel_initializer=draw.scaled(2, "in", "truncated"),
            name=f"{name}{at}_conv",
        )(x)
        return layers.BatchNormalization(epsilon=1e-5, name=f"{name}{at}_norm")(x)

    x = layers.ZeroPadding1D(3, name=f"{name}pad")(x)
    x = layers.Activation("relu", name=f"{name}act")(conv(x, 64, 7, "first", stride=2))
    x = layers.MaxPooling1D(3, 2, padding="same", name=f"{name}pool")(x)
    for stage, filters in enumerate((64, 128, 256, 512)):
        for block, dilations in enumerate(((1, 2), (4, 8))):
            at = f"stage{stage}_block{block}"
            stride = 2 if stage and not block else 1
            shortcut = x if block else conv(x, filters, 1, f"{at}_short", stride)
            x = conv(x, filters, 3, f"{at}_a", stride, dilations[0])
            x = layers.Activation("relu", name=f"{name}{at}_a_act")(x)
            x = conv(x, filters, 3, f"{at}_b", dilation=dilations[1])
            x = layers.Add(name=f"{name}{at}_add")([x, shortcut])
            x = layers.Activation("relu", name=f"{name}{at}_act")(x)
    return layers.GlobalAveragePooling1D(name=f"{name}mean")(x)


def rf(slots: int, classes: int, width: float = 1, seed: int | None = 0, decay: float = 0.001) -> keras.Model:
    """Robust Fingerprinting (Shen et al., USENIX Security 2023, section 5.2) as in the authors' code.

    Takes (2, slots, 1), the traffic aggregation matrix. The mean of the last layer over time gives the logits, which a
    rectifier keeps from being negative. ``decay`` is the weight decay of the authors' optimiser, which is the gradient
    of half of it times the squares of all weights.
    """
    draw = Draw(seed)
    penalty = keras.regularizers.L2(decay / 2)

    def after(x: Tensor, name: str) -> Tensor:
        norm = layers.BatchNormalization(
            momentum=0.9, epsilon=1e-5, beta_regularizer=penalty, gamma_regularizer=penalty, name=f"{name}_norm"
        )
        return layers.Activation("relu", name=f"{name}_act")(norm(x))

    def settled(start: Callable) -> dict[str, object]:
        return {"kernel_initializer": start, "kernel_regularizer": penalty, "bias_regularizer": penalty}

    def conv2d(x: Tensor, filters: int, name: str) -> Tensor:
        x = layers.ZeroPadding2D(1, name=f"{name}_pad")(x)
        return after(layers.Conv2D(filters, (3, 6), **settled(draw.scaled(2, "out", "normal")), name=name)(x), name)

    def conv1d(x: Tensor, filters: int, name: str) -> Tensor:
        start = draw.scaled(1 / 3, "in", "uniform")
        return after(layers.Conv1D(filters, 3, padding="same", **settled(start), name=name)(x), name)

    few = scaled(32, width)
    x = inputs = keras.Input((2, slots, 1))
    x = conv2d(conv2d(x, few, "conv1"), few, "conv2")
    x = draw.dropout(0.1, "dropout1")(layers.MaxPooling2D((1, 3), name="pool1")(x))
    x = conv2d(conv2d(x, 2 * few, "conv3"), 2 * few, "conv4")
    x = draw.dropout(0.1, "dropout2")(layers.MaxPooling2D((2, 2), name="pool2")(x))
    # The authors cut the 64 rows of (channel, time) into 32: each new channel is two old ones, one after the other.
    x = layers.Permute((3, 1, 2), name="channels_first")(x)
    x = layers.Permute((2, 1), name="channels_last")(layers.Reshape((few, -1), name="pairs")(x))
    number = 5
    for filters in (128, 256):
        for _ in range(2):
            x = conv1d(x, scaled(filters, width), f"conv{number}")
            number += 1
        x = layers.MaxPooling1D(3, name=f"pool{number}")(x)
        x = draw.dropout(0.3, f"dropout{number}")(x)
    x = conv1d(x, scaled(512, width), f"conv{number}")
    x = conv1d(x, classes, "classes")
    return keras.Model(inputs, layers.GlobalAveragePooling1D(name="logits")(x))
