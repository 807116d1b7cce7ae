"""Sweeps: each job is done once, by whatever number of processes, and what was done is kept."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import pages
from typer.testing import CliRunner

from heddle_eval import parquet, sweep, sweep_jobs, sweep_ray, sweep_run
from heddle_eval.errors import EvalError
from heddle_eval.sweep_jobs import Job
from heddle_eval.sweep_store import Store

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _fakes(monkeypatch):
    """Let other processes find the fakes."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))


@pytest.fixture
def data(tmp_path):
    parquet.write(pages([12, 12, 12], other=20), tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def jobs(data, n=3, **settings):
    base = Job(str(data), sweep_jobs.digest(data), attack="fakes:ByLength", settings=json.dumps(settings))
    return [replace(base, seed=s) for s in range(n)]


def fits(log):
    return log.read_text().count("fit") if log.exists() else 0


def command(spec, results, *options):
    return [
        sys.executable,
        "-c",
        "from heddle_eval.cli import main; main()",
        "sweep",
        str(spec),
        "--results",
        str(results),
        *options,
    ]


def run_here(*words):
    import heddle_eval.cli.paper
    import heddle_eval.cli.sweep  # noqa: F401 - they add the verbs
    from heddle_eval.cli import app

    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def spec(folder, data, log, seeds, sleeps=0.0):
    out = folder / "sweep.toml"
    out.write_text(
        f"""data = ["{data.name}"]
[axes]
attack = ["fakes:ByLength"]
seed = {list(range(seeds))}
[settings."fakes:ByLength"]
log = "{log}"
sleeps = {sleeps}
"""
    )
    return out


def test_resume(tmp_path, data):
    log, store = tmp_path / "log", Store(tmp_path / "r.parquet")
    planned = jobs(data, 4, log=str(log))
    first = sweep_run.run(planned[:2], store)
    again = sweep_run.run(planned + planned, store)
    assert (first.done, first.before) == (2, 0)
    assert (again.done, again.before) == (2, 2)
    assert fits(log) == 4
    assert store.keys() == {j.key for j in planned}
    assert not store.locks.exists()


def test_stored_is_what_was_told(tmp_path, data):
    store = Store(tmp_path / "r.parquet")
    (job,) = jobs(data, 1)
    row = sweep_jobs.compute(job)
    store.add(row)
    store.add(row | {"recall": 0.0})
    (got,) = store.results([job.key]).values()
    for name in ("load", "truth", "told", "confidence", "score"):
        np.testing.assert_array_equal(getattr(got, name), row[name])
        assert getattr(got, name).dtype == row[name].dtype
    assert got.measures()["recall"]["value"] == pytest.approx(row["recall"])
    assert store.frame(["recall"])["recall"].to_list() == [row["recall"]]


def test_keys():
    job = Job("a.parquet", "00", seed=1)
    assert job.key == replace(job, file="b/c.parquet").key == Job("a.parquet", "00", seed=1).key
    others = {
        replace(job, **{k: v}).key for k, v in [("seed", 2), ("defence", "x"), ("see", 1), ("settings", '{"a": 1}')]
    }
    assert len(others | {job.key}) == 5


def test_failures_leave_the_rest(tmp_path, data):
    store = Store(tmp_path / "r.parquet")
    good, bad = jobs(data, 2), jobs(data, 1, fails=True)
    report = sweep_run.run([good[0], *bad, good[1]], store)
    assert report.done == 2
    assert [(j, why) for j, why in report.failed] == [(bad[0], "fake: it fails")]
    assert store.keys() == {j.key for j in good}


def test_mistakes_show_before_anything_runs(tmp_path, data):
    log = tmp_path / "log"
    planned = jobs(data, 1, log=str(log))
    for wrong in ({"attack": "no-such"}, {"defence": "no-such"}, {"attack": "fakes:Nobody"}):
        with pytest.raises(EvalError):
            sweep_run.run([*planned, replace(planned[0], **wrong)], Store(tmp_path / "r.parquet"))
    assert fits(log) == 0


def test_changed_data_are_refused(tmp_path, data):
    (job,) = jobs(data, 1)
    parquet.write(pages([5, 5], other=5), data)
    report = sweep_run.run([job], Store(tmp_path / "r.parquet"))
    assert "it has changed" in report.failed[0][1]


def test_claims_exclude(tmp_path):
    one, two = Store(tmp_path / "r.parquet"), Store(tmp_path / "r.parquet")
    with one.claim("a") as mine, two.claim("a") as yours, two.claim("b") as other:
        assert (mine, yours, other) == (True, False, True)
    with two.claim("a") as now:
        assert now


def test_writers_at_once_lose_nothing(tmp_path, data):
    """Sixteen rows by eight writers at once: each is there, once."""
    row = sweep_jobs.compute(jobs(data, 1)[0])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: Store(tmp_path / "r.parquet").add(row | {"key": str(i % 16)}), range(32)))
    frame = Store(tmp_path / "r.parquet").frame(["key", "told"])
    assert sorted(frame["key"], key=int) == [str(i) for i in range(16)]
    assert all(t.to_list() == row["told"].tolist() for t in frame["told"])


