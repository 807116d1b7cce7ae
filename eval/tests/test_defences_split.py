import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle_eval import EvalError, Traces
from heddle_eval.defences import observe, parse
from heddle_eval.defences.split import HyWF, Split, TrafficSliver
from heddle_eval.traces import WHOLE


def traces(lengths, seed=0, span=3.0):
    rng = np.random.default_rng(seed)
    return Traces.build(
        [
            (np.sort(rng.uniform(0, span, n)), rng.choice([-1500, -600, 60, 1200], n) + rng.integers(0, 50, n))
            for n in lengths
        ],
        [f"page {i % 2}" for i in range(len(lengths))],
        load=np.arange(len(lengths)) * 3 + 1,
    )


def numbered(n, gap=0.01):
    """One trace whose packets can be told apart by size."""
    return Traces.build([(np.arange(n) * gap, np.arange(1, n + 1))], ["a"])


def sizes_by_path(t):
    return {int(p): tr.size.tolist() for p, tr in zip(t.path, t, strict=True)}


SPLITS = [
    "split:round-robin,every=7p",
    "split:uniform,paths=2,every=100ms",
    "split:weighted,paths=5,every=1p",
    "split:fixed,paths=2,weights=3/1,every=4p,directions=own",
    "split:weighted,every=100ms,directions=follow",
    "trafficsliver:paths=3",
    "hywf",
    "hywf:redraw=load,directions=own",
]


@settings(max_examples=25)
@given(st.lists(st.integers(0, 150), max_size=6), st.sampled_from(SPLITS), st.integers(0, 99))
def test_a_split_parts_each_trace_and_joins_again(lengths, how, seed):
    before = traces(lengths, seed)
    after = parse(how).apply(before, np.random.default_rng(seed))
    assert (after.lengths > 0).all()
    assert len(set(zip(after.load.tolist(), after.path.tolist(), strict=True))) == len(after)
    again = observe(after, parse(how).steps[0].paths, np.random.default_rng(0), of=parse(how).steps[0].paths)
    full = before[before.lengths > 0]
    for column in ("time", "size", "offset", "load", "label", "path"):
        np.testing.assert_array_equal(getattr(again, column), getattr(full, column), err_msg=column)
    for i in range(len(after)):
        mine = before.trace(int(np.flatnonzero(before.load == after.load[i])[0]))
        at = np.searchsorted(mine.time, after.trace(i).time)
        assert (np.diff(at) > 0).all()
        np.testing.assert_array_equal(mine.size[at], after.trace(i).size)


def test_the_same_seed_splits_alike():
    before = traces([200, 300])
    for how in SPLITS:
        one, two, other = (parse(how).apply(before, np.random.default_rng(s)) for s in (5, 5, 6))
        np.testing.assert_array_equal(one.size, two.size)
        np.testing.assert_array_equal(one.offset, two.offset)
        if "round-robin" not in how:
            assert one.offset.tolist() != other.offset.tolist()


def test_round_robin_by_packets():
    split = Split(strategy="round-robin", paths=3, every="2p").apply(numbered(9), np.random.default_rng(0))
    assert sizes_by_path(split) == {0: [1, 2, 7, 8], 1: [3, 4, 9], 2: [5, 6]}


def test_round_robin_by_time_counts_idle_batches():
    t = Traces.build([([0, 0.0999, 0.1, 0.3, 0.35], [1, 2, 3, 4, 5])], ["a"])
    split = Split(strategy="round-robin", paths=2, every="100ms").apply(t, np.random.default_rng(0))
    assert sizes_by_path(split) == {0: [1, 2], 1: [3, 4, 5]}


def test_fixed_weights_are_kept_to():
    split = Split(strategy="fixed", paths=3, weights=(0, 3, 1), every="1p").apply(
        numbered(4000), np.random.default_rng(1)
    )
    shares = {p: len(s) / 4000 for p, s in sizes_by_path(split).items()}
    assert set(shares) == {1, 2}
    assert shares[1] == pytest.approx(0.75, abs=0.03)


def test_weights_are_drawn_for_each_load():
    before = Traces.build([(np.arange(500) * 0.01, np.full(500, 9))] * 300, ["a"] * 300)
    rng = np.random.default_rng(2)

    def spread(strategy):
        split = Split(strategy=strategy, paths=2, every="1p").apply(before, rng)
        return np.std([split.lengths[(split.load == i) & (split.path == 0)].sum() / 500 for i in range(300)])

    # Of Dirichlet(1, 1) the share is even between 0 and 1; of a fair coin it stays near a half.
    assert spread("weighted") == pytest.approx(12**-0.5, abs=0.03)
    assert spread("uniform") < 0.04


def runs(path):
    edges = np.flatnonzero(np.diff(path)) + 1
    return np.diff([0, *edges, len(path)])


def path_of_each(split, n):
    path = np.empty(n, int)
    for p, sizes in sizes_by_path(split).items():
        path[np.array(sizes) - 1] = p
    return path


