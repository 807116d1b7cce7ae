"""Data sets of others, in small files of the shapes that they publish."""

import base64
import contextlib
import os
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_import_captures import TALK, A, client, pcap

from heddle_eval import EvalError, importers
from heddle_eval.importers import Options, detect, names

DATA = os.environ.get("HEDDLE_DATA", "")


def save(file: Path, **arrays) -> Path:
    np.savez(file, **arrays)
    return file


def lists(traces) -> list[tuple[str, list[float], list[int]]]:
    return [(str(n), t.time.tolist(), t.size.tolist()) for n, t in zip(traces.labels, traces, strict=True)]


def test_flat_arrays(tmp_path):
    file = save(
        tmp_path / "a.npz",
        y=np.array([1, 0, 1], np.int16),
        n=np.array([2, 1, 0], np.int32),
        t=np.array([0, 0.5, 0], np.float32),
        s=np.array([514, -514, 60], np.int16),
        names=np.array(["a", "b"]),
    )
    assert detect(file) == "npz"
    traces, report = importers.load("auto", [file])
    assert lists(traces) == [("b", [0, 0.5], [514, -514]), ("a", [0], [60])]
    assert report.counts == {"page loads without a packet, left out": 1, "traces of one packet": 1}


def test_classes_of_one_name_stay_apart(tmp_path):
    file = tmp_path / "a.npz"
    save(file, y=np.arange(3), n=np.ones(3, int), t=np.zeros(3), s=np.ones(3), names=np.array(["a", "b", "a"]))
    traces, report = importers.load("npz", [file])
    assert traces.names == ("a (0)", "a (2)", "b")
    assert report.notes == ["several classes are called a; their numbers were added to the names"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"t": np.array([0, np.nan, 0])}, "trace 0: the time of packet 2 is not a number"),
        ({"t": np.array([1.0, 0, 0])}, "trace 0: its times go backwards at packet 2"),
        ({"s": np.array([1, 0, 1])}, "trace 0: packet 2 has size 0"),
        ({"s": np.array([1.0, 1.5, 1])}, "no whole number of bytes"),
        ({"n": np.array([2, 2])}, "n counts 4 packets, and there are 3"),
        ({"s": np.array([1, 2])}, "do not fit each other"),
        ({"names": np.array(["a"])}, "a class in y has no name"),
        ({"y": np.array([{}], object)}, "cannot be read as arrays"),
    ],
)
def test_says_what_is_wrong_with_arrays(tmp_path, change, why):
    good = {"y": np.array([1, 0]), "n": np.array([2, 1]), "t": np.array([0, 1.0, 0]), "s": np.array([1, -1, 1])}
    with pytest.raises(EvalError, match=why):
        importers.load("npz", [save(tmp_path / "a.npz", **good | change)])


def test_bad_traces_can_be_left_out_and_are_listed(tmp_path):
    arrays = {"y": np.array([0, 1]), "n": np.array([2, 1]), "t": np.array([0, np.nan, 0]), "s": np.array([1, 1, 1])}
    traces, report = importers.load("npz", [save(tmp_path / "a.npz", **arrays)], Options(skip_bad=True))
    assert traces.names == ("1",)
    assert [s["why"] for s in report.skipped] == ["the time of packet 2 is not a number"]
    arrays["n"], arrays["y"] = np.array([3]), np.array([0])
    with pytest.raises(EvalError, match="no trace is left"):
        importers.load("npz", [save(tmp_path / "a.npz", **arrays)], Options(skip_bad=True))


def test_wflib(tmp_path):
    X = np.zeros((3, 6))
    X[0, :4] = [0.0, -0.25, -0.5, 1]
    X[1, :2] = [-0.0, 2]
    X[2, :3] = [0.5, -1, -1]
    file = save(tmp_path / "train.npz", X=X, y=np.array([3, 3, 95]))
    assert detect(file) == "wflib"
    traces, report = importers.load("auto", [file], Options(unmonitored=("95",), cell=514))
    assert lists(traces) == [
        ("3", [0, 0.25, 0.5, 1], [514, -514, -514, 514]),
        ("3", [0, 2], [-514, 514]),
        ("95", [0, 0.5, 0.5], [514, -514, -514]),
    ]
    assert traces.monitored.tolist() == [True, False]
    assert report.counts == {"packets at second 0, which have lost their direction, taken to be the client's": 2}


