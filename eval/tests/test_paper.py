"""The papers' tables: what is in them, and the way from a data set to the answer."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from fakes import pages
from typer.testing import CliRunner

import heddle_eval.cli.paper
import heddle_eval.cli.sweep  # noqa: F401 - they add the verbs
from heddle_eval import defences, figures, metrics, paper, parquet, report
from heddle_eval.cli import app
from heddle_eval.errors import EvalError
from heddle_eval.sweep_store import Store
from heddle_eval.traces import Traces

TABLES = ("comps-3", "comps-4", "comps-5", "comps-6")


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)


def with_bursts(traces: Traces) -> Traces:
    """Make traces ten times as long, so that there is something to split."""
    lengths = traces.lengths * 10
    owner = np.repeat(np.arange(len(traces)), lengths)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return replace(
        traces,
        time=within / 100,
        size=np.where((within + traces.label[owner]) % 3, -1400, 90).astype(np.int32),
        dummy=np.zeros(len(owner), bool),
        offset=np.concatenate([[0], np.cumsum(lengths)]),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("paper")
    parquet.write(with_bursts(pages([12] * 4, other=24)), out / "whole.parquet")
    parquet.write(pages([12] * 4, paths=3, other=24), out / "split.parquet")
    parquet.write(with_bursts(pages([12] * 5)), out / "closed.parquet")
    return out


def table(folder, name, *options, data="whole"):
    words = ["table", name, "--data", folder / f"{data}.parquet", "--results", folder / "r.parquet", *options]
    return run(*words, "--attack", "k-fp")


def test_each_row_is_sound():
    """Defences can be read, attacks can be made, and F1 follows from the other two as printed."""
    whole = paper.paper("comps")
    for name in TABLES:
        for row in whole["tables"][name]["rows"]:
            assert row["attack"] in whole["attacks"]
            if row["defence"] != paper.RECORDED:
                defences.parse(row["defence"])
            printed = row["paper"]
            assert metrics.f1(printed["r_precision"], printed["recall"]) == pytest.approx(printed["f1"], abs=1.1e-3)
        for claim in whole["tables"][name]["claims"]:
            assert set(claim["falling"]) <= {r["defence"] for r in whole["tables"][name]["rows"]}
            for measure in claim["of"]:
                of = {r["defence"]: r["paper"][measure] for r in whole["tables"][name]["rows"]}
                values = [of[d] for d in claim["falling"]]
                assert values == sorted(values, reverse=True)


def test_rows_as_in_the_paper(folder):
    plan = paper.plan("tables", "comps-5", [folder / "whole.parquet"], preset="paper")
    mine = [r for r in plan.rows[0] if r.paper]
    assert [(r.words, r.paper["recall"]) for r in mine] == [
        ("no defence", 0.993),
        ("RR, 50 packets, 3 paths", 0.774),
        ("UR, 50 packets, 3 paths", 0.447),
        ("WR, 50 packets, 3 paths", 0.329),
        ("WR, 50 packets, 2 paths", 0.511),
        ("WR, 50 packets, 5 paths", 0.246),
        ("WR, 200 packets, 3 paths", 0.477),
        ("WR, 100 packets, 3 paths", 0.412),
    ]
    assert {len(r.jobs) for r in plan.rows[0]} == {5}
    assert len(plan.rows[0]) == 8 * 5
    for job in plan.jobs:
        job.check()


def test_cells_are_shared_between_tables(folder):
    keys = [{j.key for j in paper.plan("tables", n, [folder / "whole.parquet"]).jobs} for n in ("comps-4", "comps-5")]
    assert len(keys[0] & keys[1]) == 2 * 3


def test_what_a_preset_leaves_out(folder):
    """The rows are there with the paper's figures, a note says so, and who asks for the attack gets all of them."""
    whole = paper.paper("comps")
    only = whole["presets"]["laptop"]["only"]["df"]
    spelt = [r["defence"] for t in whole["tables"].values() for r in t["rows"]]
    spelt += [c["defence"] for f in whole["figures"].values() for p in f["panels"] for c in p["curves"]]
    assert set(only) < set(spelt)
    plan = paper.plan("tables", "comps-5", [folder / "whole.parquet"])
    mine = [r for r in plan.rows[0] if r.attack == "df"]
    assert len(mine) == 8
    split = {f"{s}, 50 packets, 3 paths" for s in ("RR", "UR", "WR")}
    assert {r.words for r in mine if r.jobs} == {"no defence"} | split
    assert all(r.jobs for r in plan.rows[0] if r.attack != "df")
    (note,) = [n for n in plan.notes if "leaves out DF" in n]
    assert all((r.words in note) == (not r.jobs) for r in mine)
    for asked in ({"attacks": ["df"]}, {"preset": "paper"}):
        plan = paper.plan("tables", "comps-5", [folder / "whole.parquet"], **asked)
        assert all(r.jobs for r in plan.rows[0])
        assert not any("leaves out" in n for n in plan.notes)


