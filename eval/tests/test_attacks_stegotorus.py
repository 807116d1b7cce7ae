"""The attacks of StegoTorus, on made-up packets whose answers follow by hand."""

from dataclasses import replace

import numpy as np
import pytest

from heddle_eval import EvalError, Traces, detection, experiment
from heddle_eval.attacks import make
from heddle_eval.attacks.site_bayes import cumulative
from heddle_eval.attacks.tor_detector import CELL
from heddle_eval.metrics import OTHER


def carrying(flows, labels, unmonitored=()):
    """Packets 0.1 s apart that carry so many bytes each, the first from the client, then by turns, in headers of 40."""
    traces = []
    for payloads in flows:
        sign = np.where(np.arange(len(payloads)) % 2, -1, 1)
        traces.append((np.arange(len(payloads)) / 10, sign * (np.array(payloads) + 40)))
    made = Traces.build(traces, labels, unmonitored=unmonitored)
    return replace(made, payload=(np.abs(made.size) - 40).astype(np.int32))


def test_tor_detector_by_hand():
    flows = carrying([[100, CELL, 0, CELL, 1460], [CELL - 1] * 3, [0, 0]], ["tor", "web", "web"], ["web"])
    y = np.array([0, OTHER, OTHER])
    found = make("tor-detector", weight=0.5, threshold=0.6).fit(flows, y)
    # Averages over packets that carry something: 0, 0.5, 0.75, 0.375.
    np.testing.assert_allclose(found.predict_proba(flows)[:, 1], [0.75, 0, 0])
    np.testing.assert_allclose(found.detected(flows), [0.3, np.nan, np.nan])
    # Connections of a page load begin later than the load.
    later = replace(flows, time=flows.time + 7)
    np.testing.assert_allclose(found.detected(later), [0.3, np.nan, np.nan])
    assert CELL == 536


def test_tor_detector_finds_the_length():
    """Seeded: innocent flows carry many lengths, and acknowledgements alike in both."""
    rng = np.random.default_rng(5)
    tor = [np.where(rng.random(60) < 0.5, 543, rng.integers(1, 1461, 60)) for _ in range(20)]
    web = [np.where(rng.random(60) < 0.5, 1460, rng.integers(1, 1461, 60)) for _ in range(20)]
    flows = carrying([*tor, *web], ["tor"] * 20 + ["web"] * 20, ["web"])
    attack = make("tor-detector", cell=0)
    found = experiment.run(flows, attack, world="detect", test=0.5)
    assert attack.fit(flows, np.repeat([0, OTHER], 20)).length_ == 543
    assert found.measures()["auc"]["value"] > 0.9
    # The length of another Tor finds nothing.
    assert experiment.run(flows, make("tor-detector"), world="detect", test=0.5).measures()["auc"]["value"] < 0.8


def test_time_to_detection_by_hand():
    flows = carrying([[9, CELL], [CELL], [9], [9, 9, 9, CELL], [9]], ["t", "t", "t", "w", "w"], ["w"])
    y = np.array([0, 0, 0, OTHER, OTHER])
    found = make("tor-detector").fit(flows, y)
    parts = [(found, flows[:1], y[:1]), (found, flows[1:], y[1:])]
    assert detection.times(parts) == {
        "suspect": {"share": pytest.approx(2 / 3), "median_s": pytest.approx(0.05)},
        "innocent": {"share": 0.5, "median_s": pytest.approx(0.3)},
    }
    assert detection.times([(found, flows[2:3], y[2:3])]) == {
        "suspect": {"share": 0, "median_s": None},
        "innocent": {"share": None, "median_s": None},
    }


def test_tor_detector_refuses():
    flows = carrying([[5], [6], [7]], ["a", "b", "c"])
    with pytest.raises(EvalError, match="two classes, not 3"):
        make("tor-detector").fit(flows, np.arange(3))
    with pytest.raises(EvalError, match="no 'payload'"):
        make("tor-detector").fit(replace(flows, payload=None), np.array([0, 1, 1])).predict_proba(
            replace(flows, payload=None)
        )


def test_cumulative_bytes_by_hand():
    visits = Traces.build([([0, 1, 2], [100, -1500, 60]), ([0], [-40])], ["a", "b"])
    np.testing.assert_array_equal(
        cumulative(visits, 4), [[100, 100, 160, 160, 0, 1500, 1500, 1500], [0, 0, 0, 0, 40, 40, 40, 40]]
    )
    np.testing.assert_array_equal(cumulative(visits, 2)[:, :2], [[100, 100], [0, 0]])


def sites(each, spread, seed):
    """Seeded: three sites whose packets grow by site; visits differ by ``spread`` bytes in each packet."""
    rng, visits, labels = np.random.default_rng(seed), [], []
    for site in range(3):
        for _ in range(each):
            size = np.where(np.arange(40) % 4, -1, 1) * (500 + 40 * site + rng.integers(-spread, spread + 1, 40))
            visits.append((np.arange(40) / 100, size))
            labels.append(f"s{site}")
    return Traces.build(visits, labels)


def test_site_classifier_tells_sites_and_not_noise():
    attack = make("site-bayes")
    clear = experiment.run(sites(20, 30, 1), attack, world="sites", test=0.5, learn_visits=10)
    assert clear.train == 30
    assert all(v["value"] > 0.95 for v in experiment.of_sites([clear]).values())
    # Where all sites are alike there is nothing to tell.
    alike = sites(40, 30, 2)
    blind = experiment.run(
        replace(alike, label=np.random.default_rng(3).permutation(alike.label)), attack, world="sites", test=0.5
    )
    assert 0.3 < blind.measures()["auc"]["value"] < 0.7


def test_site_classifier_gives_logarithms_that_differ():
    visits = sites(20, 5, 4)
    found = make("site-bayes").fit(visits, visits.label)
    proba, log = found.predict_proba(visits), found.predict_log_proba(visits)
    np.testing.assert_allclose(proba.sum(1), 1)
    wrong = log[visits.label != 0, 0]
    assert (proba[visits.label != 0, 0] == 0).any()
    assert len(np.unique(wrong)) == len(wrong)
    assert found.predict(visits).tolist() == visits.label.tolist()


def test_merging_for_detection():
    tor = carrying([[1, 2], [3], []], ["a", "b", "b"])
    web = carrying([[4], [5]], ["a", "c"], ["c"])
    both = detection.merge(tor, [web])
    assert both.names == ("a", "b", "innocent:a", "innocent:c")
    assert both.monitored.tolist() == [True, True, False, False]
    assert both.labels.tolist() == ["a", "b", "b", "innocent:a", "innocent:c"]
    assert both.load.tolist() == [0, 1, 2, 3, 4]
    assert both.payload.tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(EvalError, match="no traces of one"):
        detection.merge(tor, [web[:0]])
    with pytest.raises(EvalError, match="no 'connection'"):
        detection.merge(tor, [web], flows=True)
    flows = detection.merge(
        replace(tor, connection=np.array([0, 1, 0], np.int32)),
        [replace(web, connection=np.zeros(2, np.int32))],
        flows=True,
    )
    assert flows.lengths.tolist() == [1, 1, 1, 1, 1]
    assert flows.load.tolist() == [0, 0, 1, 2, 3]  # the empty trace is gone