def test_wflib_refuses_what_it_cannot_mean(tmp_path):
    with pytest.raises(EvalError, match="a 0 between packets"):
        importers.load("wflib", [save(tmp_path / "a.npz", X=np.array([[1.0, 0, 2]]), y=np.array([0]))])
    with pytest.raises(EvalError, match="several classes"):
        importers.load("wflib", [save(tmp_path / "b.npz", X=np.ones((1, 3)), y=np.array([[0, 1]]))])
    with pytest.raises(EvalError, match="not a number"):
        importers.load("wflib", [save(tmp_path / "c.npz", X=np.array([[0.1, np.nan]]), y=np.array([0]))])


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_df_pickles_of_any_python(tmp_path, protocol):
    X = [np.array([1, -1, -1, 0, 0], np.int8), np.array([1, 1, -1, 1, 0], np.int8)]
    for name, value in {
        "X_train_NoDef": np.array(X, float),
        "y_train_NoDef": [4, 7],
        "X_test_NoDef": [row.tolist() for row in X],
        "y_test_NoDef": np.array([7, 7]),
    }.items():
        (tmp_path / f"{name}.pkl").write_bytes(pickle.dumps(value, protocol=protocol))
    traces, report = importers.load("auto", [tmp_path])
    test, train = [("7", [0, 0, 0], [512, -512, -512])], [("4", [0, 0, 0], [512, -512, -512])]
    both = [("7", [0] * 4, [512, 512, -512, 512])]
    assert lists(traces) == test + both + train + both
    assert any("no times" in n for n in report.notes)


def test_df_reads_pickles_of_python_2_and_old_numpy(tmp_path):
    # pickle.dumps(numpy.array([[1, -1]], 'i1'), 2) of Python 2, whose bytes are str.
    array = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87Rq\x03(K\x01K\x01K\x02"
        b"\x86cnumpy\ndtype\nq\x04U\x02i1K\x00K\x01\x87Rq\x05(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"U\x02\x01\xfftb."
    )
    (tmp_path / "X_a.pkl").write_bytes(array)
    (tmp_path / "y_a.pkl").write_bytes(b"\x80\x02]q\x01K\x05a.")
    assert lists(importers.load("df", [tmp_path])[0]) == [("5", [0, 0], [512, -512])]


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/heddle-eval-was-here",)


def test_df_runs_no_code(tmp_path):
    (tmp_path / "X_a.pkl").write_bytes(pickle.dumps(Evil()))
    (tmp_path / "y_a.pkl").write_bytes(pickle.dumps([0]))
    with pytest.raises(EvalError, match=r"it asks for (posix|nt)\.system"):
        importers.load("df", [tmp_path])
    assert not Path("/tmp/heddle-eval-was-here").exists()


@settings(max_examples=80)
@given(edits=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=5), cut=st.integers(0, 50))
def test_hostile_pickles_give_arrays_or_an_explained_error(tmp_path_factory, edits, cut):
    raw = bytearray(pickle.dumps(np.array([[1, -1, 0]], np.int8), protocol=2))
    for at, value in edits:
        raw[at % len(raw)] = value
    folder = tmp_path_factory.getbasetemp()
    (folder / "X_h.pkl").write_bytes(raw[: len(raw) - cut])
    (folder / "y_h.pkl").write_bytes(pickle.dumps([0]))
    with contextlib.suppress(EvalError):
        traces, _ = importers.load("df", [folder / "X_h.pkl"])
        assert set(np.abs(traces.size)) == {512}


def test_wants_both_pickles(tmp_path):
    (tmp_path / "X_a.pkl").write_bytes(pickle.dumps([[1]]))
    with pytest.raises(EvalError, match=r"y_a\.pkl: there is no such file"):
        importers.load("df", [tmp_path])