def test_trafficsliver_switches_after_50_to_70_packets():
    path = path_of_each(TrafficSliver(paths=1000).apply(numbered(5000), np.random.default_rng(3)), 5000)
    # With so many paths, two batches in a row hardly ever take one.
    lengths = runs(path)[:-1]
    assert lengths.min() >= 50
    assert np.median(lengths) <= 70
    assert len(set(lengths.tolist())) > 10


def test_hywf_sends_bursts_of_its_mean():
    path = path_of_each(HyWF(redraw="load").apply(numbered(20_000), np.random.default_rng(11)), 20_000)
    share = path.mean()
    # A burst follows one of the same path with that path's share, so runs of path 1 are mean / (1 - share) long.
    ones = runs(path)[(0 if path[0] else 1) :: 2]
    assert ones.mean() == pytest.approx(20 / (1 - share), rel=0.15)
    redrawn = HyWF().apply(traces([4000] * 20), np.random.default_rng(1))
    shares = redrawn.lengths[redrawn.path == 1] / 4000
    assert shares.std() < 0.06
    assert shares.mean() == pytest.approx(0.5, abs=0.05)


def test_the_server_follows_the_client():
    t = Traces.build([(np.arange(8) * 0.01, [-1, 2, -3, -4, 5, -6, 7, -8])], ["a"])
    split = Split(strategy="round-robin", paths=2, every="1p", directions="follow").apply(t, np.random.default_rng(0))
    assert sizes_by_path(split) == {0: [-1, 2, -3, -4, 7, -8], 1: [5, -6]}
    silent = Traces.build([([0, 1], [-1, -2]), ([0], [3])], ["a", "a"])
    split = Split(strategy="uniform", paths=9, directions="follow").apply(silent, np.random.default_rng(0))
    assert split.path[0] == 0


def test_latency_moves_a_path_and_jitter_keeps_its_order():
    t = numbered(200, gap=0.001)
    plain = Split(strategy="round-robin", paths=2, every="5p")
    late = Split(strategy="round-robin", paths=2, every="5p", latency=(0.0, 0.25))
    a, b = (d.apply(t, np.random.default_rng(0)) for d in (plain, late))
    np.testing.assert_allclose(b.trace(0).time, a.trace(0).time)
    np.testing.assert_allclose(b.trace(1).time, a.trace(1).time + 0.25)
    c = Split(strategy="round-robin", paths=2, every="5p", jitter=0.05).apply(t, np.random.default_rng(0))
    np.testing.assert_array_equal(c.size, a.size)
    assert (c.time >= a.time).all()
    assert (c.time <= a.time + 0.05 + 1e-9).all()
    assert (c.time - a.time).std() > 0.005


def test_what_the_simulator_of_comps_does_besides():
    t = traces([100, 151, 300])
    kept = Split(strategy="uniform", keep_short=True).apply(t, np.random.default_rng(0))
    assert kept.path[0] == WHOLE
    assert kept.lengths[0] == 100
    assert (kept.path[1:] >= 0).all()
    plain = Split(every="3p").apply(t, np.random.default_rng(4))
    few = Split(every="3p", drop=30, rezero=True).apply(t, np.random.default_rng(4))
    np.testing.assert_array_equal(few.lengths, plain.lengths[plain.lengths > 30])
    assert len(few) < len(plain)
    assert (few.time[few.offset[:-1]] == 0).all()


def test_an_observer_of_two_paths():
    t = numbered(12)
    split = Split(strategy="round-robin", paths=3, every="1p").apply(t, np.random.default_rng(0))
    seen = observe(split, [0, 2], np.random.default_rng(0))
    assert sizes_by_path(seen) == {0: [1, 3, 4, 6, 7, 9, 10, 12]}
    every = observe(split, 2, np.random.default_rng(0), every_choice=True)
    assert [x.size[:2].tolist() for x in every] == [[1, 2], [1, 3], [2, 3]]
    assert every.path.tolist() == [0, 0, 1]
    assert set(every.load) == {0}


def test_an_observer_of_random_paths_sees_each_as_often():
    split = Split(strategy="round-robin", every="1p").apply(
        Traces.build([([0, 1, 2], [1, 2, 3])] * 900, ["a"] * 900), np.random.default_rng(0)
    )
    seen = observe(split, 1, np.random.default_rng(1))
    assert len(seen) == 900
    assert np.bincount(seen.path) == pytest.approx([300] * 3, abs=60)


def test_an_observer_of_silent_paths_sees_nothing():
    split = Split(strategy="fixed", weights=(1, 0, 0)).apply(traces([20, 30]), np.random.default_rng(0))
    assert len(observe(split, [1, 2], np.random.default_rng(0), of=3)) == 0
    with pytest.raises(EvalError, match="paths 4 of 3"):
        observe(split, 4, np.random.default_rng(0), of=3)


def test_what_is_split_is_not_split_again():
    split = Split().apply(traces([100]), np.random.default_rng(0))
    with pytest.raises(EvalError, match="split already"):
        Split().apply(split, np.random.default_rng(0))
