import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from test_import_captures import HEDDLE, TALK, A, pcap
from typer.testing import CliRunner

from heddle_eval import EvalError, Traces, describe, parquet
from heddle_eval.cli import app, data  # noqa: F401  (adds the verbs)


def small() -> Traces:
    return Traces.build(
        [([0, 1, 4], [100, -900, -200]), ([0.5], [60]), ([], []), ([0, 2], [-40, 52])],
        ["b", "b", "b", "a"],
        load=[7, 7, 8, 9],
        path=[0, 1, 0, 0],
        unmonitored=["a"],
    )


def run(*arguments, ok=True):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if ok and result.exception:
        raise result.exception
    return result


def test_counts():
    answer = describe.describe(small(), {"path_names": {"home": 0, "lte": 1}})
    wanted = {"traces": 4, "loads": 3, "classes": 2, "unmonitored_classes": 1, "packets": 6, "paths": [0, 1]}
    wanted |= {"bytes_up": 212, "bytes_down": 1140, "short_traces": 4, "empty_traces": 1, "dummy_packets": 0}
    assert {k: answer[k] for k in wanted} == wanted
    assert answer["packets_per_trace"][2] == 1.5
    assert answer["seconds_per_trace"][4] == pytest.approx(np.percentile([4, 0, 0, 2], 95))
    assert answer["size_up"] == pytest.approx(np.percentile([100, 60, 52], (5, 25, 50, 75, 95)))
    a, b = answer["per_class"]
    assert a == {
        "class": "a",
        "monitored": False,
        "traces": 1,
        "loads": 1,
        "median_packets": 2,
        "median_bytes": 92,
        "median_seconds": 2,
        "share_up": 52 / 92,
    }
    assert (b["traces"], b["loads"], b["median_packets"]) == (3, 2, 1)
    assert [(p["name"], p["traces"]) for p in answer["per_path"]] == [("home", 3), ("lte", 1)]
    text = describe.text(answer, classes=1)
    assert "a (unmonitored)" in text
    assert "and 1 more" in text
    json.dumps(answer)


def test_names_of_paths_as_heddle_keeps_them():
    assert describe.path_names(parquet.about(HEDDLE / "trace.parquet")) == {"home": 0, "lte": 1}
    assert describe.path_names({"paths": [["a"], ["b"]]}) == {}
    assert describe.path_names({}) == {}


def test_draws(tmp_path):
    for traces in (small(), small()[:0]):
        describe.draw(traces, tmp_path / "t.png", describe.describe(traces))
        assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_import_and_describe_from_the_command_line(tmp_path):
    folder, out = tmp_path / "captures", tmp_path / "t.parquet"
    for page in ("a", "b"):
        for path in ("home", "lte"):
            file = folder / f"{page}-0-{path}.pcapng"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(pcap(TALK))
    arguments = ["import", "pcap", folder, out, "--label", "{page}-{visit}-{path}.pcapng", "--client", f"{A}/24"]
    answer = json.loads(run(*arguments, "--dry-run", "--json").stdout)
    assert (answer["traces"], answer["loads"], answer["path_names"]) == (4, 2, {"home": 0, "lte": 1})
    assert not out.exists()
    assert "4 traces of 2 page loads, 2 classes (1 unmonitored)" in run(*arguments, "--unmonitored", "b").stdout
    assert parquet.read(out).monitored.tolist() == [True, False]
    about = parquet.about(out)
    assert about["kind"] == "pcap"
    assert about["from"] == ["captures"]
    assert about["options"]["label"] == "{page}-{visit}-{path}.pcapng"
    answer = json.loads(run("describe", out, "--json", "--png", tmp_path / "t.png").stdout)
    assert [p["name"] for p in answer["per_path"]] == ["home", "lte"]
    assert (tmp_path / "t.png").exists()
    assert "4 traces of 2 page loads" in run("describe", out).stdout