def test_who_reads_beside_a_writer_reads_a_whole_file(tmp_path, data):
    row = sweep_jobs.compute(jobs(data, 1)[0])
    store = Store(tmp_path / "r.parquet")
    store.add(row)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [Store(tmp_path / "r.parquet").add(row | {"key": str(i)}) for i in range(100)])
        while not writing.done():
            assert row["key"] in store
        writing.result()
    assert len(store.keys()) == 101


def test_processes_share_the_work(tmp_path, data):
    """Two processes at once: each job is done by one of them, and both end with all of them done."""
    log, results = tmp_path / "log", tmp_path / "r.parquet"
    file = spec(tmp_path, data, log, 30, sleeps=0.2)
    planned = list(sweep.read(file).jobs())
    # What is imported with the first job must not cost this process the time in which the other one does all.
    sweep_run.run(jobs(data, 1), Store(tmp_path / "first.parquet"))
    other = subprocess.Popen(command(file, results, "--json"), stdout=-1, stderr=-3)
    until = time.monotonic() + 200
    while not Store(results).keys() and time.monotonic() < until:
        time.sleep(0.02)
    report = sweep_run.run(planned, Store(results))
    said = json.loads(other.communicate(timeout=200)[0])
    assert other.returncode == 0
    assert fits(log) == 30
    assert report.done > 0
    assert said["done"] > 0
    assert said["done"] + report.done == 30
    assert report.done + report.before + report.elsewhere == 30
    assert len(Store(results).keys()) == 30


def test_workers(tmp_path, data):
    store = Store(tmp_path / "r.parquet")
    planned = jobs(data, 2) + jobs(data, 1, fails=True)
    report = sweep_run.run(planned, store, workers=2)
    assert (report.done, [why for _, why in report.failed]) == (2, ["fake: it fails"])
    assert store.keys() == {j.key for j in planned[:2]}


