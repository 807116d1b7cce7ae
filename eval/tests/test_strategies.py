import json

import numpy as np
import pytest
from test_describe import run

import heddle_eval.cli.attack  # noqa: F401  # its verbs
from heddle_eval import EvalError, Traces, parquet, strategies


def recorded(rng: np.random.Generator, *, telling: bool, padded: int = 0, each: int = 12) -> Traces:
    """Loads of three pages; where they tell nothing, all pages look alike. Each load has so many bytes more."""
    traces, labels = [], []
    for page in range(3):
        for _ in range(each):
            n = 40 + 30 * page * telling + int(rng.integers(4))
            sizes = np.where(np.arange(n) % 3, -1400, 90)
            sizes[1] -= padded
            traces.append((np.arange(n) / 100, sizes))
            labels.append(f"p{page}")
    return Traces.build(traces, labels)


@pytest.fixture(scope="module")
def sets():
    rng = np.random.default_rng(1)
    return {"none": recorded(rng, telling=True), "alike": recorded(rng, telling=False, padded=10_000)}


def test_compares_accuracy_and_cost(sets):
    answer = strategies.compare(sets, ["k-fp", "cumul"], seeds=3)
    none, alike = answer["rows"]
    assert answer["chance"] == pytest.approx(1 / 3)
    assert none["loads"] == alike["loads"] == 36
    assert none["cost"] == {"bytes": 1, "packets": 1, "seconds": 1}
    for attack in ("k-fp", "cumul"):
        assert none["accuracy"][attack]["value"] > 0.9
        assert alike["accuracy"][attack]["value"] < 0.7
        low, high = (none["accuracy"][attack][k] for k in ("low", "high"))
        assert low <= none["accuracy"][attack]["value"] <= high
    # 40 packets and 10,000 bytes, over 40, 70 and 100 packets of about 960 bytes.
    of_page = [(41.5 * 963 + 10_000) / (n * 963) for n in (41.5, 71.5, 101.5)]
    assert alike["cost"]["bytes"] == pytest.approx(np.mean(of_page), rel=0.1)
    assert alike["cost"]["packets"] == pytest.approx(np.mean([41.5 / n for n in (41.5, 71.5, 101.5)]), rel=0.1)


def test_refuses_other_pages(sets):
    with pytest.raises(EvalError, match="other pages"):
        strategies.compare({"none": sets["none"], "other": sets["none"].only(["p0", "p1"])}, ["k-fp"])


def test_command(sets, tmp_path):
    files = []
    for name, traces in sets.items():
        parquet.write(traces, tmp_path / f"{name}.parquet")
        files.append(f"{name}={tmp_path / name}.parquet")
    words = run("strategies", *files, "--attack", "k-fp", "--seeds", "2").stdout
    assert "strategy" in words
    assert "those of none are 1" in words
    assert "| alike |" in run("strategies", *files, "--attack", "k-fp", "--seeds", "2", "--markdown").stdout
    answer = json.loads(run("strategies", *files, "--attack", "k-fp", "--seeds", "2", "--json").stdout)
    assert [r["strategy"] for r in answer["rows"]] == ["none", "alike"]
    assert isinstance(run("strategies", files[0], files[0], ok=False).exception, EvalError)
