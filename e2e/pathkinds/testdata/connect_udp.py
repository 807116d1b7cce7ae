"""CONNECT-UDP (RFC 9298) on aioquic: a client that asks a proxy, and a proxy that forwards. Both know one flow.

connect_udp.py client HOST PORT TOKEN TARGET_HOST TARGET_PORT   sends each line of stdin, prints what comes back
connect_udp.py proxy HOST PORT CERTIFICATE KEY                  prints each request's header, then forwards
"""

import asyncio
import re
import ssl
import sys
from urllib.parse import quote, unquote

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DatagramReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration


def configuration(is_client):
    return QuicConfiguration(
        is_client=is_client, alpn_protocols=H3_ALPN, max_datagram_frame_size=65535,
        max_datagram_size=1372, verify_mode=ssl.CERT_NONE,
    )


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic, enable_webtransport=True)
        self.answer = asyncio.get_running_loop().create_future()
        self.datagrams = asyncio.Queue()

    def quic_event_received(self, event):
        for e in self.http.handle_event(event):
            if isinstance(e, HeadersReceived):
                self.answer.set_result(dict(e.headers))
            elif isinstance(e, DatagramReceived):
                self.datagrams.put_nowait(e.data)


async def client(host, port, token, target_host, target_port):
    async with connect(host, int(port), configuration=configuration(True), create_protocol=Client) as c:
        stream = c._quic.get_next_available_stream_id()
        path = f"/.well-known/masque/udp/{quote(target_host, safe='')}/{target_port}/"
        c.http.send_headers(stream, [
            (b":method", b"CONNECT"), (b":protocol", b"connect-udp"), (b":scheme", b"https"),
            (b":authority", f"{host}:{port}".encode()), (b":path", path.encode()), (b"capsule-protocol", b"?1"),
            (b"proxy-authorization", b"Bearer " + token.encode()),
        ])
        c.transmit()
        answer = await c.answer
        print("status", answer[b":status"].decode(), answer.get(b"capsule-protocol", b"").decode(), flush=True)
        for line in sys.stdin:
            c.http.send_datagram(stream, b"\x00" + line.rstrip("\n").encode())
            c.transmit()
            back = await asyncio.wait_for(c.datagrams.get(), 20)
            print(back[0], back[1:].decode(), flush=True)


class Target(asyncio.DatagramProtocol):
    def __init__(self, proxy, stream):
        self.proxy, self.stream = proxy, stream

    def datagram_received(self, data, _):
        self.proxy.http.send_datagram(self.stream, b"\x00" + data)
        self.proxy.transmit()


class Proxy(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic, enable_webtransport=True)
        self.targets = {}

    def quic_event_received(self, event):
        for e in self.http.handle_event(event):
            if isinstance(e, HeadersReceived):
                asyncio.ensure_future(self.open(e.stream_id, dict(e.headers)))
            elif isinstance(e, DatagramReceived) and e.stream_id in self.targets and e.data[0] == 0:
                self.targets[e.stream_id].sendto(e.data[1:])

    async def open(self, stream, headers):
        for name in sorted(headers):
            print(name.decode(), headers[name].decode(), flush=True)
        host, port = re.fullmatch(r"/\.well-known/masque/udp/([^/]+)/(\d+)/", headers[b":path"].decode()).groups()
        self.targets[stream], _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Target(self, stream), remote_addr=(unquote(host), int(port)))
        self.http.send_headers(stream, [(b":status", b"200"), (b"capsule-protocol", b"?1")])
        self.transmit()


async def proxy(host, port, certificate, key):
    c = configuration(False)
    c.load_cert_chain(certificate, key)
    await serve(host, int(port), configuration=c, create_protocol=Proxy)
    print("listening", flush=True)
    await asyncio.Future()


asyncio.run({"client": client, "proxy": proxy}[sys.argv[1]](*sys.argv[2:]))
