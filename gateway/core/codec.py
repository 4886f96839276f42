"""JSON text to packets and back (protocol sections 2 to 5).

A message is one packet or an array of packets. Bodies of session packets are encoded without their leading brace and
number: a body is made once, however many sessions it goes to, and ``number`` puts the few bytes in front that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from math import isfinite
from typing import Any, Final

import orjson

from gateway.core.codes import ErrorCode, FailoverReason, Outcome
from gateway.core.errors import RemoteProtocolError, RequestRefused
from gateway.core.packets import (
    Ack,
    Backoff,
    Bye,
    ClientRequest,
    Error,
    GoAway,
    Hello,
    Limits,
    LinkPacket,
    Malformed,
    Notice,
    Packet,
    Ping,
    Pong,
    Publish,
    Reply,
    Resume,
    SessionBody,
    SessionPacket,
    SetProperties,
    Subscribe,
    Unsubscribe,
    Update,
    Welcome,
)
from gateway.core.types import (
    Attempt,
    EventId,
    NodeId,
    PacketId,
    RequestNumber,
    SessionId,
    Version,
)

SUBPROTOCOL: Final = "gateway.v1.json"
"""The WebSocket subprotocol; its version changes when an old client would misunderstand (protocol 1.1)."""

MAX_NUMBER: Final = 2**53 - 1
"""Largest number on the wire: what a JavaScript client can count to exactly (RFC 7493 section 2.2)."""

_Object = dict[str, Any]


# --- Reading fields -----------------------------------------------------------------------------------------------


class _BadField(Exception):
    """A field is missing or of the wrong type; whoever asked knows what that means for the packet."""


def _text(packet: _Object, name: str) -> str:
    value = packet.get(name)
    if not isinstance(value, str):
        raise _BadField(f"{name!r} must be a string")
    return value


def _optional_text(packet: _Object, name: str) -> str | None:
    return None if packet.get(name) is None else _text(packet, name)


def _count(packet: _Object, name: str, *, least: int = 0) -> int:
    value = packet.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_NUMBER:
        raise _BadField(f"{name!r} must be an integer from {least} to {MAX_NUMBER}")
    return value


def _optional_count(packet: _Object, name: str, default: int | None) -> int | None:
    return default if name not in packet else None if packet[name] is None else _count(packet, name)


def _seconds(packet: _Object, name: str) -> float:
    value = packet.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MAX_NUMBER:
        raise _BadField(f"{name!r} must be a number of seconds, not negative")
    return float(value)


def _optional_seconds(packet: _Object, name: str) -> float | None:
    return None if packet.get(name) is None else _seconds(packet, name)


def _flag(packet: _Object, name: str, default: bool | None = None) -> bool:
    value = default if packet.get(name) is None else packet[name]
    if not isinstance(value, bool):
        raise _BadField(f"{name!r} must be true or false")
    return value


def _object(packet: _Object, name: str) -> _Object:
    value = packet.get(name)
    if not isinstance(value, dict):
        raise _BadField(f"{name!r} must be an object")
    return value


def _texts(packet: _Object, name: str) -> dict[str, str]:
    value = {} if packet.get(name) is None else packet[name]
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _BadField(f"{name!r} must be an object of strings")
    return value


def _outcome(packet: _Object) -> Outcome:
    try:
        return Outcome(_text(packet, "outcome"))
    except ValueError:
        raise _BadField("'outcome' has an unknown value") from None


def _failover_reason(packet: _Object) -> FailoverReason | None:
    """Read why a session failed over; a reason that a later release has added is left out (protocol 4.3)."""
    reason = _optional_text(packet, "reason")
    try:
        return None if reason is None else FailoverReason(reason)
    except ValueError:
        return None


def _error_code(packet: _Object) -> ErrorCode:
    """Read an error code; one that a later release has added counts as INTERNAL (protocol 7)."""
    try:
        return ErrorCode(_text(packet, "code"))
    except ValueError:
        return ErrorCode.INTERNAL


# --- Packets from the client --------------------------------------------------------------------------------------


def _hello(packet: _Object) -> Hello:
    return Hello(
        principal=_text(packet, "principal"),
        secret=_optional_text(packet, "secret"),
        properties=_texts(packet, "properties"),
        client=_optional_text(packet, "client") or "unknown",
        window=_optional_seconds(packet, "window"),
    )


def _resume(packet: _Object) -> Resume:
    return Resume(
        token=_text(packet, "token"),
        attempt=Attempt(_count(packet, "attempt", least=1)),
        received=PacketId(_count(packet, "received")),
        oldest=PacketId(_count(packet, "oldest", least=1)),
    )


def _ack(packet: _Object) -> Ack:
    return Ack(PacketId(_count(packet, "received")))


def _ping(packet: _Object) -> Ping:
    return Ping(_optional_text(packet, "token"))


def _pong(packet: _Object) -> Pong:
    return Pong(PacketId(_count(packet, "received")))


def _bye(packet: _Object) -> Bye:
    return Bye(_optional_text(packet, "reason") or "")


def _error(packet: _Object) -> Error:
    return Error(_error_code(packet), _text(packet, "message"), _optional_seconds(packet, "retry_after"))


def _request_number(packet: _Object) -> RequestNumber:
    return RequestNumber(_count(packet, "request", least=1))


def _resubmitted(packet: _Object) -> bool:
    return _flag(packet, "resubmitted", default=False)


def _subscribe(packet: _Object) -> Subscribe:
    return Subscribe(_request_number(packet), _text(packet, "selector"), _resubmitted(packet))


def _unsubscribe(packet: _Object) -> Unsubscribe:
    return Unsubscribe(_request_number(packet), _text(packet, "selector"), _resubmitted(packet))


def _publish(packet: _Object) -> Publish:
    if "value" not in packet:
        raise _BadField("'value' is missing")
    value = encode_value(packet["value"])
    return Publish(_request_number(packet), _text(packet, "topic"), value, _resubmitted(packet))


def _properties(packet: _Object) -> SetProperties:
    changes = _object(packet, "set")
    if not all(value is None or isinstance(value, str) for value in changes.values()):
        raise _BadField("'set' must be an object of strings, or null to remove one")
    return SetProperties(_request_number(packet), changes, _resubmitted(packet))


# --- Packets from the server --------------------------------------------------------------------------------------


def _welcome(packet: _Object) -> Welcome:
    limits, backoff = _object(packet, "limits"), _object(packet, "backoff")
    selections = [] if packet.get("selections") is None else packet["selections"]
    if not isinstance(selections, list) or not all(isinstance(entry, str) for entry in selections):
        raise _BadField("'selections' must be an array of strings")
    return Welcome(
        session=SessionId(_text(packet, "session")),
        principal=_text(packet, "principal"),
        node=NodeId(_text(packet, "node")),
        token=_text(packet, "token"),
        outcome=_outcome(packet),
        reason=_failover_reason(packet),
        received=PacketId(_count(packet, "received")),
        resent=_count(packet, "resent"),
        lost=_optional_count(packet, "lost", 0),
        conflated=_optional_count(packet, "conflated", 0),
        window=_seconds(packet, "window"),
        ping_interval=_seconds(packet, "ping_interval"),
        ping_timeout=_seconds(packet, "ping_timeout"),
        replicated=_flag(packet, "replicated"),
        limits=Limits(**{each.name: _count(limits, each.name, least=1) for each in fields(Limits)}),
        backoff=Backoff(**{each.name: _seconds(backoff, each.name) for each in fields(Backoff)}),
        properties=_texts(packet, "properties"),
        selections=tuple(selections),
    )


def _go_away(packet: _Object) -> GoAway:
    return GoAway(_text(packet, "reason"), _seconds(packet, "delay"))


def _update(packet: _Object) -> Update:
    if "value" not in packet:
        raise _BadField("'value' is missing")
    return Update(
        _text(packet, "topic"),
        Version(_count(packet, "version", least=1)),
        EventId(_text(packet, "event")),
        packet["value"],
        _flag(packet, "snapshot", default=False),
    )


def _reply(packet: _Object) -> Reply:
    error = packet.get("error")
    if error is None:
        version = _optional_count(packet, "version", None)
        event = _optional_text(packet, "event")
        return Reply(
            request=_request_number(packet),
            version=None if version is None else Version(version),
            event=None if event is None else EventId(event),
        )
    if not isinstance(error, dict):
        raise _BadField("'error' must be an object")
    return Reply(
        request=_request_number(packet),
        error=_error_code(error),
        message=_text(error, "message"),
        retry_after=_optional_seconds(error, "retry_after"),
    )


def _notice(packet: _Object) -> Notice:
    return Notice(_text(packet, "code"), _text(packet, "message"))


_LinkReaders = Mapping[str, Callable[[_Object], LinkPacket]]
_BodyReaders = Mapping[str, Callable[[_Object], SessionBody]]

_LINK_FROM_CLIENT: Final[_LinkReaders] = {
    "hello": _hello,
    "resume": _resume,
    "ack": _ack,
    "ping": _ping,
    "pong": _pong,
    "error": _error,
    "bye": _bye,
}
_LINK_FROM_SERVER: Final[_LinkReaders] = {
    "welcome": _welcome,
    "ack": _ack,
    "ping": _ping,
    "pong": _pong,
    "go-away": _go_away,
    "error": _error,
    "bye": _bye,
}
_BODIES_FROM_CLIENT: Final[_BodyReaders] = {
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "publish": _publish,
    "properties": _properties,
}
_BODIES_FROM_SERVER: Final[_BodyReaders] = {"update": _update, "reply": _reply, "notice": _notice}


# --- Decoding -----------------------------------------------------------------------------------------------------


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
    return _decode(message, _LINK_FROM_CLIENT, _BODIES_FROM_CLIENT)


def decode_from_server(message: str | bytes) -> list[Packet]:
    """Read one message that a server sent; see ``decode_from_client``.

    Raises:
        RemoteProtocolError: as there.
    """
    return _decode(message, _LINK_FROM_SERVER, _BODIES_FROM_SERVER)


def _decode(message: str | bytes, links: _LinkReaders, bodies: _BodyReaders) -> list[Packet]:
    try:
        content = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        raise RemoteProtocolError(f"the message is not JSON: {error}") from None
    if isinstance(content, list):
        return [_packet(each, links, bodies) for each in content]
    return [_packet(content, links, bodies)]


def _packet(content: object, links: _LinkReaders, bodies: _BodyReaders) -> Packet:
    if not isinstance(content, dict):
        raise RemoteProtocolError("a packet must be a JSON object")
    kind = content.get("type")
    if not isinstance(kind, str):
        raise RemoteProtocolError("a packet must have a string 'type'")
    try:
        if read_body := bodies.get(kind):
            return _session_packet(content, kind, read_body)
        if read_link := links.get(kind):
            return read_link(content)
    except _BadField as error:
        raise RemoteProtocolError(f"{kind} packet: {error}") from None
    raise RemoteProtocolError(f"unknown packet type {kind[:40]!r}", code=ErrorCode.UNKNOWN_PACKET_TYPE)


def _session_packet(content: _Object, kind: str, read: Callable[[_Object], SessionBody]) -> SessionPacket:
    number = PacketId(_count(content, "id", least=1))
    received = None if content.get("received") is None else PacketId(_count(content, "received"))
    body: SessionBody
    try:
        body = read(content)
    except _BadField as error:
        # Only what is wrong inside one request may be answered by a reply; without its number there is no reply.
        if "request" not in content or kind not in _BODIES_FROM_CLIENT:
            raise
        body = Malformed(_request_number(content), f"{kind} packet: {error}")
    return SessionPacket(number, received, body)


# --- Encoding -----------------------------------------------------------------------------------------------------


def encode_value(value: object) -> bytes:
    """Encode a topic's value as compact JSON text.

    Raises:
        _BadField: it is nested too deeply or not JSON; readers of packets turn this into their own error.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise _BadField(f"'value' cannot be encoded: {error}") from None