def test_curves_of_one_attack(folder):
    """Defences are compared by an attack that is run on all of them."""
    plan = paper.plan("figures", "comps-7", [folder / "whole.parquet"])
    assert {r.attack for r in plan.rows[0]} == {"k-fp"}
    assert any("curves are of k-FP" in n for n in plan.notes)
    plan = paper.plan("figures", "comps-7", [folder / "whole.parquet"], attacks=["df", "cumul"])
    assert {r.attack for r in plan.rows[0]} == {"df"}
    assert not plan.notes


SHAPE = {
    "table": str,
    "title": str,
    "source": str,
    "preset": str,
    "seeds": int,
    "r": int,
    "data": [
        {
            "name": str,
            "file": str,
            "sha256": str,
            "split": bool,
            "monitored": int,
            "unmonitored": int,
            "loads": int,
            "traces": int,
        }
    ],
    "rows": [
        {
            "data": str,
            "row": str,
            "attack": str,
            "defence": str,
            "paper": type(None),
            "ours": {
                m: {"value": float, "low": float, "high": float}
                for m in ("r_precision", "recall", "f1", "wpr", "fpr", "auc")
            },
            "n": int,
            "n_loads": int,
            "seeds": int,
        }
    ],
    "columns": [{"key": str, "words": str, "kind": str}],
    "claims": [
        {
            "data": str,
            "attack": str,
            "says": str,
            "measure": str,
            "values": [float],
            "holds": bool,
            "apart": bool,
        }
    ],
    "notes": [str],
}


def shape(value):
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    if isinstance(value, list):
        return [shape(v) for v in value[-1:]]
    return type(value)


def test_table_from_end_to_end(folder):
    first = table(folder, "comps-5", "--json", "--png", folder / "t.png")
    got = json.loads(first.stdout)
    assert shape(got) == SHAPE
    assert (folder / "t.png").read_bytes().startswith(b"\x89PNG")
    ours = [r for r in got["rows"] if r["attack"] == "k-fp"]
    assert len(ours) == 8
    assert [r["row"] for r in got["rows"] if r["attack"] == "df"] == [r["row"] for r in ours]
    assert all(r["paper"] and not r["ours"] for r in got["rows"] if r["attack"] == "df")
    plain = ours[0]
    assert plain["n"] == plain["n_loads"] == 4 + 2
    assert plain["ours"]["recall"]["value"] > 0.7
    assert ours[3]["n"] > ours[3]["n_loads"]
    assert next(c["says"] for c in got["claims"]) == "RR > UR > WR"
    done = Store(folder / "r.parquet").keys()
    again = json.loads(table(folder, "comps-5", "--json").stdout)
    assert again == got
    assert Store(folder / "r.parquet").keys() == done
    assert len(done) == 8


def test_text_and_markdown_say_the_same(folder):
    text, markdown = table(folder, "comps-5").stdout, table(folder, "comps-5", "--markdown").stdout
    assert "0.774" in text
    assert "95 % intervals" in text
    body = [[c.strip() for c in line.strip("| ").split(" | ")] for line in markdown.splitlines() if line[:1] == "|"]
    assert len(body) == 2 + 16
    lines = [re.split(r"\s{2,}", line) for line in text.splitlines()]
    for row in body[2:]:
        assert row in lines


