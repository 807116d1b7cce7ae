"""Today's detectors, on made-up flows. The rule is tested by the cases of its Go twin."""

import base64
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from heddle_eval import EvalError, Traces, experiment
from heddle_eval.attacks import make
from heddle_eval.attacks.byte_statistics import statistics
from heddle_eval.attacks.flow_forest import features
from heddle_eval.attacks.fully_encrypted import exemption
from heddle_eval.metrics import OTHER
from heddle_eval.traces import objects

CASES = json.loads((Path(__file__).parents[2] / "observe" / "inspect" / "testdata" / "exemption.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_rule_says_what_the_one_in_go_says(case):
    assert exemption(base64.b64decode(case["first"] or "")) == case["exempt"]


def test_rule_has_cases():
    known = {"few set bits", "many set bits", "printable start", "mostly printable", "printable run", "TLS", "HTTP"}
    assert {c["exempt"] for c in CASES} == known | {"", "empty"}


CIPHER = base64.b64decode(next(c["first"] for c in CASES if c["name"] == "ciphertext"))


def test_rule_looks_at_the_first_packet_of_each_connection():
    """The server speaks first; what the client sends later does not count."""
    trace = ([0, 1, 2, 3, 4], [-140, 140, 60, 540, 40])
    flows = Traces.build([trace, trace, ([0], [-50])], ["a", "a", "b"], unmonitored=["b"])
    flows = replace(
        flows,
        connection=np.array([0, 0, 0, 1, 1] * 2 + [0], np.int32),
        payload=np.array([3, 100, 20, 500, 0] * 2 + [10], np.int32),
        first=objects(
            [
                ((b"GET" + CIPHER[3:120], b"x"), (b"GET /" + CIPHER, b"")),
                ((CIPHER[:100] + b"a" * 200, b"x"), (CIPHER, b"")),
                ((b"", b"hello"),),
            ]
        ),
    )
    found = make("fully-encrypted").fit(flows, np.array([0, 0, OTHER]))
    # Three bytes, as many as the server's first packet has, would pass.
    assert found.predict_proba(flows)[:, 1].tolist() == [0.5, 1, 0]
    assert found.classes_.tolist() == [OTHER, 0]
    with pytest.raises(EvalError, match="no 'first'"):
        found.predict_proba(replace(flows, first=None))


def flows(each, seed):
    """Seeded: tunnels whose packets up are full of random bytes, and pages whose requests are text; else alike."""
    rng, traces, labels = np.random.default_rng(seed), [], []
    for label in ("tunnel", "page"):
        for _ in range(each):
            size = np.where(np.arange(30) % 3, -1, 1) * rng.integers(80, 1500, 30)
            traces.append((np.cumsum(rng.exponential(0.01, 30)), size))
            labels.append(label)
    made = Traces.build(traces, labels, unmonitored=["page"])
    tunnel = (made.labels == "tunnel")[made.owner]
    text = ~tunnel & (made.size > 0)
    return replace(
        made,
        payload=(np.abs(made.size) - 40).astype(np.int32),
        entropy=np.where(text, rng.normal(4.5, 0.3, len(text)), rng.normal(7, 0.2, len(text))).astype(np.float32),
        printable=np.where(text, 0.95, 0.37).astype(np.float32),
    )


def test_statistics_by_hand():
    made = Traces.build([([0, 1, 2, 3, 4], [296, 40, -104, 552, 99]), ([], [])], ["a", "b"])
    made = replace(
        made,
        payload=np.array([256, 0, 64, 512, 59], np.int32),
        entropy=np.array([8, 0, 3, 5, 1], np.float32),
        printable=np.array([0.25, 0, 1, 1, 0], np.float32),
    )
    # 64 bytes can have 6 bits at most. The first two up weigh 256 and 512, the third does not count.
    up = [(256 * 1 + 512 * 5 / 8) / 768, (256 * 0.25 + 512) / 768]
    np.testing.assert_allclose(statistics(made, 2), [[*up, 0.5, 1], [0, 0, 0, 0]])


@pytest.mark.parametrize("name", ["byte-statistics", "flow-forest"])
def test_contents_give_tunnels_away(name):
    found = experiment.run(flows(40, 1), make(name), world="detect", test=0.5)
    assert found.measures()["auc"]["value"] > 0.95
    alike = flows(40, 2)
    alike = replace(alike, label=np.random.default_rng(3).permutation(alike.label))
    assert 0.25 < experiment.run(alike, make(name), world="detect", test=0.5).measures()["auc"]["value"] < 0.75


def test_forest_names_what_tells():
    made = flows(30, 4)
    results, trained = experiment.folds(made, make("flow-forest", trees=50), 3, world="detect")
    assert sum(len(r.truth) for r in results) == 60
    # With two features that tell alike, the loss of one is made up by the other: leave one.
    alone = replace(made, printable=None)
    found = make("flow-forest").telling(experiment.folds(alone, make("flow-forest", trees=50), 3, world="detect")[1])
    assert found[0]["name"] == "up: entropy"
    assert found[0]["falls"] > 0.2
    assert all(a["falls"] >= b["falls"] > 0 for a, b in pairwise(found))
    assert trained[0][0].names_ == features(made)[0]


def test_features_by_hand():
    made = Traces.build([([0, 1, 3], [100, -60, 200]), ([], [])], ["a", "b"])
    names, values = features(made)
    got = dict(zip(names, values[0], strict=True))
    assert got["up: bytes"] == 300
    assert got["up: gap, median"] == 3
    assert got["down: gap, median"] == -1
    assert got["length of packet 2"] == -60
    assert got["up: share of the commonest length"] == 0.5
    assert "up: entropy" not in got
    # Where the payload is known, it counts.
    names, values = features(replace(made, payload=np.array([60, 0, 160], np.int32)))
    got = dict(zip(names, values[0], strict=True))
    assert (got["up: bytes"], got["down: packets"], got["length of packet 2"]) == (220, 0, 160)
    assert got["share of packets with payload"] == pytest.approx(2 / 3)
