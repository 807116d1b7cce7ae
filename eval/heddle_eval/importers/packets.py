"""IP packets in captured frames: addresses, ports and lengths, for all packets at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle_eval.errors import EvalError
from heddle_eval.importers.capture import Capture

TCP, UDP = 6, 17
_IPV4, _IPV6 = 0x0800, 0x86DD
_VLAN = (0x8100, 0x88A8, 0x9100)
_EXTENSIONS = (0, 43, 60, 135, 139, 140)
_FRAGMENT, _AUTHENTICATION = 44, 51

# Link type: where the EtherType is (None: there is none), and where the network layer begins.
_LINKS: dict[int, tuple[int | None, int]] = {
    0: (None, 4),  # BSD loopback
    1: (12, 14),  # Ethernet
    12: (None, 0),  # raw IP, as some systems number it
    14: (None, 0),
    101: (None, 0),  # raw IP
    108: (None, 4),  # OpenBSD loopback
    113: (14, 16),  # Linux cooked
    228: (None, 0),  # IPv4
    229: (None, 0),  # IPv6
    276: (0, 20),  # Linux cooked, version 2
}


@dataclass
class Packets:
    """The IP packets of a capture, K of them.

    Attributes
    ----------
    index
        (K,) which packet of the capture it is.
    source, destination
        (K,) addresses as 16 bytes; those of version 4 are mapped (RFC 4291, section 2.5.5.2).
    source_port, destination_port
        (K,) 0 where there is none, or where it was not captured.
    protocol
        (K,) IP protocol number.
    size
        (K,) bytes of the IP packet.
    payload
        (K,) bytes that its UDP or TCP carries, or that IP does, for others.
    syn
        (K,) whether it opens a TCP connection.

    """

    index: NDArray[np.int64]
    source: NDArray[np.bytes_]
    destination: NDArray[np.bytes_]
    source_port: NDArray[np.int64]
    destination_port: NDArray[np.int64]
    protocol: NDArray[np.int64]
    size: NDArray[np.int64]
    payload: NDArray[np.int64]
    syn: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.index)

    def select(self, which: NDArray[np.generic]) -> Packets:
        """Those packets only."""
        return Packets(**{name: value[which] for name, value in vars(self).items()})


class _Frames:
    """Reads numbers at a place of many packets; what was not captured reads as 0."""

    def __init__(self, capture: Capture, index: NDArray[np.int64]) -> None:
        self.data = capture.data
        self.start, self.captured = capture.start[index], capture.captured[index]

    def byte(self, at: NDArray[np.int64] | int) -> NDArray[np.int64]:
        within = at < self.captured
        value = self.data[np.where(within, self.start + at, 0)].astype(np.int64)
        return np.where(within, value, 0)

    def word(self, at: NDArray[np.int64] | int) -> NDArray[np.int64]:
        return self.byte(at) << 8 | self.byte(at + 1)

    def address(self, at: NDArray[np.int64], six: NDArray[np.bool_]) -> NDArray[np.bytes_]:
        out = np.zeros((len(self.start), 16), np.uint8)
        out[:, 10:12] = 0xFF
        for i in range(4):
            out[:, 12 + i] = self.byte(at + np.where(six, 8, 12) + i)
        for i in range(16):
            out[six, i] = self.byte(at + np.where(six, 8, 12) + i)[six]
        return out.view("S16").reshape(-1)


def decode(capture: Capture, what: str) -> Packets:
    """Find the IP packets of a capture.

    Raises
    ------
    EvalError
        For a link type that is not known; packets without IP are left out.

    """
    if unknown := sorted(set(np.unique(capture.link)) - set(_LINKS)):
        raise EvalError(
            what,
            f"link type {unknown[0]} is not known here",
            "Ethernet, Linux cooked, raw IP and loopback are; capture on the network interface itself",
        )
    network, ethertype = _network(capture)
    everything = _Frames(capture, np.arange(len(capture)))
    version = everything.byte(network) >> 4
    left = capture.captured - network
    right = (ethertype == 0) | (ethertype == np.where(version == 4, _IPV4, _IPV6))
    four = (version == 4) & (left >= 20) & ((everything.byte(network) & 15) >= 5) & right
    six = (version == 6) & (left >= 40) & right
    index = np.flatnonzero(four | six)
    return _packets(capture, index, network[index], six[index])


def _network(capture: Capture) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each packet's network layer begins, and its EtherType, or 0 where the link type has none."""
    frames = _Frames(capture, np.arange(len(capture)))
    network = np.zeros(len(capture), np.int64)
    ethertype = np.zeros(len(capture), np.int64)
    for link, (at, begin) in _LINKS.items():
        here = capture.link == link
        network[here] = begin
        if at is not None:
            ethertype[here] = frames.word(at)[here]
            # 0 is for links that have no EtherType; a frame with that value is no IP.
            ethertype[here & (ethertype == 0)] = 1
    for _ in range(3):
        tagged = np.isin(ethertype, _VLAN)
        if not tagged.any():
            break
        ethertype = np.where(tagged, frames.word(network + 2), ethertype)
        network = network + 4 * tagged
    return network, ethertype


def _packets(capture: Capture, index: NDArray[np.int64], network: NDArray[np.int64], six: NDArray[np.bool_]) -> Packets:
    frames = _Frames(capture, index)
    # Ethernet fills short frames, so the header's length counts; 0 is what offloading leaves of a large packet.
    on_wire = capture.wire[index] - network
    said = np.where(six, 40 + frames.word(network + 4), frames.word(network + 2))
    told = np.where(six, said > 40, said >= 20) & (said < on_wire)
    size = np.where(told, said, on_wire)
    protocol, transport, first = _transport(frames, network, six)
    has_ports = np.isin(protocol, (TCP, UDP)) & first
    tcp = has_ports & (protocol == TCP)
    data_offset = (frames.byte(transport + 12) >> 4) * 4
    header = np.where(tcp, np.maximum(data_offset, 20), np.where(has_ports, 8, 0))
    return Packets(
        index=index,
        source=frames.address(network, six),
        destination=frames.address(network + np.where(six, 16, 4), six),
        source_port=np.where(has_ports, frames.word(transport), 0),
        destination_port=np.where(has_ports, frames.word(transport + 2), 0),
        protocol=protocol,
        size=size,
        payload=np.maximum(size - (transport - network) - header, 0),
        syn=tcp & ((frames.byte(transport + 13) & 0x12) == 0x02),
    )


def _transport(
    frames: _Frames, network: NDArray[np.int64], six: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Protocol, where its header begins, and whether the packet is the first fragment of its datagram."""
    protocol = np.where(six, frames.byte(network + 6), frames.byte(network + 9))
    at = network + np.where(six, 40, (frames.byte(network) & 15) * 4)
    first = six | ((frames.word(network + 6) & 0x1FFF) == 0)
    for _ in range(8):
        plain = six & np.isin(protocol, _EXTENSIONS)
        fragment = six & (protocol == _FRAGMENT)
        authenticated = six & (protocol == _AUTHENTICATION)
        more = (plain | fragment | authenticated) & first & (at + 2 <= frames.captured)
        if not more.any():
            break
        length = np.where(fragment, 8, np.where(plain, (frames.byte(at + 1) + 1) * 8, (frames.byte(at + 1) + 2) * 4))
        first &= ~(more & fragment & (frames.word(at + 2) >> 3 != 0))
        protocol = np.where(more, frames.byte(at), protocol)
        at = np.where(more, at + length, at)
    return protocol, at, first
