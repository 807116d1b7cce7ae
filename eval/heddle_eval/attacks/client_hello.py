"""JA3 and JA4: fingerprints of TLS ClientHellos.

JA3 (Althouse et al., Salesforce, 2017): MD5 of version, cipher suites, extensions, groups and point formats in the
order of the hello. JA4 (FoxIO, 2023) sorts suites and extensions, because browsers shuffle extensions since 2023. Both
leave out GREASE values (RFC 8701). Here they are over TCP only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from sklearn.base import BaseEstimator, ClassifierMixin

from heddle_eval.attacks.fingerprint import NONE, Fingerprint


@dataclass(eq=False, repr=False)
class ClientHello(Fingerprint, ClassifierMixin, BaseEstimator):
    """Learns which fingerprints of ClientHellos what a censor looks for has.

    Parameters
    ----------
    kind
        ``ja3`` or ``ja4``.
    seed
        Not used.

    """

    kind: Literal["ja3", "ja4"] = "ja4"
    seed: int = 0

    def fingerprint(self, first: bytes) -> str:
        """JA3 or JA4 of a connection that begins with a ClientHello."""
        hello = parse(first)
        if hello is None:
            return NONE
        return ja3(hello) if self.kind == "ja3" else ja4(hello)


@dataclass
class Hello:
    """What the fingerprints look at; numbers as in the hello, without GREASE."""

    version: int = 0
    suites: list[int] = field(default_factory=list)
    extensions: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    formats: list[int] = field(default_factory=list)
    signatures: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    alpn: bytes = b""


class _Reader:
    """Takes bytes from the front; more than there are is an IndexError."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        if self.at + n > len(self.data):
            raise IndexError
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, n: int) -> int:
        return int.from_bytes(self.take(n))

    def vector(self, n: int) -> _Reader:
        """Take as many bytes as the next n say."""
        return _Reader(self.take(self.number(n)))

    def numbers(self, n: int) -> list[int]:
        """Take all that is left as numbers of n bytes, without GREASE where n is 2."""
        found = [self.number(n) for _ in range((len(self.data) - self.at) // n)]
        return [v for v in found if n != 2 or not _grease(v)]

    def __bool__(self) -> bool:
        return self.at < len(self.data)


def _grease(value: int) -> bool:
    return value & 0x0F0F == 0x0A0A and value >> 8 == value & 0xFF


def parse(first: bytes) -> Hello | None:
    """Read a ClientHello in TLS records (RFC 8446, section 4.1.2); None for what is none, or is not there in full."""
    try:
        reader, message = _Reader(first), b""
        while reader and (len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4])):
            if reader.take(3)[:2] != b"\x16\x03":
                return None
            message += reader.take(reader.number(2))
        body = _Reader(message)
        if body.number(1) != 1:
            return None
        body = body.vector(3)
        hello = Hello(version=body.number(2))
        body.take(32)
        body.vector(1)
        hello.suites = body.vector(2).numbers(2)
        body.vector(1)
        extensions = body.vector(2) if body else _Reader(b"")
        while extensions:
            _extension(hello, extensions.number(2), extensions.vector(2))
    except IndexError:
        return None
    return hello


def _extension(hello: Hello, number: int, body: _Reader) -> None:
    if _grease(number):
        return
    hello.extensions.append(number)
    if number == 10:
        hello.groups = body.vector(2).numbers(2)
    elif number == 11:
        hello.formats = body.vector(1).numbers(1)
    elif number == 13:
        hello.signatures = body.vector(2).numbers(2)
    elif number == 16:
        names = body.vector(2)
        hello.alpn = names.vector(1).data if names else b""
    elif number == 43:
        hello.versions = body.vector(1).numbers(2)


def ja3(hello: Hello) -> str:
    """MD5 of the hello's numbers, as JA3 writes them."""
    lists = (hello.suites, hello.extensions, hello.groups, hello.formats)
    text = ",".join([str(hello.version), *("-".join(map(str, v)) for v in lists)])
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


_VERSIONS = {0x0304: "13", 0x0303: "12", 0x0302: "11", 0x0301: "10", 0x0300: "s3"}


def ja4(hello: Hello) -> str:
    """JA4 of a hello over TCP, such as t13d1516h2_8daaf6152771_e5627efa2ab1."""
    version = _VERSIONS.get(max(hello.versions, default=hello.version), "00")
    server = "d" if 0 in hello.extensions else "i"
    counts = f"{min(len(hello.suites), 99):02}{min(len(hello.extensions), 99):02}"
    head = f"t{version}{server}{counts}{_alpn(hello.alpn)}"
    # The server name and ALPN are in the first part already.
    extensions = sorted(e for e in hello.extensions if e not in (0, 16))
    tail = _hexadecimal(extensions) + (f"_{_hexadecimal(hello.signatures)}" if hello.signatures else "")
    return f"{head}_{_short(_hexadecimal(sorted(hello.suites)))}_{_short(tail if extensions else '')}"


def _alpn(name: bytes) -> str:
    if not name:
        return "00"
    ends = bytes([name[0], name[-1]])
    # Other than letters and digits are written by the ends of their hexadecimal form.
    return ends.decode() if ends.isalnum() else name.hex()[0] + name.hex()[-1]


def _hexadecimal(values: list[int]) -> str:
    return ",".join(f"{v:04x}" for v in values)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else "0" * 12