def json_text(value: object) -> bytes:
    """Encode a value that an application hands in.

    Raises:
        RequestRefused: it is not JSON (BAD_REQUEST). NaN and infinities are not, and are refused rather than turned
            into null behind the application's back.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except orjson.JSONEncodeError as error:
        raise RequestRefused(f"the value cannot be encoded as JSON: {error}") from None
    # The encoder writes what JSON has no number for as null; only a value with a null in it has to be looked through.
    if b"null" in text and _holds_no_number(value):
        raise RequestRefused("the value cannot be encoded as JSON: it holds a NaN or an infinity")
    return text


def _holds_no_number(value: object) -> bool:
    """Tell whether a float that JSON cannot write is somewhere in *value*, which is known to be of finite depth."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, float) and not isfinite(each):
            return True
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list | tuple):
            waiting.extend(each)
    return False


def _dumps(content: object) -> bytes:
    try:
        return orjson.dumps(content, default=_plain)
    except orjson.JSONEncodeError as error:
        raise RequestRefused(f"the packet cannot be encoded as JSON: {error}") from None


def _plain(value: object) -> object:
    """Turn into a dictionary what only behaves like one; the encoder knows no other mappings."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError


_LINK_NAMES: Final[Mapping[type[LinkPacket], str]] = {
    Hello: "hello",
    Resume: "resume",
    Welcome: "welcome",
    Ack: "ack",
    Ping: "ping",
    Pong: "pong",
    GoAway: "go-away",
    Error: "error",
    Bye: "bye",
}


def encode_link(packet: LinkPacket) -> bytes:
    """Encode a link packet as a whole JSON object; absent optional fields are left out.

    Raises:
        RequestRefused: a text that an application put in is not Unicode (BAD_REQUEST).
    """
    content: _Object = {"type": _LINK_NAMES[type(packet)]}
    for each in fields(packet):
        value = getattr(packet, each.name)
        # null is a statement only where the welcome says that a number can not be known.
        if value is not None or each.name in {"lost", "conflated"}:
            content[each.name] = value
    return _dumps(content)


def encode_request(body: ClientRequest) -> bytes:
    """Encode the body of a client's session packet, ready for ``number``.

    Raises:
        RequestRefused: a text that an application put in is not Unicode (BAD_REQUEST).
        TypeError: *body* is ``Malformed``, which only ever comes in.
    """
    content: _Object
    match body:
        case Subscribe():
            content = {"type": "subscribe", "request": body.request, "selector": body.selector}
        case Unsubscribe():
            content = {"type": "unsubscribe", "request": body.request, "selector": body.selector}
        case SetProperties():
            content = {"type": "properties", "request": body.request, "set": dict(body.changes)}
        case Publish(request, topic, value, resubmitted):
            again = b',"resubmitted":true' if resubmitted else b""
            return b'"type":"publish","request":%d%b,"topic":%b,"value":%b}' % (
                request,
                again,
                _dumps(topic),
                value,
            )
        case _:
            raise TypeError("a malformed request is never sent")
    if body.resubmitted:
        content["resubmitted"] = True
    return _body(content)


def encode_update(topic: str, version: Version, event: EventId, value: bytes, *, snapshot: bool) -> bytes:
    """Encode the body of an update, ready for ``number``; done once per update, not once per session.

    Args:
        topic: its path.
        version: of the value.
        event: id of the publish.
        value: JSON text of the value.
        snapshot: whether the value is not the successor of the one sent before.
    """
    flag = b',"snapshot":true' if snapshot else b""
    return b'"type":"update","topic":%b,"version":%d,"event":"%b"%b,"value":%b}' % (
        orjson.dumps(topic),
        version,
        event.encode(),
        flag,
        value,
    )


def encode_reply(reply: Reply) -> bytes:
    """Encode the body of a reply, ready for ``number``."""
    content: _Object = {"type": "reply", "request": reply.request}
    if reply.error is not None:
        content["error"] = {"code": reply.error, "message": reply.message}
        if reply.retry_after is not None:
            content["error"]["retry_after"] = reply.retry_after
    if reply.version is not None:
        content["version"] = reply.version
    if reply.event is not None:
        content["event"] = reply.event
    return _body(content)


def encode_notice(notice: Notice) -> bytes:
    """Encode the body of a notice, ready for ``number``."""
    return _body({"type": "notice", "code": notice.code, "message": notice.message})


def _body(content: _Object) -> bytes:
    return _dumps(content)[1:]


def number(body: bytes, packet_id: int, received: int | None = None) -> bytes:
    """Put the id, and the acknowledgement if there is news, before a body: the only bytes that differ per session."""
    if received is None:
        return b'{"id":%d,%b' % (packet_id, body)
    return b'{"id":%d,"received":%d,%b' % (packet_id, received, body)


def join(packets: Iterable[bytes]) -> bytes:
    """Make one message of several encoded packets: an array, or the packet itself if there is just one."""
    several = list(packets)
    return several[0] if len(several) == 1 else b"[%b]" % b",".join(several)
