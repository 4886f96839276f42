"""Messages to packets (protocol section 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from gateway.core.types import PacketId, RequestNumber
from gateway.core.wire.codec.blame import unreadable_request
from gateway.core.wire.codec.fields import BadField, Object, read_count, request_number
from gateway.core.wire.codec.readers import (
    BODIES_FROM_CLIENT,
    BODIES_FROM_SERVER,
    LINK_FROM_CLIENT,
    LINK_FROM_SERVER,
    LONG_BODIES_FROM_CLIENT,
    BodyReaders,
    LinkReaders,
)
from gateway.core.wire.codec.salvage import Salvaged, salvage
from gateway.core.wire.codec.values import LONG
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Malformed, Packet, SessionBody, SessionPacket

NO_MEMORY: Final = "Not enough memory"
"""How the parser begins to say that it could not allocate; it raises the same error as for what is no JSON."""


def decode_from_client(message: str | bytes) -> list[Packet]:
    """Read one message that a client sent.

    Args:
        message: JSON text, one packet or an array of packets.

    Returns:
        The packets in order. A request that can only be refused is a ``Malformed`` body; what cannot be passed on in
        one packet does no harm to the others (protocol 2.6).

    Raises:
        RemoteProtocolError: the message is not JSON, not a packet, of an unknown type, or lacks a field that the
            connection depends on. No other exception escapes, whatever the bytes are, unless memory runs out.
        MemoryError: there is none to read the message.
    """
    try:
        content = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        _check_memory(error)
        return Salvaged(_packets(_salvage(message, error), LINK_FROM_CLIENT, LONG_BODIES_FROM_CLIENT), message)
    return _packets(content, LINK_FROM_CLIENT, BODIES_FROM_CLIENT if len(message) <= LONG else LONG_BODIES_FROM_CLIENT)


def decode_from_server(message: str | bytes) -> list[Packet]:
    """Read one message that a server sent; see ``decode_from_client``.

    Raises:
        RemoteProtocolError: as there.
    """
    try:
        content = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        _check_memory(error)
        raise _not_json(error) from None
    return _packets(content, LINK_FROM_SERVER, BODIES_FROM_SERVER)


def _check_memory(error: orjson.JSONDecodeError) -> None:
    """Tell a message that is no JSON from one for which there was no room, which is nobody's fault.

    Raises:
        MemoryError: there was none.
    """
    if error.msg.startswith(NO_MEMORY):
        raise MemoryError(error.msg) from None


def _salvage(message: str | bytes, error: orjson.JSONDecodeError) -> object:
    """Read what the usual parser does not; see ``salvage``."""
    try:
        return salvage(message)
    except ValueError:
        raise _not_json(error, request=unreadable_request(message)) from None


def _not_json(error: orjson.JSONDecodeError, *, request: RequestNumber | None = None) -> RemoteProtocolError:
    return RemoteProtocolError(f"the message is not JSON: {error}", request=request)


def _packets(content: object, links: LinkReaders, bodies: BodyReaders) -> list[Packet]:
    if not isinstance(content, list):
        return [_packet(content, links, bodies, None)]
    packets: list[Packet] = []
    following: PacketId | None = None
    for each in content:
        try:
            packet = _packet(each, links, bodies, following)
        except RemoteProtocolError as violation:
            violation.before = packets
            raise
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
        code = error.code or ErrorCode.PROTOCOL_ERROR
        blamed = _to_blame(content) if kind in BODIES_FROM_CLIENT else None
        raise RemoteProtocolError(f"{kind} packet: {error}", code=code, request=blamed) from None
    # It may be a request of a later release, which its client can do without (protocol 2.4).
    message = f"unknown packet type {kind[:40]!r}"
    raise RemoteProtocolError(message, code=ErrorCode.UNKNOWN_PACKET_TYPE, request=_to_blame(content))


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
        body = Malformed(request_number(content), f"{kind} packet: {error}", error.code or ErrorCode.BAD_REQUEST)
    return SessionPacket(number, received, body)


def _to_blame(content: Object) -> RequestNumber | None:
    """Tell the number of a request that breaks the protocol, if it can be read."""
    try:
        return request_number(content)
    except BadField:
        return None
