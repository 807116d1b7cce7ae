"""An HTTP/3 server on aioquic: GET /N gives N bytes, and POST counts the bytes that it gets.

It uses the library's public interface as its own example, http3_server.py, does, with the defaults of
QuicConfiguration throughout. Clients may migrate by default.

Usage: server.py ADDRESS PORT CERTIFICATE KEY [QLOG-DIRECTORY]
"""

import asyncio
import sys

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, QuicEvent
from aioquic.quic.logger import QuicFileLogger


class Server(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._http: H3Connection | None = None
        self._uploads: dict[int, int] = {}  # bytes by stream

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, ProtocolNegotiated):
            self._http = H3Connection(self._quic)
        if self._http is not None:
            for http_event in self._http.handle_event(event):
                self._http_event(self._http, http_event)

    def _http_event(self, http: H3Connection, event: H3Event) -> None:
        if isinstance(event, HeadersReceived):
            fields = dict(event.headers)
            if fields.get(b":method") == b"POST":
                self._uploads[event.stream_id] = 0
                self._ended(http, event)
            else:
                size = fields.get(b":path", b"").removeprefix(b"/")
                if size.isdigit():
                    self._answer(http, event.stream_id, 200, bytes(int(size)))
                else:
                    self._answer(http, event.stream_id, 404, b"")
        elif isinstance(event, DataReceived) and event.stream_id in self._uploads:
            self._uploads[event.stream_id] += len(event.data)
            self._ended(http, event)

    def _ended(self, http: H3Connection, event: HeadersReceived | DataReceived) -> None:
        if event.stream_ended:
            count = self._uploads.pop(event.stream_id)
            self._answer(http, event.stream_id, 200, str(count).encode())

    def _answer(self, http: H3Connection, stream: int, status: int, body: bytes) -> None:
        http.send_headers(
            stream,
            [
                (b":status", str(status).encode()),
                (b"server", b"aioquic"),
                (b"content-length", str(len(body)).encode()),
            ],
        )
        http.send_data(stream, body, end_stream=True)
        self.transmit()


async def main(address: str, port: int, certificate: str, key: str, qlog: str | None = None) -> None:
    configuration = QuicConfiguration(
        is_client=False,
        alpn_protocols=H3_ALPN,
        quic_logger=QuicFileLogger(qlog) if qlog else None,
    )
    configuration.load_cert_chain(certificate, key)
    await serve(address, port, configuration=configuration, create_protocol=Server)
    print(f"listening on {address}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
