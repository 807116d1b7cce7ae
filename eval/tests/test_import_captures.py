"""Captures, written here byte by byte, with dpkt, and by Heddle itself (tests/data/heddle)."""

import ipaddress
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import dpkt
import numpy as np
import pytest

from heddle_eval import EvalError, importers, parquet
from heddle_eval.importers import Options
from heddle_eval.traces import WHOLE

HEDDLE = Path(__file__).parent / "data" / "heddle"
A, B = "192.0.2.7", "203.0.113.9"
A6, B6 = "2001:db8::7", "2001:db8::9"
START = 1_700_000_000 * 10**9
RAW, ETHERNET, COOKED, COOKED2, LOOPBACK = 101, 1, 113, 276, 0


def address(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


def udp(src: str, dst: str, payload: int, ports=(40000, 51820)) -> bytes:
    datagram = struct.pack(">HHHH", *ports, 8 + payload, 0) + bytes(payload)
    return ip(src, dst, 17, datagram)


def ip(src: str, dst: str, protocol: int, body: bytes) -> bytes:
    if ":" in src:
        return struct.pack(">IHBB", 6 << 28, len(body), protocol, 64) + address(src) + address(dst) + body
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, protocol, 0)
    return head + address(src) + address(dst) + body


def tcp(src: str, dst: str, payload: int, flags: int = 0x10, ports=(40000, 443), numbers=(0, 0)) -> bytes:
    head = struct.pack(">HHIIBBHHH", *ports, *numbers, 8 << 4, flags, 0, 0, 0)
    return ip(src, dst, 6, head + bytes(12 + payload))


