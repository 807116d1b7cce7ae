"""Detectors of what a proxy cannot hide: TLS in TLS, and round trips of two layers. All connections are made up."""

import struct
from dataclasses import replace

import numpy as np
import pytest

from heddle_eval import EvalError, Traces, experiment
from heddle_eval.attacks import make
from heddle_eval.attacks.cross_layer_rtt import MATCHED, delay, differences, threshold
from heddle_eval.attacks.rules import connections
from heddle_eval.attacks.tls_in_tls import CODES, Packets, after, bursts, client_handshake, frequencies, round_trip
from heddle_eval.metrics import OTHER
from heddle_eval.traces import objects

HEADERS = 40


def record(kind: int, length: int, first: int = 0) -> bytes:
    return struct.pack(">BHH", kind, 0x0303, length) + bytes([first]) + bytes(length - 1)


HELLO = record(22, 512, 1)
TLS13 = HELLO + record(20, 1) + record(23, 53)
TLS12 = HELLO + record(22, 70, 16) + record(20, 1) + record(22, 40)


def flows(connections, labels, unmonitored=()):
    """A trace for each connection: (seconds, signed payload, direction, ack_us, first bytes up)."""
    traces = [(t, np.array(ps) + HEADERS * np.sign(np.array(ps) + ss)) for t, ps, ss, _, _ in connections]
    made = Traces.build(traces, labels, unmonitored=unmonitored)
    payload = np.concatenate([np.abs(ps) for _, ps, _, _, _ in connections])
    return replace(
        made,
        connection=np.zeros(len(payload), np.int32),
        payload=payload.astype(np.int32),
        ack_us=np.concatenate([a for _, _, _, a, _ in connections]).astype(np.int32),
        first=objects([((up, b""),) for *_, up in connections]),
    )


class Client:
    """Writes one connection down, as an observer beside the client has it."""

    def __init__(self, rng, trip):
        self.rng, self.trip, self.now = rng, trip, 0.0
        self.time, self.payload, self.side, self.ack = [], [], [], []
        self.packet(0, 1, trip)
        self.now += trip
        self.packet(0, -1)
        self.packet(0, 1)

    def packet(self, payload, side, acknowledged=-1.0):
        self.time.append(self.now)
        self.payload.append(side * payload)
        self.side.append(side)
        self.ack.append(round(acknowledged * 1e6) if acknowledged >= 0 else -1)
        self.now += 0.0001

    def ask(self, up, down, wait=0.0):
        """Packets up, and their answer: it comes a round trip later, and after a wait."""
        for n in up:
            self.packet(n, 1, self.trip * self.rng.uniform(1, 1.01))
        self.now += self.trip * self.rng.uniform(1, 1.01) + wait
        for n in down:
            self.packet(n, -1)

    def done(self, first=b""):
        return self.time, self.payload, np.array(self.side), self.ack, first


def visit(rng, nested=False):
    """HTTPS; and HTTPS in it, whose handshake is that of another server."""
    client = Client(rng, rng.uniform(0.01, 0.08))
    client.ask([517], [1400, 1400, int(rng.integers(200, 1300))])
    begun = [64, int(rng.integers(250, 500))] if not nested else [64, 517 + int(rng.integers(22, 60))]
    if nested:
        client.ask(begun, [1400, 1400, int(rng.integers(200, 1300))])
        begun = [86, int(rng.integers(250, 500))]
    for _ in range(3):
        client.ask(begun, [*[1400] * int(rng.integers(0, 8)), int(rng.integers(100, 1400))])
        begun = [int(rng.integers(80, 500))]
    return client.done(TLS13)


def both(make_suspect, make_innocent, each=60, seed=1):
    rng = np.random.default_rng(seed)
    made = [make_suspect(rng) for _ in range(each)] + [make_innocent(rng) for _ in range(each)]
    return flows(made, ["tunnel"] * each + ["page"] * each, ["page"])


