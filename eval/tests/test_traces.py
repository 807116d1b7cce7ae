import resource
import signal
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from heddle_eval import EvalError, Traces, defences, parquet
from heddle_eval.files import atomically
from heddle_eval.traces import BARE, WHOLE, objects


def small() -> Traces:
    return Traces.build(
        [([0, 0.5, 1.25], [100, -1500, -60]), ([], []), ([0, 2e-6], [-40, 52])],
        ["b", "a", "b"],
        load=[7, 8, 7],
        path=[0, WHOLE, 1],
        unmonitored=["a"],
    )


def test_selects_as_an_array_does():
    t = small()
    assert t.shape == (3,)
    assert t.lengths.tolist() == [3, 0, 2]
    picked = t[np.array([2, 0])]
    assert picked.size.tolist() == [-40, 52, 100, -1500, -60]
    assert picked.offset.tolist() == [0, 2, 5]
    assert picked.load.tolist() == [7, 7]
    assert picked.path.tolist() == [1, 0]
    assert t[t.label == 0].lengths.tolist() == [0]
    assert len(t[:0]) == 0


def test_joins_what_was_parted():
    t = small()
    back = Traces.concat([t[:1], t[1:]])
    for column in ("time", "size", "offset", "label", "load", "path"):
        np.testing.assert_array_equal(getattr(back, column), getattr(t, column))


def test_keeps_some_classes():
    t = small().only(["b"])
    assert t.names == ("b",)
    assert t.label.tolist() == [0, 0]
    with pytest.raises(EvalError, match="no class is called 'c'"):
        t.only(["c"])


def test_pads_and_cuts():
    t = small()
    np.testing.assert_array_equal(t.padded(t.size, 2), [[100, -1500], [0, 0], [-40, 52]])


@pytest.mark.parametrize(
    ("time", "size", "why"),
    [
        ([0, np.nan], [1, 1], "not a number"),
        ([1, 0], [1, 1], "go backwards"),
        ([-1, 0], [1, 1], "before the first packet"),
        ([0, 1], [1, 0], "size 0"),
        ([0, 1], [1], "2 times and 1 sizes"),
    ],
)
def test_refuses_what_is_no_trace(time, size, why):
    with pytest.raises(EvalError, match=why):
        Traces.build([([0.0], [5]), (time, size)], ["a", "b"])


def test_parquet_gives_back_what_it_was_given(tmp_path):
    t = small()
    t.dummy[1] = True
    file = tmp_path / "t.parquet"
    parquet.write(t, file, {"made": "by hand"})
    back = parquet.read(file)
    for column in ("time", "size", "dummy", "offset", "label", "load", "path", "monitored"):
        np.testing.assert_array_equal(getattr(back, column), getattr(t, column), err_msg=column)
    assert back.names == t.names
    assert parquet.about(file) == {"made": "by hand"}


def test_parquet_says_what_is_wrong(tmp_path):
    with pytest.raises(EvalError, match="no such file"):
        parquet.read(tmp_path / "none.parquet")
    torn = tmp_path / "torn.parquet"
    parquet.write(small(), torn)
    torn.write_bytes(torn.read_bytes()[:-20])
    with pytest.raises(EvalError, match="no Parquet file"):
        parquet.read(torn)


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("time_us", [[0, 5, 2]], "odd.parquet: trace 0: its times go backwards"),
        ("time_us", [[-1, 0, 2]], "odd.parquet: traces: a time is before the first packet"),
        ("time_us", [[0.0, float("nan"), 2.0]], "odd.parquet: column 'time_us'"),
        ("time_us", [[0, 1, 2**31]], "odd.parquet: column 'time_us'"),
        ("path", [-2], "odd.parquet: traces: there is a path -2"),
        ("label", [None], "odd.parquet: a value is missing"),
    ],
)
def test_parquet_that_other_programs_wrote_is_checked(tmp_path, column, value, why):
    row = {"label": ["a"], "monitored": [True], "load": [0], "path": [-1], "time_us": [[0, 1, 2]], "size": [[1, -2, 3]]}
    file = tmp_path / "odd.parquet"
    pl.DataFrame(row).write_parquet(file)
    assert len(parquet.read(file)) == 1
    pl.DataFrame(row | {column: value}).write_parquet(file)
    with pytest.raises(EvalError, match=why):
        parquet.read(file)


@pytest.mark.parametrize("kept", ["{no JSON", "[1]", "3"])
def test_what_other_programs_keep_with_a_data_set_does_no_harm(tmp_path, kept):
    pl.DataFrame({"label": ["a"]}).write_parquet(tmp_path / "odd.parquet", metadata={"heddle": kept})
    assert parquet.about(tmp_path / "odd.parquet") == {}


def fill_the_disk(file):
    with atomically(file) as out, open("/dev/full", "wb", buffering=0) as full:
        out.write(b"half")
        full.write(b"x")