@pytest.mark.parametrize(("sign", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_run_that_is_ended_loses_only_what_was_in_flight(tmp_path, data, sign, status):
    log, results = tmp_path / "log", tmp_path / "r.parquet"
    file = spec(tmp_path, data, log, 40, sleeps=0.3)
    running = subprocess.Popen(command(file, results), stderr=-3, env=os.environ)
    until = time.monotonic() + 200
    while len(Store(results).keys()) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    running.send_signal(sign)
    assert running.wait(120) == status
    kept = len(Store(results).keys())
    assert 2 <= kept < 40
    assert kept <= fits(log) <= kept + 1
    # What is left can be taken by the next one.
    planned = list(sweep.read(file).jobs())
    report = sweep_run.run(planned[kept : kept + 1], Store(results))
    assert report.done == 1


def test_ray(tmp_path, data, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # by itself 15: on a busy machine it would never end
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_DISABLE_IMPORT_WARNING", "1")
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "600")  # on a busy machine
    monkeypatch.setenv("RAY_agent_register_timeout_ms", "600000")
    log, store = tmp_path / "log", Store(tmp_path / "r.parquet")
    planned = jobs(data, 2, log=str(log)) + jobs(data, 1, fails=True)
    report = sweep_run.run(planned, store, workers=1, on="ray")
    assert report.done == 2
    assert [why for _, why in report.failed] == ["fake: it fails"]
    assert fits(log) == 2
    here = {k: r for j in planned[:2] for k, r in [(j.key, sweep_jobs.compute(j))]}
    for key, got in store.results(here).items():
        np.testing.assert_array_equal(got.told, here[key]["told"])


@pytest.mark.parametrize(
    ("errors", "starts", "fails"),
    [
        (["the node timed out during startup"] * 2, 3, False),
        (["the node timed out during startup"] * 9, sweep_ray.STARTS, True),
        (["no memory"], 1, True),
    ],
)
def test_slow_start(errors, starts, fails):
    class Ray:
        started = stopped = 0

        def init(self, **options):
            assert options == {"num_cpus": 1}
            self.started += 1
            if errors:
                raise RuntimeError(errors.pop(0))

        def shutdown(self):
            self.stopped += 1

    ray = Ray()
    with pytest.raises(RuntimeError) if fails else nullcontext():
        sweep_ray._start(ray, num_cpus=1)
    assert (ray.started, ray.stopped) == (starts, starts - 1)


def test_no_such_cluster(tmp_path, data):
    with pytest.raises(EvalError, match="no place"):
        sweep_run.run(jobs(data, 1), Store(tmp_path / "r.parquet"), on="slurm")


def test_axes(tmp_path, data):
    file = tmp_path / "sweep.toml"
    file.write_text(
        """data = ["x.parquet"]
visits = 8
[axes]
defence = ["none"]
before = ["", "wtf-pad"]
strategy = ["uniform", "weighted"]
paths = [2, 3]
attack = ["k-fp", "cumul"]
seed = [0, 1]
[settings.k-fp]
trees = 10
"""
    )
    planned = list(sweep.read(file).jobs())
    assert len(planned) == (1 + 2 * 2 * 2) * 2 * 2 == len({j.key for j in planned})
    assert {j.visits for j in planned} == {8}
    assert {j.settings for j in planned if j.attack == "k-fp"} == {'{"trees": 10}'}
    assert "wtf-pad then split:weighted,paths=3,every=50p" in {j.defence for j in planned}
    assert [j.seed for j in planned] == [0] * 18 + [1] * 18
    for job in planned:
        job.check()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("data = [", "no TOML"),
        ("", "names no data"),
        ('data = ["x.parquet"]\ncolour = 1', "colour"),
        ('data = ["x.parquet"]\nvisits = "many"', "visits"),
        ('data = ["x.parquet"]\n[axes]\nseed = [1.5]', "axes.seed"),
        ('data = ["x.parquet"]\n[axes]\npath = [2]', "axes.path"),
        ('data = ["x.parquet"]\n[settings.df]\nepochs = 3', "settings.df"),
    ],
)
def test_bad_sweeps(tmp_path, text, why):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(EvalError, match=why):
        sweep.read(tmp_path / "s.toml")


def test_bad_store(tmp_path):
    (tmp_path / "r.parquet").write_text("nothing")
    with pytest.raises(EvalError, match="no file of results"):
        Store(tmp_path / "r.parquet").keys()


def test_dry_run(tmp_path, data):
    file = spec(tmp_path, data, tmp_path / "log", 3)
    got = run_here("sweep", str(file), "--results", str(tmp_path / "r.parquet"), "--dry-run")
    assert got.stdout.count("to do ") == 3
    assert fits(tmp_path / "log") == 0
    assert not (tmp_path / "r.parquet").exists()