def auc(traces, name, **settings):
    return experiment.run(traces, make(name, **settings), world="detect", test=0.5).measures()["auc"]["value"]


@pytest.mark.parametrize("learn", ["tls", "suspects"])
def test_handshakes_inside_are_found(learn):
    assert auc(both(lambda r: visit(r, nested=True), visit), "tls-in-tls", learn=learn) > 0.95


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("learn", ["tls", "suspects"])
def test_connections_that_are_alike_are_not_told_by_what_is_inside(learn, nested):
    found = auc(both(lambda r: visit(r, nested), lambda r: visit(r, nested), 150), "tls-in-tls", learn=learn)
    assert 0.4 < found < 0.6


def upload(rng):
    """HTTPS unlike any page's: it sends much and gets little."""
    client = Client(rng, rng.uniform(0.01, 0.08))
    client.ask([517], [1400, 1400, int(rng.integers(200, 1300))])
    for _ in range(4):
        client.ask([64, *[1400] * int(rng.integers(5, 9))], [int(rng.integers(30, 100))])
    return client.done(TLS13)


def test_what_is_unlike_a_page_is_no_handshake_for_that():
    assert auc(both(upload, visit), "tls-in-tls") < 0.6


def test_framing_inside_tls_does_not_count():
    connection = visit(np.random.default_rng(1), nested=True)
    hello = connection[1][8]
    found = make("tls-in-tls", overhead=22)
    for up, less in ((TLS13, 22), (b"GET / HTTP/1.1", 0)):
        (flow,) = found._flows(flows([(*connection[:4], up)], ["a"]))
        assert hello - less in flow.inside.size
        assert flow.inside.size.min() == -1400 + less
        assert flow.whole.size[0] == 517
    assert len(flow.whole.size) <= 25


def test_learns_from_suspects_where_no_innocent_has_tls():
    def http(rng):
        time, payload, side, ack, _ = visit(rng)
        return time, payload, side, ack, b"GET / HTTP/1.1\r\n"

    def inside(rng):
        time, payload, side, ack, _ = visit(rng, nested=True)
        return time, payload, side, ack, b"GET / HTTP/1.1\r\n"

    traces = both(inside, http)
    y = np.where(traces.labels == "tunnel", 0, OTHER)
    assert make("tls-in-tls").fit(traces, y).learnt_from_ == "suspects"
    with pytest.raises(EvalError, match="no TLS connection with contents"):
        make("tls-in-tls", learn="tls").fit(traces, y)
    few = both(lambda r: visit(r, nested=True), visit, 9)
    assert make("tls-in-tls").fit(few, np.repeat([0, OTHER], 9)).learnt_from_ == "suspects"
    enough = both(lambda r: visit(r, nested=True), visit, 10)
    assert make("tls-in-tls").fit(enough, np.repeat([0, OTHER], 10)).learnt_from_ == "tls"


def test_the_best_connection_of_a_trace_counts_and_nothing_is_no_handshake():
    traces = both(lambda r: visit(r, nested=True), visit, 30)
    found = make("tls-in-tls").fit(traces, np.where(traces.labels == "tunnel", 0, OTHER))
    alone = found.predict_proba(traces)[:, 1]
    # Tunnels exceed the innocent connections in both ways, of which there are 30.
    assert np.median(alone[traces.labels == "tunnel"]) > 0.9
    assert alone[traces.labels == "page"].max() < 1
    page, tunnel = traces[traces.labels == "page"].trace(0), traces[traces.labels == "tunnel"].trace(0)
    n = len(page.size)
    joined = Traces.build(
        [(np.append(page.time, tunnel.time + page.time[-1]), np.append(page.size, tunnel.size)), ([], [])], ["a", "b"]
    )
    joined = replace(
        joined,
        connection=np.repeat([0, 1], [n, len(tunnel.size)]).astype(np.int32),
        payload=np.append(page.payload, tunnel.payload),
        first=objects([(page.first[0], tunnel.first[0]), ()]),
    )
    assert found.predict_proba(joined)[0, 1] == alone[traces.labels == "tunnel"][0]
    turned = replace(
        joined,
        connection=np.repeat([1, 0], [n, len(tunnel.size)]).astype(np.int32),
        first=objects([(tunnel.first[0], page.first[0]), ()]),
    )
    assert found.predict_proba(turned)[0, 1] == alone[traces.labels == "tunnel"][0]
    assert found.predict_proba(joined)[1, 1] == 0
    assert found.predict_proba(traces[:0]).shape == (0, 2)
    with pytest.raises(EvalError, match="no 'first'"):
        found.predict_proba(replace(traces, first=None))
    empty = replace(joined, label=np.array([0, 1], np.int32))
    with pytest.raises(EvalError, match="no innocent connection with contents"):
        make("tls-in-tls", learn="suspects").fit(empty, np.array([0, OTHER]))


