"""FRONT: dummies in front of a page load, as many and as spread as chance says (Gong and Wang, 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from heddle_eval.defences.packets import insert, parts, typical
from heddle_eval.defences.spelling import Spelled, option
from heddle_eval.traces import Traces


@dataclass(frozen=True)
class Front(Spelled):
    """Each side draws 1 to N dummies and a window, and sends them at Rayleigh times of that window.

    The client counts from the first packet, the server from its own first. What would come after the load's last
    packet is not sent, as in the published simulator. Dummies have the data set's most frequent size of their
    direction.
    """

    client: int = option(2500, "most dummies of the client")
    server: int = option(2500, "most dummies of the server")
    shortest: float = option(1.0, "shortest window, in seconds: the scale of the Rayleigh distribution")
    longest: float = option(14.0, "longest window, in seconds")

    name: ClassVar[str] = "front"
    claim: ClassVar[str] = (
        "hides how a load begins and its volume, and delays nothing; does not hide its end, sizes or rhythm"
    )
    source: ClassVar[str] = "Gong and Wang, USENIX Security 2020"
    presets: ClassVar = {
        "ft-2": {},
        "small": {"client": 600, "server": 1400, "longest": 8.0},
    }

    def __post_init__(self) -> None:
        self.check(0 <= self.client <= 10**6, "client", "it must be from 0 to a million")
        self.check(0 <= self.server <= 10**6, "server", "it must be from 0 to a million")
        self.check(0 < self.shortest <= self.longest <= 3600, "shortest", "it must be above 0 and at most longest")

    def apply(self, traces: Traces, rng: np.random.Generator) -> Traces:
        """Add dummies; see :class:`heddle_eval.defences.base.Defence`."""
        sizes = typical(traces)
        # A trace costs as many draws as dummies, not as packets.
        most = max(1, 2_000_000 // (self.client + self.server + 1))
        padded = []
        for part in parts(traces):
            for start in range(part.start, part.stop, most):
                some = traces[start : min(start + most, part.stop)]
                padded.append(self._some(some, sizes, rng))
        return Traces.concat(padded) if padded else traces

    def _some(self, traces: Traces, sizes: tuple[int, int], rng: np.random.Generator) -> Traces:
        begins, first_answer, last = _moments(traces)
        owners, times, signed = [], [], []
        for start, most, size in ((begins, self.client, sizes[0]), (first_answer, self.server, -sizes[1])):
            count = rng.integers(1, most + 1, len(traces)) if most else np.zeros(len(traces), np.int64)
            window = rng.uniform(self.shortest, self.longest, len(traces))
            owner = np.repeat(np.arange(len(traces)), count)
            time = start[owner] + rng.rayleigh(window[owner])
            sent = time <= last[owner]
            owners.append(owner[sent])
            times.append(time[sent])
            signed.append(np.full(int(sent.sum()), size))
        return insert(traces, np.concatenate(owners), np.concatenate(times), np.concatenate(signed))


def _moments(traces: Traces) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(N,) times of the first packet, of the server's first, and of the last; -inf as the last of an empty trace."""
    n, some = len(traces), traces.lengths > 0
    first, answer, last = np.zeros(n), np.full(n, np.inf), np.full(n, -np.inf)
    first[some] = traces.time[traces.offset[:-1][some]]
    last[some] = traces.time[traces.offset[1:][some] - 1]
    down = np.flatnonzero(traces.size < 0)
    owner, at = np.unique(traces.owner[down], return_index=True)
    answer[owner] = traces.time[down[at]]
    return first, answer, last
