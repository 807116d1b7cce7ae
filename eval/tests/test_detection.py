"""Detection, each site against all others, and learning from one data set to tell another. All data are synthetic."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl
import pytest
from fakes import ByLength, pages
from typer.testing import CliRunner

import heddle_eval.cli.attack
import heddle_eval.cli.defend  # noqa: F401 - they add the verbs
from heddle_eval import EvalError, Traces, experiment, metrics, parquet, sweep, sweep_jobs
from heddle_eval.attacks import make
from heddle_eval.cli import app
from heddle_eval.metrics import OTHER
from heddle_eval.sweep_store import LATER, Store


def test_blocked_by_hand():
    positive = np.array([1] * 10 + [0] * 5, bool)
    score = np.array([9, 8, 8, 7, 6, 5, 4, 3, 2, 1, 8, 3, 2, 1, 0.5])
    # Nine of ten positives reach 2, and so do three of five negatives.
    assert metrics.blocked(positive, score) == pytest.approx(3 / 5)
    assert metrics.blocked(positive, score, tpr=0.3) == pytest.approx(1 / 5)
    assert metrics.blocked(positive, -score) == 1
    assert np.isnan(metrics.blocked(positive[:10], score[:10]))
    assert np.isnan(metrics.blocked(positive[10:], score[10:]))
    # Without the two lowest positives 90 % of the eight others are all of them, down to 3.
    weight = np.array([[1] * 8 + [0] * 2 + [1] * 5, [1] * 15], float)
    np.testing.assert_allclose(metrics.blocked(positive, score, weight), [2 / 5, 3 / 5])


def test_roc_by_hand():
    got = metrics.roc([1, 1, 0, 0], [3, 2, 2, 1])
    assert got.threshold.tolist() == [np.inf, 3, 2, 1]
    assert got.tpr.tolist() == [0, 0.5, 1, 1]
    assert got.fpr.tolist() == [0, 0, 0.5, 1]
    assert metrics.auc([1, 1, 0, 0], [3, 2, 2, 1]) == pytest.approx(np.trapezoid(got.tpr, got.fpr))


def test_detection_has_two_classes():
    traces = pages([20, 20], other=30)
    found = experiment.run(traces, ByLength(), world="detect", test=0.3)
    assert set(found.truth) == {0, OTHER}
    measures = found.measures()
    assert set(measures) == {"auc", "blocked"}
    assert measures["auc"]["value"] > 0.95
    assert measures["blocked"]["value"] < 0.05
    # What an attack cannot see, it cannot tell: all have the same length.
    same = Traces.build([([0], [100])] * 40, ["a", "b"] * 20, unmonitored=["b"])
    blind = experiment.run(same, ByLength(), world="detect", test=0.5).measures()
    assert blind["auc"]["value"] == 0.5
    assert blind["blocked"]["value"] == 1


class Loads(ByLength):
    """Remembers the loads that it learnt from."""

    seen: ClassVar[list] = []

    def fit(self, X, y):
        Loads.seen.append((sorted(X.load.tolist()), sorted(X.labels.tolist())))
        return super().fit(X, y)


def test_learns_from_one_data_set_and_tells_all_of_another():
    learn, asked = pages([6, 6, 6], seed=1), pages([3, 3, 3], seed=2).only(["p0", "p2"])
    Loads.seen.clear()
    found = experiment.run(asked, Loads(), world="closed", learn=learn)
    assert Loads.seen == [(list(range(18)), sorted(learn.labels.tolist()))]
    # By name, not by number: p2 is the third class of one set and the second of the other.
    assert found.truth.tolist() == [0, 0, 0, 2, 2, 2]
    assert (found.told == found.truth).all()
    few = experiment.run(asked, Loads(), world="closed", learn=learn, learn_visits=2)
    assert few.train_loads == 6
    assert sorted(Loads.seen[-1][1]) == ["p0"] * 2 + ["p1"] * 2 + ["p2"] * 2
    with pytest.raises(EvalError, match="p2: the data set to learn from does not monitor"):
        experiment.run(asked, ByLength(), learn=learn.only(["p0", "p1"]))


def test_detects_pages_that_it_never_saw():
    learn, asked = pages([8], other=10, seed=1), pages([0, 5], other=10, seed=2)
    found = experiment.run(asked, ByLength(), world="detect", learn=learn)
    assert found.truth.tolist() == [0] * 5 + [OTHER] * 10
    assert found.measures()["auc"]["value"] == 1


def test_each_site_against_all_others():
    traces = pages([12, 12, 12], seed=3)
    found = experiment.run(traces, ByLength(), world="sites", test=0.5)
    assert found.scores.shape == (len(found.truth), 3)
    by_site = experiment.of_sites([found])
    for place, c in enumerate(found.classes):
        assert by_site[int(c)]["value"] == pytest.approx(metrics.auc(found.truth == c, found.scores[:, place]))
    assert found.measures()["auc"]["value"] == pytest.approx(np.mean([v["value"] for v in by_site.values()]))


def test_folds_tell_each_trace_once():
    traces = pages([10, 10], paths=2, other=10)
    results, trained = experiment.folds(traces, ByLength(), 5, world="detect")
    assert sorted(np.concatenate([r.load for r in results]).tolist()) == sorted(traces.load.tolist())
    for fitted, asked, _ in trained:
        assert not fitted.loads_ & set(asked.load.tolist())
    with pytest.raises(EvalError, match="--folds"):
        experiment.folds(traces, ByLength(), 11, world="detect")


def job(folder, **wish):
    file = folder / "x.parquet"
    base = sweep_jobs.Job(str(file), sweep_jobs.digest(file), attack="fakes:ByLength", world="sites")
    return replace(base, **wish)


def test_results_keep_the_scores_of_sites(tmp_path):
    parquet.write(pages([6, 6]), tmp_path / "x.parquet")
    parquet.write(pages([9, 9], seed=4), tmp_path / "learn.parquet")
    learn = {"learn_file": str(tmp_path / "learn.parquet"), "learn": sweep_jobs.digest(tmp_path / "learn.parquet")}
    store, asked = Store(tmp_path / "r.parquet"), job(tmp_path, learn_visits=3, **learn)
    row = sweep_jobs.compute(asked)
    store.add(row)
    got = store.results([asked.key])[asked.key]
    assert got.scores.shape == (12, 2)
    assert (row["tested"], row["train"]) == (12, 6)
    # On a cluster the data sets travel, and the file is not there.
    both = sweep_jobs.traces_of(asked), sweep_jobs.learn_of(asked)
    there = sweep_jobs.compute(replace(asked, file="gone", learn_file="gone"), *both)
    np.testing.assert_array_equal(there["scores"], row["scores"])
    with pytest.raises(EvalError, match="nothing is parted"):
        replace(asked, unseen=True).check()
    assert experiment.of_sites([got])[0]["value"] == 1
    assert store.frame(["learn", "learn_visits"]).row(0) == (learn["learn"], 3)


def test_results_of_before_are_kept(tmp_path):
    """A file without the later columns is read, and jobs without the later parameters keep their keys."""
    parquet.write(pages([6, 6], other=9), tmp_path / "x.parquet")
    store, old = Store(tmp_path / "r.parquet"), job(tmp_path, world="open")
    assert "learn" not in old.parameters
    assert old.key != replace(old, learn="0" * 64).key
    store.add(sweep_jobs.compute(old))
    pl.read_parquet(store.file).drop(*LATER).write_parquet(store.file)
    assert store.results([old.key])[old.key].scores.shape[1] == 0
    detect = job(tmp_path, world="detect")
    store.add(sweep_jobs.compute(detect))
    assert store.frame(["key", "blocked"]).rows()[0] == (old.key, None)
    assert store.frame(["blocked"])["blocked"][1] is not None


def test_sweeps_learn_from_another_data_set(tmp_path):
    for name in ("a", "b"):
        parquet.write(pages([6, 6], seed=ord(name)), tmp_path / f"{name}.parquet")
    (tmp_path / "s.toml").write_text('data = ["b.parquet"]\ntrain = "a.parquet"\ntrain-visits = 2\nworld = "sites"\n')
    (planned,) = sweep.read(tmp_path / "s.toml").jobs()
    assert (planned.learn, planned.learn_visits) == (sweep_jobs.digest(tmp_path / "a.parquet"), 2)
    planned.check()
    row = sweep_jobs.compute(replace(planned, attack="fakes:ByLength"))
    assert (row["train"], row["tested"]) == (4, 12)


OWN = """
from dataclasses import dataclass, replace
import numpy as np
from heddle_eval.attacks.base import FromProba
from heddle_eval.defences.spelling import Spelled, option
from sklearn.base import BaseEstimator, ClassifierMixin

