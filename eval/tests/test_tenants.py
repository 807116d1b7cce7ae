import json

import numpy as np
import pytest
from test_describe import run

import heddle_eval.cli.tenants  # noqa: F401  # its verb
from heddle_eval import EvalError, tenants


def seen(rng: np.random.Generator, *, telling: bool, pseudonyms: int = 4) -> list[dict]:
    """Connections to three tenants: one told by a word and one by a number, where they tell. All pseudonyms differ."""
    out = []
    for n, tenant in enumerate(("a", "b", "c")):
        for p in range(pseudonyms):
            for _ in range(5):
                out.append(
                    {
                        "way": "handoff",
                        "tenant": tenant,
                        "pseudonym": f"{tenant}{p}",
                        "seen": {
                            "packets: options": "mss ts" if telling and n == 1 else "mss",
                            "packets: TTL": 64,
                            "handshake: bytes": 1000 + 7 * (p * 31 + n * 17 % 5),
                            "timing: answer": rng.normal(10.0 if telling and n == 2 else 1.0, 0.1),
                        },
                    }
                )
    return out


@pytest.fixture
def file(tmp_path):
    def write(**how):
        path = tmp_path / "seen.jsonl"
        path.write_text("".join(json.dumps(c) + "\n" for c in seen(np.random.default_rng(1), **how)))
        return path

    return write


def rows(answer):
    return {row["kind"]: row for row in answer["rows"]}


def test_names_what_tells(file):
    answer = tenants.judge(tenants.read(file(telling=True)), trees=50)
    assert answer["chance"] == pytest.approx(1 / 3)
    of = rows(answer)
    assert list(of) == ["packets", "handshake", "timing", "all"]
    assert of["all"]["accuracy"]["value"] == 1
    assert {t["name"] for t in of["all"]["telling"]} >= {"packets: options", "timing: answer"}
    assert [t["name"] for t in of["packets"]["telling"]] == ["packets: options"]
    assert of["packets"]["recall"]["b"] == 1
    assert of["all"]["connections"] == 60


def test_what_tells_pseudonyms_tells_no_tenant(file):
    of = rows(tenants.judge(tenants.read(file(telling=False)), trees=50))
    assert of["handshake"]["accuracy"]["value"] < 0.6
    low, high = (of["all"]["accuracy"][k] for k in ("low", "high"))
    assert low <= 1 / 3 <= high


def test_without_some_tenants(file):
    answer = tenants.judge(tenants.read(file(telling=True)), without=["b"], trees=20)
    assert answer["tenants"] == ["a", "c"]
    with pytest.raises(EvalError, match="no such tenant"):
        tenants.judge(tenants.read(file(telling=True)), without=["d"])
    with pytest.raises(EvalError, match="not two"):
        tenants.judge(tenants.read(file(telling=True)), without=["a", "b"])
    with pytest.raises(EvalError, match="pseudonyms"):
        tenants.judge(tenants.read(file(telling=True, pseudonyms=1)))


def test_command(file, tmp_path):
    path = file(telling=True)
    assert "options (0." in run("tenants", path, "--trees", "20").stdout
    assert "| handoff | packets |" in run("tenants", path, "--trees", "20", "--markdown").stdout
    assert json.loads(run("tenants", path, "--trees", "20", "--json").stdout)["tenants"] == ["a", "b", "c"]
    assert isinstance(run("tenants", path, "--json", "--markdown", ok=False).exception, EvalError)
    for text in ("", "{}\n", "no JSON\n"):
        (tmp_path / "other").write_text(text)
        assert isinstance(run("tenants", tmp_path / "other", ok=False).exception, EvalError)
    assert isinstance(run("tenants", tmp_path / "none", ok=False).exception, EvalError)
