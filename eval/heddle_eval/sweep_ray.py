"""Does jobs on a Ray cluster. Each node needs this package; the data set travels from here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from heddle_eval.errors import EvalError
from heddle_eval.sweep_jobs import Job, attempt, learn_of, traces_of

HINT = (
    "ray start --head starts one, whose clients' port is 10001; where it says that it wants a token, set "
    "RAY_AUTH_MODE=token here"
)


class Cluster:
    """Does jobs as Ray tasks of one CPU each."""

    def __init__(self, ray: Any, size: int) -> None:
        self.ray, self.size = ray, size
        # Ray starts a task again when its node dies, but not when it fails by itself.
        self.task = ray.remote(num_cpus=1, max_retries=2)(attempt)
        self.sent: dict[tuple, Any] = {}

    def submit(self, job: Job) -> Any:
        """Hand it to the cluster, with its data sets, which are sent once."""
        part = (job.data, job.visits, job.unmonitored, job.unmonitored_share, job.learn)
        if part not in self.sent:
            learn = learn_of(job)
            self.sent = {part: (self.ray.put(traces_of(job)), None if learn is None else self.ray.put(learn))}
        return self.task.remote(job, *self.sent[part])

    def finished(self, running: Iterable[Any]) -> list[Any]:
        """Wait for one."""
        try:
            return self.ray.wait(list(running), num_returns=1)[0]
        except ConnectionError as e:
            raise EvalError(
                "Ray", f"the cluster is gone: {e}", "what was done is kept; the same command goes on"
            ) from e

    def answer(self, token: Any) -> dict[str, Any] | str:
        """Give its row, or why there is none."""
        try:
            return self.ray.get(token)
        except self.ray.exceptions.RayError as e:
            return f"{type(e).__name__}: {e}"


STARTS = 4  # of a cluster on this machine: Ray gives a busy one 30 s for each


def _start(ray: Any, **options: Any) -> None:
    """Start a cluster on this machine, again if Ray found it too slow."""
    for left in reversed(range(STARTS)):
        try:
            ray.init(**options)
            return
        except Exception as e:
            if not left or "timed out during startup" not in str(e):
                raise
            ray.shutdown()


@contextmanager
def cluster(on: str, count: int) -> Iterator[Cluster]:
    """Join the cluster at ``ray://HOST:PORT``, or start one on this machine for ``ray``, of so many CPUs.

    A head that finds a token in ``~/.ray`` answers only those who show it, and to an address Ray shows it only where
    ``RAY_AUTH_MODE`` is ``token``. It is not set here: the token is a key to run programs, and for the user to give.
    """
    try:
        import ray
    except ImportError as e:
        raise EvalError("ray", "it is not installed", "pip install 'heddle-eval[cluster]', or leave out --on") from e
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
    try:
        if on == "ray":
            _start(ray, num_cpus=count or None, include_dashboard=False, **quiet)
        else:
            ray.init(address=on, **quiet)
    except Exception as e:  # of many kinds; a node that is slow to start raises the bare one
        raise EvalError(on, f"there is no Ray cluster that answers: {e}", HINT) from e
    try:
        yield Cluster(ray, count or max(1, int(ray.cluster_resources().get("CPU", 1))))
    finally:
        ray.shutdown()