def pcap(frames, link=RAW, nano=True, order="<", snap=None) -> bytes:
    """``frames``: (nanoseconds since START, bytes)."""
    out = struct.pack(order + "IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for at, frame in frames:
        seconds, part = divmod(START + at, 10**9)
        kept = frame[:snap]
        out += struct.pack(order + "IIII", seconds, part if nano else part // 1000, len(kept), len(frame)) + kept
    return out


def block(kind: int, body: bytes, order="<") -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack(order + "II", kind, 12 + len(body)) + body + struct.pack(order + "I", 12 + len(body))


def option(code: int, value: bytes, order="<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order="<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link=RAW, resolution=9, comment="", offset=0, order="<") -> bytes:
    options = option(9, bytes([resolution]), order) + (option(1, comment.encode(), order) if comment else b"")
    options += option(14, struct.pack(order + "q", offset), order) if offset else b""
    return block(1, struct.pack(order + "HHI", link, 0, 0) + options + option(0, b"", order), order)


def enhanced(ticks: int, frame: bytes, number=0, flags=None, order="<") -> bytes:
    body = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    body += frame + bytes(-len(frame) % 4)
    return block(6, body + (option(2, struct.pack(order + "I", flags), order) if flags else b""), order)


TALK = [(0, udp(A, B, 100)), (1_000_001, udp(B, A, 1200, (51820, 40000))), (2_500_000, udp(A, B, 20))]
SIZES = [128, -1228, 48]


def load(tmp_path: Path, raw: bytes, **options):
    file = tmp_path / "page.pcap"
    file.write_bytes(raw)
    return importers.load("auto", [file], Options(**options))


def client(*addresses: str):
    return tuple(ipaddress.ip_network(a) for a in addresses)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nano", [True, False])
def test_reads_pcap_of_any_byte_order_and_resolution(tmp_path, order, nano):
    traces, report = load(tmp_path, pcap(TALK, nano=nano, order=order), client=client(A))
    assert traces.names == ("page",)
    assert traces.path.tolist() == [WHOLE]
    assert traces.size.tolist() == SIZES
    np.testing.assert_allclose(traces.time, [0, 0.001, 0.0025], rtol=0, atol=1e-12)
    assert report.counts == {}


def test_payload_leaves_out_packets_without(tmp_path):
    frames = [(0, tcp(A, B, 0, 0x02)), (1, tcp(B, A, 0, 0x12, (443, 40000))), (2, tcp(A, B, 77))]
    traces, report = load(tmp_path, pcap(frames), client=client(A), size="payload")
    assert traces.size.tolist() == [77]
    assert report.counts["packets without payload, left out"] == 2


@pytest.mark.parametrize("size", ["ip", "payload"])
def test_tells_when_tcp_acknowledged(tmp_path, size):
    """Whatever sizes count, and without the packets that acknowledged."""
    back = (443, 40000)
    frames = [
        (0, tcp(A, B, 0, 0x02, numbers=(9, 0))),
        (20_000_000, tcp(B, A, 0, 0x12, back, (70, 10))),
        (21_000_000, tcp(A, B, 77, numbers=(10, 71))),
        (41_500_000, tcp(B, A, 0, 0x10, back, (71, 87))),
        (90_000_000, tcp(B, A, 300, 0x10, back, (71, 87))),
        (91_000_000, udp(A, B, 9)),
    ]
    traces, _ = load(tmp_path, pcap(frames), client=client(A), size=size)
    want = {"ip": [20_000, 1_000, 20_500, -1, -1, -1], "payload": [20_500, -1, -1]}
    assert traces.ack_us.tolist() == want[size]


def test_dpkt_agrees(tmp_path):
    """Another's writer, of pcapng with microseconds and Ethernet."""
    file = tmp_path / "page.pcapng"
    with file.open("wb") as f:
        writer = dpkt.pcapng.Writer(f)
        for at, packet in TALK:
            frame = dpkt.ethernet.Ethernet(data=dpkt.ip.IP(packet), type=0x0800)
            writer.writepkt(bytes(frame), ts=(START + at) / 1e9)
    traces, _ = importers.load("pcap", [file], Options(client=client(A)))
    assert traces.size.tolist() == SIZES
    np.testing.assert_allclose(traces.time, [0, 0.001, 0.0025], atol=2e-6)


def test_heddles_own_captures_and_its_own_table_say_the_same():
    mine, report = importers.load("pcap", [HEDDLE])
    theirs = parquet.read(HEDDLE / "trace.parquet")
    assert report.paths == {"home": 0, "lte": 1}
    assert mine.names == theirs.names == ("page",)
    for column in ("size", "offset", "label", "load", "path"):
        np.testing.assert_array_equal(getattr(mine, column), getattr(theirs, column), err_msg=column)
    np.testing.assert_array_equal(mine.time, theirs.time)
    # IPv4 and IPv6 headers and UDP's, around 32, 132, ... bytes; the client's first.
    assert mine.trace(0).size.tolist() == [60, -160, 260, -360]
    assert mine.trace(1).size.tolist() == [80, -180, 280, -380]
    assert mine.trace(1).time.tolist() == [0.0015, 0.0025, 0.0035, 0.0045]


@pytest.mark.skipif(not shutil.which("tcpdump"), reason="tcpdump is not installed")
def test_filters_as_tcpdump_does(tmp_path):
    frames = [*TALK, (3_000_000, tcp(A, B, 5)), (4_000_000, udp(A, B, 9, (40000, 53)))]
    traces, _ = load(tmp_path, pcap(frames), client=client(A), filter="udp and not port 53")
    assert traces.size.tolist() == SIZES
    traces, report = importers.load("pcap", [HEDDLE / "page"], Options(filter="len > 200"))
    assert [t.size.tolist() for t in traces][:2] == [[260, -360], [280, -380]]
    assert "captures whose client was guessed; --client names it" not in report.counts
    with pytest.raises(EvalError, match=r"filter nonsense here: tcpdump says: .*syntax"):
        load(tmp_path, pcap(TALK), filter="nonsense here")
    with pytest.raises(EvalError, match="no packet passes the filter 'icmp'"):
        load(tmp_path, pcap(TALK), filter="icmp")


def test_says_that_tcpdump_is_absent(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EvalError, match="tcpdump, which compiles it, is not installed") as e:
        load(tmp_path, pcap(TALK), filter="udp")
    assert "install tcpdump" in e.value.hint


def test_says_that_heddle_is_absent(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("HEDDLE_BINARY")
    with pytest.raises(EvalError, match="it is not installed") as e:
        load(tmp_path, pcap(TALK))
    assert "HEDDLE_BINARY=" in e.value.hint
    monkeypatch.setenv("HEDDLE_BINARY", str(tmp_path / "none"))
    with pytest.raises(EvalError, match="cannot be started: No such file"):
        load(tmp_path, pcap(TALK))


def test_comments_and_flags_name_the_client(tmp_path):
    named = section() + interface(comment=f"tap; client={B}") + enhanced(START, udp(A, B, 1))
    assert load(tmp_path, named)[0].size.tolist() == [-29]
    flagged = section() + interface(comment="client=outbound; here") + enhanced(START, udp(A, B, 1), flags=1)
    assert load(tmp_path, flagged + enhanced(START + 1, udp(A, B, 2), flags=2))[0].size.tolist() == [-29, 30]
    assert load(tmp_path, named, client=client(A))[0].size.tolist() == [29]


def test_leaves_out_strangers_and_says_how_many(tmp_path):
    frames = [*TALK, (3_000_000, udp("198.51.100.1", "198.51.100.2", 5)), (4_000_000, b"\x10 no IP")]
    traces, report = load(tmp_path, pcap(frames), client=client(A))
    assert traces.size.tolist() == SIZES
    assert report.counts == {
        "packets without IP, left out": 1,
        "packets neither from nor to the client, left out": 1,
    }


def test_cuts_one_capture_at_silences_and_by_conversation(tmp_path):
    second = 10**9
    frames = [(0, udp(A, B, 1)), (second, udp(B, A, 2, (51820, 40000))), (9 * second, udp(A, B, 3, (40001, 51820)))]
    raw = pcap(frames)
    traces, _ = load(tmp_path, raw, client=client(A), per="gap", gap=5.0)
    assert [(t.size.tolist(), t.time.tolist()) for t in traces] == [([29, -30], [0, 1]), ([31], [0])]
    assert traces.load.tolist() == [0, 1]
    assert len(load(tmp_path, raw, client=client(A), per="gap", gap=8.5)[0]) == 1
    by_flow, _ = load(tmp_path, raw, client=client(A), per="flow")
    assert sorted(t.size.tolist() for t in by_flow) == [[29, -30], [31]]


def write(folder: Path, **files: bytes) -> Path:
    for name, raw in files.items():
        file = folder / f"{name.replace('__', '/')}.pcapng"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(raw)
    return folder


def test_paths_of_one_load_share_its_number_and_its_clock(tmp_path):
    late = [(at + 40_000_000, packet) for at, packet in TALK]
    files = {
        "my-page-1-lte": pcap(late),
        "my-page-1-home": pcap(TALK),
        "my-page-2-home": pcap(TALK),
        "b-1-lte": pcap(TALK),
    }
    write(tmp_path / "c", **files)
    traces, report = importers.load(
        "pcap", [tmp_path / "c"], Options(label="{page}-{visit}-{path}.pcapng", client=client(A), unmonitored=("my*",))
    )
    assert report.paths == {"home": 0, "lte": 1}
    assert report.counts == {"page loads that lack a path which others have": 2}
    assert traces.labels.tolist() == ["b", "my-page", "my-page", "my-page"]
    assert traces.monitored.tolist() == [True, False]
    assert traces.path.tolist() == [1, 0, 1, 0]
    assert traces.load.tolist() == [0, 1, 1, 2]
    np.testing.assert_allclose(traces.time[traces.offset[:-1]], [0, 0, 0.04, 0])


def test_a_path_that_saw_nothing_keeps_an_empty_trace(tmp_path):
    write(tmp_path / "c", p__1__home=pcap(TALK), p__1__lte=pcap([]))
    traces, report = importers.load("pcap", [tmp_path / "c"], Options(client=client(A)))
    assert traces.lengths.tolist() == [3, 0]
    assert report.counts == {"traces of paths that saw nothing of the page load": 1}


def test_leaving_out_a_short_path_moves_no_time(tmp_path):
    later = [(at + 10**9, packet) for at, packet in TALK]
    write(tmp_path / "c", p__1__home=pcap(TALK[:1]), p__1__lte=pcap(later))
    traces, _ = importers.load("pcap", [tmp_path / "c"], Options(client=client(A), min_packets=2))
    assert traces.path.tolist() == [0]
    assert traces.time[0] == 1


def test_silences_are_those_of_all_paths(tmp_path):
    second = 10**9
    home = [(0, udp(A, B, 1)), (20 * second, udp(A, B, 2))]
    write(
        tmp_path / "c", p__1__home=pcap(home), p__1__lte=pcap([(4 * second, udp(A, B, 3)), (8 * second, udp(A, B, 4))])
    )
    traces, _ = importers.load("pcap", [tmp_path / "c"], Options(client=client(A), per="gap", gap=5.0))
    assert {
        (int(t), int(p)): traces.trace(i).size.tolist()
        for i, (t, p) in enumerate(zip(traces.load, traces.path, strict=True))
    } == {
        (0, 0): [29],
        (0, 1): [31, 32],
        (1, 0): [30],
        (1, 1): [],
    }
    with pytest.raises(EvalError, match="cannot be matched"):
        importers.load("pcap", [tmp_path / "c"], Options(client=client(A), per="flow"))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "it holds 0 bytes"),
        (b"GIF89a..", "not a capture"),
        (pcap([]), "the capture holds no packet"),
        (pcap(TALK)[:20], "not a capture"),
        (pcap(TALK)[:-1], r"cut short.*after 2 packets"),
        (pcap([(0, b"\x10 no IP"), (1, b"")]), "none of its 2 packets is an IP packet"),
        (pcap(TALK, link=147), "unknown link type 147"),
        (section() + interface() + block(3, struct.pack("<I", 1) + b"x"), "a packet has no time"),
        (section() + enhanced(START, b"x"), "damaged after 0 packets: Interface id 0 not present"),
        (section() + interface() + enhanced(2**63, TALK[0][1]), "time or length, or one that makes no sense"),
    ],
)
def test_says_what_is_wrong_with_a_capture(tmp_path, raw, why):
    with pytest.raises(EvalError, match=why):
        load(tmp_path, raw)


