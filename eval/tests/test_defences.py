import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle_eval import EvalError, Traces, parquet
from heddle_eval.cli import app, defend  # noqa: F401  (the module adds its verbs)
from heddle_eval.defences import DEFENCES, overhead, parse
from heddle_eval.defences.front import Front
from heddle_eval.defences.padding import Padding
from heddle_eval.defences.regulator import RegulaTor
from heddle_eval.defences.tamaraw import Tamaraw


def traces(lengths, seed=0, span=3.0):
    rng = np.random.default_rng(seed)
    pairs = [(np.sort(rng.uniform(0, span, n)), rng.choice([-1500, -1500, -600, 60, 60, 1200], n)) for n in lengths]
    return Traces.build(pairs, [f"page {i % 2}" for i in range(len(lengths))])


ALL = [
    "none",
    "wtf-pad",
    "wtf-pad:tail=0.5",
    "wtf-pad:as-published",
    "front:small",
    "tamaraw:multiple=10",
    "regulator:light,budget=100",
    "regulator:rate=20,surge=0.1",
    "pad:128",
    "pad then front:client=30,server=0 then wtf-pad then split:uniform,every=5p",
    "split:weighted,every=100ms then tamaraw:multiple=5",
]
TEXTS = [
    *ALL,
    "split:fixed,paths=2,weights=0.5/0.5,latency=0/0.01,rezero=yes",
    "hywf:mean=10.0,redraw=load",
    "trafficsliver",
    "regulator",
    "front:shortest=2.0",
]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 60), max_size=5), st.sampled_from(ALL), st.integers(0, 99))
@example([0], "wtf-pad", 0)
def test_real_packets_stay_in_order_and_costs_are_what_is_counted(lengths, how, seed):
    before = traces(lengths, seed)
    after = parse(how).apply(before, np.random.default_rng(seed))
    for load in before.load:
        real = before.trace(int(np.flatnonzero(before.load == load)[0]))
        parts = [after.trace(i) for i in np.flatnonzero(after.load == load)]
        time, size, dummy = (np.concatenate([getattr(p, c) for p in parts] or [[]]) for c in ("time", "size", "dummy"))
        order = np.argsort(time, kind="stable")
        time, size = time[order][~dummy[order].astype(bool)], size[order][~dummy[order].astype(bool)]
        for up in (True, False):
            was, now = np.abs(real.size[(real.size > 0) == up]), np.abs(size[(size > 0) == up])
            assert len(was) == len(now)
            assert (now >= was).all()
            if "tamaraw" not in how and "regulator" not in how and "pad " not in how and "pad:" not in how:
                np.testing.assert_array_equal(was, now)
            assert (time[(size > 0) == up] >= real.time[(real.size > 0) == up] - 1e-9).all()
    cost = overhead(before, after)
    total = np.abs(after.size).sum()
    assert cost.made_bytes + cost.padded_bytes == total - np.abs(before.size).sum()
    assert cost.made_packets == len(after.time) - len(before.time)
    assert cost.lost_packets == 0
    if len(before.time):
        assert cost.bandwidth == pytest.approx(total / np.abs(before.size).sum() - 1)


@pytest.mark.parametrize("how", [t for t in ALL if "none" not in t])
def test_the_same_seed_defends_alike(how):
    before = traces([40, 1, 0, 25])
    one, two = (parse(how).apply(before, np.random.default_rng(3)) for _ in range(2))
    for column in ("time", "size", "dummy", "offset"):
        np.testing.assert_array_equal(getattr(one, column), getattr(two, column))


@pytest.mark.parametrize("text", TEXTS)
def test_text_reads_as_what_wrote_it(text):
    defence = parse(text)
    assert parse(str(defence)) == defence
    assert str(parse(str(defence))) == str(defence)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("wtfpad", "none of that name"),
        ("split:often", "'often' is no setting"),
        ("split:weighted,every=50", "'50' is no length of a batch"),
        ("split:every=0p", "'0p' is no length of a batch"),
        ("split:paths=x", "'x' is not a whole number"),
        ("split:path=3", "no setting 'path'"),
        ("split:fixed,weights=1/2", "one for each path"),
        ("split:directions=none", "not both or own or follow"),
        ("split:latency=1", "one for each of 3 paths"),
        ("split:keep-short=maybe", "not yes or no"),
        ("split:paths=nan", "not a whole number"),
        ("hywf:paths=3", "HyWF has two"),
        ("front:longest=nan", "must be above 0"),
        ("regulator:decay=2", "at most 1"),
        ("wtf-pad:as-published,tail=1", "published code has none"),
        ("split then", "none of that name"),
    ],
)
def test_says_what_is_wrong(text, why):
    with pytest.raises(EvalError, match=why) as e:
        parse(text)
    assert e.value.hint


def test_overhead_by_hand():
    before = Traces.build([([0, 1.0, 2.0], [100, -200, -300]), ([0, 1.0], [100, -300])], ["a", "b"])
    after = Traces.build([([0, 1.0, 2.5, 9.0], [100, -250, -300, 75]), ([0, 1.0], [100, -300])], ["a", "b"])
    after.dummy[3] = True
    cost = overhead(before, after)
    assert (cost.made_bytes, cost.padded_bytes, cost.real_bytes) == (75, 50, 1000)
    assert cost.bandwidth == pytest.approx(0.125)
    assert cost.packets == pytest.approx(0.2)
    assert cost.latency_s == pytest.approx(0.25)
    assert cost.latency == pytest.approx(0.5 / 3)
    assert overhead(after, before).latency_s is None
    assert overhead(before, before[:1]).lost_packets == 2


