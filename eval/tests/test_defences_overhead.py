import json

import numpy as np
import pytest

from heddle_eval import EvalError, Traces
from heddle_eval.defences import overhead, parse


def test_loads_that_took_no_time_have_no_share_of_it():
    before = Traces.build([([0.0], [60])] * 2, ["a", "b"])
    cost = overhead(before, parse("regulator").apply(before, np.random.default_rng(0)))
    assert cost.latency_s > 0
    assert cost.latency is None
    assert "nan" not in cost.text()
    json.dumps(cost.as_json(), allow_nan=False)


@pytest.mark.parametrize("every", ["9999999999999s", "9999999999999p", "9" * 400 + "s"])
def test_batches_longer_than_any_trace_are_refused(every):
    with pytest.raises(EvalError, match="no length of a batch"):
        parse(f"split:every={every}")
