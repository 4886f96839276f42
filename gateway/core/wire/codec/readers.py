"""Packets by their type: which fields each has, and what they become (protocol sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Final, TypeAlias

from gateway.core.types import Attempt, EventId, MessageId, NodeId, PacketId, SessionId, Version
from gateway.core.wire.codec.durable_packets import (
    read_durable_advance,
    read_durable_open,
    read_durable_place,
    read_durable_release,
    read_durable_remove,
)
from gateway.core.wire.codec.exchange_packets import (
    read_answer,
    read_answered,
    read_ask,
    read_await,
    read_handle,
    read_long_answer,
    read_long_ask,
    read_question,
    read_unhandle,
)
from gateway.core.wire.codec.fields import (
    WORD_SETS,
    BadField,
    Object,
    read_all_positions,
    read_cluster,
    read_count,
    read_error_code,
    read_failover_reason,
    read_flag,
    read_measure,
    read_numbering,
    read_object,
    read_objects,
    read_optional_count,
    read_optional_seconds,
    read_optional_text,
    read_outcome,
    read_positions,
    read_replayed,
    read_resubmitted,
    read_seconds,
    read_text,
    read_texts,
    read_ttl,
    read_unfinished,
    read_words,
    request_number,
)
from gateway.core.wire.codec.queue_packets import (
    read_cancel,
    read_consume,
    read_declare,
    read_long_send,
    read_message,
    read_send,
    read_settle,
)
from gateway.core.wire.codec.transaction_packets import (
    read_begin,
    read_commit,
    read_long_stage,
    read_rollback,
    read_stage,
)
from gateway.core.wire.codec.value_packets import read_read_values, read_values_part
from gateway.core.wire.codec.values import encode_long_value, encode_value
from gateway.core.wire.codec.will_packets import read_set_wills
from gateway.core.wire.packets import (
    EARLIEST,
    NOW,
    Ack,
    Authenticate,
    Backoff,
    Bye,
    Error,
    GoAway,
    Hello,
    HistoryPart,
    Limits,
    LinkPacket,
    Notice,
    Ping,
    Pong,
    Publish,
    ReadHistory,
    Reply,
    Resume,
    SessionBody,
    SetProperties,
    Subscribe,
    Unsubscribe,
    Update,
    Welcome,
)
from gateway.core.wire.topology_packets import FOLLOW, Topology

# --- Packets from the client --------------------------------------------------------------------------------------


def _read_supports(packet: Object) -> frozenset[str]:
    """Read what a client understands, and whether it follows the master, which it says by a field of its own."""
    return _supported(read_words(packet, "supports"), packet.get(FOLLOW) is True)


@lru_cache(WORD_SETS)
def _supported(words: frozenset[str], follows: bool) -> frozenset[str]:
    """Make the set of both; the same one for the same words, as of ``word_set``."""
    return words | {FOLLOW} if follows else words - {FOLLOW}


def _hello(packet: Object) -> Hello:
    return Hello(
        principal=read_optional_text(packet, "principal") or "",
        secret=read_optional_text(packet, "secret"),
        properties=read_texts(packet, "properties"),
        client=read_optional_text(packet, "client") or "unknown",
        window=read_optional_seconds(packet, "window"),
        supports=_read_supports(packet),
        redirects=read_measure(packet, "redirects") or 0,
    )


def _resume(packet: Object) -> Resume:
    return Resume(
        token=read_text(packet, "token"),
        attempt=Attempt(read_count(packet, "attempt", least=1)),
        received=PacketId(read_count(packet, "received")),
        oldest=PacketId(read_count(packet, "oldest", least=1)),
        principal=read_optional_text(packet, "principal"),
        secret=read_optional_text(packet, "secret"),
        away=read_measure(packet, "away"),
        supports=_read_supports(packet),
        redirects=read_measure(packet, "redirects") or 0,
        positions=read_positions(packet, "positions"),
        unfinished=read_unfinished(packet, "unfinished"),
    )


def _ack(packet: Object) -> Ack:
    return Ack(PacketId(read_count(packet, "received")))


def _ping(packet: Object) -> Ping:
    return Ping(read_optional_text(packet, "token"), _optional_backoff(packet))


def _pong(packet: Object) -> Pong:
    return Pong(PacketId(read_count(packet, "received")))


def _bye(packet: Object) -> Bye:
    return Bye(read_optional_text(packet, "reason") or "")


def _error(packet: Object) -> Error:
    request = packet.get("request")
    return Error(
        read_error_code(packet),
        read_text(packet, "message"),
        read_optional_seconds(packet, "retry_after"),
        None if request is None else request_number(packet),
        None if (node := read_optional_text(packet, "node")) is None else NodeId(node),
        _read_list(packet, "urls"),
    )


def _subscribe(packet: Object) -> Subscribe:
    return Subscribe(request_number(packet), read_text(packet, "selector"), read_resubmitted(packet))


def _unsubscribe(packet: Object) -> Unsubscribe:
    return Unsubscribe(
        request_number(packet),
        read_text(packet, "selector"),
        read_resubmitted(packet),
        _read_list(packet, "keep") or (),
    )


def read_publish(packet: Object) -> Publish:
    """Read a publish of a short message; see ``encode_value``."""
    if "value" not in packet:
        raise BadField("'value' is missing")
    value = encode_value(packet["value"])
    again = read_resubmitted(packet)
    return Publish(request_number(packet), read_text(packet, "topic"), value, again, read_ttl(packet))


def read_long_publish(packet: Object) -> Publish:
    """Read a publish of a message in which a value may have too many levels; see ``encode_long_value``."""
    if "value" not in packet:
        raise BadField("'value' is missing")
    value = encode_long_value(packet["value"])
    again = read_resubmitted(packet)
    return Publish(request_number(packet), read_text(packet, "topic"), value, again, read_ttl(packet))


def _read_history(packet: Object) -> ReadHistory:
    start = read_optional_text(packet, "from")
    if start not in {None, EARLIEST, NOW}:
        raise BadField(f'\'from\' must be "{EARLIEST}" or "{NOW}"')
    return ReadHistory(
        request_number(packet),
        read_text(packet, "selector"),
        read_all_positions(packet, "after"),
        start != NOW,
        read_optional_count(packet, "limit", None),
        read_resubmitted(packet),
    )


def _properties(packet: Object) -> SetProperties:
    changes = read_object(packet, "set")
    if not all(value is None or isinstance(value, str) for value in changes.values()):
        raise BadField("'set' must be an object of strings, or null to remove one")
    return SetProperties(request_number(packet), changes, read_resubmitted(packet))


def _authenticate(packet: Object) -> Authenticate:
    return Authenticate(
        request_number(packet),
        read_text(packet, "secret"),
        read_optional_text(packet, "principal") or "",
        read_resubmitted(packet),
    )


# --- Packets from the server --------------------------------------------------------------------------------------


def _backoff(packet: Object) -> Backoff:
    backoff = read_object(packet, "backoff")
    return Backoff(**{each.name: read_seconds(backoff, each.name) for each in fields(Backoff)})


def _optional_backoff(packet: Object) -> Backoff | None:
    return None if packet.get("backoff") is None else _backoff(packet)


def _welcome(packet: Object) -> Welcome:
    limits, backup = read_object(packet, "limits"), read_optional_text(packet, "backup")
    return Welcome(
        session=SessionId(read_text(packet, "session")),
        principal=read_text(packet, "principal"),
        node=NodeId(read_text(packet, "node")),
        token=read_text(packet, "token"),
        outcome=read_outcome(packet),
        numbering=read_numbering(packet),
        reason=read_failover_reason(packet),
        received=PacketId(read_count(packet, "received")),
        resent=read_count(packet, "resent"),
        lost=read_optional_count(packet, "lost", 0),
        conflated=read_optional_count(packet, "conflated", 0),
        window=read_seconds(packet, "window"),
        ping_interval=read_seconds(packet, "ping_interval"),
        ping_timeout=read_seconds(packet, "ping_timeout"),
        replicated=read_flag(packet, "replicated"),
        limits=Limits(
            **{each.name: read_count(limits, each.name, least=1) for each in fields(Limits) if each.default is MISSING},
            # Limits of later releases: servers of the first do not tell them.
            **{
                each.name: read_optional_count(limits, each.name, 0) or 0
                for each in fields(Limits)
                if each.default is not MISSING
            },
        ),
        backoff=_backoff(packet),
        properties=read_texts(packet, "properties"),
        selections=_read_list(packet, "selections") or (),
        withdrawn=_read_list(packet, "withdrawn"),
        supports=read_words(packet, "supports"),
        replayed=read_replayed(packet, "replayed"),
        backup=None if backup is None else NodeId(backup),
        mirror=read_optional_text(packet, "mirror"),
        cluster=read_cluster(packet, "cluster"),
        following=following if isinstance(following := packet.get("following"), bool) else None,
    )


def _go_away(packet: Object) -> GoAway:
    node = read_optional_text(packet, "node")
    return GoAway(
        read_text(packet, "reason"),
        read_seconds(packet, "delay"),
        None if node is None else NodeId(node),
        _optional_backoff(packet),
    )


def _topology(packet: Object) -> Topology:
    cluster = read_cluster(packet, "cluster")
    if cluster is None:
        raise BadField("'cluster' must be a list of nodes")
    return Topology(cluster)


def _update(packet: Object) -> Update:
    if "value" not in packet:
        raise BadField("'value' is missing")
    return Update(
        read_text(packet, "topic"),
        Version(read_count(packet, "version", least=1)),
        EventId(read_text(packet, "event")),
        packet["value"],
        read_flag(packet, "snapshot", default=False),
        read_flag(packet, "removed", default=False),
        read_count(packet, "folded", least=1) if packet.get("folded") is not None else 0,
    )


def _history(part: Object) -> HistoryPart:
    return HistoryPart(
        events=tuple([_update(event) for event in read_objects(part, "events")]),
        positions=read_positions(part, "positions"),
        complete=read_flag(part, "complete"),
        gap=read_flag(part, "gap", default=False),
        missing=_read_list(part, "missing") or (),
    )


def _reply(packet: Object) -> Reply:
    error = packet.get("error")
    if error is None:
        version = read_optional_count(packet, "version", None)
        event = read_optional_text(packet, "event")
        sent = read_optional_count(packet, "sent", None)
        return Reply(
            request=request_number(packet),
            version=None if version is None else Version(version),
            event=None if event is None else EventId(event),
            history=None if packet.get("history") is None else _history(read_object(packet, "history")),
            values=None if packet.get("values") is None else read_values_part(read_object(packet, "values")),
            sent=None if sent is None else MessageId(sent),
            queue=read_optional_text(packet, "queue"),
            durable=None if packet.get("durable") is None else read_durable_place(read_object(packet, "durable")),
        )
    if not isinstance(error, dict):
        raise BadField("'error' must be an object")
    return Reply(
        request=request_number(packet),
        error=read_error_code(error),
        message=read_text(error, "message"),
        retry_after=read_optional_seconds(error, "retry_after"),
    )


def _notice(packet: Object) -> Notice:
    return Notice(
        read_text(packet, "code"),
        read_text(packet, "message"),
        _read_list(packet, "withdrawn"),
        _read_list(packet, "selections"),
        _read_numbers(packet, "partitions"),
        read_positions(packet, "positions") if packet.get("positions") is not None else None,
        request_number(packet) if packet.get("request") is not None else None,
        _read_list(packet, "queues"),
    )


def _read_numbers(packet: Object, name: str) -> tuple[int, ...] | None:
    entries = packet.get(name)
    if entries is None:
        return None
    if not isinstance(entries, list) or not all(type(entry) is int for entry in entries):
        raise BadField(f"'{name}' must be an array of integers")
    return tuple(entries)


def _read_list(packet: Object, name: str) -> tuple[str, ...] | None:
    entries = packet.get(name)
    if entries is None:
        return None
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise BadField(f"'{name}' must be an array of strings")
    return tuple(entries)


LinkReaders: TypeAlias = Mapping[str, Callable[[Object], LinkPacket]]
"""What reads a link packet, by its type."""
BodyReaders: TypeAlias = Mapping[str, Callable[[Object], SessionBody]]
"""What reads the body of a session packet, by its type."""

LINK_FROM_CLIENT: Final[LinkReaders] = {
    "hello": _hello,
    "resume": _resume,
    "ack": _ack,
    "ping": _ping,
    "pong": _pong,
    "error": _error,
    "bye": _bye,
}
LINK_FROM_SERVER: Final[LinkReaders] = {
    "welcome": _welcome,
    "ack": _ack,
    "ping": _ping,
    "pong": _pong,
    "go-away": _go_away,
    "topology": _topology,
    "error": _error,
    "bye": _bye,
}
BODIES_FROM_CLIENT: Final[BodyReaders] = {
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "publish": read_publish,
    "history": _read_history,
    "values": read_read_values,
    "properties": _properties,
    "authenticate": _authenticate,
    "send": read_send,
    "consume": read_consume,
    "cancel": read_cancel,
    "settle": read_settle,
    "declare": read_declare,
    "durable-open": read_durable_open,
    "durable-advance": read_durable_advance,
    "durable-release": read_durable_release,
    "durable-remove": read_durable_remove,
    "begin": read_begin,
    "stage": read_stage,
    "commit": read_commit,
    "rollback": read_rollback,
    "handle": read_handle,
    "unhandle": read_unhandle,
    "ask": read_ask,
    "await": read_await,
    "answer": read_answer,
    "wills": read_set_wills,
}
LONG_BODIES_FROM_CLIENT: Final[BodyReaders] = {
    **BODIES_FROM_CLIENT,
    "publish": read_long_publish,
    "send": read_long_send,
    "stage": read_long_stage,
    "ask": read_long_ask,
    "answer": read_long_answer,
}
"""The same, for messages in which there is room for values with too many levels."""
BODIES_FROM_SERVER: Final[BodyReaders] = {
    "update": _update,
    "message": read_message,
    "question": read_question,
    "answered": read_answered,
    "reply": _reply,
    "notice": _notice,
}
"""Who may send what (protocol 3): a packet that stands in none of a side's two tables is unknown from that side."""
