"""Keras on JAX: the one place that chooses it. Import Keras and JAX from here."""

from __future__ import annotations

import os
import sys

from heddle_eval.errors import EvalError

_HINT = "set KERAS_BACKEND=jax, or leave it unset, and import heddle_eval.attacks before Keras"

if (_chosen := os.environ.get("KERAS_BACKEND", "jax")) != "jax":
    raise EvalError("KERAS_BACKEND", f"it is {_chosen!r}, and the deep attacks train on JAX", _HINT)
if "keras" not in sys.modules:
    os.environ["KERAS_BACKEND"] = "jax"

import jax  # noqa: E402
import keras  # noqa: E402

if keras.backend.backend() != "jax":
    raise EvalError("Keras", f"it already runs on {keras.backend.backend()}, and the deep attacks train on JAX", _HINT)

__all__ = ["jax", "keras"]
