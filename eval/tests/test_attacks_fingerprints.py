"""Fingerprints of what clients send first, by published examples and a ClientHello of OpenSSL."""

import ssl
import struct
from dataclasses import replace

import numpy as np
import pytest

from heddle_eval import EvalError, Traces
from heddle_eval.attacks import make
from heddle_eval.attacks.client_hello import Hello, ja3, ja4, parse
from heddle_eval.attacks.fingerprint import NONE
from heddle_eval.metrics import OTHER
from heddle_eval.traces import objects


def numbers(text):
    return [int(v, 16) for v in text.split(",")]


CHROME = Hello(
    version=0x0303,
    suites=numbers("1301,1302,1303,c02b,c02f,c02c,c030,cca9,cca8,c013,c014,009c,009d,002f,0035"),
    extensions=numbers("001b,0000,0033,0010,4469,0017,002d,000d,0005,0023,0012,002b,ff01,000b,000a,0015"),
    signatures=numbers("0403,0804,0401,0503,0805,0501,0806,0601"),
    versions=[0x0304, 0x0303],
    alpn=b"h2",
)


def test_ja4_of_its_documentation():
    assert ja4(CHROME) == "t13d1516h2_8daaf6152771_e5627efa2ab1"
    shuffled = replace(CHROME, extensions=CHROME.extensions[::-1], suites=CHROME.suites[::-1])
    assert ja4(shuffled) == ja4(CHROME)
    assert ja4(replace(CHROME, alpn=b"")).startswith("t13d151600_")
    assert ja4(replace(CHROME, alpn=b"\x01\x02")).startswith("t13d151602_")
    assert ja4(Hello(version=0x0301)) == "t10i000000_000000000000_000000000000"


def test_ja3_of_its_documentation():
    hello = Hello(769, [47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4], [0, 10, 11], [23, 24, 25], [0])
    assert ja3(hello) == "ada70206e40642a3e4461f35503241d5"


def hello(name="example.org", alpn=("h2", "http/1.1")):
    """First flight of OpenSSL."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(list(alpn))
    out = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return out.read()


def test_reads_a_hello_of_openssl():
    got = parse(hello())
    assert got.version == 0x0303
    assert got.versions[0] == 0x0304
    assert {0x1301, 0x1302, 0x1303} <= set(got.suites)
    assert {0, 10, 13, 16, 43} <= set(got.extensions)
    assert 29 in got.groups
    assert got.alpn == b"h2"
    assert ja4(got).startswith("t13d")
    assert ja4(got) != ja4(parse(hello(alpn=("http/1.1",))))
    # The name is no part of it.
    assert (ja3(got), ja4(got)) == tuple(f(parse(hello("another.example"))) for f in (ja3, ja4))


def test_reads_a_hello_over_several_records():
    whole = hello()
    body = whole[5:]
    parts = b"".join(b"\x16\x03\x01" + struct.pack(">H", len(p)) + p for p in (body[:3], body[3:100], body[100:]))
    assert parse(parts) == parse(whole)


def test_leaves_out_grease():
    def extension(number, body):
        return struct.pack(">HH", number, len(body)) + body

    extensions = (
        extension(0x1A1A, b"") + extension(10, b"\x00\x04\x8a\x8a\x00\x1d") + extension(43, b"\x04\x0a\x0a\x03\x04")
    )
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x04\x2a\x2a\x13\x01" + b"\x01\x00"
    body += struct.pack(">H", len(extensions)) + extensions
    message = b"\x01" + len(body).to_bytes(3) + body
    got = parse(b"\x16\x03\x01" + struct.pack(">H", len(message)) + message)
    assert got == Hello(0x0303, [0x1301], [10, 43], [29], versions=[0x0304])


def test_what_is_no_hello():
    whole = hello()
    for wrong in (
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03",
        b"\x16\x03\x01\x00\x01\x02",
        whole[:5] + b"\x02" + whole[6:],
    ):
        assert parse(wrong) is None
    for end in range(len(whole)):
        assert parse(whole[:end]) is None
    rng = np.random.default_rng(1)
    for _ in range(300):
        odd = bytearray(whole)
        for at in rng.integers(0, len(odd), 5):
            odd[at] = rng.integers(256)
        parse(bytes(odd))


def asked(*firsts, labels):
    made = Traces.build([(np.arange(len(f)), [100] * len(f)) for f in firsts], labels)
    number = np.concatenate([np.arange(len(f)) for f in firsts]).astype(np.int32)
    return replace(made, connection=number, first=objects(tuple((up, b"") for up in f) for f in firsts))


CURL = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n"
BROWSER = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nUser-Agent: x\r\n\r\nbody: no header"


def test_header_order():
    made = make("header-order")
    assert made.fingerprint(CURL) == "HTTP/1.1,Host,User-Agent,Accept"
    assert made.fingerprint(BROWSER) == "HTTP/1.1,Host,Connection,User-Agent"
    assert made.fingerprint(CURL.replace(b"Host: a", b"Host: b")) == made.fingerprint(CURL)
    assert made.fingerprint(CURL[:-1]) == made.fingerprint(b"\x16\x03\x01") == NONE


def test_scores_of_fingerprints():
    learnt = asked([CURL], [CURL, BROWSER], [BROWSER], [BROWSER], labels=list("aabb"))
    found = make("header-order").fit(learnt, np.array([0, 0, OTHER, OTHER]))
    # Of three suspect connections two are curl's, of two innocent ones none.
    curl = (2.5 / 3) / (2.5 / 3 + 0.5 / 2)
    browser = (1.5 / 3) / (1.5 / 3 + 2.5 / 2)
    tested = asked([BROWSER, CURL], [BROWSER], [b"?"], [], labels=list("abab"))
    np.testing.assert_allclose(found.predict_proba(tested)[:, 1], [curl, browser, 0.5, 0])
    with pytest.raises(EvalError, match="no 'first'"):
        found.predict_proba(replace(tested, first=None))


@pytest.mark.parametrize("name", ["ja3", "ja4"])
def test_fingerprints_of_hellos_tell_clients_apart(name):
    tunnel, page = hello(alpn=("http/1.1",)), hello()
    learnt = asked([tunnel], [tunnel], [page], [page], labels=list("aabb"))
    found = make(name).fit(learnt, np.array([0, 0, OTHER, OTHER]))
    told = found.predict_proba(learnt)[:, 1]
    if name == "ja4":
        assert told[:2].min() > told[2:].max()
    else:  # it does not look into ALPN
        assert len(set(told)) == 1
