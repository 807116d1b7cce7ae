"""The verbs of attacks, on a small data set in a file."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from heddle_eval import EvalError, Traces, defences, parquet
from heddle_eval.cli import app
from heddle_eval.cli import attack as verbs

run = CliRunner().invoke


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Three pages that differ in length, 20 visits each, and 20 other pages."""
    rng = np.random.default_rng(0)
    traces, labels = [], []
    for page, packets in (("a", 20), ("b", 60), ("c", 120)):
        for _ in range(20):
            n = packets + int(rng.integers(5))
            traces.append((np.sort(rng.random(n)), rng.choice([-1500, 60], n, p=[0.8, 0.2])))
            labels.append(page)
    for other in range(20):
        n = int(rng.integers(200, 300))
        traces.append((np.sort(rng.random(n)), rng.choice([-1500, 60], n)))
        labels.append(f"other{other}")
    out = tmp_path_factory.mktemp("data") / "x.parquet"
    parquet.write(Traces.build(traces, labels, unmonitored=[f"other{i}" for i in range(20)]), out)
    return str(out)


def test_attacks_once(file):
    answer = json.loads(run(app, ["attack", file, "--with", "cumul", "--set", "points=50", "--json"]).stdout)
    assert answer["parameters"]["points"] == 50
    assert (answer["train"], answer["test"]) == (54, 6)
    assert answer["measures"]["accuracy"]["value"] == 1
    said = run(app, ["attack", file, "--with", "k-fp", "--set", "trees=20", "--world", "open"])
    assert said.exit_code == 0, said.exception
    assert "open world: learnt 72 traces" in said.stdout
    assert "r_precision" in said.stdout


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        (["--with", "fd"], "none called 'fd'"),
        (["--with", "cumul", "--set", "points"], "is not KEY=VALUE"),
        (["--with", "cumul", "--set", "trees=3"], "no parameter 'trees'"),
        (["--with", "cumul", "--checkpoint", "x"], "no epochs to keep"),
        (["--with", "cumul", "--preset", "huge"], "no preset"),
        (["--with", "cumul", "--world", "flat"], "world"),
        (["--with", "cumul", "--set", "solver=magic"], "libsvm or nystroem"),
        (["--with", "cumul", "--set", "C=-1"], "above 0"),
        (["--with", "cumul", "--set", "gamma=NaN"], "above 0"),
        (["--with", "k-fp", "--set", "trees=many"], "a whole number"),
        (["--with", "k-fp", "--set", "trees=true"], "a whole number"),
        (["--with", "k-fp", "--set", "trees=0"], "at least 1"),
        (["--with", "k-fp", "--set", "trees=none"], "a whole number"),
        (["--with", "df", "--set", "epochs=0"], "at least 1"),
        (["--with", "df", "--set", "patience=x"], "a whole number or none"),
        (["--with", "df", "--set", "validation=1"], "no share"),
        (["--with", "cumul", "--see", "2"], "split"),
        (["--with", "cumul", "--unmonitored-share", "1"], "3 pages"),
    ],
)
def test_says_what_is_wrong(file, extra, why):
    failed = run(app, ["attack", file, *extra])
    assert isinstance(failed.exception, EvalError)
    assert why in str(failed.exception)


def test_joins_the_paths_that_the_observer_sees(file, tmp_path):
    split = str(tmp_path / "split.parquet")
    traces = defences.parse("split:round-robin,paths=3,every=5p").apply(parquet.read(file), np.random.default_rng(0))
    parquet.write(traces, split)
    each, two, four = (run(app, ["attack", split, "--with", "k-fp", "--set", "trees=9", *s]) for s in OBSERVERS)
    assert "learnt 162 traces" in each.stdout  # an observer on each of three paths
    assert "2 paths seen: learnt 54 traces" in two.stdout
    assert isinstance(four.exception, EvalError)
    assert "1 to 3 of them" in four.exception.hint


OBSERVERS = ([], ["--see", "2"], ["--see", "4"])


def test_makes_pages_unmonitored(file):
    said = run(app, ["attack", file, "--with", "k-fp", "--set", "trees=9", "--unmonitored-share", "0.3", "--unseen"])
    assert said.exit_code == 0, said.exception
    assert "learnt 36 traces" in said.stdout  # two of the three pages
    world = ["--world", "open", "--json"]
    said = run(app, ["attack", file, "--with", "k-fp", "--set", "trees=9", "--unmonitored-share", "0.3", *world])
    assert (answer := json.loads(said.stdout))["train"] + answer["test"] == 80
    assert answer["measures"]["recall"]["value"] > 0.9


def test_reads_settings():
    assert verbs.parsed(["a=1", "b=0.5", "c=true", "d=none", "e=gap+metadata"]) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": None,
        "e": "gap+metadata",
    }


def test_lists_attacks():
    rows = {
        row["name"]: row["presets"] for row in json.loads(run(app, ["attacks", "--classes", "95", "--json"]).stdout)
    }
    assert rows["df"]["paper"]["weights"] == 3_982_879
    assert rows["cumul"]["paper"]["weights"] is None
    said = run(app, ["attacks"]).stdout
    assert "3,985,444 weights" in said
    assert "trees=1000" in said
