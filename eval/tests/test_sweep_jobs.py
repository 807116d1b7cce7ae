import re
from pathlib import Path

import pytest

from heddle_eval import EvalError, sweep
from heddle_eval.sweep_jobs import Job


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"world": "flat"}, "world: 'flat' is not one"),
        ({"seed": -1}, "seed: it is -1"),
        ({"visits": -1}, "visits: it is -1"),
        ({"unmonitored": -2}, "unmonitored: it is -2"),
        ({"see": -1}, "see: it is -1"),
        ({"test": 0.0}, "test: 0 is no share"),
        ({"test": 1.0}, "test: 1 is no share"),
        ({"unmonitored_share": 1.5}, "unmonitored-share: 1.5 is no share"),
        ({"defence": "wall"}, "none of that name"),
        ({"attack": "cumul", "settings": '{"C": 0}'}, "C is 0: it is above 0"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_computed(wish, why):
    Job("x.parquet", "0" * 64).check()
    with pytest.raises(EvalError, match=why):
        Job("x.parquet", "0" * 64, **wish).check()


def test_the_sweep_in_the_documentation_is_one(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    (tmp_path / "sweep.toml").write_text(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
    (tmp_path / "plain.parquet").touch()
    jobs = list(sweep.read(tmp_path / "sweep.toml").jobs())
    for job in jobs:
        job.check()
    # Two whole defences and 2 x 3 x 2 x 3 splits; for each two observers, two attacks, three seeds.
    assert len(jobs) == (2 + 36) * 2 * 2 * 3
    assert {k for k in sweep.SETTINGS if k not in ("data", "axes", "settings", "train", "train-visits")} == {
        k.replace("_", "-") for k in sweep.read(tmp_path / "sweep.toml").common
    }