def test_a_failed_import_leaves_the_file_that_was_there(tmp_path):
    (tmp_path / "bad.pcap").write_bytes(pcap(TALK)[:-1])
    out = tmp_path / "t.parquet"
    parquet.write(small(), out)
    before = out.read_bytes()
    for more in ([], ["--skip-bad"], ["--client", "nobody"]):
        result = run("import", "pcap", tmp_path / "bad.pcap", out, *more, ok=False)
        assert isinstance(result.exception, EvalError)
    assert out.read_bytes() == before
    assert isinstance(run("describe", tmp_path / "bad.pcap", ok=False).exception, EvalError)


def rewritten(frame: pl.DataFrame, layout: str) -> pl.DataFrame:
    match layout:
        case "narrow":
            return frame.with_columns(pl.col("size").cast(pl.List(pl.Int16)), pl.col("load").cast(pl.Int32))
        case "wide":
            return frame.with_columns(
                pl.col("size", "time_us").cast(pl.List(pl.Int64)), pl.col("path").cast(pl.Int32), load=pl.col("load")
            )
        case "unsigned":
            return frame.with_columns(pl.col("time_us").cast(pl.List(pl.UInt32)), pl.col("load").cast(pl.UInt64))
        case "categories":
            return frame.with_columns(pl.col("label").cast(pl.Categorical))
        case "order":
            return frame.select(reversed(frame.columns)).with_columns(note=pl.lit("more columns do no harm"))
        case "no dummies":
            return frame.with_columns(dummy=pl.lit(None, pl.List(pl.Boolean)))
        case "nothing for empty lists":
            some = pl.col("size").list.len() > 0
            return frame.with_columns(pl.when(some).then(pl.col(c)) for c in ("size", "time_us"))
        case _:
            return frame


@pytest.mark.parametrize(
    "layout",
    ["narrow", "wide", "unsigned", "categories", "order", "no dummies", "nothing for empty lists", "pages", "plain"],
)
def test_reads_tables_of_other_writers(tmp_path, layout):
    """Same values in other physical types, row groups, pages and compression."""
    file = tmp_path / "t.parquet"
    parquet.write(small(), file)
    frame = rewritten(pl.read_parquet(file), layout)
    how = {
        "pages": {"row_group_size": 2, "data_page_size": 1, "compression": "snappy"},
        "plain": {"compression": "uncompressed"},
    }
    frame.write_parquet(file, **how.get(layout, {}))
    back = parquet.read(file)
    for column in ("time", "size", "dummy", "offset", "label", "load", "path", "monitored"):
        np.testing.assert_array_equal(getattr(back, column), getattr(small(), column), err_msg=column)


def test_reads_what_heddle_writes():
    """Made by parquet-go: dictionaries, required elements of lists, and empty lists."""
    traces = parquet.read(HEDDLE / "trace.parquet")
    assert traces.lengths.tolist() == [4, 4, 5, 5]
    assert traces.time[4] == 0.0015
    assert parquet.about(Path(HEDDLE) / "trace.parquet") == {"paths": [["home", "lte"], ["home", "lte"]]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"size": pl.lit([1], pl.List(pl.Int32))}, "more times than sizes"),
        ({"label": pl.lit(None, pl.String)}, "a value is missing"),
        ({"time_us": pl.lit("x")}, "column 'time_us' does not hold"),
        ({"size": pl.col("size").list.eval(pl.element() * 2**40)}, "column 'size' does not hold"),
        ({"time_us": pl.col("time_us").list.eval(pl.element().replace({0: None}))}, "a value is missing"),
    ],
)
def test_refuses_tables_that_are_no_traces(tmp_path, change, why):
    file = tmp_path / "t.parquet"
    parquet.write(small(), file)
    pl.read_parquet(file).with_columns(size=pl.col("size").cast(pl.List(pl.Int64))).with_columns(
        **change
    ).write_parquet(file)
    with pytest.raises(EvalError, match=why):
        parquet.read(file)