class Guess(FromProba, ClassifierMixin, BaseEstimator):
    def __init__(self, seed=0, width=1.0):
        self.seed, self.width = seed, width
    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self
    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))

@dataclass(frozen=True)
class Bigger(Spelled):
    by: int = option(1, "bytes that each packet grows by")
    def apply(self, traces, rng):
        return replace(traces, size=traces.size + np.sign(traces.size) * self.by)

nothing = 5
class Empty: pass
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module in the working directory, under a name that no other test imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nonexistent", *__import__("sys").path])
    name = f"own_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    return name


def test_attacks_of_ones_own(own):
    made = make(f"{own}:Guess", seed=7, width=2.5)
    assert (made.seed, made.width) == (7, 2.5)
    with pytest.raises(EvalError, match="cannot be made"):
        make(f"{own}:Guess", height=1)
    with pytest.raises(EvalError, match="it has no fit"):
        make(f"{own}:Empty")
    with pytest.raises(EvalError, match="it is no class"):
        make(f"{own}:nothing")
    with pytest.raises(EvalError, match="cannot be imported"):
        make("no_such_module:Attack")


def test_defences_of_ones_own(own):
    from heddle_eval import defences

    chain = defences.parse(f"{own}:Bigger,by=7 then pad:512")
    assert str(chain) == f"{own}:Bigger,by=7 then pad:512"
    assert str(defences.parse(str(chain))) == str(chain)
    grown = defences.parse(f"{own}:Bigger,by=7").apply(pages([1, 1]), np.random.default_rng(0))
    assert set(np.abs(grown.size)) == {97, 1407}
    with pytest.raises(EvalError, match="no setting 'to'"):
        defences.parse(f"{own}:Bigger,to=7")
    assert "by=1" in json.dumps(chain.steps[0]._hint())


def test_the_template_in_the_documentation_works(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if b.startswith("# mine.py"))
    (tmp_path / "mine.py").write_text(block)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    parquet.write(pages([12, 12], seed=1), "plain.parquet")
    commands = [c for c in re.findall(r"^heddle-eval (.*mine:.*)$", text, re.MULTILINE) if not c.startswith("table")]
    assert len(commands) == 2
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert "accuracy       1.000" in done.output
    assert "mine:Grow,by=50" in json.dumps(parquet.about("grown.parquet"))
