"""Website fingerprinting: what an observer can tell from the sizes and times of packets, and what hides it.

A data set is a :class:`~heddle_eval.traces.Traces`. Defences (:mod:`heddle_eval.defences`) map one to another, attacks
(:mod:`heddle_eval.attacks`) are scikit-learn classifiers over one, and :mod:`heddle_eval.experiment` joins them into
the papers' measurements. Do not read a risk for one person's browsing off these figures without
:mod:`heddle_eval.risk`, which says what they leave out.
"""

from heddle_eval.errors import EvalError
from heddle_eval.traces import Traces

__all__ = ["EvalError", "Traces"]
__version__ = "0.1.0"
