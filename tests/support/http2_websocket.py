"""A WebSocket over HTTP/2 (RFC 8441), by the h2 library: what a browser does that has spoken HTTP/2 with the address.

One ``Http2`` is one TCP connection; each WebSocket on it is a stream. Blocking, with a deadline for everything.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from types import TracebackType
from typing import Final, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from websockets.frames import Frame, Opcode

from gateway.core.wire.codec import SUBPROTOCOL
from tests.support.times import PATIENCE, scaled

CLOSE: Final = 8
_LONGEST_SHORT: Final = 125
_IN_2_BYTES: Final = 126


class Http2:
    """One connection.

    Args:
        host: where to connect.
        port: likewise.
        trust: for TLS; HTTP/2 is offered, and must be chosen.

    Attributes:
        offers_websockets: whether the other side takes extended CONNECT (RFC 8441 section 3).
        streams: by their numbers.
        goaway: the other side takes no more streams, or has hung up.
    """

    def __init__(self, host: str, port: int, trust: ssl.SSLContext) -> None:
        trust.set_alpn_protocols(["h2", "http/1.1"])
        raw = socket.create_connection((host, port), timeout=scaled(PATIENCE))
        self._socket = trust.wrap_socket(raw, server_hostname=host)
        assert self._socket.selected_alpn_protocol() == "h2"
        self._authority = f"{host}:{port}"
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._flush()
        self.streams: dict[int, Http2WebSocket] = {}
        self.goaway = False
        self.offers_websockets: bool | None = None
        while self.offers_websockets is None:
            self.step()

    def connect(self, path: str = "/v1/connect", **headers: str) -> Http2WebSocket:
        """Open a WebSocket; the answer's status is in the result."""
        stream = self._h2.get_next_available_stream_id()
        opened = self.streams[stream] = Http2WebSocket(self, stream)
        self._h2.send_headers(
            stream,
            [
                (":method", "CONNECT"),
                (":protocol", "websocket"),
                (":scheme", "https"),
                (":path", path),
                (":authority", self._authority),
                ("sec-websocket-version", "13"),
                ("sec-websocket-protocol", SUBPROTOCOL),
                *((name.replace("_", "-"), value) for name, value in headers.items()),
            ],
        )
        self._flush()
        while opened.headers is None and not opened.over:
            self.step()
        return opened

    def request(self, method: str, path: str) -> Http2WebSocket:
        """Send an ordinary request without a body."""
        stream = self._h2.get_next_available_stream_id()
        asked = self.streams[stream] = Http2WebSocket(self, stream)
        head = [(":method", method), (":scheme", "https"), (":path", path), (":authority", self._authority)]
        self._h2.send_headers(stream, head, end_stream=True)
        self._flush()
        while not asked.over:
            self.step()
        return asked

    def send(self, stream: int, data: bytes) -> None:
        """Send data on a stream, as fast as the other side lets it."""
        while data:
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if not room:
                self.step()
                continue
            self._h2.send_data(stream, data[:room])
            data = data[room:]
            self._flush()

    def reset(self, stream: int) -> None:
        """Break off a stream."""
        self._h2.reset_stream(stream)
        self._flush()

    def step(self) -> None:
        """Take in what comes next."""
        data = self._socket.recv(65_536)
        if not data:
            for each in self.streams.values():
                each.over = True
            self.goaway = True
            return
        for event in self._h2.receive_data(data):
            self._take(event)
        self._flush()

    def _take(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged():
                self.offers_websockets = self._h2.remote_settings.enable_connect_protocol == 1
            case ResponseReceived():
                assert event.stream_id is not None
                assert event.headers is not None
                self.streams[event.stream_id].headers = {_text(name): _text(value) for name, value in event.headers}
            case DataReceived():
                assert event.stream_id is not None
                assert event.data is not None
                assert event.flow_controlled_length is not None
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                self.streams[event.stream_id].take(event.data)
            case StreamEnded() | StreamReset():
                assert event.stream_id is not None
                self.streams[event.stream_id].over = True
            case ConnectionTerminated():
                self.goaway = True

    def _flush(self) -> None:
        self._socket.sendall(self._h2.data_to_send())

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Http2WebSocket:
    """One stream.

    Attributes:
        headers: of the answer, once it is there.
        over: the stream has ended.
        body: what came, if it is not a WebSocket.
    """

    def __init__(self, connection: Http2, stream: int) -> None:
        self._connection = connection
        self.stream = stream
        self.headers: dict[str, str] | None = None
        self.over = False
        self.body = b""
        self._frames: deque[tuple[int, bytes]] = deque()

    @property
    def status(self) -> int:
        """Of the answer; 0 if there was none."""
        return int(self.headers[":status"]) if self.headers else 0

    def send(self, text: str) -> None:
        """Send a text message."""
        self._connection.send(self.stream, Frame(Opcode.TEXT, text.encode()).serialize(mask=True))

    def close(self, code: int = 1000) -> None:
        """Send a close frame."""
        self._connection.send(self.stream, Frame(Opcode.CLOSE, code.to_bytes(2, "big")).serialize(mask=True))

    def receive(self) -> tuple[int, bytes]:
        """Wait for the next frame: opcode and payload."""
        while not self._frames:
            assert not self.over, "the stream has ended"
            self._connection.step()
        return self._frames.popleft()

    def take(self, data: bytes) -> None:
        """Take in what came on the stream; the frames of a server are not masked."""
        self.body += data
        while len(self.body) >= 2:
            size, at = self.body[1], 2
            if size > _LONGEST_SHORT:
                at = 4 if size == _IN_2_BYTES else 10
                size = int.from_bytes(self.body[2:at], "big")
            if self.status != 200 or len(self.body) < at + size:
                return
            self._frames.append((self.body[0] & 0x0F, self.body[at : at + size]))
            self.body = self.body[at + size :]


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode()
