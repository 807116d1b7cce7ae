import resource
import signal

import numpy as np
import polars as pl
import pytest

from heddle_eval import EvalError, Traces, parquet
from heddle_eval.files import atomically
from heddle_eval.traces import WHOLE


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
