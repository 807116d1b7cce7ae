"""Sweeps: a TOML file names the axes, and every combination is a job.

An example, with all there is::

    data = ["wireguard.parquet"]     # one or several; relative to the TOML file
    world = "open"                   # or closed, detect, sites
    preset = "laptop"                # or "paper"
    test = 0.1                       # share of the page loads to test on
    unseen = false                   # test on unmonitored pages that the attack never saw
    visits = 40                      # at most so many loads of each monitored page; 0: all
    unmonitored = 2000               # at most so many loads of other pages; 0: all
    unmonitored-share = 0.0          # make that share of the pages unmonitored
    train = "other.parquet"          # learn from this data set, and tell all of each of data
    train-visits = 10                # learn from at most so many loads of each class; 0: all

    [axes]
    defence = ["none", "wtf-pad"]    # whole defences, besides those that the next four make
    before = ["", "wtf-pad"]         # applied before splitting
    strategy = ["round-robin", "uniform", "weighted"]
    batch = ["50p", "100ms"]
    paths = [2, 3, 5]
    see = [0, 2]                     # paths that the observer joins; 0: an observer on each
    attack = ["k-fp", "df"]
    seed = [0, 1, 2]

    [settings.df]                    # an attack's own parameters
    epochs = 15
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from heddle_eval.errors import EvalError
from heddle_eval.sweep_jobs import Job, digest

SETTINGS = {
    "data": list,
    "world": str,
    "preset": str,
    "test": float,
    "unseen": bool,
    "visits": int,
    "unmonitored": int,
    "unmonitored-share": float,
    "train": str,
    "train-visits": int,
    "axes": dict,
    "settings": dict,
}
AXES = {
    "defence": str,
    "before": str,
    "strategy": str,
    "batch": str,
    "paths": int,
    "see": int,
    "attack": str,
    "seed": int,
}
SPLITTING = ("before", "strategy", "batch", "paths")


@dataclass(frozen=True)
class Sweep:
    """The axes of a sweep, and what all its jobs share."""

    data: tuple[str, ...]
    axes: dict[str, list[Any]]
    common: dict[str, Any]
    settings: dict[str, dict[str, Any]]

    def defences(self) -> list[str]:
        """Name each defence: those listed, then each combination of the splitting axes."""
        out = list(self.axes.get("defence", []))
        if any(a in self.axes for a in SPLITTING):
            usual: list[list[Any]] = [[""], ["weighted"], ["50p"], [3]]
            axes = [self.axes.get(a, default) for a, default in zip(SPLITTING, usual, strict=True)]
            for before, strategy, batch, paths in product(*axes):
                split = f"split:{strategy},paths={paths},every={batch}"
                out.append(f"{before} then {split}" if before else split)
        return list(dict.fromkeys(out or ["none"]))

    def jobs(self) -> Iterator[Job]:
        """Give each job; seeds change slowest, so that a sweep that is cut short has a whole one."""
        sums = {file: digest(file) for file in self.data}
        seeds, sees, attacks = (self.axes.get(a, d) for a, d in (("seed", [0]), ("see", [0]), ("attack", ["k-fp"])))
        for seed, file, defence, see, attack in product(seeds, self.data, self.defences(), sees, attacks):
            settings = json.dumps(self.settings.get(attack, {}), sort_keys=True)
            yield Job(
                file, sums[file], defence=defence, attack=attack, seed=seed, see=see, settings=settings, **self.common
            )


def read(file: str | Path) -> Sweep:
    """Read a sweep.

    Raises
    ------
    EvalError
        For what is no TOML, and for keys and values that mean nothing; it says which.

    """
    file = Path(file)
    try:
        said = tomllib.loads(file.read_text())
    except OSError as e:
        raise EvalError(str(file), f"it cannot be read: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise EvalError(str(file), f"it is no TOML: {e}") from e
    _check(file, said, SETTINGS, "")
    axes = {k: v if isinstance(v, list) else [v] for k, v in said.get("axes", {}).items()}
    for name, values in axes.items():
        _check(file, {name: values[0] if values else None}, AXES, "axes.")
        for value in values:
            _check(file, {name: value}, AXES, "axes.")
    data = said.get("data", [])
    if not data or not all(isinstance(d, str) for d in data):
        raise EvalError(f"{file}: data", "it names no data set", 'data = ["x.parquet"]')
    settings = said.get("settings", {})
    if left := [k for k, v in settings.items() if not isinstance(v, dict) or k not in axes.get("attack", [])]:
        raise EvalError(f"{file}: settings.{left[0]}", "that is no attack of this sweep", "write [settings.ATTACK]")
    common: dict[str, Any] = {
        k.replace("-", "_"): float(said[k]) if SETTINGS[k] is float else said[k]
        for k in said
        if k not in ("data", "axes", "settings", "train", "train-visits")
    }
    if train := said.get("train"):
        common["learn_file"] = str(file.parent / train)
        common["learn"] = digest(common["learn_file"])
    if visits := said.get("train-visits"):
        common["learn_visits"] = visits
    return Sweep(tuple(str(file.parent / d) for d in data), axes, common, settings)


def _check(file: Path, said: dict[str, Any], known: dict[str, type], where: str) -> None:
    for key, value in said.items():
        if key not in known:
            raise EvalError(f"{file}: {where}{key}", "it means nothing here", f"there are {', '.join(known)}")
        kinds = (int, float) if known[key] is float else (known[key],)
        if not isinstance(value, kinds) or (isinstance(value, bool) and known[key] is not bool):
            raise EvalError(f"{file}: {where}{key}", f"{value!r} is no {_WORDS[known[key]]}")


_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", list: "list", dict: "table"}