def test_recorded_splits(folder):
    got = json.loads(table(folder, "comps-6", "--json", data="split").stdout)
    (mine,) = (r for r in got["rows"] if r["attack"] == "k-fp")
    assert (mine["defence"], mine["n"], mine["n_loads"]) == ("none", 18, 6)
    simulated = json.loads(table(folder, "comps-6", "--json").stdout)
    assert any("by simulation" in n for n in simulated["notes"])
    with pytest.raises(EvalError, match="recorded split"):
        table(folder, "comps-5", data="split")


def test_closed_data(folder):
    with pytest.raises(EvalError, match="no unmonitored classes"):
        table(folder, "comps-3", data="closed")
    got = table(folder, "comps-3", "--unmonitored-share", "0.2", "--dry-run", data="closed")
    assert got.stdout.count("to do ") == 2


def test_found_data(folder, monkeypatch):
    """Without --data, what does not fit is left out with a note."""
    monkeypatch.setattr(paper, "found", lambda: sorted(folder.glob("[sw]*.parquet")))
    plan = paper.plan("tables", "comps-3", attacks=["k-fp"])
    assert [d.name for d in plan.data] == ["whole"]
    assert any(n.startswith("split.parquet was left out") for n in plan.notes)
    monkeypatch.setattr(paper, "found", lambda: [])
    with pytest.raises(EvalError, match="there is no data set"):
        paper.plan("tables", "comps-3")


def test_figure(folder):
    words = ["--data", folder / "whole.parquet", "--results", folder / "r.parquet", "--attack", "k-fp"]
    got = json.loads(run("figure", "comps-6", *words, "--json", "--png", folder / "f.svg").stdout)
    assert [(c["panel"], c["row"]) for c in got["curves"]] == [
        (p, f"k-FP, {d}") for p in ("50 packets", "100 ms") for d in ("no defence", "split")
    ]
    for c in got["curves"]:
        assert len(c["recall"]) == len(c["r_precision"]) == len(c["threshold"]) > 0
        assert c["recall"] == sorted(c["recall"])
    assert b"<svg" in (folder / "f.svg").read_bytes()
    with pytest.raises(EvalError, match="nowhere to draw"):
        run("figure", "comps-6")
    with pytest.raises(EvalError, match="no kind of picture"):
        figures.save(figures.precision_recall(got["curves"], "x"), folder / "f.txt")


def test_unknown():
    with pytest.raises(EvalError, match="none of the tables"):
        paper.plan("tables", "comps-9")
    with pytest.raises(EvalError, match="has no"):
        paper.plan("tables", "comps-3", attacks=["nobody"])


def test_numbers():
    assert report.number(None) == "-"
    assert report.interval({"value": 0.12345, "low": 0.1, "high": 0.2}) == "0.123 [0.100, 0.200]"
    assert report.interval({"value": None, "low": None, "high": None}) == "-"


def test_a_rate_of_zero_is_explained(folder):
    got = json.loads(table(folder, "comps-5", "--json").stdout)
    for row in got["rows"]:
        if row["ours"]:
            row["ours"]["fpr"]["value"] = 0.1
    assert not any("3 / n" in line for line in report.remarks(got))
    row["ours"] = {"fpr": {"value": 0.0, "low": 0.0, "high": 0.0}}
    assert any("3 / n" in line for line in report.remarks(got))


def test_rows_and_attacks_of_ones_own(folder, monkeypatch):
    """MODULE:CLASS and --defence add rows, and --train learns from another data set."""
    words = ["comps-3", "--data", folder / "whole.parquet", "--results", folder / "own.parquet", "--json"]
    words += ["--attack", "fakes:ByLength", "--train", folder / "whole.parquet", "--defence", "pad:512"]
    got = json.loads(run("table", *words).stdout)
    ours = [r for r in got["rows"] if r["ours"]]
    assert [r["attack"] for r in ours] == ["fakes:ByLength"] * len(ours)
    assert ours[-1]["defence"] == "pad:512"
    # All traces are told, since none of them is learnt from.
    assert {r["n_loads"] for r in ours} == {4 * 12 + 24}
