"""The request that opens a WebSocket to a node, for clients that are nothing but sockets."""

from __future__ import annotations

from typing import Final

UPGRADE_REQUEST: Final = (
    b"GET /v1/connect HTTP/1.1\r\n"
    b"Host: gateway.example\r\n"
    b"Upgrade: websocket\r\n"
    b"Connection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: gateway.v1.json\r\n\r\n"
)
"""With the key that RFC 6455 has as its example."""