def test_salvages_what_comes_before_the_damage(tmp_path):
    traces, report = load(tmp_path, pcap(TALK)[:-1], client=client(A), salvage=True)
    assert traces.size.tolist() == SIZES[:2]
    assert report.counts["captures that are damaged, read as far as they go"] == 1


def test_nobody_of_the_client_is_an_error(tmp_path):
    with pytest.raises(EvalError, match="none of its 3 IP packets is from or to the client"):
        load(tmp_path, pcap(TALK), client=client("198.51.100.1"))


def test_times_that_go_backwards(tmp_path):
    frames = [(0, udp(A, B, 1)), (5 * 10**9, udp(A, B, 2)), (10**9, udp(A, B, 3))]
    with pytest.raises(EvalError, match="go backwards at packet 3") as e:
        load(tmp_path, pcap(frames), client=client(A))
    assert "--sort" in e.value.hint
    traces, report = load(tmp_path, pcap(frames), client=client(A), sort=True)
    assert traces.size.tolist() == [29, 31, 30]
    assert traces.time.tolist() == [0, 1, 5]
    assert report.counts == {"captures whose packets were put in the order of time": 1}
    # As threads that capture both directions write them: no reason to stop.
    close = [(0, udp(A, B, 1)), (2_000_000, udp(A, B, 2)), (1_000_000, udp(A, B, 3))]
    assert load(tmp_path, pcap(close), client=client(A))[0].size.tolist() == [29, 31, 30]