def texts(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_", "-")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_wangs_cells(tmp_path):
    files = {"0_0": "0.0\t1\n0.5\t-1\n", "0_1": "3.0\t1\n", "10_0": "0 1 600\n0.1 -1 52\n", "17": "0.0\t-1\n"}
    traces, report = importers.load("auto", [texts(tmp_path, **files)])
    assert report.kind == "wang"
    assert sorted(lists(traces)) == [
        ("0", [0], [512]),
        ("0", [0, 0.5], [512, -512]),
        ("10", [0, 0.1], [600, -52]),
        ("unmonitored-17", [0], [-512]),
    ]
    assert dict(zip(traces.names, traces.monitored.tolist(), strict=True)) == {
        "0": True,
        "10": True,
        "unmonitored-17": False,
    }
    assert len(set(traces.load)) == 4


def test_comps_text(tmp_path):
    files = {"a_0.txt": "0.0\t1228\n0.001\t-80\n", "a_1.txt": "0\t-9\n"}
    traces, report = importers.load("auto", [texts(tmp_path, **files)])
    assert report.kind == "comps"
    assert lists(traces) == [("a", [0, 0.001], [1228, -80]), ("a", [0], [-9])]


def test_text_of_several_paths(tmp_path):
    files = {"a_0_wg0.txt": "5.0\t100\n", "a_0_wg1.txt": "5.5\t-100\n6\t-7\n"}
    traces, _ = importers.load("comps", [texts(tmp_path, **files)], Options(label="{page}-{visit}-{path}.txt"))
    assert lists(traces) == [("a", [0], [100]), ("a", [0.5, 1], [-100, -7])]
    assert traces.load.tolist() == [0, 0]


def test_maybenot(tmp_path):
    files = {"0__0_3.log": "0,s,514\n200100000,r,514\n", "1__1_0.log": "7,r,512\n", "LICENSE": "free\n"}
    traces, report = importers.load("auto", [texts(tmp_path, **files)])
    assert report.kind == "maybenot"
    assert lists(traces) == [("0", [0, 0.2001], [514, -514]), ("1", [0], [-512])]
    assert report.counts["files in the folders that are something else, left aside"] == 1


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("wang", "", "the file is empty"),
        ("wang", "0 1\n1 2\n", "line 2 has no direction"),
        ("wang", "0 1\n1\n", "line 2 has 1 columns, not 2 or 3"),
        ("wang", "nan 1\n", "the time of packet 1 is not a number"),
        ("wang", "1 1\n0 1\n", "go backwards"),
        ("comps", "0 zero\n", "a line is not understood"),
        ("comps", "0 0\n", "size 0"),
        ("maybenot", "0,x,5\n", "a line is not understood"),
        ("maybenot", "0,s,\u00b5\n", "no text of numbers"),
    ],
)
def test_says_what_is_wrong_with_text(tmp_path, kind, text, why):
    with pytest.raises(EvalError, match=why):
        importers.load(kind, [texts(tmp_path, **{"0_0": text}) / "0-0"])


def hdf5(file: Path, labels, dtype, sizes, times) -> Path:
    """As trace-to-hdf and select-traces of jpcsmith/wf-in-the-age-of-quic write it."""
    with h5py.File(file, "w") as f:
        f.create_dataset("/labels", data=np.array(labels, dtype), maxshape=(None,), compression="gzip")
        for key, rows, kind in (("sizes", sizes, "i4"), ("timestamps", times, float)):
            d = f.create_dataset(
                key, (len(rows),), h5py.vlen_dtype(np.dtype(kind)), maxshape=(None,), compression="gzip"
            )
            for i, row in enumerate(rows):
                d[i] = np.array(row, kind)
    return file


OPEN_WORLD = [("class", "i1"), ("group", "<i8"), ("protocol", "S10"), ("region", "S7")]


def test_smith(tmp_path):
    labels = [(12, 0, b"quic", b"nyc"), (-1, -40, b"quic", b"ams"), (12, 0, b"tcp", b"nyc")]
    sizes, times = [[1228, -80], [60], [-52, 52]], [[0, 0.25], [0], [1, 1.5]]
    file = hdf5(tmp_path / "d.hdf", labels, OPEN_WORLD, sizes, times)
    traces, report = importers.load("auto", [file])
    assert report.kind == "smith"
    assert lists(traces) == [("12", [0, 0.25], [1228, -80]), ("unmonitored-40", [0], [60]), ("12", [0, 0.5], [-52, 52])]
    assert traces.monitored.tolist() == [True, False]
    assert len(importers.load("smith", [file], Options(protocol="quic"))[0]) == 2
    with pytest.raises(EvalError, match="no trace is of protocol 'sctp'"):
        importers.load("smith", [file], Options(protocol="sctp"))


def test_smith_before_selection_has_urls(tmp_path):
    dtype = [("url", "S100"), ("protocol", "S10"), ("region", "S7")]
    file = hdf5(tmp_path / "d.hdf", [(b"https://a.example/", b"tcp", b"x")] * 2, dtype, [[1], [2]], [[5.0], [6.0]])
    traces, _ = importers.load("smith", [file], Options(paths=2))
    assert lists(traces) == [("https://a.example/", [0], [1]), ("https://a.example/", [1], [2])]
    assert traces.load.tolist() == [0, 0]
    assert traces.path.tolist() == [0, 1]


def test_says_what_is_wrong_with_hdf5(tmp_path):
    file = hdf5(tmp_path / "d.hdf", [(0, 0, b"", b"")], OPEN_WORLD, [[1, 2]], [[0.0]])
    with pytest.raises(EvalError, match="1 times and 2 sizes"):
        importers.load("smith", [file])
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(EvalError, match="cannot be read as HDF5"):
        importers.load("smith", [file])
    with h5py.File(tmp_path / "e.hdf", "w") as f:
        f["labels"] = [1]
    with pytest.raises(EvalError, match="no data set 'sizes'"):
        importers.load("smith", [tmp_path / "e.hdf"])


