"""The tables and figures of StegoTorus, and the verbs of detection, from end to end on synthetic data."""

import json
from dataclasses import replace

import numpy as np
import pytest
from test_attacks_detectors import flows
from test_attacks_proxies import both, visit
from test_attacks_stegotorus import sites
from typer.testing import CliRunner

import heddle_eval.cli.attack
import heddle_eval.cli.data
import heddle_eval.cli.paper
import heddle_eval.cli.sweep  # noqa: F401 - they add the verbs
from heddle_eval import EvalError, Traces, parquet, steg
from heddle_eval.cli import app


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)


def named(traces, *names):
    return replace(traces, names=names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("steg")
    for name, seed, spread in (("tor", 1, 30), ("tor2", 2, 30), ("cover", 3, 400)):
        parquet.write(named(sites(24, spread, seed), "google", "my-blogspot", "site"), out / f"{name}.parquet")
    made = flows(24, 5)
    made = replace(made, connection=np.zeros(len(made.time), np.int32))
    parquet.write(made[made.monitored[made.label]].only(["tunnel"]), out / "tunnel.parquet")
    page = made.only(["page"])
    parquet.write(replace(page, monitored=np.array([True])), out / "page.parquet")
    return out


def table(folder, *words):
    return run("table", *words, "--results", folder / "r.parquet")


def test_table_of_sites(folder):
    words = ["steg-2", "--train", folder / "tor.parquet", "--data", folder / "tor2.parquet"]
    words += ["--data", folder / "cover.parquet"]
    got = json.loads(table(folder, *words, "--json", "--png", folder / "roc.png").stdout)
    assert (folder / "roc.png").read_bytes().startswith(b"\x89PNG")
    mine = {(r["data"], r["site"]): r for r in got["rows"] if r["ours"]}
    assert len(mine) == 6
    assert {r["n"] for r in mine.values()} == {24}
    assert mine["tor2", "google"]["paper"] == {"site": "google", "tor": 0.9697, "stegotorus": 0.6928}
    assert mine["tor2", "my-blogspot"]["paper"]["tor"] == 0.9825
    assert mine["tor2", "site"]["paper"] is None
    assert all(mine["tor2", s]["ours"]["auc"]["value"] > 0.9 for s in ("google", "site"))
    for site in ("google", "site"):
        assert mine["cover", site]["ours"]["auc"]["value"] < mine["tor2", site]["ours"]["auc"]["value"]
    rest = [r["site"] for r in got["rows"] if not r["ours"]]
    assert len(rest) == 7
    assert "google" not in rest
    text = table(folder, *words).stdout
    assert "paper, StegoTorus" in text
    assert "0.693" in text
    assert "learnt from tor alone" in text
    assert table(folder, *words, "--markdown").stdout.count("| google |") == 2


def test_curves_of_sites(folder):
    words = ["--data", folder / "tor.parquet", "--results", folder / "r.parquet", "--seeds", 1]
    got = json.loads(run("figure", "steg-2", *words, "--json").stdout)
    assert [c["row"] for c in got["curves"]] == ["google", "my-blogspot", "site"]
    for c in got["curves"]:
        assert (c["fpr"][0], c["tpr"][0], c["fpr"][-1], c["tpr"][-1]) == (0, 0, 1, 1)
        assert c["tpr"] == sorted(c["tpr"])


def test_table_of_detectors(folder):
    both = folder / "both.parquet"
    said = run("merge", folder / "tunnel.parquet", both, "--innocent", folder / "page.parquet", "--flows", "--json")
    assert json.loads(said.stdout) == {"out": str(both), "suspect": 24, "innocent": 24}
    words = ["steg-detect", "--data", both, "--seeds", 2, "--attack", "byte-statistics", "--attack", "flow-forest"]
    got = json.loads(table(folder, *words, "--json").stdout)
    assert [(r["attack"], r["suspect"], r["innocent"]) for r in got["rows"]] == [
        ("byte-statistics", 24, 24),
        ("flow-forest", 24, 24),
    ]
    assert all(r["ours"]["auc"]["value"] > 0.9 and r["ours"]["blocked"]["value"] < 0.2 for r in got["rows"])
    assert "innocent blocked at TPR 0.9" in table(folder, *words).stdout
    told = run("attack", both, "--with", "flow-forest", "--world", "detect", "--folds", 3, "--png", folder / "a.svg")
    assert "told 48" in told.stdout
    assert "AUC falls by" in told.stdout
    assert b"<svg" in (folder / "a.svg").read_bytes()
    told = run("attack", both, "--with", "tor-detector", "--world", "detect", "--folds", 3, "--set", "cell=0").stdout
    assert "of the suspect traces are detected" in told


def test_table_has_all_detectors_unless_some_are_named(folder):
    made = both(lambda rng: visit(rng, nested=True), visit, 16)
    fuller = {c: np.full(len(made.time), 0.5, np.float32) for c in ("entropy", "printable")}
    parquet.write(replace(made, **fuller), folder / "proxies.parquet")
    got = json.loads(table(folder, "steg-detect", "--data", folder / "proxies.parquet", "--seeds", 1, "--json").stdout)
    auc = {r["attack"]: r["ours"]["auc"]["value"] for r in got["rows"]}
    assert list(auc) == list(steg.DETECTORS)
    assert auc["tls-in-tls"] > 0.9
    assert "tls-in-tls" in run("attacks").stdout


def test_attack_with_two_data_sets(folder):
    words = ["attack", "--train", folder / "tor.parquet", "--test", folder / "tor2.parquet", "--with", "site-bayes"]
    got = json.loads(run(*words, "--world", "sites", "--train-visits", 10, "--json").stdout)
    assert (got["train"], got["test"]) == (30, 72)
    assert got["measures"]["auc"]["value"] > 0.9
    for wrong in (["--test", folder / "tor.parquet"], [folder / "tor.parquet", *words[1:5]], []):
        with pytest.raises(EvalError, match="not clear what to learn from"):
            run("attack", *wrong, "--with", "site-bayes")
    with pytest.raises(EvalError, match="nothing to part"):
        run(*words, "--folds", 3)
    with pytest.raises(EvalError, match="nothing is parted"):
        run(*words, "--unseen")
    with pytest.raises(EvalError, match="no effect on --unseen"):
        run("attack", folder / "tor.parquet", "--with", "site-bayes", "--folds", 3, "--train-visits", 2)
    with pytest.raises(EvalError, match="no ROC curve"):
        run(*words, "--png", folder / "x.png")


def test_options_that_mean_nothing_are_refused(folder):
    data = ["--data", folder / "tor.parquet"]
    with pytest.raises(EvalError, match="--unseen: it means nothing"):
        table(folder, "steg-2", *data, "--unseen")
    with pytest.raises(EvalError, match="--train: it means nothing"):
        run("figure", "steg-4", *data, "--train", folder / "tor.parquet", "--json")
    with pytest.raises(EvalError, match="no data set to tell"):
        table(folder, "steg-2")


def connections(payloads, times):
    """One load with a connection for each list."""
    rows = sorted(
        (t, c, p) for c, (ps, ts) in enumerate(zip(payloads, times, strict=True)) for p, t in zip(ps, ts, strict=True)
    )
    made = Traces.build([([t for t, _, _ in rows], [p + 40 for _, _, p in rows])], ["a"])
    number = np.array([c for _, c, _ in rows], np.int32)
    return replace(made, connection=number, payload=np.array([p for _, _, p in rows], np.int32))


def test_distributions_by_hand(folder):
    first = connections([[100, 0, 50], [100]], [[0, 1, 2], [5]])
    other = connections([[100, 100], [9]], [[0, 4], [1]])
    got = steg.distributions({"web": first, "cover": other})
    at = {(c["data"], c["panel"]): (c["x"], c["share"]) for c in got["curves"]}
    assert at["web", "seconds"] == ([0, 2], [0.5, 1])
    assert at["cover", "seconds"] == ([0, 4], [0.5, 1])
    assert at["web", "bytes"] == ([100, 150], [0.5, 1])
    assert at["web", "payload"] == ([50, 100], [pytest.approx(1 / 3), 1])
    # Seconds: {0, 2} and {0, 4}. Bytes: {100, 150} and {9, 200}. Payload: {50, 100, 100} and {9, 100, 100}.
    assert got["distances"] == {"cover": {"seconds": 0.5, "bytes": 0.5, "payload": pytest.approx(1 / 3)}}
    for name, made in (("web", first), ("cover", other)):
        parquet.write(made, folder / f"{name}-4.parquet")
    words = ["figure", "steg-4", "--data", folder / "web-4.parquet", "--data", folder / "cover-4.parquet"]
    said = run(*words, "--png", folder / "four.png").stdout
    assert "cover-4 from web-4, payload per packet, bytes: KS distance 0.333" in said
    assert (folder / "four.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(EvalError, match="no 'payload'"):
        steg.distributions({"x": replace(first, payload=None)})
