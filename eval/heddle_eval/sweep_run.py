"""Does jobs: in this process, in several, or on a Ray cluster; none that is done, and none that another is at."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from typing import Any, Protocol

from heddle_eval.errors import EvalError
from heddle_eval.sweep_jobs import Job, attempt
from heddle_eval.sweep_store import Store

THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
"""Where there is a process for each core, each has one thread."""

WAIT_S = 0.5
"""How often to look whether another process has finished a job that it is at."""


@dataclass
class Report:
    """How a run went."""

    done: int = 0
    before: int = 0
    """Were done already."""
    elsewhere: int = 0
    """Were done meanwhile by another process."""
    failed: list[tuple[Job, str]] = field(default_factory=list)


class Workers(Protocol):
    """Where jobs are done."""

    size: int

    def submit(self, job: Job) -> Any:
        """Begin a job; give something that stands for it."""
        ...

    def finished(self, running: Iterable[Any]) -> list[Any]:
        """Wait until at least one of them is over, and give those that are."""
        ...

    def answer(self, token: Any) -> dict[str, Any] | str:
        """Give the row, or why there is none."""
        ...


def run(
    jobs: Iterable[Job],
    store: Store,
    *,
    workers: int = 1,
    on: str = "",
    progress: Callable[[Report, Job | None], None] = lambda report, job: None,
) -> Report:
    """Do those jobs that are not done; each result is kept as soon as it is there.

    Parameters
    ----------
    jobs
        In the order in which they are begun; equal ones count once.
    store
        Keeps the results.
    workers
        How many processes; 1 works in this one. On a Ray cluster, how many at once; 0 for as many as it has CPUs.
    on
        ``ray`` for Ray on this machine, ``ray://HOST:PORT`` for a cluster; empty for processes.
    progress
        Called as jobs end, with the job, and once at the beginning.

    """
    waiting = {job.key: job for job in jobs}
    report = Report(before=len(there := store.keys() & waiting.keys()))
    for key in there:
        waiting.pop(key)
    for job in waiting.values():
        job.check()
    progress(report, None)
    if waiting:
        with _workers(min(workers, len(waiting)) if not on else workers, on) as hands, ExitStack() as claims:
            _work(waiting, store, hands, claims, report, progress)
    return report


def _work(
    waiting: dict[str, Job],
    store: Store,
    hands: Workers,
    claims: ExitStack,
    report: Report,
    progress: Callable[[Report, Job | None], None],
) -> None:
    running: dict[Any, tuple[Job, ExitStack]] = {}
    while waiting or running:
        for key in list(waiting):
            if len(running) >= hands.size:
                break
            claim = ExitStack()
            if not claim.enter_context(store.claim(key)):
                continue
            # Let go of it whatever happens.
            claims.push(claim)
            job = waiting.pop(key)
            if key in store:
                claim.close()
                report.elsewhere += 1
                progress(report, job)
            else:
                running[hands.submit(job)] = job, claim
        if not running:
            if waiting:
                time.sleep(WAIT_S)
            continue
        for token in hands.finished(running):
            job, claim = running.pop(token)
            _keep(hands, token, job, store, report)
            claim.close()
            progress(report, job)


def _keep(hands: Workers, token: Any, job: Job, store: Store, report: Report) -> None:
    try:
        row = hands.answer(token)
    except BrokenProcessPool as e:
        raise EvalError(
            "sweep", "a worker was killed, perhaps for want of memory", "use fewer --jobs; what was done is kept"
        ) from e
    if isinstance(row, str):
        report.failed.append((job, row))
    else:
        store.add(row)
        report.done += 1


@contextmanager
def _workers(count: int, on: str) -> Iterator[Workers]:
    if on:
        if on != "ray" and not on.startswith("ray://"):
            raise EvalError("--on", f"{on!r} is no place", "ray for this machine, ray://HOST:PORT for a cluster")
        from heddle_eval.sweep_ray import cluster

        with cluster(on, count) as hands:
            yield hands
    elif count <= 1:
        yield Here()
    else:
        with _processes(count) as hands:
            yield hands


class Here:
    """Does each job when it is asked for the answer."""

    size = 1

    def submit(self, job: Job) -> Job:
        """Take note of it."""
        return job

    def finished(self, running: Iterable[Job]) -> list[Job]:
        """All of them, as soon as their answers are asked for."""
        return list(running)

    def answer(self, token: Job) -> dict[str, Any] | str:
        """Do it."""
        return attempt(token)


class Processes:
    """Does jobs in processes of their own."""

    def __init__(self, pool: ProcessPoolExecutor, size: int) -> None:
        self.pool, self.size = pool, size

    def submit(self, job: Job) -> Future:
        """Hand it to a process."""
        return self.pool.submit(attempt, job)

    def finished(self, running: Iterable[Future]) -> list[Future]:
        """Wait for one."""
        return list(wait(running, return_when=FIRST_COMPLETED).done)

    def answer(self, token: Future) -> dict[str, Any] | str:
        """Give its row."""
        return token.result()


@contextmanager
def _processes(count: int) -> Iterator[Processes]:
    before = {k: os.environ.get(k) for k in THREADS}
    os.environ.update({k: v for k, v in THREADS.items() if k not in os.environ})
    # Spawned: a copy of a process in which JAX has run would hang.
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_follow)
    try:
        yield Processes(pool, count)
        pool.shutdown()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        for k, v in before.items():
            if v is None:
                os.environ.pop(k, None)


def _follow() -> None:
    """Leave Ctrl-C to the process that gives out the jobs, and end when that process is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def watch() -> None:
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
