"""The codec raises nothing undocumented, whatever comes in, and reads what it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.wire.codec import (
    MAX_NUMBER,
    decode_from_client,
    decode_from_server,
    encode_link,
    encode_notice,
    encode_reply,
    encode_request,
    encode_update,
    folding_mark,
    is_snapshot,
    json_text,
    number,
)
from gateway.core.wire.codec.fields import MAX_MEASURE
from gateway.core.wire.codes import ErrorCode, FailoverReason, MirrorMode, Numbering, Outcome
from gateway.core.wire.errors import RemoteProtocolError, RequestRefused
from gateway.core.wire.packets import (
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
    Packet,
    Ping,
    Pong,
    Publish,
    Reply,
    Resume,
    SessionPacket,
    SetProperties,
    Subscribe,
    Unsubscribe,
    Update,
    Welcome,
)
from gateway.core.wire.topology_packets import Cluster, ListedNode, Topology
from gateway.core.wire.value_packets import ReadValues, ValueItem, ValuesPart

Decoder: TypeAlias = Callable[[str | bytes], list[Packet]]

BOTH_DIRECTIONS = (decode_from_client, decode_from_server)

text = st.text(max_size=20)
counts = st.integers(0, MAX_NUMBER)
ids = st.integers(1, MAX_NUMBER)
seconds = st.floats(0, 1e6)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | text
json_values = st.recursive(
    scalars.filter(lambda value: not isinstance(value, float) or abs(value) != float("inf")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=10,
)
words = st.frozensets(st.text(max_size=16), max_size=3)
texts = st.dictionaries(text, text, max_size=3)

both_links: st.SearchStrategy[LinkPacket] = st.one_of(
    st.builds(Ack, counts),
    st.builds(Ping, st.none() | text),
    st.builds(Pong, counts),
    st.builds(Error, st.sampled_from(ErrorCode), text, st.none() | seconds, st.none() | ids),
    st.builds(Bye, text),
)
client_links: st.SearchStrategy[LinkPacket] = both_links | st.one_of(
    st.builds(
        Hello,
        principal=text,
        secret=st.none() | text,
        properties=texts,
        client=text.filter(bool),
        window=st.none() | seconds,
        supports=words,
    ),
    st.builds(
        Resume,
        token=text,
        attempt=ids,
        received=counts,
        oldest=ids,
        principal=st.none() | text,
        secret=st.none() | text,
        away=st.none() | st.integers(0, MAX_MEASURE),
        supports=words,
    ),
)
clusters = st.builds(
    Cluster, text, st.lists(st.builds(ListedNode, text, st.lists(text, max_size=3).map(tuple)), max_size=3).map(tuple)
)
server_links: st.SearchStrategy[LinkPacket] = both_links | st.one_of(
    st.builds(GoAway, text, seconds),
    st.builds(Topology, clusters),
    st.builds(
        Welcome,
        session=text,
        principal=text,
        node=text,
        token=text,
        outcome=st.sampled_from(Outcome) | text,
        numbering=st.sampled_from(Numbering),
        cluster=st.none() | clusters,
        reason=st.none() | st.sampled_from(FailoverReason),
        received=counts,
        resent=counts,
        lost=st.none() | counts,
        conflated=st.none() | counts,
        window=seconds,
        ping_interval=seconds,
        ping_timeout=seconds,
        replicated=st.booleans(),
        limits=st.builds(
            Limits,
            message_bytes=ids,
            value_bytes=ids,
            requests=ids,
            selections=ids,
            resend_packets=ids,
            resend_bytes=ids,
        ),
        backoff=st.builds(Backoff, initial=seconds, maximum=seconds, stable_after=seconds),
        properties=texts,
        selections=st.lists(text, max_size=3).map(tuple),
        backup=st.none() | text,
        mirror=st.none() | st.sampled_from(MirrorMode) | text,
    ),
)
requests: st.SearchStrategy[ClientRequest] = st.one_of(
    st.builds(Subscribe, ids, text, st.booleans()),
    st.builds(Unsubscribe, ids, text, st.booleans(), st.lists(text, max_size=3).map(tuple)),
    st.builds(Publish, ids, text, json_values.map(json_text), st.booleans()),
    st.builds(Authenticate, ids, text, text, st.booleans()),
    st.builds(SetProperties, ids, st.dictionaries(text, st.none() | text, max_size=3), st.booleans()),
    st.builds(ReadValues, ids, text, st.none() | text, st.none() | ids, st.booleans()),
)
events = st.lists(counts.map(str), min_size=1, max_size=3).map("-".join)
"""Made by the grid: digits and dashes."""
pages = st.builds(
    ValuesPart, st.lists(st.builds(ValueItem, text, ids, events, json_values), max_size=3).map(tuple), st.none() | text
)
replies = st.one_of(
    st.builds(Reply, request=ids, values=pages),
    st.builds(Reply, request=ids, version=st.none() | counts, event=st.none() | text),
    st.builds(Reply, request=ids, error=st.sampled_from(ErrorCode), message=text, retry_after=st.none() | seconds),
)
acknowledged = st.none() | counts


@given(client_links)
def test_link_packets_of_the_client_are_read_as_written(packet: LinkPacket) -> None:
    assert decode_from_client(encode_link(packet)) == [packet]


@given(server_links)
def test_link_packets_of_the_server_are_read_as_written(packet: LinkPacket) -> None:
    assert decode_from_server(encode_link(packet)) == [packet]


@given(requests, ids, acknowledged)
def test_requests_are_read_as_written(body: ClientRequest, packet_id: int, received: int | None) -> None:
    message = number(encode_request(body), packet_id, received)
    assert decode_from_client(message) == [SessionPacket(packet_id, received, body)]  # type: ignore[arg-type]


published = st.builds(
    Update,
    topic=text,
    version=ids,
    event=events,
    value=json_values,
    snapshot=st.booleans(),
)
removals = published.map(lambda update: replace(update, value=None, removed=True))


@given(published | removals, ids, acknowledged)
def test_updates_are_read_as_written(update: Update, packet_id: Any, received: Any) -> None:
    value = b"" if update.removed else json_text(update.value)
    body = encode_update(update.topic, update.version, update.event, value, snapshot=update.snapshot)
    assert decode_from_server(number(body, packet_id, received)) == [SessionPacket(packet_id, received, update)]
    assert is_snapshot(body) is update.snapshot


@given(published | removals, ids, ids, st.booleans())
def test_a_mark_goes_in_front_and_changes_nothing_else(
    update: Update, packet_id: Any, folded: int, of_snapshot: bool
) -> None:
    value = b"" if update.removed else json_text(update.value)
    body = encode_update(update.topic, update.version, update.event, value, snapshot=update.snapshot)
    marked = number(folding_mark(body, folded, snapshot=of_snapshot) + body, packet_id)
    expected = replace(update, folded=folded, snapshot=update.snapshot or of_snapshot)
    assert decode_from_server(marked) == [SessionPacket(packet_id, None, expected)]
    assert [name for name, _ in json.loads(marked, object_pairs_hook=list)].count("snapshot") == expected.snapshot


@given(replies, ids, acknowledged)
def test_replies_are_read_as_written(reply: Reply, packet_id: Any, received: Any) -> None:
    assert decode_from_server(number(encode_reply(reply), packet_id, received)) == [
        SessionPacket(packet_id, received, reply)
    ]


@given(text, text, st.none() | st.lists(text, max_size=3).map(tuple), ids, acknowledged)
def test_notices_are_read_as_written(
    code: str, message: str, queues: tuple[str, ...] | None, packet_id: Any, received: Any
) -> None:
    notice = Notice(code, message, queues=queues)
    assert decode_from_server(number(encode_notice(notice), packet_id, received)) == [
        SessionPacket(packet_id, received, notice)
    ]


@given(st.lists(client_links, max_size=5))
def test_joined_packets_are_read_in_order(packets: list[LinkPacket]) -> None:
    assert decode_from_client(b"[%b]" % b",".join(map(encode_link, packets))) == packets


# --- What must not break it ---------------------------------------------------------------------------------------


def read(decode: Decoder, message: str | bytes) -> list[Packet]:
    """Decode, letting pass the one documented error; any other exception fails the test."""
    try:
        return decode(message)
    except RemoteProtocolError as error:
        # What is sent to the peer and into the log is a short sentence, however long its message was.
        sentence = str(error)
        assert len(sentence) < 300
        return []


@given(st.binary(max_size=200))
def test_arbitrary_bytes(message: bytes) -> None:
    for decode in BOTH_DIRECTIONS:
        read(decode, message)


@given(st.text(max_size=200) | st.text(alphabet='{}[]":,\\ud80tre1-.', max_size=60))
def test_arbitrary_text(message: str) -> None:
    for decode in BOTH_DIRECTIONS:
        read(decode, message)


names = st.sampled_from(
    [
        *("type", "id", "received", "request", "selector", "topic", "value", "set", "version", "event", "snapshot"),
        *("principal", "secret", "properties", "client", "window", "token", "attempt", "oldest", "code", "message"),
        *("retry_after", "reason", "delay", "error", "limits", "backoff", "outcome", "resubmitted", "lost"),
    ]
)
kinds = st.sampled_from(
    [
        *("hello", "resume", "welcome", "ack", "ping", "pong", "go-away", "error", "bye"),
        *("subscribe", "unsubscribe", "publish", "properties", "update", "reply", "notice", "nonsense"),
    ]
)
odd_numbers = st.sampled_from([-1, 0, 1, True, 1.0, 2**53 - 1, 2**53, 2**63, 2**64, 10**40, 1e308, -0.0])
odd_values = json_values | odd_numbers | st.floats()


@given(st.dictionaries(names, odd_values, max_size=12), kinds)
def test_packets_with_arbitrary_fields(content: dict[str, Any], kind: str) -> None:
    # The standard library writes NaN, infinities and numbers of any size, as hostile clients do.
    message = json.dumps({"type": kind, "id": 1, "request": 1, **content})
    for decode in BOTH_DIRECTIONS:
        read(decode, message)
        read(decode, f"[{message},{message}]")


@given(client_links | server_links, st.dictionaries(names, odd_values, min_size=1, max_size=2))
def test_packets_with_some_wrong_fields(packet: LinkPacket, changes: dict[str, Any]) -> None:
    message = json.dumps(json.loads(encode_link(packet)) | changes)
    for decode in BOTH_DIRECTIONS:
        read(decode, message)


@given(
    requests, st.dictionaries(names.filter(lambda name: name not in {"type", "id", "received", "request"}), odd_values)
)
def test_what_is_wrong_in_a_request_is_no_matter_of_the_connection(
    body: ClientRequest, changes: dict[str, Any]
) -> None:
    """With its number legible, a request is answered by a reply; the connection and other requests go on."""
    try:
        message = json_text(json.loads(number(encode_request(body), 7)) | changes)
    except RequestRefused:
        return  # JSON has no way to write it
    packet = decode_from_client(message)[0]
    assert isinstance(packet, SessionPacket)
    assert packet.id == 7
    assert packet.body.request == body.request  # type: ignore[union-attr]


@given(st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3)))
def test_what_an_application_publishes_is_what_is_read_or_is_refused(value: Any) -> None:
    try:
        encoded = json_text(value)
    except RequestRefused:
        return
    assert json.loads(encoded) == value
