"""Metrics, against what was counted by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score

from heddle_eval import bootstrap, metrics
from heddle_eval.errors import EvalError
from heddle_eval.metrics import OTHER

# Ten monitored traces of two pages and eight of other pages:
#            told 0  told 1  told other
# page 0        4       1        1
# page 1        2       2        0
# other         1       0        7
TABLE = {(0, 0): 4, (0, 1): 1, (0, OTHER): 1, (1, 0): 2, (1, 1): 2, (OTHER, 0): 1, (OTHER, OTHER): 7}
TRUTH = np.concatenate([np.full(n, t) for (t, _), n in TABLE.items()])
TOLD = np.concatenate([np.full(n, a) for (_, a), n in TABLE.items()])


def test_open_world_by_hand():
    found = metrics.rates(TRUTH, TOLD)
    assert tuple(found) == pytest.approx((6 / 10, 3 / 10, 1 / 8))
    assert metrics.r_precision(found) == pytest.approx(0.6 / (0.6 + 0.3 + 20 / 8))
    assert metrics.r_precision(found, 1) == pytest.approx(0.6 / (0.6 + 0.3 + 1 / 8))
    precision = 0.6 / 3.4
    assert metrics.f1(precision, 0.6) == pytest.approx(2 * precision * 0.6 / (precision + 0.6))


def test_paper_f1():
    """F1 as printed in table 3 of CoMPS follows from its two other columns."""
    rows = np.array([(0.708, 0.993, 0.827), (0.416, 0.329, 0.367), (0.415, 0.007, 0.014), (0.939, 0.953, 0.946)])
    np.testing.assert_allclose(metrics.f1(rows[:, 0], rows[:, 1]), rows[:, 2], atol=6e-4)


def test_confusion_by_hand():
    assert metrics.confusion(TRUTH, TOLD, [0, 1, OTHER]).tolist() == [[4, 1, 1], [2, 2, 0], [1, 0, 7]]
    with pytest.raises(EvalError):
        metrics.confusion(TRUTH, TOLD, [0, 1])


def test_nothing_told_as_monitored():
    found = metrics.rates([0, 0, OTHER], [OTHER, OTHER, OTHER])
    assert np.isnan(metrics.r_precision(found))
    assert metrics.f1(np.nan, 0.0) == 0


def test_curve_by_hand():
    truth = np.array([0, 0, 1, OTHER, OTHER])
    told = np.array([0, 1, 1, 0, OTHER])
    got = metrics.curve(truth, told, [0.9, 0.4, 0.7, 0.5, 0.99], r=2)
    assert got.threshold.tolist() == [0.9, 0.7, 0.5, 0.4]
    third = 1 / 3
    assert got.recall == pytest.approx([third, 2 * third, 2 * third, 2 * third])
    assert got.r_precision == pytest.approx(
        [1, 1, 2 * third / (2 * third + 2 * 0.5), 2 * third / (2 * third + third + 2 * 0.5)]
    )


def test_curve_ends_without_threshold():
    rng = np.random.default_rng(1)
    truth, told = rng.integers(-1, 3, 200), rng.integers(-1, 3, 200)
    got = metrics.curve(truth, told, rng.random(200).round(1))
    found = metrics.rates(truth, told)
    assert got.recall[-1] == pytest.approx(found.tpr)
    assert got.r_precision[-1] == pytest.approx(metrics.r_precision(found))
    assert (np.diff(got.recall) >= 0).all()
    assert (np.diff(got.threshold) < 0).all()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=40))
def test_auc_is_that_of_sklearn(pairs):
    positive, score = np.array(pairs).T.astype(float)
    ours = metrics.auc(positive, score)
    if len(set(positive)) < 2:
        assert np.isnan(ours)
    else:
        assert ours == pytest.approx(roc_auc_score(positive, score))
        weight = np.arange(1, len(score) + 1.0)
        assert metrics.auc(positive, score, weight[None])[0] == pytest.approx(
            roc_auc_score(positive, score, sample_weight=weight)
        )


def test_closed_world_is_that_of_sklearn():
    rng = np.random.default_rng(2)
    truth = np.repeat([0, 1, 2], [20, 5, 9])
    told = np.where(rng.random(34) < 0.6, truth, rng.integers(0, 3, 34))
    table = metrics.confusion(truth, told, [0, 1, 2])
    got = metrics.closed_world(np.diag(table), table.sum(0), table.sum(1))
    assert got["accuracy"] == pytest.approx((truth == told).mean())
    for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert got[f"macro_{name}"] == pytest.approx(score(truth, told, average="macro"))


def test_lengths_must_agree():
    with pytest.raises(EvalError):
        metrics.rates([0, 1], [0])


def test_bootstrap_draws_whole_loads():
    load, stratum = np.repeat(np.arange(6), 3), np.repeat([0, 0, 0, 1, 1, 1], 3)
    for weight in bootstrap.weights(load, stratum, 120, np.random.default_rng(0)):
        for own in np.split(weight, 6, axis=1):
            assert (own == own[:, :1]).all()
        assert (weight[:, :9].sum(1) == 9).all()
        assert (weight[:, 9:].sum(1) == 9).all()


def test_bootstrap_width_grows_with_siblings():
    """Three copies of each answer tell nothing new: the interval is that of one copy."""
    right = np.random.default_rng(3).random(200) < 0.7

    def interval(copies):
        values = np.repeat(right, copies).astype(float)
        load = np.repeat(np.arange(200), copies)
        got = bootstrap.intervals(
            lambda w: {"x": w @ values / w.sum(1)}, load, np.zeros(len(load), int), resamples=2000
        )["x"]
        return got["low"], got["value"], got["high"]

    assert interval(3) == pytest.approx(interval(1))
    low, value, high = interval(1)
    normal = 1.96 * np.sqrt(value * (1 - value) / 200)
    assert (value - low, high - value) == pytest.approx((normal, normal), abs=0.015)
