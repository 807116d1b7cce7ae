"""The verbs of attacks, on a small data set in a file."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from heddle_eval import EvalError, Traces, parquet
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
    ],
)
def test_says_what_is_wrong(file, extra, why):
    failed = run(app, ["attack", file, *extra])
    assert isinstance(failed.exception, EvalError)
    assert why in str(failed.exception)


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