@pytest.mark.parametrize(
    ("up", "want"),
    [
        (b"GET / HTTP/1.1\r\n", (0, False)),
        (b"", (0, False)),
        (record(22, 100, 2), (0, False)),
        (HELLO, (517, False)),
        (HELLO[:3], (0, False)),
        (TLS13, (517 + 6 + 58, False)),
        (TLS13 + record(23, 300), (581, False)),
        (HELLO + record(23, 53) + record(23, 99), (575, False)),
        (TLS12 + record(23, 300), (517 + 75 + 6 + 45, True)),
        # A session goes on: no key exchange.
        (HELLO + record(20, 1) + record(22, 40) + record(23, 9), (517 + 6 + 45, True)),
        # HelloRetryRequest: a second hello, behind a ChangeCipherSpec.
        (HELLO + record(20, 1) + HELLO + record(23, 53) + record(23, 9), (517 + 6 + 517 + 58, False)),
        # The end of the hello was not captured.
        (HELLO[:400], (517, False)),
        (HELLO + record(99, 4), (517, False)),
    ],
)
def test_end_of_the_clients_handshake(up, want):
    assert client_handshake(up) == want


def test_packets_after_the_handshake_by_hand():
    sent = Packets(np.array([517.0, -1400, -900, 64, 300, -250, 20]), np.arange(7) / 10)
    got = after(sent, 517 + 64, False)
    assert got.size.tolist() == [300, -250, 20]
    assert got.time.tolist() == [0.4, 0.5, 0.6]
    # The last packet of the handshake has a request, too.
    assert after(sent, 517 + 50, True).size.tolist() == [14, 300, -250, 20]
    later = Packets(np.array([517.0, -1400, 126, -51, -9, 300, -70]), np.arange(7) / 10)
    assert after(later, 643, True).size.tolist() == [300, -70]
    assert after(later, 643, False).size.tolist() == [-51, -9, 300, -70]
    assert len(after(Packets(later.size[:5], later.time[:5]), 643, True).size) == 0
    assert len(after(later, 5000, False).size) == 0


