"""The Great Firewall's rule for fully encrypted traffic (Wu et al., USENIX Security 2023).

It is the rule of ``observe/inspect.Exemption`` in Go, which Heddle's censor in the lab uses; both are tested by the
same cases. The rule is for TCP. It has no threshold, so its ROC curve has one corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from heddle_eval.attacks.rules import Rule, first_packets
from heddle_eval.traces import Traces

METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ")


@dataclass(eq=False, repr=False)
class FullyEncrypted(Rule, ClassifierMixin, BaseEstimator):
    """A trace's score is the share of its connections that the rule cuts.

    Parameters
    ----------
    seed
        Not used.

    """

    seed: int = 0

    def score(self, X: Traces) -> NDArray[np.float64]:
        """(N,) share of the connections with a first packet; 0 without any."""
        cut, all_ = np.zeros(len(X)), np.zeros(len(X))
        for trace, first in first_packets(X, "fully-encrypted"):
            cut[trace] += exemption(first) == ""
            all_[trace] += 1
        return cut / np.maximum(all_, 1)


def exemption(first: bytes) -> str:
    """Name the part of the rule that lets a connection pass whose first packet carries that; empty if it is cut."""
    if not first:
        return "empty"
    data = np.frombuffer(first, np.uint8)
    n, bits = len(data), int(np.unpackbits(data).sum())
    printable = (data >= 0x20) & (data <= 0x7E)
    if 10 * bits <= 34 * n:
        return "few set bits"
    if 10 * bits >= 46 * n:
        return "many set bits"
    if n >= 6 and printable[:6].all():
        return "printable start"
    if 2 * printable.sum() > n:
        return "mostly printable"
    ends = np.flatnonzero(~np.concatenate([[False], printable, [False]]))
    if (np.diff(ends) - 1).max() > 20:
        return "printable run"
    if n >= 3 and first[0] in (0x16, 0x17) and first[1] == 3 and first[2] <= 9:
        return "TLS"
    return "HTTP" if first.startswith(METHODS) else ""
