import pytest

from heddle_eval import EvalError
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