def test_a_full_disk_loses_nothing(tmp_path):
    file = tmp_path / "t.parquet"
    parquet.write(small(), file)
    before = file.read_bytes()
    with pytest.raises(EvalError, match="No space left"):
        fill_the_disk(file)
    # Whatever writes the table, what the system says comes through.
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
        with pytest.raises(EvalError, match="cannot be written: File too large"):
            parquet.write(small(), file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def full() -> Traces:
    """Two traces with all columns: connections 0 and 1, which alternate, and an empty one."""
    t = small()
    return replace(
        t,
        connection=np.array([0, 1, 0, 0, 1], np.int32),
        payload=np.array([60, 1460, 20, 0, 12], np.int32),
        ack_us=np.array([20_000, 5, -1, -1, 0], np.int32),
        entropy=np.array([1, 7.5, 2, 0, 3], np.float32),
        printable=np.array([1, 0.5, 0, 0, 0.25], np.float32),
        first=objects([((b"GET", b""), (b"\x16\x03", b"\xff")), (), ((b"", b"a"), (b"c", b"d"))]),
    )


def same(a: Traces, b: Traces) -> None:
    for column in ("time", "size", "offset", "label", "load", "path", *BARE):
        np.testing.assert_array_equal(getattr(a, column), getattr(b, column), err_msg=column)


def test_contents_follow_their_traces():
    t = full()
    same(Traces.concat([t[:1], t[1:]]), t)
    picked = t[np.array([2, 0])]
    assert picked.payload.tolist() == [0, 12, 60, 1460, 20]
    assert picked.ack_us.tolist() == [-1, 0, 20_000, 5, -1]
    assert picked.first.tolist() == [t.first[2], t.first[0]]
    assert t.trace(2).entropy.tolist() == [0, 3]
    assert t.trace(2).first == t.first[2]
    assert Traces.concat([t, small()]).payload is None


def test_each_connection_can_be_a_trace():
    apart = full().by_connection()
    assert apart.lengths.tolist() == [2, 1, 0, 1, 1]
    assert apart.size.tolist() == [100, -60, -1500, -40, 52]
    assert apart.time.tolist() == [0, 1.25, 0.5, 0, 2e-6]
    assert apart.load.tolist() == [7, 7, 8, 7, 7]
    assert apart.payload.tolist() == [60, 20, 1460, 0, 12]
    assert apart.ack_us.tolist() == [20_000, -1, 5, -1, 0]
    assert [f[0] if f else None for f in apart.first] == [
        (b"GET", b""),
        (b"\x16\x03", b"\xff"),
        None,
        (b"", b"a"),
        (b"c", b"d"),
    ]
    assert not apart.connection.any()
    with pytest.raises(EvalError, match="no 'connection'"):
        small().by_connection()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"payload": np.zeros(3, np.int32)}, "payload is not as long"),
        ({"connection": np.array([0, 1, 0, 0, -1], np.int32)}, "connection -1"),
        ({"connection": np.array([0, 2, 0, 0, 1], np.int32)}, "trace 0: a connection has no first bytes"),
        ({"connection": None}, "not of each trace"),
        ({"first": objects([()])}, "not of each trace"),
    ],
)
def test_contents_must_fit(wrong, why):
    with pytest.raises(EvalError, match=why):
        replace(full(), **wrong)


@pytest.mark.parametrize("how", ["split:uniform,paths=2,every=1p", "pad:512", "wtf-pad", "tamaraw", "front"])
def test_defences_drop_contents(how):
    whole = replace(full(), path=np.full(3, WHOLE, np.int16))
    out = defences.parse(how).apply(whole, np.random.default_rng(1))
    assert all(getattr(out, c) is None for c in BARE)


def test_parquet_keeps_contents_and_reads_files_without(tmp_path):
    parquet.write(full(), tmp_path / "t.parquet")
    same(parquet.read(tmp_path / "t.parquet"), full())
    frame = pl.read_parquet(tmp_path / "t.parquet")
    # As `heddle observe trace` writes them where it was not asked for contents.
    empty = {c: [[]] * 3 for c in ("entropy", "printable", "first_up", "first_down")}
    frame.with_columns(**{c: pl.Series(v, dtype=parquet.SCHEMA[c]) for c, v in empty.items()}).write_parquet(
        tmp_path / "go.parquet"
    )
    same(parquet.read(tmp_path / "go.parquet"), replace(full(), entropy=None, printable=None, first=None))
    frame.drop(*parquet.OPTIONAL, strict=False).write_parquet(tmp_path / "old.parquet")
    same(parquet.read(tmp_path / "old.parquet"), small())


def test_parquet_refuses_contents_that_do_not_fit(tmp_path):
    parquet.write(full(), tmp_path / "t.parquet")
    frame = pl.read_parquet(tmp_path / "t.parquet")
    frame.write_parquet(tmp_path / "t.parquet", metadata={"heddle.columns": "3"})
    with pytest.raises(EvalError, match="version 3"):
        parquet.read(tmp_path / "t.parquet")
    frame.drop("first_down").write_parquet(tmp_path / "t.parquet")
    with pytest.raises(EvalError, match="no 'first_down'"):
        parquet.read(tmp_path / "t.parquet")
    frame.with_columns(first_up=pl.Series([[b"a"], [], [b"a", b"b"]])).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(EvalError, match="more first bytes of one side"):
        parquet.read(tmp_path / "t.parquet")
