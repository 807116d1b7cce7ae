"""What a defence costs, counted from traces before and after."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.traces import Traces


@dataclass(frozen=True)
class Overhead:
    """Costs of a defence over all loads.

    Attributes
    ----------
    bandwidth
        Bytes made (dummies) and padded (real packets grown), over real bytes before.
    packets
        Dummies over real packets before.
    latency_s
        Seconds by which a load's last real packet comes later, mean over loads with packets; None where times were
        counted anew, so that they say nothing.
    latency
        The same as part of how long loads took: sum over sum; None too where they took no time before.
    made_bytes, padded_bytes, real_bytes, made_packets, real_packets
        What was counted.
    lost_packets
        Real packets that are gone: a split may leave out short sub-traces. Their bytes are not padding: they lower it.

    """

    bandwidth: float
    packets: float
    latency_s: float | None
    latency: float | None
    made_bytes: int
    padded_bytes: int
    real_bytes: int
    made_packets: int
    real_packets: int
    lost_packets: int

    def as_json(self) -> dict[str, Any]:
        """Give all numbers by name."""
        return asdict(self)

    def text(self) -> str:
        """Say it in lines."""
        late = "unknown, as times were counted anew"
        if self.latency_s is not None:
            part = "" if self.latency is None else f" ({self.latency:+.1%})"
            late = f"{self.latency_s:+.3f} s until the last real packet{part}"
        lines = [
            f"bandwidth {self.bandwidth:+.1%}: {self.made_bytes:,} bytes made, {self.padded_bytes:,} padded, "
            f"over {self.real_bytes:,} real",
            f"packets   {self.packets:+.1%}: {self.made_packets:,} made, over {self.real_packets:,} real",
            f"latency   {late}",
        ]
        if self.lost_packets:
            lines.append(f"{self.lost_packets:,} real packets were left out")
        return "\n".join(lines)


def overhead(before: Traces, after: Traces) -> Overhead:
    """Compare a data set with its defended form, which has the same loads."""
    if extra := set(np.unique(after.load)) - set(np.unique(before.load)):
        raise EvalError("overhead", f"load {min(extra)} is in the defended data only", "give the data it was made of")
    real, real_after = _bytes(before, ~before.dummy), _bytes(after, ~after.dummy)
    made = _bytes(after, after.dummy)
    count, left = int((~before.dummy).sum()), int((~after.dummy).sum())
    made_packets = int(after.dummy.sum())
    late, part = _latency(before, after)
    return Overhead(
        bandwidth=(made + real_after - real) / real if real else 0.0,
        packets=made_packets / count if count else 0.0,
        latency_s=late,
        latency=part,
        made_bytes=made,
        padded_bytes=real_after - real,
        real_bytes=real,
        made_packets=made_packets,
        real_packets=count,
        lost_packets=count - left,
    )


def _bytes(traces: Traces, which: NDArray[np.bool_]) -> int:
    return int(np.abs(traces.size[which].astype(np.int64)).sum())


def _latency(before: Traces, after: Traces) -> tuple[float | None, float | None]:
    loads = np.unique(before.load)
    was, now = (_last(t, loads) for t in (before, after))
    both = np.isfinite(was) & np.isfinite(now)
    if not both.any():
        return 0.0, 0.0
    later = now[both] - was[both]
    if (later < -1e-6).any():
        return None, None
    took = float(was[both].sum())
    return float(later.mean()), (float(later.sum()) / took if took else None if later.any() else 0.0)


def _last(traces: Traces, loads: NDArray[np.int64]) -> NDArray[np.float64]:
    """(L,) time of each load's last real packet, on any path; -inf where there is none."""
    out = np.full(len(loads), -np.inf)
    real = ~traces.dummy
    np.maximum.at(out, np.searchsorted(loads, traces.load)[traces.owner[real]], traces.time[real])
    return out