def test_padding_by_hand():
    t = Traces.build([([0] * 6, [1, -128, 129, 1450, -1500, -3100])], ["a"])
    rng = np.random.default_rng(0)
    assert Padding(multiple=128).apply(t, rng).size.tolist() == [128, -128, 256, 1500, -1500, -3128]
    assert Padding().apply(t, rng).size.tolist() == [1500, -1500, 1500, 1500, -1500, -4500]


def test_tamaraw_by_hand():
    t = Traces.build([([0, 0.001, 0.005, 0.0051, 0.030], [60, -500, -1500, -500, 100])], ["a"])
    after = Tamaraw(multiple=5).apply(t, np.random.default_rng(0))
    up, down = after.size > 0, after.size < 0
    np.testing.assert_allclose(after.time[up], np.arange(5) * 0.012)
    np.testing.assert_allclose(after.time[down], np.arange(10) * 0.004)
    assert np.flatnonzero(~after.dummy[up]).tolist() == [0, 3]
    assert np.flatnonzero(~after.dummy[down]).tolist() == [1, 2, 3]
    assert set(after.size.tolist()) == {100, -1500}


def test_tamaraw_keeps_to_its_clock():
    before = traces([300, 7, 120])
    after = Tamaraw().apply(before, np.random.default_rng(0))
    for i, trace in enumerate(after):
        begin = before.trace(i).time[0]
        for up, gap in ((True, 0.012), (False, 0.004)):
            time = trace.time[(trace.size > 0) == up]
            assert len(time) % 100 == 0
            assert len(time) >= 100
            np.testing.assert_allclose(time, begin + np.arange(len(time)) * gap)


def test_front_counts_and_times():
    # A load longer than any Rayleigh draw: every dummy is sent.
    t = Traces.build([([0, 5.0, 500.0], [60, -1500, -1500])] * 2000, ["a"] * 2000)
    after = Front(client=20, server=40, shortest=2, longest=2).apply(t, np.random.default_rng(0))
    owner = after.owner
    for up, most, begin in ((True, 20, 0.0), (False, 40, 5.0)):
        mine = after.dummy & ((after.size > 0) == up)
        counts = np.bincount(owner[mine], minlength=2000)
        assert (counts.min(), counts.max()) == (1, most)
        assert counts.mean() == pytest.approx((most + 1) / 2, rel=0.05)
        since = after.time[mine] - begin
        assert since.min() > 0
        assert since.mean() == pytest.approx(2 * np.sqrt(np.pi / 2), rel=0.03)
        assert np.median(since) == pytest.approx(2 * np.sqrt(2 * np.log(2)), rel=0.03)
    assert set(after.size[after.dummy].tolist()) == {60, -1500}


def test_front_sends_nothing_after_the_end():
    before = traces([50, 60])
    after = Front(client=100, server=100).apply(before, np.random.default_rng(0))
    assert after.dummy.any()
    for was, now in zip(before, after, strict=True):
        assert now.time[-1] == was.time[-1]


def test_regulator_surges_decay():
    # 400 packets at once keep the queue full, and the surge never starts again while few wait for its rate.
    t = Traces.build([([0.0] * 411, [-500] * 411)], ["a"])
    after = RegulaTor(surge=1e9).apply(t, np.random.default_rng(0))
    time = after.time[after.size < 0]
    rate = 1 / np.diff(time)
    np.testing.assert_allclose(rate, 277 * 0.94 ** time[:-1], rtol=1e-9)
    # Of an endless queue every packet begins a surge, so that the rate stays.
    again = RegulaTor(surge=0.0).apply(t, np.random.default_rng(0))
    assert np.diff(again.time[again.size < 0])[:400] == pytest.approx(1 / 277, rel=0.01)


def test_regulator_sends_uploads_in_step():
    before = traces([400, 300, 500])
    defence = RegulaTor(budget=0)
    after = defence.apply(before, np.random.default_rng(0))
    for was, now in zip(before, after, strict=True):
        first = was.time[was.size < 0][10]
        # The server sends its packets and ten a second before the surge; the client a part of that, and five a second.
        down = (was.size < 0).sum() + int(first / 0.1)
        assert (now.size < 0).sum() == down
        scheduled = int(down / 3.95) + int(first / 0.2)
        alone = (now.size > 0).sum() - scheduled
        assert 0 <= alone <= (was.size > 0).sum()
        late = now.time[(now.size > 0) & ~now.dummy] - was.time[was.size > 0]
        assert late.max() <= 1.77 + 1e-9


def test_each_claims_something_and_lists_its_settings():
    for name, kind in DEFENCES.items():
        assert kind.name == name
        assert "not" in kind.claim or "costs" in kind.claim
        assert kind.claim in parse("split:fixed,weights=1/1/1" if name == "split" else name).describe()
        assert all(s["about"] for s in kind.settings())


def test_the_command(tmp_path):
    file, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    parquet.write(traces([80, 90]), file, {"kind": "made"})
    args = ["defend", str(file), str(out), "--with", "wtf-pad then split:weighted,every=10p", "--seed", "1"]
    told = CliRunner().invoke(app, args)
    assert told.exit_code == 0, told.output
    assert "bandwidth" in told.stdout
    answer = json.loads(CliRunner().invoke(app, [*args, "--json"]).stdout)
    after = parquet.read(out)
    assert answer["traces"] == len(after)
    assert answer["made_packets"] == after.dummy.sum() > 0
    assert answer["cpu_s"] >= 0
    assert parquet.about(out) == {"kind": "made", "defence": answer["defence"], "seed": 1}
    listed = CliRunner().invoke(app, ["defences"]).stdout
    assert all(name in listed for name in DEFENCES)
