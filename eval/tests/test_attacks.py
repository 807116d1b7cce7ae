"""Each attack learns what there is to learn, and nothing else. Networks are of the published depth, but narrow."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score

from heddle_eval import EvalError, Traces
from heddle_eval.attacks import PRESETS, about, make, names

CLASSES = 4
TINY = {"length": 64, "width": 1 / 8, "batch": 8, "least": 0}
SMALL = {
    "df": TINY | {"epochs": 100, "learning_rate": 0.005, "sees": "size", "patience": None},
    "tik-tok": TINY | {"epochs": 100, "learning_rate": 0.005, "patience": None},
    "p1-fp": TINY | {"epochs": 60, "sees": "size", "patience": None},
    "var-cnn": TINY | {"epochs": 25, "patience": None},
    "rf": {"slots": 90, "window": 1.0, "width": 1 / 8, "batch": 8, "epochs": 20, "learning_rate": 0.002, "least": 0},
    "k-fp": {"trees": 30},
    "k-fp-knn": {"trees": 30, "neighbours": 3},
    "cumul": {},
}
DEEP = ("df", "tik-tok", "p1-fp", "var-cnn", "rf")


def loads(each: int, seed: int) -> Traces:
    """Four pages of about 100 packets; each load loses some packets and is slower or faster."""
    rng, traces, labels = np.random.default_rng(seed), [], []
    for page in range(CLASSES):
        own = np.random.default_rng(page)
        size = np.where(own.random(100) < 0.15 + 0.1 * page, 1, -1) * own.integers(60, 1500, 100)
        gap = own.exponential(0.003 * (page + 1), 100)
        for _ in range(each):
            kept = rng.random(100) < 0.95
            traces.append((np.cumsum(gap * rng.uniform(0.8, 1.2, 100))[kept], size[kept]))
            labels.append(f"page{page}")
    return Traces.build(traces, labels)


@pytest.fixture(scope="module", autouse=True)
def compiled_once(request):
    """Keep compiled networks beside what pytest keeps: on a slow core one takes ten seconds."""
    from heddle_eval.attacks.backend import jax

    jax.config.update("jax_compilation_cache_dir", str(request.config.cache.mkdir("jax")))
    yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(scope="module")
def data() -> tuple[Traces, Traces]:
    return loads(20, 0), loads(25, 1)


@pytest.mark.parametrize("name", SMALL)
def test_learns_pages_but_no_noise(name, data):
    train, test = data
    attack = make(name, seed=1, **SMALL[name]).fit(train, train.label)
    confidence = attack.predict_proba(test)
    assert confidence.shape == (100, CLASSES)
    np.testing.assert_allclose(confidence.sum(1), 1, rtol=1e-6)
    assert attack.score(test, test.label) > 0.8

    # Labels drawn at random: 100 guesses with 1 in 4 right are more than 45 right once in 100,000 times, if they are
    # independent; the pages are only four, so that a whole page may be guessed right.
    shuffled = np.random.default_rng(3).permutation(train.label)
    noise = clone(attack).fit(train, shuffled).predict_proba(test).argmax(1)
    own = np.array([np.mean(noise[test.label == page] == page) for page in range(CLASSES)])
    assert own.mean() <= 0.5


@pytest.mark.parametrize("name", SMALL)
def test_takes_what_holds_hardly_anything(name, data):
    """Empty traces and traces of one packet are classified, and learnt from."""
    train, _ = data
    odd = replace(Traces.build([([], []), ([0.0], [-1500])], ["a", "b"]), names=train.names, monitored=train.monitored)
    odd = replace(odd, load=odd.load + 1000)
    few = train[np.arange(0, len(train), 4)]
    fast = {"epochs": 1} if name in DEEP else {}
    attack = make(name, **(SMALL[name] | fast))
    attack.fit(Traces.concat([few, odd]), np.append(few.label, [0, 1]))
    confidence = attack.predict_proba(odd)
    assert np.isfinite(confidence).all()
    np.testing.assert_allclose(confidence.sum(1), 1, rtol=1e-6)
    assert attack.predict_proba(odd[:0]).shape == (0, CLASSES)


def test_a_killed_training_goes_on(data, tmp_path):
    train, test = data

    def kill(epoch):
        if epoch["epoch"] == 2:
            raise KeyboardInterrupt

    small = TINY | {"epochs": 4, "sees": "size", "patience": 3}
    whole = make("df", **small).fit(train, train.label)
    with pytest.raises(KeyboardInterrupt):
        make("df", **small, checkpoint=str(tmp_path), progress=kill).fit(train, train.label)
    seen = []
    resumed = make("df", **small, checkpoint=str(tmp_path), progress=seen.append).fit(train, train.label)
    assert [e["epoch"] for e in seen] == [3, 4]
    assert [e["loss"] for e in resumed.history_] == pytest.approx([e["loss"] for e in whole.history_], rel=1e-5)
    np.testing.assert_allclose(resumed.predict_proba(test), whole.predict_proba(test), atol=1e-5)

    # What is over is not done again, and other data is another training.
    seen.clear()
    again = make("df", **small, checkpoint=str(tmp_path), progress=seen.append).fit(train, train.label)
    assert not seen
    np.testing.assert_allclose(again.predict_proba(test), resumed.predict_proba(test))
    make("df", **small, checkpoint=str(tmp_path), progress=seen.append).fit(train[1:], train.label[1:])
    assert len(seen) == 4

    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(EvalError, match="no checkpoint of this attack"):
        make("df", **small, checkpoint=str(tmp_path)).fit(train, train.label)


TRAINS = """
import sys
import time
from test_attacks import KILLED, loads
from heddle_eval.attacks import make
from heddle_eval.attacks.backend import jax

