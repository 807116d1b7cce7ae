"""Jobs of a sweep: what each one is, its key, and how it is done."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import numpy as np

from heddle_eval import experiment, metrics
from heddle_eval.errors import EvalError
from heddle_eval.traces import Traces

REVISION = 2
"""Part of each key: raise it when the same job would give other results, so that none of before is taken for one."""

DATA_SETS_AT_ONCE = 3
"""Data sets that a process keeps."""


@dataclass(frozen=True)
class Job:
    """One experiment; equal jobs have equal keys, wherever their data lie.

    Attributes
    ----------
    file
        The data set; not part of the key.
    data
        SHA-256 of the file.
    defence
        As :func:`heddle_eval.defences.parse` reads it, or ``none``.
    attack
        A name that :func:`heddle_eval.attacks.make` knows, or MODULE:CLASS of a classifier over traces.
    preset
        Of the attack; not for MODULE:CLASS.
    settings
        JSON of the attack's own parameters.
    world, seed, test, unseen
        See :func:`heddle_eval.experiment.run`. The seed is also that of defence and attack.
    visits, unmonitored
        See :func:`heddle_eval.experiment.fewer`; 0 takes all.
    unmonitored_share
        See :func:`heddle_eval.experiment.unmonitor`; 0 leaves the classes as they are.
    see
        How many paths the observer sees and joins by time; 0: each path has an observer of its own.
    learn_file, learn
        Data set to learn from, and its SHA-256; empty to learn from a part of ``file``. The key has only the latter.
    learn_visits
        See :func:`heddle_eval.experiment.run`.

    """

    file: str = field(compare=False)
    data: str
    defence: str = "none"
    attack: str = "k-fp"
    preset: str = "laptop"
    settings: str = "{}"
    world: str = "open"
    seed: int = 0
    test: float = 0.1
    unseen: bool = False
    visits: int = 0
    unmonitored: int = 0
    unmonitored_share: float = 0.0
    see: int = 0
    learn: str = ""
    learn_visits: int = 0
    learn_file: str = field(default="", compare=False)

    @property
    def parameters(self) -> dict[str, Any]:
        """All that the result depends on."""
        # Those that came later only count where they say something, so that earlier results keep their keys.
        later = {"learn": "", "learn_visits": 0}
        return {k: v for k, v in asdict(self).items() if k not in ("file", "learn_file") and later.get(k) != v}

    @property
    def key(self) -> str:
        """Name of the job: 32 hexadecimal digits."""
        said = json.dumps([REVISION, self.parameters], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def __str__(self) -> str:
        parts = [Path(self.file).stem, self.defence, f"{self.attack} ({self.preset})", f"seed {self.seed}"]
        if self.learn:
            parts[0] += f" learnt from {Path(self.learn_file).stem}"
        if self.see:
            parts.insert(2, f"{self.see} paths seen")
        return ", ".join(parts)

    def check(self) -> None:
        """Refuse what cannot be made, before anything is computed."""
        if self.world not in get_args(experiment.World):
            raise EvalError("world", f"{self.world!r} is not one", f"it is {', '.join(get_args(experiment.World))}")
        for name in ("seed", "visits", "unmonitored", "see", "learn_visits"):
            if getattr(self, name) < 0:
                raise EvalError(name, f"it is {getattr(self, name)}", "it cannot be negative")
        for name, least in (("test", 1e-9), ("unmonitored_share", 0)):
            if not least <= getattr(self, name) < 1:
                raise EvalError(name.replace("_", "-"), f"{getattr(self, name):g} is no share", "it is less than 1")
        if self.learn and self.unseen:
            raise EvalError("unseen", "with a data set to learn from nothing is parted", "leave out one of them")
        parse_defence(self.defence)
        make_attack(self)


def digest(file: str | Path) -> str:
    """SHA-256 of a file."""
    try:
        with open(file, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError as e:
        raise EvalError(str(file), f"it cannot be read: {e.strerror}") from e


def load(file: str | Path) -> Traces:
    """Read a data set: Parquet, or a flat ``.npz``."""
    if Path(file).suffix == ".npz":
        from heddle_eval.importers import load as import_

        return import_("npz", [file])[0]
    from heddle_eval import parquet

    return parquet.read(file)


@lru_cache(maxsize=DATA_SETS_AT_ONCE)
def chosen(file: str, data: str, visits: int, unmonitored: int, share: float) -> Traces:
    """Read a data set and keep the part of it that jobs ask for; the last few stay in memory.

    ``data`` is the SHA-256 that the file must have.
    """
    if digest(file) != data:
        raise EvalError(file, "it has changed since the jobs were listed", "start again")
    traces = load(file)
    if share:
        traces = experiment.unmonitor(traces, share)
    return experiment.fewer(traces, visits, unmonitored)


def traces_of(job: Job) -> Traces:
    """Give the data set of a job, not yet defended."""
    return chosen(job.file, job.data, job.visits, job.unmonitored, job.unmonitored_share)


def learn_of(job: Job) -> Traces | None:
    """Give the data set that a job learns from, not yet defended, if it has one of its own."""
    return chosen(job.learn_file, job.learn, 0, 0, job.unmonitored_share) if job.learn else None


def parse_defence(text: str) -> Any:
    """Give the defence, or None for none."""
    if text == "none":
        return None
    from heddle_eval import defences

    return defences.parse(text)


def make_attack(job: Job) -> Any:
    """Give the untrained attack."""
    settings = json.loads(job.settings)
    from heddle_eval import attacks

    return attacks.make(job.attack, preset=job.preset, seed=job.seed, **settings)


def compute(job: Job, traces: Traces | None = None, learn: Traces | None = None) -> dict[str, Any]:
    """Do a job and give its row of the results (see :mod:`heddle_eval.sweep_store`).

    ``traces`` are those of :func:`traces_of`, and ``learn`` of :func:`learn_of`, where the caller has them already.
    """
    traces = traces_of(job) if traces is None else traces
    began = time.perf_counter()
    plain, traces = traces, defended(job, traces)
    done = time.perf_counter()
    world: experiment.World = job.world  # type: ignore[assignment]
    learn = learn_of(job) if learn is None else learn
    learn = defended(job, learn) if learn is not None else None
    result = experiment.run(
        traces,
        make_attack(job),
        world=world,
        seed=job.seed,
        test=job.test,
        unseen=job.unseen,
        learn=learn,
        learn_visits=job.learn_visits,
    )
    sums = np.array(metrics.counts(result.truth, result.told), float).sum(1)
    positive = result.truth != metrics.OTHER
    if job.world == "open":
        measured = metrics.open_world(sums) | {"auc": metrics.auc(positive, result.score)}
    elif job.world == "detect":
        measured = {s: getattr(metrics, s)(positive, result.score) for s in ("auc", "blocked")}
    else:
        measured = {"accuracy": np.asarray((result.truth == result.told).mean())}
    return {
        "key": job.key,
        **job.parameters,
        "file": Path(job.file).name,
        "train": result.train,
        "train_loads": result.train_loads,
        "tested": len(result.load),
        "tested_loads": len(np.unique(result.load)),
        "bytes_added": float(np.abs(traces.size[traces.dummy]).sum(dtype=float) / max(1, np.abs(plain.size).sum())),
        "defend_s": done - began,
        "fit_s": result.fit_s,
        "predict_s": result.predict_s,
        "made": time.time(),
        **{k: None if np.isnan(v) else float(v) for k, v in measured.items()},
        "load": result.load,
        "truth": result.truth,
        "told": result.told,
        "confidence": result.confidence,
        "score": result.score,
        "scores": result.scores.ravel(),
        "classes": result.classes,
    }


def attempt(job: Job, traces: Traces | None = None, learn: Traces | None = None) -> dict[str, Any] | str:
    """Give the row of a job, or why it failed: as text, since not every exception can leave its process."""
    try:
        return compute(job, traces, learn)
    except EvalError as e:
        return f"{e} ({e.hint})" if e.hint else str(e)
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def defended(job: Job, traces: Traces) -> Traces:
    """Apply the defence, and join the paths that the observer sees."""
    rng = np.random.default_rng([job.seed, 0xDEF])
    if defence := parse_defence(job.defence):
        traces = defence.apply(traces, rng)
    if job.see:
        from heddle_eval.defences.join import observe

        traces = observe(traces, job.see, rng)
    return traces
