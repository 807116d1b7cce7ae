import numpy as np
import pytest

from heddle_eval import Traces
from heddle_eval.defences import wtfpad
from heddle_eval.defences.histograms import BINS, EDGES, NEVER, Histograms, bin_of, tokens
from heddle_eval.defences.wtfpad import BURST, CLIENT, GAP, NORMAL, RECEIVED, SENT, SERVER, WTFPad, which


def test_bins_are_exponential_from_0_to_10_seconds():
    assert (len(EDGES), EDGES[0], EDGES[-1]) == (31, 0.0, 10.0)
    np.testing.assert_allclose(EDGES[2:] / EDGES[1:-1], 2)
    assert bin_of(np.array([0.0, 10 / 2**29, 5.0, 5.1, 10.0, 10.1])).tolist() == [0, 0, 28, 29, 29, NEVER]


@pytest.mark.parametrize("key", NORMAL)
def test_tokens_are_as_many_as_published(key):
    x, mu, sigma = NORMAL[key]
    table = wtfpad.templates(False, np.random.default_rng(1))[which(*key)]
    # The share of a normal variable that is positive, within five standard deviations of 10,000 draws.
    from scipy.stats import norm

    positive = norm.cdf(mu / sigma)
    finite = int(table[:NEVER].sum())
    assert finite == pytest.approx(10_000 * positive, abs=5 * np.sqrt(10_000 * positive * (1 - positive)) + 1)
    assert table[NEVER] == -(-finite // (int(x) if key[2] == BURST else int(x) - 1))


def test_the_published_code_pads_bursts_by_the_table_of_gaps():
    published, correct = (wtfpad.templates(p, np.random.default_rng(1)) for p in (True, False))
    for end in (CLIENT, SERVER):
        for event in (SENT, RECEIVED):
            burst, gap = which(end, event, BURST), which(end, event, GAP)
            np.testing.assert_array_equal(published[burst], published[gap])
            np.testing.assert_array_equal(published[gap], correct[gap])
            assert (correct[burst] != correct[gap]).any()


def test_samples_are_as_frequent_as_tokens_and_within_their_bin():
    template = np.zeros((1, BINS + 1), np.int64)
    template[0, [10, 20, NEVER]] = 10, 30, 60
    n = 20_000
    wait, bin_ = Histograms(template, n).sample(np.arange(n), np.zeros(n, int), np.random.default_rng(0))
    assert np.bincount(bin_, minlength=31)[[10, 20, NEVER]] / n == pytest.approx([0.1, 0.3, 0.6], abs=0.02)
    assert np.isinf(wait[bin_ == NEVER]).all()
    finite = wait[bin_ == 20]
    assert EDGES[20] <= finite.min() < EDGES[20] * 1.01
    assert EDGES[21] * 0.99 < finite.max() <= EDGES[21]


def test_tokens_are_taken_from_below_then_above_and_filled_again():
    template = np.zeros((1, BINS + 1), np.int64)
    template[0, [3, 8]] = 1, 2
    h = Histograms(template, 1)
    row, zero = np.array([0]), np.array([0])
    left = []
    for bin_ in (8, 10, 5, 1):
        h.take(row, zero, np.array([bin_]))
        left.append((int(h.left[0, 0, 3]), int(h.left[0, 0, 8])))
    # 10 is empty and takes of 8; 5 takes of 3, the last token, after which all are there again; 1 takes of 3 above it.
    assert left == [(1, 1), (1, 0), (1, 2), (0, 2)]


def certain(monkeypatch, bins):
    """Histograms that hold one bin each, so that a waiting time is known to a factor of two."""
    table = np.zeros((8, BINS + 1), np.int64)
    table[:, NEVER] = 1000
    for key, bin_ in bins.items():
        table[which(*key)] = 0
        table[which(*key), bin_] = 1000
    monkeypatch.setattr(wtfpad, "templates", lambda published, rng: table)


def padded(trace, **fields):
    return WTFPad(**fields).apply(Traces.build([trace], ["a"]), np.random.default_rng(0))


def test_a_gap_is_filled_until_the_next_real_packet(monkeypatch):
    # The client waits 78 to 156 ms after its packet, then sends every 20 to 39 ms.
    certain(monkeypatch, {(CLIENT, SENT, BURST): 23, (CLIENT, SENT, GAP): 21})
    after = padded(([0.0, 0.05, 1.0, 1.01], [60, 60, 60, -1500]))
    dummies = after.time[after.dummy]
    assert (after.size[after.dummy] == 60).all()
    # The timer of the first packet is overtaken; that of the second ends, and the packet at one second stops the rest.
    assert 0.05 + EDGES[23] <= dummies[0] <= 0.05 + EDGES[24]
    steps = np.diff(dummies)
    assert (steps >= EDGES[21]).all()
    assert (steps <= EDGES[22]).all()
    assert 1.0 - EDGES[22] <= dummies[-1] <= 1.0


def test_nothing_follows_the_last_packet_but_in_the_tail(monkeypatch):
    certain(monkeypatch, {(SERVER, RECEIVED, BURST): 20, (SERVER, SENT, GAP): 20})
    trace = ([0.0, 0.001], [60, 60])
    assert not padded(trace).dummy.any()
    after = padded(trace, tail=0.5)
    dummies = after.time[after.dummy]
    assert (after.size[after.dummy] < 0).all()
    assert dummies[0] >= 0.001 + EDGES[20]
    assert 0.501 - EDGES[21] <= dummies[-1] <= 0.501


def test_waiting_for_ever_ends_a_fake_burst(monkeypatch):
    # After its dummy the client waits for ever in GAP, and so sets a timer of BURST again.
    certain(monkeypatch, {(CLIENT, SENT, BURST): 24})
    after = padded(([0.0, 3.0], [60, 60]))
    steps = np.diff(after.time[after.time < 3.0])
    assert len(steps) >= 9
    assert (steps >= EDGES[24]).all()
    assert (steps <= EDGES[25]).all()


def test_who_waits_for_ever_sends_nothing(monkeypatch):
    certain(monkeypatch, {})
    for variant in ("correct", "as-published"):
        assert not padded(([0.0, 1.0, 9.0], [60, -60, 60]), variant=variant).dummy.any()


def test_the_published_machine_stops_after_a_real_packet_in_a_gap(monkeypatch):
    # Only what the client sends sets timers. It begins in BURST; each dummy draws the next, to the packet at 1 s.
    certain(monkeypatch, {(CLIENT, SENT, BURST): 23, (CLIENT, SENT, GAP): 23})
    after = padded(([0.0, 1.0, 2.0, 3.0, 4.0], [60] * 5), variant="as-published")
    dummies = after.time[after.dummy]
    counts = np.histogram(dummies, np.arange(6))[0]
    # The real packet at 1 s finds GAP: WAIT. At 2 s BURST, then by its dummies GAP; at 3 s WAIT again.
    assert (counts > 0).tolist() == [True, False, True, False, False]
    steps = np.diff(after.time[after.time < 1.0])
    assert (steps >= EDGES[23]).all()
    assert (steps <= EDGES[24]).all()


def test_in_the_published_machine_each_received_packet_brings_a_dummy(monkeypatch):
    # 78 to 156 ms after each packet of the server; the next ones are laid before those that are there.
    certain(monkeypatch, {(CLIENT, RECEIVED, BURST): 23, (CLIENT, RECEIVED, GAP): 23})
    t = np.array([0.0, 0.5, 1.0, 9.0])
    after = padded((t, [-1500, -1500, -1500, 60]), variant="as-published")
    dummies = after.time[after.dummy]
    assert len(dummies) == 3
    assert (dummies - t[:3] >= EDGES[23]).all()
    assert (dummies - t[:3] <= EDGES[24]).all()
    # The last packet of the client is the last there is to pad up to.
    assert not padded((t, [-1500, -1500, -1500, -60]), variant="as-published").dummy.any()


def test_many_traces_go_as_if_alone():
    rng = np.random.default_rng(0)
    pairs = [
        (np.sort(rng.exponential(0.02, n).cumsum()), rng.choice([-514, -514, 514], n)) for n in [5] * 40 + [120] * 40
    ]
    together = Traces.build(pairs, ["a"] * 80)
    for variant in ("correct", "as-published"):
        after = WTFPad(variant=variant).apply(together, np.random.default_rng(1))
        shares = [t.dummy.mean() for t in after][40:]
        alone = [
            WTFPad(variant=variant).apply(together[[i]], np.random.default_rng(i)).dummy.mean() for i in range(40, 52)
        ]
        assert np.mean(shares) > 0.05
        assert np.mean(alone) == pytest.approx(np.mean(shares), abs=4 * np.std(shares) / np.sqrt(12))


def test_tokens_are_of_one_size():
    assert tokens(1.0, 0.1, 9, np.random.default_rng(0))[:NEVER].sum() == 10_000


def test_what_an_end_sends_overtakes_its_timer_of_what_it_received(monkeypatch):
    certain(monkeypatch, {(CLIENT, RECEIVED, BURST): 23})
    assert not padded(([0.0, 0.05, 1.0], [-1500, 60, 60])).dummy.any()
    assert padded(([0.0, 0.5, 1.0], [-1500, 60, 60])).dummy.sum() > 0