jax.config.update("jax_compilation_cache_dir", sys.argv[2])
train = loads(20, 0)
last = KILLED["epochs"] - 1  # whoever is to kill this process may be late


def told(epoch):
    if epoch["epoch"] == last:
        time.sleep(600)


make("df", **KILLED, checkpoint=sys.argv[1], progress=told).fit(train, train.label)
"""
KILLED = TINY | {"epochs": 8, "sees": "size", "patience": None, "falls": True}


def test_a_training_that_the_system_kills_goes_on(data, tmp_path, request):
    """What a process killed by SIGKILL has left leads to the same end as a training that nothing disturbed."""
    train, test = data
    where = [str(tmp_path), str(request.config.cache.mkdir("jax"))]
    paths = os.pathsep.join(p for p in [str(Path(__file__).parent), os.environ.get("PYTHONPATH")] if p)
    running = subprocess.Popen([sys.executable, "-c", TRAINS, *where], env=os.environ | {"PYTHONPATH": paths})
    try:
        until = time.monotonic() + 300
        while not list(tmp_path.glob("df-*.npz")) and running.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
    finally:
        running.kill()
    assert running.wait() == -signal.SIGKILL
    (kept,) = tmp_path.glob("df-*.npz")
    with np.load(kept) as stored:
        before = json.loads(str(stored["history"]))
    assert 1 <= len(before) < KILLED["epochs"]

    seen = []
    resumed = make("df", **KILLED, checkpoint=str(tmp_path), progress=seen.append).fit(train, train.label)
    assert [e["epoch"] for e in seen] == list(range(len(before) + 1, KILLED["epochs"] + 1))
    whole = make("df", **KILLED).fit(train, train.label)
    assert [e["rate"] for e in resumed.history_] == [e["rate"] for e in whole.history_]
    assert [e["loss"] for e in resumed.history_] == pytest.approx([e["loss"] for e in whole.history_], rel=1e-4)
    np.testing.assert_allclose(resumed.predict_proba(test), whole.predict_proba(test), atol=1e-4)


@pytest.mark.parametrize(("packets", "fold"), [(480, 20), (481, 21), (100, 1), (90, 1)])
def test_a_tail_reaches_the_end_of_long_traces(packets, fold):
    """Of 100 values 20 stand for what is beyond 80 packets, and for one packet each where all fit."""
    traces = Traces.build([(np.arange(packets) / 100, np.full(packets, -500))] * 4, ["a", "a", "b", "b"])
    attack = make("df", length=100, tail=0.2)
    attack._prepare(traces)
    assert attack.tail_ == (20, fold)
    (seen,) = attack.inputs(traces)
    assert seen.shape == (4, 100, 1)
    assert np.count_nonzero(seen[0]) == (100 if packets >= 100 else 90)
    weight = np.where(np.arange(100) < 80, 1, fold)
    assert weight @ seen[0, :, 0] == pytest.approx(-packets, rel=1e-5)


def test_the_learning_rate_falls():
    attack = make("df", epochs=10, falls=True)
    rates = [attack.rate(0, [{}] * e, 10) for e in range(10)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == pytest.approx(0.002, rel=0.01)
    assert rates[4] + rates[5] == pytest.approx(0.002)
    assert 0 < rates[9] < 0.00002
    assert make("df", "paper").rate(0, [{}] * 29, 30) == 0.002


def test_keeps_the_best_epoch_and_stops(data):
    train, _ = data
    attack = make("df", **TINY, epochs=60, patience=4, sees="size").fit(train, train.label)
    merit = [(e["val_accuracy"], -e["val_loss"]) for e in attack.history_]
    best = merit.index(max(merit))
    assert len(attack.history_) == min(60, best + 5)
    assert len(attack.history_) < 60
    from heddle_eval.attacks.training import hold_out

    held = hold_out(train.load, train.label, attack.validation, attack.seed)
    assert attack.score(train[held], train.label[held]) == pytest.approx(max(merit)[0])


def test_few_traces_get_more_epochs(data):
    train, _ = data
    # 72 of 80 traces in batches of 8 are 9 steps; 90 at least make of 4 epochs 10, and of a patience of 1 one of 3.
    tiny = TINY | {"least": 90, "epochs": 4, "sees": "size", "validation": 0.1}
    assert len(make("df", **tiny, patience=None).fit(train, train.label).history_) == 10
    from heddle_eval.attacks.training import Run

    attack = make("df", **tiny, patience=1)
    run = Run.begin(attack, 9, None, (), train.label, train.load)
    assert (run.epochs, run.patience) == (10, 3)
    assert Run.begin(attack, 23, None, (), train.label, train.load).epochs == 4


def test_holds_out_whole_loads():
    from heddle_eval.attacks.training import hold_out

    # Ten loads of class 0 on three paths, five of class 1, two of class 2.
    load = np.repeat(np.arange(17), 3)
    codes = np.repeat([0] * 10 + [1] * 5 + [2] * 2, 3)
    for seed in range(20):
        held = hold_out(load, codes, 0.2, seed)
        assert not set(load[held]) & set(load[~held])
        assert [len(set(load[held & (codes == c)])) for c in range(3)] == [2, 1, 0]
    assert not hold_out(load, codes, 0, 0).any()


def test_batches_are_of_one_size_and_miss_nobody():
    from heddle_eval.attacks.training import batches

    parts = list(batches(10, 4, 0, 0))
    assert [len(p) for p in parts] == [4, 4, 4]
    order = np.concatenate(parts)
    assert sorted(order[:10]) == list(range(10))
    assert order[10:].tolist() == order[:2].tolist()
    assert order.tolist() != np.concatenate(list(batches(10, 4, 0, 1))).tolist()


def test_learning_rates_as_published():
    from heddle_eval.attacks.training import reductions

    assert make("df", "paper").rate(9999, [], 30) == 0.002
    assert make("p1-fp", "paper").rate(2000, [], 40) == pytest.approx(0.05 * 0.96**2)
    assert make("rf", "paper").rate(0, [{}] * 15, 30) == pytest.approx(0.0005 * 0.2**0.5)
    still = [{"val_accuracy": a} for a in (0.5, 0.6, *[0.6] * 5)]
    var = make("var-cnn-packets", "paper")
    assert var.rate(0, still[:-1], 150) == 0.001
    assert var.rate(0, still, 150) == pytest.approx(0.001 * 0.1**0.5)
    assert reductions([0.5, *[0.4] * 10], 5) == 2
    assert var.rate(0, [{"val_accuracy": 0.5}] * 60, 150) == 1e-5


def test_makes_what_there_is():
    for name in names():
        assert about(name)
        for preset in PRESETS:
            attack = make(name, preset, seed=7)
            assert attack.seed == 7
            assert clone(attack).get_params() == attack.get_params()
            json.dumps(attack.get_params())
    with pytest.raises(EvalError, match="none called 'fd'") as e:
        make("fd")
    assert "df, tik-tok" in e.value.hint
    with pytest.raises(EvalError, match="no preset 'big'"):
        make("df", "big")
    with pytest.raises(EvalError, match="no parameter 'trees'"):
        make("df", trees=3)
    few = loads(2, 0)
    with pytest.raises(EvalError, match="cannot see 'smell'"):
        make("df", sees="smell", **TINY).fit(few, few.label)
    with pytest.raises(EvalError, match="no share"):
        make("df", tail=200).fit(few, few.label)
    with pytest.raises(EvalError, match="cannot see 'smell'"):
        make("var-cnn-packets", parts="smell+metadata").architecture()


def test_refuses_what_cannot_be_learnt():
    train = loads(2, 0)
    for name in SMALL:
        with pytest.raises(EvalError, match="1 class"):
            make(name).fit(train, np.zeros(len(train), int))
    with pytest.raises(EvalError, match="labels of shape"):
        make("cumul").fit(train, train.label[1:])


def test_works_in_scikit_learn(data):
    train, test = data
    scores = cross_val_score(make("cumul"), train, train.label, groups=train.load, cv=GroupKFold(4))
    assert scores.mean() > 0.8
    attack = make("df", **TINY, epochs=1).fit(train, train.label)
    again = pickle.loads(pickle.dumps(attack))
    np.testing.assert_allclose(again.predict_proba(test), attack.predict_proba(test), rtol=1e-6)


def test_cumul_searches_and_approximates(data):
    train, test = data
    found = make("cumul", search=True).fit(train, train.label)
    assert found.C_ in [2.0**e for e in (11, 13, 15, 17)]
    assert found.score(test, test.label) > 0.8
    rough = make("cumul", solver="nystroem", landmarks=40).fit(train, train.label)
    assert rough.score(test, test.label) > 0.8


def test_refuses_another_backend_of_keras(monkeypatch):
    import importlib
    import sys

    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.delitem(sys.modules, "heddle_eval.attacks.backend", raising=False)
    with pytest.raises(EvalError, match="it is 'torch'"):
        importlib.import_module("heddle_eval.attacks.backend")
