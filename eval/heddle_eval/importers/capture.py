"""Capture files, pcap and pcapng, as far as where each packet's bytes are.

Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. Times are kept as whole nanoseconds.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError

SUFFIXES = (".pcap", ".pcapng", ".cap")

OUTBOUND = 2
"""Direction in the flags of a packet (pcapng, epb_flags) that says that the capturing machine sent it."""

_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 2, 3, 5, 6
_COMMENT, _TIME_RESOLUTION, _TIME_OFFSET, _FLAGS, _DROPPED = 1, 9, 14, 2, 5
_PCAP = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}
_LAST = 7_258_118_400 * 10**9
"""The year 2200, in nanoseconds: what is later is no time."""


@dataclass
class Capture:
    """Packets of one file; the arrays have one element each.

    Attributes
    ----------
    data
        The file's bytes.
    start, captured, wire
        Where each packet begins in ``data``, how many bytes of it there are, and how many there were.
    time
        Nanoseconds since 1970.
    link
        Link type (https://www.tcpdump.org/linktypes.html).
    direction
        1 inbound, 2 outbound, 0 not said.
    comments
        Those of the interfaces.
    dropped
        How many packets the capture says it missed.
    damage
        Why reading ended before the file did; empty if it did not.

    """

    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    captured: NDArray[np.int64]
    wire: NDArray[np.int64]
    time: NDArray[np.int64]
    link: NDArray[np.int32]
    direction: NDArray[np.int8]
    comments: list[str]
    dropped: int
    damage: str

    def __len__(self) -> int:
        return len(self.start)


class _Damage(Exception):
    """The file goes on in a way that makes no sense."""


@dataclass
class _Reader:
    raw: bytes
    columns: array[int] = field(default_factory=lambda: array("q"))  # six numbers a packet
    comments: list[str] = field(default_factory=list)
    dropped: int = 0

    def add(self, start: int, captured: int, wire: int, time: int, link: int, direction: int = 0) -> None:
        if not 0 <= time <= _LAST:
            raise _Damage("the time of a packet makes no sense")
        self.columns.extend((start, captured, max(wire, captured), time, link, direction))


def is_capture(head: bytes) -> bool:
    """Whether the first four bytes of a file are those of a capture."""
    if len(head) < 4:
        return False
    big, little = (struct.unpack(order + "I", head[:4])[0] for order in "><")
    return big == _SECTION or big in _PCAP or little in _PCAP


def read(raw: bytes, what: str) -> Capture:
    """Find the packets of a capture.

    Raises
    ------
    EvalError
        For what is no capture. A capture that is damaged gives what comes before, with ``damage`` set.

    """
    if not raw:
        raise EvalError(what, "the file is empty")
    if not is_capture(raw[:4]):
        raise EvalError(what, "it is no capture: neither pcap nor pcapng")
    reader, damage = _Reader(raw), ""
    try:
        (_read_pcapng if raw[:4] == b"\n\r\r\n" else _read_pcap)(reader)
    except _Damage as e:
        damage = f"{e} (after {len(reader.columns) // 6} packets)"
    columns = np.array(reader.columns, np.int64).reshape(-1, 6).T
    return Capture(
        np.frombuffer(raw, np.uint8),
        *columns[:4],
        link=columns[4].astype(np.int32),
        direction=columns[5].astype(np.int8),
        comments=reader.comments,
        dropped=reader.dropped,
        damage=damage,
    )


def _read_pcap(reader: _Reader) -> None:
    raw = reader.raw
    order = ">" if struct.unpack(">I", raw[:4])[0] in _PCAP else "<"
    unit = _PCAP[struct.unpack(order + "I", raw[:4])[0]]
    if len(raw) < 24:
        raise _Damage("the file is cut short within its header")
    link = struct.unpack_from(order + "I", raw, 20)[0] & 0x0FFFFFFF  # the upper bits say how long checksums are
    header = struct.Struct(order + "IIII")
    at = 24
    while at < len(raw):
        if at + 16 > len(raw):
            raise _Damage("the file is cut short")
        seconds, part, captured, wire = header.unpack_from(raw, at)
        if at + 16 + captured > len(raw):
            raise _Damage("the file is cut short, or a packet's length makes no sense")
        reader.add(at + 16, captured, wire, seconds * 10**9 + part * unit, link)
        at += 16 + captured


@dataclass
class _Interface:
    link: int
    ticks: int = 10**6  # a second
    offset: int = 0  # nanoseconds

    def nanoseconds(self, ticks: int) -> int:
        return self.offset + ticks * 10**9 // self.ticks


def _read_pcapng(reader: _Reader) -> None:
    raw, at, order = reader.raw, 0, "<"
    interfaces: list[_Interface] = []
    while at < len(raw):
        if at + 12 > len(raw):
            raise _Damage("the file is cut short")
        if raw[at : at + 4] == b"\n\r\r\n":
            order = _byte_order(raw[at + 8 : at + 12])
            interfaces = []
        kind, length = struct.unpack_from(order + "II", raw, at)
        if length < 12 or length % 4:
            raise _Damage("the length of a block makes no sense")
        if at + length > len(raw):
            raise _Damage("the file is cut short")
        if struct.unpack_from(order + "I", raw, at + length - 4)[0] != length:
            raise _Damage("a block does not end where it says")
        block = _Block(raw, order, at + 8, at + length - 4)
        if kind == _INTERFACE:
            interfaces.append(_interface(block, reader))
        elif kind in (_PACKET, _OLD_PACKET):
            _packet(block, kind, interfaces, reader)
        elif kind == _STATISTICS:
            reader.dropped += block.number(12, _DROPPED, 8, 0)
        elif kind == _SIMPLE_PACKET:
            raise _Damage("it holds packets without a time (simple packet blocks)")
        at += length


def _byte_order(magic: bytes) -> str:
    for order in "<>":
        if magic == struct.pack(order + "I", 0x1A2B3C4D):
            return order
    raise _Damage("the byte order of a section is not known")


@dataclass
class _Block:
    """Body of a pcapng block: ``raw[start:end]``."""

    raw: bytes
    order: str
    start: int
    end: int

    def unpack(self, layout: str, at: int) -> tuple[int, ...]:
        if self.start + at + struct.calcsize(layout) > self.end:
            raise _Damage("a block is too short for what it should hold")
        return struct.unpack_from(self.order + layout, self.raw, self.start + at)

    def options(self, at: int) -> list[tuple[int, bytes]]:
        """Code and value of each option from there on."""
        found, at = [], self.start + at
        while at + 4 <= self.end:
            code, length = struct.unpack_from(self.order + "HH", self.raw, at)
            if code == 0:
                break
            if at + 4 + length > self.end:
                raise _Damage("an option is longer than its block")
            found.append((code, self.raw[at + 4 : at + 4 + length]))
            at += 4 + length + -length % 4
        return found

    def number(self, at: int, code: int, width: int, otherwise: int) -> int:
        """Give the value of the first option of that code."""
        layout = {1: "B", 4: "I", 8: "Q"}[width]
        for c, value in self.options(at):
            if c == code and len(value) == width:
                return struct.unpack(self.order + layout, value)[0]
        return otherwise


def _interface(block: _Block, reader: _Reader) -> _Interface:
    link, _, _ = block.unpack("HHI", 0)
    reader.comments += [v.decode("utf-8", "replace") for c, v in block.options(8) if c == _COMMENT]
    resolution = block.number(8, _TIME_RESOLUTION, 1, 6)
    power = resolution & 0x7F
    if power > (63 if resolution & 0x80 else 18):
        raise _Damage("the resolution of an interface's clock makes no sense")
    offset = block.number(8, _TIME_OFFSET, 8, 0)
    return _Interface(
        link,
        ticks=2**power if resolution & 0x80 else 10**power,
        offset=(offset - 2**64 if offset >= 2**63 else offset) * 10**9,
    )


def _packet(block: _Block, kind: int, interfaces: list[_Interface], reader: _Reader) -> None:
    layout = "IIIII" if kind == _PACKET else "HHIIII"
    number, *_, high, low, captured, wire = block.unpack(layout, 0)
    if number >= len(interfaces):
        raise _Damage("a packet is of an interface that is not there")
    if block.start + 20 + captured > block.end:
        raise _Damage("a packet is longer than its block")
    interface = interfaces[number]
    options = 20 + captured + -captured % 4
    flags = block.number(options, _FLAGS, 4, 0) if block.start + options < block.end else 0
    time = interface.nanoseconds(high << 32 | low)
    reader.add(block.start + 20, captured, wire, time, interface.link, flags & 3)
