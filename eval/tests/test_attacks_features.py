"""Features of the classical attacks against values worked out by hand."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle_eval import Traces
from heddle_eval.attacks import cumul, inputs, kfp_features
from heddle_eval.attacks.ragged import Ragged

# Out at 0.0, in at 0.5 and 1.0, out at 1.5, in at 3.5.
TIME = [0.0, 0.5, 1.0, 1.5, 3.5]
SIZE = [100, -1000, -500, 60, -1500]


def hand() -> Traces:
    """The trace above between an empty one and one of a single packet."""
    return Traces.build([([], []), (TIME, SIZE), ([0.0], [-40])], ["a", "b", "c"])


def test_kfp_by_hand():
    row = dict(zip(kfp_features.feature_names(), kfp_features.features(hand())[1].tolist(), strict=True))
    # Gaps: in 0.5, 2.5; out 1.5; all 0.5, 0.5, 0.5, 2.0.
    expected = {
        "gap max in": 2.5, "gap max out": 1.5, "gap max all": 2,
        "gap mean in": 1.5, "gap mean out": 1.5, "gap mean all": 0.875,
        "gap std in": 1, "gap std out": 0, "gap std all": (1.6875 / 4) ** 0.5,
        "gap p75 in": 2, "gap p75 out": 1.5, "gap p75 all": 0.875,
        # Times: in 0.5, 1, 3.5; out 0, 1.5; all 0, 0.5, 1, 1.5, 3.5.
        "time p25 in": 0.75, "time p50 in": 1, "time p75 in": 2.25, "time p100 in": 3.5,
        "time p25 out": 0.375, "time p50 out": 0.75, "time p75 out": 1.125, "time p100 out": 1.5,
        "time p25 all": 0.5, "time p50 all": 1, "time p75 all": 1.5, "time p100 all": 3.5,
        "packets in": 3, "packets out": 2, "packets all": 5,
        "first 30 in": 3, "first 30 out": 2, "last 30 in": 3, "last 30 out": 2,
        # One chunk of 20, two of it outgoing.
        "chunk std": 0, "chunk mean": 2, "chunk median": 2, "chunk max": 2,
        # Seconds: 0 to 1 has three, 1 to 2 has one, 2 to 3 none, 3 to 4 one.
        "second mean": 1.25, "second std": (4.75 / 4) ** 0.5, "second median": 1, "second min": 0, "second max": 3,
        # Positions: out 0, 3; in 1, 2, 4.
        "order mean out": 1.5, "order mean in": 7 / 3, "order std out": 1.5, "order std in": (14 / 9) ** 0.5,
        "share in": 0.6, "share out": 0.4,
        # One count in 70 pieces, four in 20: piece i begins at floor(i n / pieces).
        "chunks piece 68": 0, "chunks piece 69": 2,
        "seconds piece 4": 3, "seconds piece 9": 1, "seconds piece 14": 0, "seconds piece 19": 1, "seconds piece 0": 0,
        "sum chunks": 2, "sum seconds": 5, "sum packets": 10,
        "sum times": 7.5 + 3.75 + 6.5,
        "chunk 0": 2, "chunk 1": 0,
        "size sum in": 3000, "size sum out": 160, "size sum all": 3160,
        "size mean in": 1000, "size mean out": 80, "size mean all": 632,
        "size var in": 500000 / 3, "size var out": 400, "size std out": 20,
        "size max in": 1500, "size max out": 100,
    }  # fmt: skip
    expected["sum gaps"] = sum(v for k, v in expected.items() if k.startswith("gap "))
    assert {k: row[k] for k in expected} == pytest.approx(expected, rel=1e-6)


def test_kfp_of_hardly_anything():
    values = kfp_features.features(hand())
    names = kfp_features.feature_names()
    assert values.shape == (3, 189)
    assert not values[0].any()
    single = {k: v for k, v in zip(names, values[2].tolist(), strict=True) if v}
    for name in ("packets in", "share in", "second mean", "sum seconds", "size max in"):
        assert single.pop(name) == (40 if name.startswith("size") else 1)
    assert "packets out" not in single
    assert "gap max in" not in single
    assert kfp_features.features(hand(), sizes=False).shape == (3, 175)
    assert len(set(names)) == len(names)


def test_kfp_many_at_once_as_one_by_one(monkeypatch):
    rng = np.random.default_rng(0)
    pairs = [(np.sort(rng.exponential(3, n)), rng.choice([-1500, -60, 52], n)) for n in (70, 0, 1, 400, 33)]
    traces = Traces.build(pairs, list("abcde"))
    together = kfp_features.features(traces)
    monkeypatch.setattr(kfp_features, "TRACES_AT_ONCE", 1)
    np.testing.assert_allclose(kfp_features.features(traces), together, rtol=1e-5, atol=1e-5)


def test_cumul_by_hand():
    values = cumul.features(hand(), points=4)
    # Sum of absolute sizes: 100, 1100, 1600, 1660, 3160; curve, incoming up: -100, 900, 1400, 1340, 2840.
    # Points at 100 + 3060 / 4 x 1..4 = 865, 1630, 2395, 3160.
    curve = [-100 + 765, 1400 - 30, 1340 + 735, 2840]
    np.testing.assert_allclose(values[1], [3, 2, 3000, 160, *curve])
    assert not values[0].any()
    np.testing.assert_allclose(values[2], [1, 0, 40, 0, 40, 40, 40, 40])
    assert cumul.features(hand()).shape == (3, 104)
    assert cumul.features(hand()[:1]).shape == (1, 104)


def test_couples_pairs_to_confidence():
    # Three classes: the first beats both others by far, the second the third by a little.
    confidence = cumul.coupled(np.array([[2.0, 2.0, 0.5]]), 3, 1.0)
    p = 1 / (1 + np.exp(-np.array([2, 2, 0.5])))
    raw = [
        1 / (1 / p[0] + 1 / p[1] - 1),
        1 / (1 / (1 - p[0]) + 1 / p[2] - 1),
        1 / (1 / (1 - p[1]) + 1 / (1 - p[2]) - 1),
    ]
    np.testing.assert_allclose(confidence[0], np.array(raw) / sum(raw))
    # For two classes scikit-learn's margin is positive on the side of the second.
    np.testing.assert_allclose(cumul.coupled(np.array([1.0]), 2, 1.0)[0], [1 / (1 + np.e), np.e / (1 + np.e)])


@given(st.lists(st.lists(st.floats(-1e3, 1e3), max_size=9), min_size=1, max_size=5), st.integers(1, 7))
def test_rows_as_numpy_does(rows, number):
    ragged = Ragged(np.concatenate([np.empty(0), *rows]), np.cumsum([0, *map(len, rows)]))
    ordered, pieces = ragged.ordered(), ragged.pieces(number)
    for i, row in enumerate(map(np.array, rows)):
        if not len(row):
            assert ordered.quantile(0.3)[i] == ragged.std[i] == ragged.mean[i] == 0
            continue
        for q in (0, 0.25, 0.75, 1):
            assert ordered.quantile(q)[i] == pytest.approx(np.quantile(row, q), abs=1e-9)
        assert ragged.std[i] == pytest.approx(row.std(), abs=1e-9)
        cuts = [k * len(row) // number for k in range(number + 1)]
        assert pieces[i] == pytest.approx([row[a:b].sum() for a, b in pairwise(cuts)], abs=1e-9)


def test_sequences_by_hand():
    traces = hand()
    np.testing.assert_allclose(inputs.sequence(traces, "direction", 6)[1, :, 0], [1, -1, -1, 1, -1, 0])
    np.testing.assert_allclose(inputs.sequence(traces, "size", 2)[1, :, 0], [100 / 1500, -1000 / 1500])
    np.testing.assert_allclose(inputs.sequence(traces, "gap", 5)[1, :, 0], [0, 0.5, 0.5, 0.5, 2])
    np.testing.assert_allclose(inputs.sequence(traces, "signed-time", 5)[1, :, 0], [0, -0.5, -1, 1.5, -3.5])
    assert not inputs.sequence(traces, "time", 4)[[0, 2]].any()


def test_the_tail_of_a_sequence_stands_for_many_packets():
    """Of five values the last two stand for three packets each: after three packets, six are seen, the others not."""
    sign = np.array([1, -1, 1, 1, -1, -1, -1, -1, 1, 1, 1])
    traces = Traces.build([(np.arange(n) / 10, 100 * sign[:n]) for n in (11, 5, 3, 0)], ["a", "a", "b", "b"])
    seen = inputs.sequence(traces, "direction", 5, tail=2, fold=3)[:, :, 0]
    expected = [[1, -1, 1, -1 / 3, -1 / 3], [1, -1, 1, 0, 0], [1, -1, 1, 0, 0], [0, 0, 0, 0, 0]]
    np.testing.assert_allclose(seen, expected, atol=1e-7)
    for tail, fold in ((2, 1), (0, 3)):
        np.testing.assert_array_equal(
            inputs.sequence(traces, "direction", 5, tail, fold), inputs.sequence(traces, "direction", 5)
        )


def test_aggregation_by_hand():
    # Slots of 3 / (4 - 1) = 1 second; 3.5 is behind the window.
    matrix = inputs.aggregation(hand(), slots=4, window=3)
    assert matrix.shape == (3, 2, 4, 1)
    np.testing.assert_array_equal(matrix[1, :, :, 0], [[1, 1, 0, 0], [1, 1, 0, 1]])
    assert not matrix[0].any()
    assert matrix[2].sum() == matrix[2, 1, 0] == 1


def test_metadata_by_hand():
    values = inputs.metadata(hand(), sizes=True)
    np.testing.assert_allclose(
        values[1], [5, 3, 2, 0.6, 0.4, 3160, 3000, 160, 3000 / 3160, 160 / 3160, 3.5, 0.7], rtol=1e-6
    )
    assert not values[0].any()
    np.testing.assert_allclose(inputs.metadata(hand(), sizes=False)[1], [5, 3, 2, 0.6, 0.4, 3.5, 0.7], rtol=1e-6)


def test_what_is_dummy_is_not_seen():
    from dataclasses import replace

    traces = hand()
    marked = replace(traces, dummy=~traces.dummy)
    for look in (kfp_features.features, cumul.features, inputs.aggregation):
        np.testing.assert_array_equal(look(traces), look(marked))
