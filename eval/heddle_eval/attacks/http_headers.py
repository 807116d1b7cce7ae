"""The order of HTTP header names, by which clients differ (p0f 3, Zalewski, 2012; "HTTP signatures" of its README)."""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.base import BaseEstimator, ClassifierMixin

from heddle_eval.attacks.fingerprint import NONE, Fingerprint


@dataclass(eq=False, repr=False)
class HeaderOrder(Fingerprint, ClassifierMixin, BaseEstimator):
    """Learns which orders of header names the first HTTP/1 request of what a censor looks for has.

    Parameters
    ----------
    seed
        Not used.

    """

    seed: int = 0

    def fingerprint(self, first: bytes) -> str:
        """Version and header names of a whole HTTP/1 request, in their order and case."""
        head, end, _ = first.partition(b"\r\n\r\n")
        request, *lines = head.split(b"\r\n")
        words = request.split(b" ")
        if not end or len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return NONE
        names = [line.partition(b":")[0].decode("latin-1") for line in lines]
        return ",".join([words[2].decode("latin-1"), *names])
