"""Messages to packets (protocol section 2)."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from gateway.core.codec.fields import BadField, Object, read_count
from gateway.core.codec.readers import (
    BODIES_FROM_CLIENT,
    BODIES_FROM_SERVER,
    LINK_FROM_CLIENT,
    LINK_FROM_SERVER,
    BodyReaders,
    LinkReaders,
    request_number,
)
from gateway.core.codes import ErrorCode
from gateway.core.errors import RemoteProtocolError
from gateway.core.packets import Malformed, Packet, SessionBody, SessionPacket
from gateway.core.types import PacketId


def decode_from_client(message: str | bytes) -> list[Packet]:
    """Read one message that a client sent.

    Args:
        message: JSON text, one packet or an array of packets.

    Returns:
        The packets in order. A request of which only the number could be read is a ``Malformed`` body.

    Raises:
        RemoteProtocolError: the message is not JSON, not a packet, of an unknown type, or lacks a field that the
            connection depends on. No other exception escapes, whatever the bytes are.
    """
    return _decode(message, LINK_FROM_CLIENT, BODIES_FROM_CLIENT)


def decode_from_server(message: str | bytes) -> list[Packet]:
    """Read one message that a server sent; see ``decode_from_client``.

    Raises:
        RemoteProtocolError: as there.
    """
    return _decode(message, LINK_FROM_SERVER, BODIES_FROM_SERVER)


def _decode(message: str | bytes, links: LinkReaders, bodies: BodyReaders) -> list[Packet]:
    try:
        content = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        raise RemoteProtocolError(f"the message is not JSON: {error}") from None
    if not isinstance(content, list):
        return [_packet(content, links, bodies, None)]
    packets: list[Packet] = []
    following: PacketId | None = None
    for each in content:
        packet = _packet(each, links, bodies, following)
        if isinstance(packet, SessionPacket):
            following = PacketId(packet.id + 1)
        packets.append(packet)
    return packets


def _packet(content: object, links: LinkReaders, bodies: BodyReaders, following: PacketId | None) -> Packet:
    if not isinstance(content, dict):
        raise RemoteProtocolError("a packet must be a JSON object")
    kind = content.get("type")
    if not isinstance(kind, str):
        raise RemoteProtocolError("a packet must have a string 'type'")
    try:
        if read_body := bodies.get(kind):
            return _session_packet(content, kind, read_body, following)
        if read_link := links.get(kind):
            return read_link(content)
    except BadField as error:
        raise RemoteProtocolError(f"{kind} packet: {error}") from None
    raise RemoteProtocolError(f"unknown packet type {kind[:40]!r}", code=ErrorCode.UNKNOWN_PACKET_TYPE)


def _session_packet(
    content: Object, kind: str, read: Callable[[Object], SessionBody], following: PacketId | None
) -> SessionPacket:
    """Read a session packet; *following* is its number if it has none of its own (protocol 5.1)."""
    if following is not None and content.get("id") is None:
        content["id"] = following
    number = PacketId(read_count(content, "id", least=1))
    received = None if content.get("received") is None else PacketId(read_count(content, "received"))
    body: SessionBody
    try:
        body = read(content)
    except BadField as error:
        # Only what is wrong inside one request may be answered by a reply; without its number there is no reply.
        if "request" not in content or kind not in BODIES_FROM_CLIENT:
            raise
        body = Malformed(request_number(content), f"{kind} packet: {error}")
    return SessionPacket(number, received, body)
