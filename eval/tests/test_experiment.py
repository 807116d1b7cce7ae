"""Experiments: parting by page load, worlds, and what is refused."""

import numpy as np
import pytest
from fakes import ByLength, pages
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle_eval import experiment
from heddle_eval.errors import EvalError
from heddle_eval.metrics import OTHER
from heddle_eval.traces import Traces


class Spy(ByLength):
    """Refuses to tell what it has learnt from."""

    def predict_proba(self, X):
        assert not self.loads_ & set(X.load.tolist())
        return super().predict_proba(X)


@settings(max_examples=30)
@given(
    counts=st.lists(st.integers(2, 30), min_size=2, max_size=5),
    other=st.integers(2, 40),
    paths=st.integers(1, 3),
    test=st.floats(0.05, 0.9),
    seed=st.integers(0, 99),
)
def test_siblings_are_never_on_both_sides(counts, other, paths, test, seed):
    traces, y = experiment.classes(pages(counts, paths, other), "open")
    traces = traces[np.random.default_rng(seed).permutation(len(traces))]
    y = np.where(traces.monitored[traces.label], traces.label, OTHER)
    held = experiment.part(traces, y, test, np.random.default_rng(seed))
    assert not set(traces.load[held]) & set(traces.load[~held])
    for c in np.unique(y):
        loads, chosen = len(np.unique(traces.load[y == c])), len(np.unique(traces.load[(y == c) & held]))
        assert chosen == min(max(1, round(test * loads)), loads - 1)


def test_attack_never_meets_a_load_again():
    got = experiment.run(pages([20, 20, 20], paths=3, other=40), Spy(), world="open")
    assert len(got.load) == 3 * (2 + 2 + 2 + 4)
    assert got.train == 3 * 90


def test_worlds():
    traces = pages([20, 20, 20], other=40)
    closed, opened = experiment.run(traces, ByLength()), experiment.run(traces, ByLength(), world="open")
    assert (closed.truth != OTHER).all()
    assert (opened.truth == OTHER).sum() == 4
    assert closed.measures()["accuracy"]["value"] == 1
    got = opened.measures()
    assert got["recall"]["value"] == 1
    assert got["r_precision"]["value"] == pytest.approx(
        1 / (1 + 20 * (opened.told[opened.truth == OTHER] != OTHER).mean())
    )


def test_shuffled_labels_are_near_chance():
    traces = pages([100] * 4)
    y = np.random.default_rng(5).permutation(traces.label)
    mixed = Traces.build([(t.time, t.size) for t in traces], [f"p{c}" for c in y])
    got = experiment.measure([experiment.run(mixed, ByLength(), seed=s, test=0.3) for s in range(3)])["accuracy"]
    assert got["low"] < 0.25 + 0.05
    assert got["value"] < 0.4


def test_seeds():
    traces = pages([20] * 3, other=20)
    first, again, other = (experiment.run(traces, ByLength(), world="open", seed=s) for s in (1, 1, 2))
    assert first.load.tolist() == again.load.tolist()
    assert first.load.tolist() != other.load.tolist()


def test_repetitions_count_a_load_once():
    """Ten repetitions of the same answers leave the interval as it is."""
    one = experiment.run(pages([30] * 3), ByLength(), test=0.5)
    one.told[:8] = (one.truth[:8] + 1) % 3
    many, single = experiment.measure([one] * 10), experiment.measure([one])
    for name, got in many.items():
        assert got == pytest.approx(single[name])


def test_unseen_pages():
    traces = pages([20, 20])
    more = experiment.unmonitor(pages([20] * 10), 0.5)
    assert more.monitored.sum() == 5
    _, y = experiment.classes(more, "open")
    held = experiment.part(more, y, 0.2, np.random.default_rng(0), unseen=True)
    watched = more.monitored[more.label]
    assert not set(more.label[held & ~watched]) & set(more.label[~held & ~watched])
    with pytest.raises(EvalError):
        experiment.unmonitor(traces, 0.01)


def test_fewer():
    traces = pages([20, 5, 12], paths=2, other=30)
    got = experiment.fewer(traces, visits=8, unmonitored=10)
    assert np.bincount(got.label[got.monitored[got.label]])[:3].tolist() == [16, 10, 16]
    assert (~got.monitored[got.label]).sum() == 20
    assert experiment.fewer(traces) is traces


@pytest.mark.parametrize(
    ("traces", "world", "why"),
    [
        (pages([5, 5]), "open", "no unmonitored"),
        (pages([5, 1]), "closed", "one visit"),
        (pages([5]), "closed", "1 monitored"),
        (pages([5, 5], other=1), "open", "one visit"),
        (pages([], other=5), "open", "0 monitored"),
        (pages([5, 5]), "half", "not one"),
    ],
)
def test_refused(traces, world, why):
    with pytest.raises(EvalError, match=why):
        experiment.run(traces, ByLength(), world=world)


def test_a_load_of_two_pages_is_refused():
    t = [(np.zeros(3), np.full(3, 9))] * 8
    traces = Traces.build(t, list("aaaabbbb"), load=[0, 1, 2, 3, 3, 4, 5, 6])
    with pytest.raises(EvalError, match="load 3"):
        experiment.run(traces, ByLength())


def test_what_is_no_confidence_is_refused():
    class Broken(ByLength):
        def predict_proba(self, X):
            return np.full((len(X), len(self.classes_)), np.nan)

    with pytest.raises(EvalError, match="no confidences"):
        experiment.run(pages([5, 5]), Broken())
