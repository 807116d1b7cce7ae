"""What the deep attacks see of a trace: matrices with one row for each trace."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.traces import Traces

FULL_PACKET = 1500
"""Bytes by which sizes are divided, so that they are about 1."""
WINDOW = 80.0
"""Seconds that a traffic aggregation matrix covers (Shen et al., USENIX Security 2023)."""

SEQUENCES = ("direction", "size", "time", "gap", "signed-time")


def sequence(traces: Traces, what: str, length: int, tail: int = 0, fold: int = 1) -> NDArray[np.float32]:
    """(N, length, 1) one value for each of the first packets, filled with 0.

    Of the last ``tail`` values each is the mean of ``fold`` packets.

    ``direction`` is 1 from the client and -1 to it; ``size`` the signed size in units of 1500 bytes (CoMPS gives it to
    all networks); ``time`` in seconds; ``gap`` seconds since the packet before; ``signed-time`` direction x time.
    """
    sign = np.sign(traces.size)
    if what == "direction":
        values = sign
    elif what == "size":
        values = traces.size / FULL_PACKET
    elif what == "time":
        values = traces.time
    elif what == "signed-time":
        values = sign * traces.time
    elif what == "gap":
        values = np.where(traces.position > 0, np.diff(traces.time, prepend=0), 0)
    else:
        raise EvalError("attack", f"it cannot see {what!r}", f"choose from {', '.join(SEQUENCES)}")
    if not tail or fold == 1:
        return traces.padded(values, length)[:, :, None]
    head, place = length - tail, traces.position
    whole = place < head
    place = np.where(whole, place, head + (place - head) // fold)
    seen = place < length
    weight = np.where(whole, values, values / fold)[seen]
    sums = np.bincount(traces.owner[seen] * length + place[seen], weight, len(traces) * length)
    return sums.astype(np.float32).reshape(len(traces), length, 1)


def aggregation(traces: Traces, slots: int = 1800, window: float = WINDOW) -> NDArray[np.float32]:
    """(N, 2, slots, 1) traffic aggregation matrix: packets from and to the client in each slot of time.

    Slot i of a packet is floor(time * (slots - 1) / window); what comes after the window counts in the last slot.
    """
    slot = np.minimum(traces.time * (slots - 1) / window, slots - 1).astype(np.int64)
    row = traces.owner * 2 + (traces.size < 0)
    flat = np.bincount(row * slots + slot, minlength=len(traces) * 2 * slots)
    return flat.reshape(len(traces), 2, slots, 1).astype(np.float32)


def metadata(traces: Traces, sizes: bool) -> NDArray[np.float32]:
    """Totals of each trace.

    (N, 7): packets, in, out, in / packets, out / packets, seconds, seconds / packets (Var-CNN). With ``sizes``
    (N, 12): after the first five also bytes, in, out, in / bytes, out / bytes (CoMPS). All 0 for an empty trace.
    """
    n, owner, inward = len(traces), traces.owner, traces.size < 0

    def totals(weight: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        inside = np.bincount(owner[inward], weight[inward], n)
        outside = np.bincount(owner[~inward], weight[~inward], n)
        whole = np.maximum(inside + outside, 1)
        return [inside + outside, inside, outside, inside / whole, outside / whole]

    columns = totals(np.ones(len(owner)))
    if sizes:
        columns += totals(np.abs(traces.size).astype(float))
    seconds = np.zeros(n)
    some = traces.lengths > 0
    seconds[some] = traces.time[traces.offset[1:][some] - 1]
    return np.column_stack([*columns, seconds, seconds / np.maximum(traces.lengths, 1)]).astype(np.float32)