def test_lines_of_json(tmp_path):
    packets = base64.b64encode(pcap(TALK)).decode()
    lines = [
        f'{{"url": "https://a.example/", "status": "success", "protocol": "tcp", "packets": "{packets}"}}',
        '{"url": "https://b.example/", "protocol": "quic", "trace": [[0.0, 1, 1228], [0.5, -1, 80]]}',
        '{"url": "https://c.example/", "status": "timeout", "packets": ""}',
    ]
    file = tmp_path / "fetch.json"
    file.write_text("\n".join(lines))
    traces, report = importers.load("auto", [file], Options(client=client(A)))
    assert report.kind == "jsonl"
    assert lists(traces)[1] == ("https://b.example/", [0, 0.5], [1228, -80])
    assert traces.trace(0).size.tolist() == [128, -1228, 48]
    assert report.counts["failed page loads, left out"] == 1
    file.write_text(lines[1] + "\n" + lines[1] + '\n{"url": 1}')
    with pytest.raises(EvalError, match="line 3: it names no url"):
        importers.load("jsonl", [file], Options(paths=2))


def test_only_traces_long_enough(tmp_path):
    file = save(tmp_path / "a.npz", y=np.array([0, 1]), n=np.array([1, 2]), t=np.zeros(3), s=np.ones(3))
    traces, report = importers.load("npz", [file], Options(min_packets=2, unmonitored=("x*",)))
    assert traces.lengths.tolist() == [2]
    assert report.counts["traces of fewer than 2 packets, left out"] == 1
    assert report.notes == ["--unmonitored x*: no class has such a name"]


def test_names():
    def read(pattern, *files):
        sources = [names.Source(Path(f), Path(f).parts) for f in files]
        return [tuple(vars(n).values()) for n in names.read(sources, pattern)]

    assert read("{page}-{visit}-{path}.pcap", "a-b-12-lte-0.pcap") == [("a-b", "12", "lte-0")]
    assert read("{page}-{visit}.pcap", "a-b-x.pcap") == [("a-b", "x", None)]
    assert read("{page}-{visit}-{visit}.log", "3-07-1.log") == [("3", "07-1", None)]
    assert read("{page}/*/{path}.pcap", "a/zzz/lte.pcap") == [("a", None, "lte")]
    assert read("", "p/2/lte.pcapng", "p/2.pcapng", "p.pcapng") == [
        ("p", "2", "lte"),
        ("p", "2", None),
        ("p", None, None),
    ]
    for pattern, why in (("{visit}", "no {page}"), ("{page}{site}", "no field {site}"), ("{page}.x", "does not fit")):
        with pytest.raises(EvalError, match=why):
            read(pattern, "a.pcap")
    assert sorted(["a10", "a2", "b"], key=names.natural) == ["a2", "a10", "b"]


def test_says_what_it_does_not_know(tmp_path):
    odd = tmp_path / "odd.bin"
    odd.write_bytes(b"\x00\x01\x02")
    with pytest.raises(EvalError, match="its format is not known"):
        importers.load("auto", [odd])
    with pytest.raises(EvalError, match="there is no such format"):
        importers.load("csv", [odd])
    with pytest.raises(EvalError, match="no such file or folder"):
        importers.load("auto", [tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(EvalError, match="the folder holds no file"):
        importers.load("auto", [tmp_path / "empty"])


@pytest.mark.skipif(not DATA, reason="HEDDLE_DATA does not name the folder of data sets")
def test_the_real_thing():
    traces, _ = importers.load("auto", [Path(DATA) / "fbpages-firefox.npz"])
    assert len(traces) == 750
    assert len(traces.names) == 25
    assert len(traces.time) == 863565


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            ["0.0\t1", "0.5\t-1", "1,s,514", "2,r,9", "0 1 60", '{"url":"a","trace":[[0,1,9]]}', "{}", "", "nan 1"]
        ),
        st.text('0123456789.,-+eE \tsr{}[]":', max_size=20),
    ),
    max_size=6,
)


@settings(max_examples=150)
@given(lines=LINES, kind=st.sampled_from(["auto", "wang", "comps", "maybenot", "jsonl"]), tail=st.binary(max_size=3))
def test_hostile_text_gives_traces_or_an_explained_error(tmp_path_factory, lines, kind, tail):
    file = tmp_path_factory.getbasetemp() / "1-1.cell"
    file.write_bytes("\n".join(lines).encode() + tail)
    with contextlib.suppress(EvalError):
        traces, _ = importers.load(kind, [file], Options(sort=True))
        assert len(traces.time) > 0
