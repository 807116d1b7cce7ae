"""Defences by name."""

from __future__ import annotations

import re

from heddle_eval import plugins
from heddle_eval.defences.compose import Then
from heddle_eval.defences.front import Front
from heddle_eval.defences.padding import Padding
from heddle_eval.defences.regulator import RegulaTor
from heddle_eval.defences.spelling import Spelled
from heddle_eval.defences.split import HyWF, Split, TrafficSliver
from heddle_eval.defences.tamaraw import Tamaraw
from heddle_eval.defences.wtfpad import WTFPad
from heddle_eval.errors import EvalError

DEFENCES: dict[str, type[Spelled]] = {
    kind.name: kind for kind in (Split, TrafficSliver, HyWF, WTFPad, Front, Tamaraw, RegulaTor, Padding)
}
"""Every defence by its name."""


def parse(text: str) -> Then:
    """Read defences such as ``wtf-pad then split:weighted,paths=3,every=50p``; ``none`` changes nothing.

    A step may also be ``MODULE:CLASS,key=value``, whose class is a :class:`~heddle_eval.defences.spelling.Spelled`.
    ``str`` of the answer gives a text that reads as the same.

    Raises
    ------
    EvalError
        Where a name or a setting is unknown; the hint lists what there is.

    """
    if text.strip() == "none":
        return Then()
    steps = []
    for step in re.split(r"\s+then\s+", text.strip()):
        name, _, arguments = step.strip().partition(":")
        own, _, mine = step.strip().partition(",")
        if name not in DEFENCES and plugins.is_own(own):
            kind = plugins.load(own, "defence", ("apply", "spelled"))
            kind.name = own
            steps.append(kind.spelled(mine))
            continue
        if name.strip() not in DEFENCES:
            raise EvalError(
                f"defence {step.strip()!r}", "there is none of that name", f"there are {', '.join(DEFENCES)}, and none"
            )
        steps.append(DEFENCES[name.strip()].spelled(arguments))
    return Then(tuple(steps))
