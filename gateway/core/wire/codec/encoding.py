"""Packets to JSON text (protocol sections 4 and 5), and bodies to session packets (5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import orjson
from orjson import Fragment

from gateway.core.types import EventId, RequestNumber, Version
from gateway.core.wire.codec.durable_packets import encode_durable_request, write_durable_place
from gateway.core.wire.codec.exchange_packets import encode_exchange_request
from gateway.core.wire.codec.fields import WORD_SETS, Object, named_by_number
from gateway.core.wire.codec.queue_packets import encode_queue_request
from gateway.core.wire.codec.transaction_packets import encode_transaction_request
from gateway.core.wire.codec.value_packets import encode_values_part, write_read_values
from gateway.core.wire.codec.values import dumps
from gateway.core.wire.codec.will_packets import encode_set_wills
from gateway.core.wire.durable_packets import AdvanceDurable, OpenDurable, ReleaseDurable, RemoveDurable
from gateway.core.wire.exchange_packets import Answer, Ask, Await, Handle, Unhandle
from gateway.core.wire.packets import (
    NOW,
    Ack,
    Authenticate,
    Backoff,
    Bye,
    ClientRequest,
    Error,
    GoAway,
    Hello,
    Limits,
    LinkPacket,
    Notice,
    Ping,
    Pong,
    Publish,
    ReadHistory,
    Reply,
    Resume,
    SetProperties,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from gateway.core.wire.queue_packets import (
    Cancel,
    Consume,
    Declare,
    Send,
    Settle,
)
from gateway.core.wire.topology_packets import FOLLOW, Topology
from gateway.core.wire.transaction_packets import Begin, Commit, Rollback, Stage
from gateway.core.wire.value_packets import ReadValues
from gateway.core.wire.will_packets import SetWills

_LINK_NAMES: Final[Mapping[type[LinkPacket], str]] = {
    Hello: "hello",
    Resume: "resume",
    Welcome: "welcome",
    Ack: "ack",
    Ping: "ping",
    Pong: "pong",
    GoAway: "go-away",
    Topology: "topology",
    Error: "error",
    Bye: "bye",
}

_REMEMBERED: Final = 16
"""Written limits and advice that are remembered: a node has one set of limits, and changes its advice in a storm."""

_MAY_BE_NULL: Final = frozenset({"lost", "conflated"})
"""Fields in which null is a statement: the welcome says so that a number can not be known."""

_BY_NUMBER: Final = frozenset({"positions", "unfinished", "replayed"})
"""Fields of link packets that are objects whose names are numbers."""

_OBJECTS: Final = frozenset({"limits", "backoff"})
"""Fields that are objects of their own, and the same in many packets."""


class _LinkForm:
    """How link packets of one class are written.

    Args:
        kind: the class.
        name: of the packet's type.

    Attributes:
        name: as given.
        fields: the type and all fields, in order.
        values: reads them from a packet; what it reads for the type is put right afterwards.
        optional: fields that are left out if they are None.
        special: fields that are not written as they are.
    """

    def __init__(self, kind: type[LinkPacket], name: str) -> None:
        names = [each.name for each in fields(kind)]
        self.name = name
        self.fields = ("type", *names)
        # The class stands where the type goes; and so there are always several values, which make a tuple.
        self.values: Callable[[LinkPacket], tuple[object, ...]] = attrgetter("__class__", *names)
        self.optional = [
            each.name for each in fields(kind) if "None" in str(each.type) and each.name not in _MAY_BE_NULL
        ]
        self.special = [each for each in names if each in {"supports", "redirects", *_BY_NUMBER, *_OBJECTS}]


_LINK_FORMS: Final = {kind: _LinkForm(kind, name) for kind, name in _LINK_NAMES.items()}


_ABOUT_TOPICS: Final[Mapping[type[ClientRequest], str]] = {
    Subscribe: "subscribe",
    Unsubscribe: "unsubscribe",
    ReadHistory: "history",
}


def encode_link(packet: LinkPacket) -> bytes:
    """Encode a link packet as a whole JSON object; absent optional fields are left out.

    Raises:
        RequestRefused: a text that an application put in is not Unicode (BAD_REQUEST).
    """
    form = _LINK_FORMS[type(packet)]
    content: Object = dict(zip(form.fields, form.values(packet), strict=True))
    content["type"] = form.name
    for name in form.optional:
        if content[name] is None:
            del content[name]
    for name in form.special:
        if name in content:
            _write_specially(content, name, content[name])
    return dumps(content)


def _write_specially(content: Object, name: str, value: Any) -> None:
    if name in _OBJECTS:
        content[name] = _object(value)
        return
    if not value:
        del content[name]
    elif name in _BY_NUMBER and value is not True:
        content[name] = named_by_number(value)
    elif name == "supports":
        if FOLLOW in value:
            content[FOLLOW] = True
        if words := _sorted_words(value):
            content[name] = words
        else:
            del content[name]


@lru_cache(_REMEMBERED)
def _object(value: Limits | Backoff) -> Fragment:
    """Write an object that is a part of many packets; the encoder takes longer for it than for all the rest."""
    return Fragment(orjson.dumps(value))


@lru_cache(WORD_SETS)
def _sorted_words(supports: frozenset[str]) -> list[str]:
    """List what is supported, but for what has a field of its own; the same list for the same words."""
    return sorted(supports - {FOLLOW})


def encode_request(body: ClientRequest) -> bytes:
    """Encode the body of a client's session packet, ready for ``number``.

    Raises:
        RequestRefused: a text that an application put in is not Unicode (BAD_REQUEST).
        TypeError: *body* is ``Malformed``, which only ever comes in.
    """
    content: Object
    match body:
        case Subscribe() | Unsubscribe() | ReadHistory() | ReadValues():
            content = _about_topics(body)
        case SetWills():
            return encode_set_wills(body)
        case SetProperties() | Authenticate():
            content = _about_the_session(body)
        case Publish():
            return _publish(body)
        case Send() | Consume() | Cancel() | Settle() | Declare():
            return encode_queue_request(body)
        case OpenDurable() | AdvanceDurable() | ReleaseDurable() | RemoveDurable():
            return encode_durable_request(body)
        case Begin() | Stage() | Commit() | Rollback():
            return encode_transaction_request(body, encode_request)
        case Handle() | Unhandle() | Ask() | Await() | Answer():
            return encode_exchange_request(body)
        case _:
            raise TypeError("a malformed request is never sent")
    if body.resubmitted:
        content["resubmitted"] = True
    return _body(content)


def _about_the_session(body: SetProperties | Authenticate) -> Object:
    if isinstance(body, SetProperties):
        return {"type": "properties", "request": body.request, "set": dict(body.changes)}
    content: Object = {"type": "authenticate", "request": body.request, "secret": body.secret}
    if body.principal:
        content["principal"] = body.principal
    return content


def _publish(body: Publish) -> bytes:
    again = b',"resubmitted":true' if body.resubmitted else b""
    ends = b"" if body.ttl is None else b',"ttl":%b' % dumps(body.ttl)
    return b'"type":"publish","request":%d%b%b,"topic":%b,"value":%b}' % (
        body.request,
        again,
        ends,
        dumps(body.topic),
        body.value,
    )


def _about_topics(body: Subscribe | Unsubscribe | ReadHistory | ReadValues) -> Object:
    """Write a request about the topics of a selector."""
    if isinstance(body, ReadValues):
        return write_read_values(body)
    content: Object = {"type": _ABOUT_TOPICS[type(body)], "request": body.request, "selector": body.selector}
    if isinstance(body, Unsubscribe) and body.keep:
        content["keep"] = body.keep
    if isinstance(body, ReadHistory):
        if body.limit is not None:
            content["limit"] = body.limit
        if body.after:
            content["after"] = named_by_number(body.after)
        if not body.earliest:
            content["from"] = NOW
    return content


_UPDATE: Final = b'"type":"update",'

_SNAPSHOT: Final = b'"snapshot":true,'

_UPDATE_SNAPSHOT: Final = _UPDATE + _SNAPSHOT
"""How the bodies of snapshots begin, and no other: the flag comes first so that it can be told from the outside."""


def encode_update(topic: str, version: Version, event: EventId, value: bytes, *, snapshot: bool) -> bytes:
    """Encode the body of an update, ready for ``number``; done once per update, not once per session.

    Args:
        topic: its path.
        version: of the value.
        event: id of the publish.
        value: JSON text of the value; empty if the topic was removed.
        snapshot: whether the value is not the successor of the one sent before.
    """
    removed = b""
    if not value:
        removed = b',"removed":true'
        value = b"null"
    return b'%b"topic":%b,"version":%d,"event":"%b"%b,"value":%b}' % (
        _UPDATE_SNAPSHOT if snapshot else _UPDATE,
        orjson.dumps(topic),
        version,
        event.encode(),
        removed,
        value,
    )


def is_snapshot(update: bytes) -> bool:
    """Tell whether the body of an update, as ``encode_update`` made it, says that it is a snapshot."""
    return update.startswith(_UPDATE_SNAPSHOT)


def folding_mark(update: bytes, folded: int, *, snapshot: bool) -> bytes:
    """Encode what goes in front of the body of an update that took the place of others.

    Args:
        update: the body.
        folded: how many it took the place of.
        snapshot: whether one of them was a snapshot; then this one is no successor of what was sent before, either.
    """
    flag = _SNAPSHOT if snapshot and not is_snapshot(update) else b""
    return b'"folded":%d,%b' % (folded, flag)


def encode_reply(reply: Reply) -> bytes:
    """Encode the body of a reply, ready for ``number``."""
    if reply.history is not None:
        part = reply.history
        events = [
            encode_update(
                event.topic,
                event.version,
                event.event,
                b"" if event.removed else dumps(event.value),
                snapshot=event.snapshot,
            )
            for event in part.events
        ]
        missing = part.missing if part.gap else None
        return encode_history(reply.request, events, part.positions, complete=part.complete, missing=missing)
    if reply.values is not None:
        return encode_values_part(reply.request, reply.values)
    content: Object = {"type": "reply", "request": reply.request}
    if reply.error is not None:
        content["error"] = {"code": reply.error, "message": reply.message}
        if reply.retry_after is not None:
            content["error"]["retry_after"] = reply.retry_after
    if reply.version is not None:
        content["version"] = reply.version
    if reply.event is not None:
        content["event"] = reply.event
    if reply.sent is not None:
        content["sent"] = reply.sent
    if reply.queue is not None:
        content["queue"] = reply.queue
    if reply.durable is not None:
        content["durable"] = write_durable_place(reply.durable)
    return _body(content)


def encode_history(
    request: RequestNumber,
    events: Sequence[bytes],
    positions: Mapping[int, EventId],
    *,
    complete: bool,
    missing: Sequence[str] | None,
) -> bytes:
    """Encode the body of the reply to a reading of history, ready for ``number``.

    Args:
        request: its number.
        events: as ``encode_update`` makes them.
        positions: see ``HistoryPart``.
        complete: likewise.
        missing: likewise; None if there is no gap.
    """
    gap = b"" if missing is None else b',"gap":true,"missing":%b' % dumps(list(missing))
    return b'"type":"reply","request":%d,"history":{"events":[%b],"positions":%b,"complete":%b%b}}' % (
        request,
        b",".join([b"{" + each for each in events]),
        dumps(named_by_number(positions)),
        b"true" if complete else b"false",
        gap,
    )


def encode_notice(notice: Notice) -> bytes:
    """Encode the body of a notice, ready for ``number``."""
    content: Object = {"type": "notice", "code": notice.code, "message": notice.message}
    if notice.withdrawn is not None:
        content["withdrawn"] = notice.withdrawn
    if notice.selections is not None:
        content["selections"] = notice.selections
    if notice.partitions is not None:
        content["partitions"] = notice.partitions
    if notice.positions is not None:
        content["positions"] = named_by_number(notice.positions)
    if notice.request is not None:
        content["request"] = notice.request
    if notice.queues is not None:
        content["queues"] = notice.queues
    return _body(content)


def _body(content: Object) -> bytes:
    return dumps(content)[1:]


def head(packet_id: int, received: int | None = None) -> bytes:
    """Write what goes before a body and differs per session: the id, and the acknowledgement if there is news."""
    return b'{"id":%d,' % packet_id if received is None else b'{"id":%d,"received":%d,' % (packet_id, received)


def number(body: bytes, packet_id: int, received: int | None = None) -> bytes:
    """Make a whole session packet of a body."""
    return head(packet_id, received) + body


_NEXT: Final = b",{"
"""Between two bodies in an array, the second of which needs no number because it is one above the first's."""


def follow(bodies: Iterable[bytes]) -> bytes:
    """Let bodies, or texts made of them by this function, follow one another without numbers (protocol 5.1)."""
    return _NEXT.join(bodies)


def apart(text: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Take bodies that follow one another apart again; *sizes* are their lengths."""
    bodies: list[bytes] = []
    start = 0
    for size in sizes:
        bodies.append(text[start : start + size])
        start += size + len(_NEXT)
    return bodies