def test_frequencies_by_hand():
    # Groups 0 (to 160), 1 (to 600), 2 (to 1,210) and 3, and 4 more for the other direction.
    got = frequencies(np.array([160.0, -161, 600, -1210, 1211, -1]))
    want = {(0, 5, 1): 0.25, (5, 1, 6): 0.25, (1, 6, 3): 0.25, (6, 3, 4): 0.25}
    assert {(i // 64, i // 8 % 8, i % 8): got[i] for i in np.flatnonzero(got)} == want
    assert CODES == 512
    assert not frequencies(np.array([1.0, 2])).any()
    assert not frequencies(np.array([])).any()


def test_bursts_by_hand():
    sent = Packets(np.array([100.0, 50, -7, -8, -9, 1]), np.array([0, 0.1, 0.2, 0.6, 0.8, 0.9]))
    assert bursts(sent, np.inf).tolist() == [150, -24, 1]
    # A pause of 0.4 s is more than three round trips of 0.1 s, and one of 0.2 s is not.
    assert bursts(sent, 0.1).tolist() == [150, -7, -17, 1]
    assert len(bursts(Packets(sent.size[:0], sent.time[:0]), 1)) == 0


def test_distance_of_bursts_by_hand():
    found = make("tls-in-tls", slack=50)
    # All handshakes are alike: one that is off by the slack in one burst has a distance of 1, wherever it stands.
    found._learn_bursts([np.array([500.0, -3000, 100])] * 4)
    assert found._near(np.array([9.0, -9, 500, -3000, 150, -7])) == pytest.approx(1 / 2)
    assert found._near(np.array([500.0, -3000])) == 0
    # By 100 in one burst of which the variance is 100 ** 2, and the slack adds 50 ** 2.
    found._learn_bursts([np.array([500.0, -3000, 100 + d]) for d in (0, 100, 200)])
    assert found._near(np.array([500.0, -3000, 300])) == pytest.approx(1 / (1 + 100 / np.hypot(100, 50)))
    # No handshake has so many bursts: they tell nothing.
    found._learn_bursts([np.array([500.0, -3000])])
    assert found._near(np.array([9.0])) == 1


def test_round_trip_by_hand():
    def of(time, size, payload):
        made = Traces.build([(time, size)], ["a"])
        return round_trip(replace(made, payload=np.array(payload, np.int32)).trace(0))

    assert of([0, 0.1, 0.25, 0.3], [60, -60, 40, 90], [0, 0, 0, 50]) == 0.25
    assert of([0, 0.1], [60, -60], [0, 0]) == np.inf
    assert of([0, 0.1, 0.2], [90, -60, 40], [50, 0, 0]) == np.inf
    assert of([0, 0.1, 0.2], [-60, 60, -40], [0, 0, 0]) == np.inf
    assert of([0, 0.1], [60, 60], [0, 0]) == np.inf
    assert of([], [], []) == np.inf


def test_packets_of_connections_that_alternate_keep_their_order():
    n = 400
    made = Traces.build([(np.arange(n) / 10, np.arange(1, n + 1))], ["a"])
    made = replace(made, connection=np.tile([1, 0], n // 2).astype(np.int32))
    assert [c.size.tolist() for _, c in connections(made, "a")] == [list(range(2, n + 1, 2)), list(range(1, n + 1, 2))]


def session(rng, away=0.0, asks=6):
    """Requests over a link of any length; who answers has a server so many seconds away, and each thinks a little."""
    client = Client(rng, rng.uniform(0.01, 0.1))
    client.ask([517], [1400, 1400])
    for _ in range(asks):
        client.ask([64, 300], [1400] * int(rng.integers(1, 9)), away + rng.exponential(0.003))
        client.now += rng.exponential(0.5)
    return client.done()


def test_a_server_behind_a_proxy_is_found():
    assert auc(both(lambda r: session(r, 0.04), session), "cross-layer-rtt") > 0.95
    # Nearer than the threshold, unless the detector learns it.
    near = both(lambda r: session(r, 0.008), session, 100)
    assert auc(near, "cross-layer-rtt") + 0.1 < auc(near, "cross-layer-rtt", inflated=0) > 0.9


@pytest.mark.parametrize("inflated", [0.015, 0])
@pytest.mark.parametrize("away", [0, 0.02])
def test_connections_that_are_alike_are_not_told_by_round_trips(inflated, away):
    found = auc(both(lambda r: session(r, away), lambda r: session(r, away), 150), "cross-layer-rtt", inflated=inflated)
    assert 0.4 < found < 0.6


def test_ratio_by_hand():
    """One exchange in a window: matched, inflated, inflated, matched after 20 ms of TCP's round trip."""
    wait = [0.004, 0.015, 0.3, 0.0149]
    time, payload, ack = [0.0], [0], [20_000]
    for i, w in enumerate(wait):
        time += [i + 1, i + 1.02, i + 1.02 + w]
        payload += [100, 0, -200]
        ack += [20_000, -1, -1]
    made = flows([(time, payload, np.array([1] + [1, -1, -1] * 4), ack, b"")], ["tunnel"])
    np.testing.assert_allclose(differences(made.trace(0), 1, 0.001, 1), wait, atol=1e-9)
    two = Traces.concat([made, made])
    found = make("cross-layer-rtt", pairs=1, jitter=0.001).fit(two, np.array([0, OTHER]))
    server, proxy = MATCHED
    # The first window does not count, and the last one lowers the ratio after its highest.
    log = 2 * np.log((1 - proxy) / (1 - server))
    np.testing.assert_allclose(found.predict_proba(two)[:, 1], (1 + log / (1 + log)) / 2)
    # Without acknowledgements of requests the one of SYN counts, and without that nothing can be told.
    unsure = replace(made, ack_us=np.where(made.payload > 0, -1, made.ack_us).astype(np.int32))
    np.testing.assert_allclose(differences(unsure.trace(0), 1, 0.001, 1), wait, atol=1e-9)
    unsure = replace(made, ack_us=np.full(len(made.time), -1, np.int32))
    assert len(differences(unsure.trace(0), 1, 0.001, 1)) == 0
    assert found.predict_proba(Traces.concat([unsure, unsure]))[:, 1].tolist() == [0.5, 0.5]
    # No answer comes sooner than an acknowledgement, or later than the longest.
    assert len(differences(made.trace(0), 1, 0.001, 0.01)) == 0
    with pytest.raises(EvalError, match="no 'ack_us'"):
        found.predict_proba(replace(two, ack_us=None))
    assert found.predict_proba(two[:0]).shape == (0, 2)


def test_requests_before_the_answer_to_the_first():
    """The answers come 50 ms after their requests, which go out 20 ms apart; each answer is a train."""
    requests, answers = np.array([0.0, 0.02]), np.array([0.05, 0.051, 0.052, 0.07, 0.071])
    assert delay(requests, answers, 0.01, 0.005, 1) == pytest.approx(0.05)
    # A request of several packets ends with the last.
    assert delay(np.array([0.0, 0.001, 0.002]), np.array([0.042]), 0.01, 0.005, 1) == pytest.approx(0.04)
    # What comes sooner than an acknowledgement answers something else.
    assert delay(np.array([0.0]), np.array([0.01, 0.05]), 0.04, 0.005, 1) == pytest.approx(0.05)
    # Nothing answers what comes after it.
    assert np.isnan(delay(np.array([1.0]), np.array([0.5]), 0.01, 0.005, 1))


def test_windows_by_hand():
    """Exchanges that wait 0, 0, 40 and 40 ms, a server that begins, and a request without an answer."""
    time, payload = [0.0], [-30]
    for i, w in enumerate([0, 0, 0.04, 0.04]):
        time += [i + 1, i + 1.02 + w]
        payload += [100, -200]
    made = flows([([*time, 9], [*payload, 50], np.ones(10), [20_000] * 10, b"")], ["a"]).trace(0)
    np.testing.assert_allclose(differences(made, 2, 0.005, 1), [0, 0, 0.04], atol=1e-9)
    np.testing.assert_allclose(differences(made, 4, 0.005, 1), [0], atol=1e-9)
    # Fewer exchanges than a window has are one window.
    np.testing.assert_allclose(differences(made, 9, 0.005, 1), [0], atol=1e-9)


def test_threshold_by_hand():
    at, matched = threshold(np.array([0.0, 0.001, 0.002, 0.1]), np.array([0.001, 0.04, 0.05, 0.06]))
    assert at == 0.04
    assert matched == (4 / 6, 2 / 6)
    assert threshold(np.array([]), np.array([])) == (np.inf, (0.5, 0.5))
    assert threshold(np.array([0.5]), np.array([0.1]))[1] == (0.5, 0.5)
