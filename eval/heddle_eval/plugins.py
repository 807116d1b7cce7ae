"""Attacks and defences of the user's own module, written MODULE:CLASS."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from heddle_eval.errors import EvalError


def is_own(name: str) -> bool:
    """Whether a name is MODULE:CLASS."""
    module, colon, kind = name.partition(":")
    return bool(colon) and kind.isidentifier() and all(part.isidentifier() for part in module.split("."))


def load(name: str, what: str, methods: tuple[str, ...]) -> Any:
    """Import the class that MODULE:CLASS names; the module may also lie in the working directory.

    Parameters
    ----------
    name
        MODULE:CLASS.
    what
        What the class should be, for errors.
    methods
        That it must have.

    Raises
    ------
    EvalError
        Where there is no such module or class, its import fails, or a method is missing.

    """
    module, _, kind = name.partition(":")
    hint = "MODULE:CLASS, such as mine:Distance of mine.py in this directory; docs/evaluation.md has a template"
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(import_module(module), kind)
    except Exception as e:  # whatever the user's module raises
        raise EvalError(name, f"it cannot be imported: {e}", hint) from e
    if not isinstance(found, type):
        raise EvalError(name, "it is no class", hint)
    if missing := [m for m in methods if not callable(getattr(found, m, None))]:
        raise EvalError(name, f"it is no {what}: it has no {missing[0]}()", hint)
    return found