def test_a_bad_path_takes_its_whole_load_along_and_nothing_else(tmp_path):
    write(tmp_path / "c", p__1__home=pcap(TALK), p__1__lte=pcap(TALK)[:-1], p__2__home=pcap(TALK), p__2__lte=pcap(TALK))
    with pytest.raises(EvalError, match="cut short"):
        importers.load("pcap", [tmp_path / "c"], Options(client=client(A)))
    traces, report = importers.load("pcap", [tmp_path / "c"], Options(client=client(A), skip_bad=True))
    assert len(traces) == 2
    assert len(report.skipped) == 1
    assert report.skipped[0]["what"].endswith("p/1/lte.pcapng")


def test_contents_are_read_where_asked(tmp_path):
    """A request and its answer over UDP, whose packets come in the wrong order."""
    request, answer = b"\x12\x34GET aab", b"\xff\x00\xff\x00"
    up, down = (
        struct.pack(">HHHH", *ports, 8 + len(b), 0) + b for ports, b in (((40000, 9), request), ((9, 40000), answer))
    )
    frames = [(10**9, ip(B, A, 17, down)), (0, ip(A, B, 17, up))]
    (tmp_path / "page.pcap").write_bytes(pcap(frames))
    options = Options(client=(ipaddress.ip_network(A),), sort=True)
    plain, _ = importers.load("pcap", [tmp_path / "page.pcap"], options)
    assert plain.payload.tolist() == [len(request), len(answer)]
    assert plain.connection.tolist() == [0, 0]
    assert plain.first is None
    told, _ = importers.load("pcap", [tmp_path / "page.pcap"], replace(options, contents=True))
    assert told.first[0] == ((request, answer),)
    np.testing.assert_allclose(told.entropy, [np.log2(9) - 2 / 9, 1], rtol=1e-6)
    np.testing.assert_allclose(told.printable, [8 / 9, 0], rtol=1e-6)
