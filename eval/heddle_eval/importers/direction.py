"""Which packets of a capture went from the client to the server."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import numpy as np
from numpy.typing import NDArray

from heddle_eval.importers.capture import OUTBOUND, Capture
from heddle_eval.importers.packets import TCP, UDP, Packets

Network = IPv4Network | IPv6Network


def orient(
    capture: Capture, packets: Packets, client: Sequence[Network]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], str]:
    """Tell each packet's direction.

    The client is, in this order: who was given; who the capture names in its interface's comment, as Heddle's captures
    do (``client=ADDRESS``, or ``client=outbound`` where each packet's own flag says); or the address that began the
    conversations of the most packets.

    Returns
    -------
    out
        (K,) whether the packet went from the client to the server.
    known
        (K,) whether it is of the client at all.
    by
        "given", "capture" or "guessed".

    """
    words = [w for c in capture.comments for w in re.split(r"[ ;,]+", c)]
    named = [a for w in words if w.startswith("client=") and (a := _network(w.removeprefix("client=")))]
    direction = capture.direction[packets.index]
    if not client and "client=outbound" in words and direction.any():
        return direction == OUTBOUND, direction != 0, "capture"
    networks, by = (client, "given") if client else (named, "capture")
    if networks:
        mine = _within(networks)
    else:
        guess, by = _guess(packets), "guessed"
        mine = {guess}.__contains__
    source, destination = _each(packets.source, mine), _each(packets.destination, mine)
    both = source & destination
    out = np.where(both, _begun_by_source(packets), source) if both.any() else source
    return out, source | destination, by


def clients(capture: Capture, packets: Packets) -> list[Network]:
    """Addresses that sent what is flagged as outbound, for readers that lose the flags."""
    out, known, by = orient(capture, packets, ())
    if by != "capture":
        return []
    return [n for a in np.unique(packets.source[out & known]) if (n := _network(str(_address(a))))]


def _network(text: str) -> Network | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (IPv4Network if address.version == 4 else IPv6Network)(address)


def _address(raw: bytes) -> IPv4Address | IPv6Address:
    address = IPv6Address(bytes(raw).ljust(16, b"\0"))
    return address.ipv4_mapped or address


def _within(networks: Sequence[Network]) -> Callable[[bytes], bool]:
    return lambda raw: any(_address(raw) in n for n in networks)


def _each(addresses: NDArray[np.bytes_], test: Callable[[bytes], bool]) -> NDArray[np.bool_]:
    unique, inverse = np.unique(addresses, return_inverse=True)
    return np.array([test(a) for a in unique], bool)[inverse]


def conversations(packets: Packets) -> NDArray[np.int64]:
    """(K,) number of each packet's conversation, which is the packets between two ports, both ways."""
    k = len(packets)
    _, address = np.unique(np.concatenate([packets.source, packets.destination]), return_inverse=True)
    source, destination = address[:k] << 16 | packets.source_port, address[k:] << 16 | packets.destination_port
    ends = np.stack([np.minimum(source, destination), np.maximum(source, destination), packets.protocol])
    return np.unique(ends, axis=1, return_inverse=True)[1].reshape(k)


def _begun_by_source(packets: Packets) -> NDArray[np.bool_]:
    """Whether a packet's source began its conversation."""
    if not len(packets):
        return np.zeros(0, bool)
    flow = conversations(packets)
    _, begin = np.unique(flow, return_index=True)
    from_first = (packets.source == packets.source[begin][flow]) & (
        packets.source_port == packets.source_port[begin][flow]
    )
    return from_first == _first_is_client(packets, flow, begin)[flow]


def _first_is_client(packets: Packets, flow: NDArray[np.int64], begin: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the sender of a conversation's first packet is its client, which is not so in a capture begun late.

    It is, by the first of these that decides: it sent the SYN; the other has a port below 1024 (RFC 6335: a service's)
    and it has not; its address is private and the other's is not; it was first.
    """
    ported = np.isin(packets.protocol[begin], (TCP, UDP))
    a_low = ported & (packets.source_port[begin] < 1024)
    b_low = ported & (packets.destination_port[begin] < 1024)
    a_private, b_private = (
        _each(side[begin], lambda raw: _address(raw).is_private) for side in (packets.source, packets.destination)
    )
    return np.select(
        [packets.syn[begin], b_low & ~a_low, a_low & ~b_low, a_private & ~b_private, b_private & ~a_private],
        [True, True, False, True, False],
        True,
    ).astype(bool)


def _guess(packets: Packets) -> bytes:
    if not len(packets):
        return b""
    sender = np.where(_begun_by_source(packets), packets.source, packets.destination)
    unique, count = np.unique(sender, return_counts=True)
    return bytes(unique[np.argmax(count)])
