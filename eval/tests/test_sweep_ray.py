"""Sweeps on a Ray cluster that was there before; in a network of its own, as its head listens everywhere."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fakes import pages
from test_sweep import HERE, command, fits, jobs, spec

from heddle_eval import parquet, sweep_run
from heddle_eval.errors import EvalError
from heddle_eval.sweep_store import Store

PORT = 10001
"""Where a head listens for clients by itself."""

asked = pytest.mark.skipif(
    not (os.environ.get("HEDDLE_RAY") and shutil.which("unshare")),
    reason="starting a cluster can take minutes: HEDDLE_RAY=1 asks for it (Linux, util-linux)",
)


def listens(pid):
    """Whether anybody listens at the port, in the network of a process."""
    sockets = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return any(line[1].endswith(f":{PORT:04X}") and line[3] == "0A" for line in sockets)


@pytest.fixture
def head():
    """Start a cluster of one CPU that wants a token; give its process, and the token."""
    pytest.importorskip("ray", reason="ray is not installed")
    token = secrets.token_hex(32)
    slow = {"RAY_raylet_start_wait_time_s": "180", "RAY_agent_register_timeout_ms": "180000"}
    mine = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "PYTHONPATH": str(HERE)}
    # Not in pytest's folder: the paths of its sockets would be too long.
    with TemporaryDirectory(prefix="ray") as folder:
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=1"]
        start += ["--disable-usage-stats", "--include-dashboard=false", f"--temp-dir={folder}"]
        words = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *start]
        said = Path(folder, "head.txt")
        with said.open("w") as out:
            process = subprocess.Popen(words, stdout=out, stderr=out, env=os.environ | slow | mine)
        try:
            until = time.monotonic() + 180
            while process.poll() is None and time.monotonic() < until and not listens(process.pid):
                time.sleep(0.5)
            assert process.poll() is None, said.read_text()
            yield process, token
        finally:
            process.terminate()
            process.wait(60)


def joined(process, words, **environment):
    """Run a command in the network of a process."""
    enter = ["nsenter", "--user", "--preserve-credentials", "--net", "--target", str(process.pid), *words]
    return subprocess.run(enter, capture_output=True, text=True, timeout=180, env=os.environ | environment)


@asked
def test_cluster(tmp_path, head):
    """A sweep goes to a cluster, whose token it shows."""
    process, token = head
    parquet.write(pages([12, 12, 12], other=20), tmp_path / "x.parquet")
    log, results = tmp_path / "log", tmp_path / "r.parquet"
    file = spec(tmp_path, tmp_path / "x.parquet", log, 3)
    words = command(file, results, "--on", f"ray://127.0.0.1:{PORT}", "--json")
    ran = joined(process, words, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token, PYTHONPATH=str(HERE))
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert (said["done"], said["failed"]) == (3, [])
    assert fits(log) == 3
    here = {k: r.told.tolist() for k, r in Store(results).results(Store(results).keys()).items()}
    sweep_run.run(jobs(tmp_path / "x.parquet", 3, log=str(log), sleeps=0.0), Store(tmp_path / "alone.parquet"))
    alone = Store(tmp_path / "alone.parquet")
    assert {k: r.told.tolist() for k, r in alone.results(alone.keys()).items()} == here


def test_no_answer(tmp_path, monkeypatch):
    """Ray does not say why a head does not answer, so both reasons are named."""
    ray = pytest.importorskip("ray", reason="ray is not installed")

    def init(**_):
        raise ConnectionError("ray client connection timeout")

    monkeypatch.setattr(ray, "init", init)
    parquet.write(pages([12, 12, 12], other=20), tmp_path / "x.parquet")
    planned = jobs(tmp_path / "x.parquet", 1)
    with pytest.raises(EvalError, match="no Ray cluster that answers") as caught:
        sweep_run.run(planned, Store(tmp_path / "r.parquet"), on="ray://127.0.0.1:1")
    assert "ray start" in caught.value.hint
    assert "RAY_AUTH_MODE" in caught.value.hint
    assert not Store(tmp_path / "r.parquet").keys()
