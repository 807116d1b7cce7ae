import json

import numpy as np
import pytest
from test_describe import run
from test_import_captures import A, B, pcap, udp

from heddle_eval import EvalError, Traces, parquet, risk

PAGES = ["bank", "mail", "wiki"]


def visits(rng: np.random.Generator, *, telling: tuple[bool, bool], each: int = 6) -> Traces:
    """Visits on two paths; on a path that is telling, a page has a length and sizes of its own."""
    traces, labels, load, path = [], [], [], []
    for v in range(each):
        for i, page in enumerate(PAGES):
            for p, tells in enumerate(telling):
                n = 30 + 25 * i + int(rng.integers(4)) if tells else int(rng.integers(20, 90))
                sizes = rng.choice([100 + 300 * i * tells, -1200], n)
                traces.append((np.sort(rng.random(n)), sizes))
                labels.append(page)
                load.append(v * len(PAGES) + i)
                path.append(p)
    return Traces.build(traces, labels, load=load, path=path)


@pytest.fixture(scope="module")
def answer():
    return risk.assess(visits(np.random.default_rng(1), telling=(True, False)), {"home": 0, "lte": 1})


def test_tells_which_path_gives_the_pages_away(answer):
    home, lte, joined = answer["observers"]
    assert [o["name"] for o in (home, lte, joined)] == ["home", "lte", risk.JOINED]
    assert home["rate"] >= 0.9
    assert "nearly always" in home["verdict"]
    assert lte["rate"] < 0.7
    assert lte["interval"][0] <= lte["rate"] <= lte["interval"][1]
    assert joined["rate"] > lte["rate"]
    for o in answer["observers"]:
        assert o["chance"] == pytest.approx(1 / 3)
        assert o["seen"] == 18
        assert o["right"] == round(sum(p["rate"] * p["visits"] for p in o["pages"]))
    assert (answer["pages"], answer["visits"]) == (3, 18)


def test_says_so_in_words_and_in_a_picture(answer, tmp_path):
    text = risk.text(answer)
    assert "home: it knows nearly always which page you visit." in text
    assert "33% by naming one page always" in text
    assert "closed world" in text
    assert "most often taken for" in text
    assert "some page has 6 visits only" in text
    risk.draw(answer, tmp_path / "r.png")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_no_visit_is_told_by_an_attack_that_learnt_from_it():
    traces = visits(np.random.default_rng(2), telling=(True, True))
    whole = Traces.build(
        [(t.time, t.size) for t in traces], traces.labels, load=traces.load
    )  # two traces of each load, on no path
    for train, test in risk._parted(whole, 4, 0):
        assert not set(whole.load[train]) & set(whole.load[test])
        assert set(whole.label[train]) == set(whole.label[test]) == {0, 1, 2}


def test_chance_is_no_knowledge():
    seen = visits(np.random.default_rng(3), telling=(False, False))
    shuffled = risk.assess(seen[seen.path == 0])
    assert [o["name"] for o in shuffled["observers"]] == ["path 0"]
    assert shuffled["observers"][0]["verdict"] == "these visits do not show that it can tell the pages apart"


def test_same_seed_same_answer():
    seen = visits(np.random.default_rng(4), telling=(True, False), each=3)
    assert risk.assess(seen, attack="cumul", seed=5) == risk.assess(seen, attack="cumul", seed=5)


def test_what_a_path_did_not_see_does_not_count():
    seen = visits(np.random.default_rng(5), telling=(True, True), each=4)
    silent = (seen.path == 1) & (seen.load < 2)
    once = (seen.labels == "wiki") & (seen.load > 3)
    answer = risk.assess(seen[~silent & ~once])
    assert [o["seen"] for o in answer["observers"]] == [8, 6, 8]
    assert any("path 1: saw nothing of 2 of 9 visits" in n for n in answer["notes"])
    assert any("saw one visit only: wiki" in n for n in answer["notes"])


def test_wilson_interval():
    # Of Brown, Cai and DasGupta 2001, by hand: 5 of 10.
    assert risk._wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    low, high = risk._wilson(0, 10)
    assert low == pytest.approx(0, abs=1e-12)
    assert high == pytest.approx(0.2775, abs=1e-4)


def test_wants_two_pages_with_two_visits():
    with pytest.raises(EvalError, match="no two pages with two visits each"):
        risk.assess(visits(np.random.default_rng(0), telling=(True, True), each=1))
    with pytest.raises(EvalError, match="some as a whole"):
        risk.assess(Traces.build([([0], [1]), ([0], [1])], ["a", "b"], path=[0, -1]))


def test_from_the_command_line(tmp_path):
    file = tmp_path / "t.parquet"
    parquet.write(
        visits(np.random.default_rng(6), telling=(True, False), each=3), file, {"path_names": {"home": 0, "lte": 1}}
    )
    answer = json.loads(run("risk", file, "--json", "--png", tmp_path / "r.png", "--attack", "cumul").stdout)
    assert [o["name"] for o in answer["observers"]] == ["home", "lte", risk.JOINED]
    assert (tmp_path / "r.png").exists()
    assert "What this does not say" in run("risk", file, "--attack", "cumul").stdout
    assert isinstance(run("risk", tmp_path, ok=False).exception, EvalError)


def test_says_what_it_made_of_captures(tmp_path):
    for page, size in (("a", 100), ("b", 900)):
        for visit in range(2):
            (tmp_path / page).mkdir(exist_ok=True)
            (tmp_path / page / f"{visit}.pcap").write_bytes(pcap([(i, udp(A, B, size)) for i in range(5)]))
    said = run("risk", tmp_path, "--attack", "cumul")
    assert "4 captures whose client was guessed" in said.stderr
    assert "the only path" in said.stdout
