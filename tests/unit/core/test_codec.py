from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import Any

import pytest

from gateway.core.types import Attempt, EventId, NodeId, PacketId, RequestNumber, Version
from gateway.core.wire.codec import (
    MAX_NUMBER,
    apart,
    decode_from_client,
    decode_from_server,
    encode_link,
    encode_notice,
    encode_reply,
    encode_request,
    encode_update,
    follow,
    head,
    json_text,
    number,
)
from gateway.core.wire.codec.fields import MAX_MEASURE
from gateway.core.wire.codes import PROTOCOL_ERROR, ErrorCode
from gateway.core.wire.errors import RemoteProtocolError, RequestRefused
from gateway.core.wire.packets import (
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
    SessionPacket,
    SetProperties,
    Subscribe,
    Unsubscribe,
    Update,
    Welcome,
)
from gateway.core.wire.topology_packets import Cluster, ListedNode, Topology
from gateway.core.wire.value_packets import ReadValues

WELCOME: dict[str, Any] = {
    "type": "welcome",
    "session": "s1",
    "principal": "alice",
    "node": "n1",
    "token": "t",
    "outcome": "failed_over",
    "numbering": "restarted",
    "reason": "gap",
    "received": 0,
    "resent": 0,
    "lost": None,
    "conflated": None,
    "window": 60,
    "ping_interval": 10.0,
    "ping_timeout": 30.0,
    "replicated": True,
    "limits": {
        "message_bytes": 65536,
        "value_bytes": 32768,
        "requests": 100,
        "selections": 1000,
        "selection_bytes": 65536,
        "resend_packets": 1000,
        "resend_bytes": 1000000,
        "questions": 64,
        "handlers": 32,
    },
    "backoff": {"initial": 0.5, "maximum": 30.0, "stable_after": 10.0},
    "properties": {"$client": "python"},
    "selections": ["+prices/**"],
}


def from_client(**content: Any) -> Packet:
    (packet,) = decode_from_client(json.dumps(content))
    return packet


def from_server(**content: Any) -> Packet:
    (packet,) = decode_from_server(json.dumps(content))
    return packet


def body_from_client(**content: Any) -> Any:
    packet = from_client(id=1, request=3, **content)
    assert isinstance(packet, SessionPacket)
    return packet.body


# --- Messages -----------------------------------------------------------------------------------------------------


def test_a_message_is_a_packet_or_an_array_of_packets() -> None:
    assert decode_from_client('{"type":"ack","received":3}') == [Ack(PacketId(3))]
    assert decode_from_client(b'[{"type":"ack","received":3},{"type":"bye"}]') == [Ack(PacketId(3)), Bye()]
    assert decode_from_client("[]") == []


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        "nonsense",
        '{"type":"ack","received":3',
        '{"type":"ack","received":3}{}',
        '{"type":"ack","received":NaN}',
        '{"type":"ack","received":Infinity}',
        "[" * 100_000,
    ],
)
def test_what_is_not_json_breaks_the_protocol(message: str | bytes) -> None:
    for decode in (decode_from_client, decode_from_server):
        with pytest.raises(RemoteProtocolError, match="not JSON") as broken:
            decode(message)
        assert broken.value.close is PROTOCOL_ERROR
        assert broken.value.code is ErrorCode.PROTOCOL_ERROR
        assert broken.value.__cause__ is None


@pytest.mark.parametrize("message", ["1", "null", '"ack"', "[1]", "[[]]", "[null]"])
def test_a_packet_is_an_object(message: str) -> None:
    with pytest.raises(RemoteProtocolError, match="must be a JSON object"):
        decode_from_client(message)


@pytest.mark.parametrize("message", ["{}", '{"type":null}', '{"type":7}', '{"type":["ack"]}'])
def test_a_packet_has_a_type(message: str) -> None:
    with pytest.raises(RemoteProtocolError, match="string 'type'"):
        decode_from_client(message)


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(RemoteProtocolError, match="unknown packet type 'teleport'") as broken:
        from_client(type="teleport")
    assert broken.value.code is ErrorCode.UNKNOWN_PACKET_TYPE
    with pytest.raises(RemoteProtocolError) as broken:
        from_client(type="x" * 100_000)
    assert len(str(broken.value)) < 100


@pytest.mark.parametrize("kind", ["welcome", "go-away", "update", "reply", "notice"])
def test_a_client_cannot_send_what_servers_send(kind: str) -> None:
    with pytest.raises(RemoteProtocolError, match="unknown packet type"):
        from_client(type=kind, id=1)


@pytest.mark.parametrize("kind", ["hello", "resume", "subscribe", "unsubscribe", "publish", "properties"])
def test_a_server_cannot_send_what_clients_send(kind: str) -> None:
    with pytest.raises(RemoteProtocolError, match="unknown packet type"):
        from_server(type=kind, id=1)


def test_unknown_fields_are_ignored_and_of_equal_names_the_last_counts() -> None:
    assert from_client(type="ack", received=3, colour="red") == Ack(PacketId(3))
    assert decode_from_client('{"type":"bye","type":"ack","received":1,"received":2}') == [Ack(PacketId(2))]


# --- Fields -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "3", 3.0, True, -1, MAX_NUMBER + 1, 2**64, 10**40, [], {}])
def test_an_id_is_an_integer_that_every_client_can_count_to(value: object) -> None:
    with pytest.raises(RemoteProtocolError, match="ack packet: 'received' must be an integer"):
        from_client(type="ack", received=value)
    assert from_client(type="ack", received=MAX_NUMBER) == Ack(PacketId(MAX_NUMBER))


@pytest.mark.parametrize("value", ["3", True, -0.1, MAX_NUMBER * 2, 10**40, []])
def test_seconds_are_a_number_that_is_not_negative(value: object) -> None:
    with pytest.raises(RemoteProtocolError, match="hello packet: 'window' must be a number of seconds"):
        from_client(type="hello", principal="alice", window=value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"type": "hello", "principal": 1}, "'principal' must be a string"),
        ({"type": "hello", "principal": "a", "secret": 1}, "'secret' must be a string"),
        ({"type": "hello", "principal": "a", "properties": {"x": 1}}, "must be an object of strings"),
        ({"type": "hello", "principal": "a", "properties": []}, "must be an object of strings"),
        ({"type": "resume", "attempt": 1, "received": 0, "oldest": 1}, "'token' must be a string"),
        ({"type": "resume", "token": "t", "attempt": 0, "received": 0, "oldest": 1}, "'attempt' must be an integer"),
        ({"type": "resume", "token": "t", "attempt": 1, "received": 0, "oldest": 0}, "'oldest' must be an integer"),
        ({"type": "error", "code": 3, "message": "m"}, "'code' must be a string"),
        ({"type": "subscribe", "selector": "a", "request": 1}, "'id' must be an integer"),
        ({"type": "subscribe", "selector": "a", "request": 1, "id": 0}, "'id' must be an integer"),
        ({"type": "subscribe", "selector": "a", "request": 1, "id": 1, "received": -1}, "'received' must be"),
        ({"type": "subscribe", "selector": "a", "id": 1}, "'request' must be an integer"),
        ({"type": "subscribe", "selector": 1, "request": 0, "id": 1}, "'request' must be an integer"),
    ],
)
def test_a_wrong_field_is_named(content: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"{content['type']} packet: .*{complaint}"):
        from_client(**content)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"type": "subscribe"}, "'selector' must be a string"),
        ({"type": "unsubscribe", "selector": 7}, "'selector' must be a string"),
        ({"type": "publish", "topic": "a"}, "'value' is missing"),
        ({"type": "publish", "value": 1}, "'topic' must be a string"),
        ({"type": "publish", "value": 1, "topic": "a", "resubmitted": 1}, "'resubmitted' must be true or false"),
        ({"type": "properties"}, "'set' must be an object"),
        ({"type": "properties", "set": {"a": 1}}, "must be an object of strings, or null"),
    ],
)
def test_a_request_with_a_wrong_field_is_answered_and_not_closed(content: dict[str, Any], complaint: str) -> None:
    body = body_from_client(**content)
    assert isinstance(body, Malformed)
    assert body.request == 3
    assert complaint in body.message


def test_absent_and_null_are_the_same_for_optional_fields() -> None:
    assert from_client(type="hello", principal="a", secret=None, properties=None, client=None, window=None) == Hello(
        principal="a"
    )
    assert from_client(type="bye", reason=None) == Bye()
    assert from_client(type="ping", token=None) == Ping()
    packet = from_client(type="subscribe", id=1, request=1, selector="a", received=None, resubmitted=None)
    assert packet == SessionPacket(PacketId(1), None, Subscribe(RequestNumber(1), "a"))


def test_a_resume() -> None:
    assert from_client(type="resume", token="t", attempt=2, received=5, oldest=3) == Resume(
        token="t", attempt=Attempt(2), received=PacketId(5), oldest=PacketId(3)
    )


@pytest.mark.parametrize("away", [0, 1840, MAX_MEASURE, None, -1, MAX_MEASURE + 1, 10**30, 1.5, "1840", True, [1], {}])
def test_a_resume_is_never_refused_for_how_long_its_client_says_it_was_away(away: object) -> None:
    """4.2.1: whatever is no integer from 0 to 2678400000 is taken for absent."""
    resume = from_client(type="resume", token="t", attempt=2, received=5, oldest=3, away=away)
    assert isinstance(resume, Resume)
    assert resume.away == (away if away in (0, 1840, MAX_MEASURE) else None)


# --- Values of topics ---------------------------------------------------------------------------------------------


def test_a_published_value_keeps_its_meaning_in_compact_form() -> None:
    text = '{"type":"publish","id":1,"request":1,"topic":"a","value": {"b": [1, 2.50, null, "\\u00fc"]} }'
    (packet,) = decode_from_client(text)
    assert isinstance(packet, SessionPacket)
    assert packet.body == Publish(RequestNumber(1), "a", '{"b":[1,2.5,null,"ü"]}'.encode())


def test_integers_in_values_are_exact_up_to_64_bits() -> None:
    """Above they become floating-point numbers, as in JavaScript above 53; the reference says so."""
    assert body_from_client(type="publish", topic="a", value=2**64 - 1).value == b"18446744073709551615"
    assert json.loads(body_from_client(type="publish", topic="a", value=2**64).value) == float(2**64)


def test_a_value_nested_too_deeply_for_the_way_out_is_refused_on_the_way_in() -> None:
    value = "[" * 1000 + "]" * 1000
    (packet,) = decode_from_client(f'{{"type":"publish","id":1,"request":3,"topic":"a","value":{value}}}')
    assert isinstance(packet, SessionPacket)
    assert packet.body == Malformed(
        RequestNumber(3),
        "publish packet: 'value' has more than 128 arrays and objects within each other",
        ErrorCode.BAD_VALUE,
    )


@pytest.mark.parametrize(
    "value",
    [
        *(math.nan, math.inf, [1, {"a": -math.inf}], ({"a": [None, math.nan]},)),
        *("\ud800", {"\udfff": 1}, {1: 2}, {1, 2}, pytest.param(object(), id="object"), 2**64, b"bytes"),
        Ack(PacketId(1)),
    ],
    ids=repr,
)
def test_a_value_that_is_not_json_is_refused_in_the_application(value: object) -> None:
    with pytest.raises(RequestRefused) as refused:
        json_text(value)
    assert refused.value.code is ErrorCode.BAD_VALUE
    assert isinstance(refused.value, ValueError)


def test_a_value_that_refers_to_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(RequestRefused):
        json_text(value)


def test_null_is_a_value() -> None:
    assert json_text({"a": [None, 1.5, "null"]}) == b'{"a":[null,1.5,"null"]}'
    assert body_from_client(type="publish", topic="a", value=None).value == b"null"


# --- From the server ----------------------------------------------------------------------------------------------


def test_a_welcome() -> None:
    packet = from_server(**WELCOME)
    assert isinstance(packet, Welcome)
    assert packet.lost is None
    assert packet.conflated is None
    assert packet.limits.selections == 1000
    assert packet.selections == ("+prices/**",)
    short = {name: value for name, value in WELCOME.items() if name not in {"lost", "conflated", "selections"}}
    packet = from_server(**short)
    assert isinstance(packet, Welcome)
    assert (packet.lost, packet.conflated, packet.selections) == (0, 0, ())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"outcome": None}, "'outcome' must be a string"),
        ({"numbering": 1}, "'numbering' must be a string"),
        ({"reason": 1}, "'reason' must be a string"),
        ({"replicated": None}, "'replicated' must be true or false"),
        ({"replicated": 1}, "'replicated' must be true or false"),
        ({"limits": None}, "'limits' must be an object"),
        ({"limits": {"message_bytes": 1}}, "'value_bytes' must be an integer"),
        ({"limits": dict.fromkeys(WELCOME["limits"], 0)}, "must be an integer from 1"),
        ({"backoff": {"initial": "soon"}}, "'initial' must be a number"),
        ({"selections": "+a"}, "'selections' must be an array"),
        ({"selections": [1]}, "'selections' must be an array of strings"),
        ({"lost": -1}, "'lost' must be an integer"),
    ],
)
def test_a_welcome_with_a_wrong_field(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        from_server(**(WELCOME | changes))


def test_a_reason_of_a_later_release_is_left_out() -> None:
    packet = from_server(**(WELCOME | {"reason": "boredom"}))
    assert isinstance(packet, Welcome)
    assert packet.reason is None


def test_an_error_code_of_a_later_release_counts_as_internal() -> None:
    assert from_server(type="error", code="novel", message="m") == Error(ErrorCode.INTERNAL, "m")
    packet = from_server(type="reply", id=1, request=1, error={"code": "novel", "message": "m"})
    assert isinstance(packet, SessionPacket)
    assert packet.body == Reply(request=RequestNumber(1), error=ErrorCode.INTERNAL, message="m")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"type": "update", "topic": "a", "version": 1, "event": "e"}, "'value' is missing"),
        ({"type": "update", "topic": "a", "version": 0, "event": "e", "value": 1}, "'version'"),
        ({"type": "update", "topic": "a", "version": 1, "event": "e", "value": 1, "snapshot": 1}, "'snapshot'"),
        ({"type": "update", "topic": "a", "version": 1, "event": "e", "value": 1, "folded": 0}, "'folded'"),
        ({"type": "reply", "request": 0}, "'request'"),
        ({"type": "reply", "request": 1, "error": "no"}, "'error' must be an object"),
        ({"type": "reply", "request": 1, "error": {"code": "draining"}}, "'message'"),
        ({"type": "notice", "code": "x"}, "'message'"),
        ({"type": "notice", "code": 1, "message": "m", "request": 4}, "'code'"),
        ({"type": "update", "topic": 1, "request": 4}, "update packet"),
    ],
)
def test_a_wrong_packet_of_the_server_is_never_taken_for_a_request(content: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        from_server(id=1, **content)


# --- Encoding -----------------------------------------------------------------------------------------------------


def test_the_bytes_of_an_update_are_made_once_and_numbered_per_session() -> None:
    body = encode_update("prices/ACME", Version(7), EventId("3-1-9"), b'{"bid":1}', snapshot=False)
    assert (
        number(body, 1)
        == b'{"id":1,"type":"update","topic":"prices/ACME","version":7,"event":"3-1-9","value":{"bid":1}}'
    )
    assert number(body, 2, 5).startswith(b'{"id":2,"received":5,"type":"update"')
    snapshot = encode_update("ü", Version(7), EventId("3-1-9"), b"1", snapshot=True)
    (packet,) = decode_from_server(number(snapshot, 1))
    assert isinstance(packet, SessionPacket)
    assert packet.body == Update("ü", Version(7), EventId("3-1-9"), 1, snapshot=True)


def test_absent_fields_are_left_out() -> None:
    assert encode_link(Ping()) == b'{"type":"ping"}'
    assert encode_link(Error(ErrorCode.DRAINING, "m")) == b'{"type":"error","code":"draining","message":"m"}'
    assert number(encode_reply(Reply(request=RequestNumber(1))), 1) == b'{"id":1,"type":"reply","request":1}'
    refusal = Reply(request=RequestNumber(1), error=ErrorCode.RATE_LIMITED, message="m", retry_after=0.5)
    assert json.loads(number(encode_reply(refusal), 1)) == {
        "id": 1,
        "type": "reply",
        "request": 1,
        "error": {"code": "rate_limited", "message": "m", "retry_after": 0.5},
    }
    receipt = Reply(request=RequestNumber(1), version=Version(2), event=EventId("e"))
    assert json.loads(number(encode_reply(receipt), 1)) == {
        "id": 1,
        "type": "reply",
        "request": 1,
        "version": 2,
        "event": "e",
    }
    assert number(encode_notice(Notice("c", "m")), 1) == b'{"id":1,"type":"notice","code":"c","message":"m"}'


def test_requests() -> None:
    resubmitted = Publish(RequestNumber(2), 'a"b', b"[1]", resubmitted=True)
    assert json.loads(number(encode_request(resubmitted), 1)) == {
        "id": 1,
        "type": "publish",
        "request": 2,
        "resubmitted": True,
        "topic": 'a"b',
        "value": [1],
    }
    change = SetProperties(RequestNumber(2), MappingProxyType({"a": "b", "c": None}), resubmitted=True)
    assert json.loads(number(encode_request(change), 1))["set"] == {"a": "b", "c": None}
    assert json.loads(number(encode_request(change), 1))["resubmitted"] is True
    with pytest.raises(TypeError, match="never sent"):
        encode_request(Malformed(RequestNumber(1), "m"))


@pytest.mark.parametrize(
    "packet",
    [
        Pong(PacketId(4)),
        Ping("t"),
        Bye("done"),
        Ack(PacketId(0)),
        GoAway("drain", 5.0),
        Topology(
            Cluster("r", (ListedNode(NodeId("n1"), ("wss://a", "wss://b")), ListedNode(NodeId("n2"), ("ws://c",))))
        ),
        Error(ErrorCode.INTERNAL, "m", 1),
    ],
)
def test_link_packets_of_the_server_are_read_as_written(packet: LinkPacket) -> None:
    assert decode_from_server(encode_link(packet)) == [packet]


@pytest.mark.parametrize(
    "body",
    [
        Subscribe(RequestNumber(1), "a"),
        Unsubscribe(RequestNumber(1), "a/**", resubmitted=True),
        SetProperties(RequestNumber(1), {"a": "b", "c": None}),
        ReadValues(RequestNumber(1), "a/**"),
        ReadValues(RequestNumber(1), "a/**", "a/b", 7, resubmitted=True),
    ],
)
def test_requests_are_read_as_written(body: ClientRequest) -> None:
    message = number(encode_request(body), 1, 2)
    assert decode_from_client(message) == [SessionPacket(PacketId(1), PacketId(2), body)]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(request=RequestNumber(1)),
        Reply(request=RequestNumber(1), version=Version(0), event=EventId("")),
        Reply(request=RequestNumber(1), version=Version(2), event=EventId("3-1-9")),
        Reply(request=RequestNumber(1), error=ErrorCode.FORBIDDEN, message="m"),
    ],
)
def test_replies_are_read_as_written(reply: Reply) -> None:
    assert decode_from_server(number(encode_reply(reply), 1)) == [SessionPacket(PacketId(1), None, reply)]


def test_a_notice_is_read_as_written() -> None:
    notice = Notice("novel", "m")
    assert decode_from_server(number(encode_notice(notice), 1)) == [SessionPacket(PacketId(1), None, notice)]


def test_any_mapping_can_be_properties() -> None:
    hello = Hello(principal="a", properties=MappingProxyType({"team": "fx"}))
    assert decode_from_client(encode_link(hello)) == [Hello(principal="a", properties={"team": "fx"})]


def test_a_welcome_says_null_where_it_cannot_know() -> None:
    packet = from_server(**WELCOME)
    assert isinstance(packet, Welcome)
    content = json.loads(encode_link(packet))
    assert content == WELCOME
    assert packet.limits == Limits(**WELCOME["limits"])
    assert packet.backoff == Backoff(**WELCOME["backoff"])


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: encode_link(Hello(principal=text)),
        lambda text: encode_request(Subscribe(RequestNumber(1), text)),
        lambda text: encode_request(Publish(RequestNumber(1), text, b"1")),
        lambda text: encode_request(SetProperties(RequestNumber(1), {text: "a"})),
    ],
)
def test_text_that_is_not_unicode_is_refused_in_the_application(encode: Any) -> None:
    with pytest.raises(RequestRefused) as refused:
        encode("a\ud800")
    assert refused.value.code is ErrorCode.BAD_REQUEST


def test_what_the_encoder_does_not_know_is_refused() -> None:
    with pytest.raises(RequestRefused):
        encode_link(Hello(principal="a", properties=object()))  # type: ignore[arg-type]


def test_bodies_that_follow_one_another_need_one_number() -> None:
    """Protocol 5.1: what is behind the first number is the same for every session."""
    bodies = [encode_notice(Notice(code, "")) for code in "abc"]
    message = b"[%b%b]" % (head(7, 3), follow(bodies))

    assert decode_from_server(message) == [
        SessionPacket(PacketId(7), PacketId(3), Notice("a", "")),
        SessionPacket(PacketId(8), None, Notice("b", "")),
        SessionPacket(PacketId(9), None, Notice("c", "")),
    ]
    assert follow([follow(bodies[:2]), bodies[2]]) == follow(bodies)
    assert apart(follow(bodies), map(len, bodies)) == bodies


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([7, "left out", "left out"], [7, 8, 9]),
        ([7, None, 9], [7, 8, 9]),
        ([7, 8, "left out"], [7, 8, 9]),
        ([7, 3, "left out"], [7, 3, 4]),
    ],
)
def test_a_number_that_is_left_out_is_one_above_the_one_before(
    numbers: list[int | str | None], expected: list[int]
) -> None:
    """Whether the numbers that are written make sense, the session machine decides."""
    packets: list[dict[str, Any]] = []
    for each in numbers:
        packet = {"id": each, "type": "notice", "code": "a", "message": ""}
        if each == "left out":
            del packet["id"]
        packets += [packet, {"type": "ping"}]

    decoded = decode_from_server(json.dumps(packets))

    assert [packet.id for packet in decoded if isinstance(packet, SessionPacket)] == expected


@pytest.mark.parametrize("before", ["", '[{"type":"ping"},', '[{"type":"ack","received":3},'])
def test_the_first_session_packet_of_a_message_must_have_a_number(before: str) -> None:
    """Not even a message may rely on the one before it."""
    message = before + '{"type":"notice","code":"a","message":""}' + ("]" if before else "")

    with pytest.raises(RemoteProtocolError, match="'id' must be an integer"):
        decode_from_server(message)


def test_a_number_that_is_left_out_does_not_reach_beyond_the_largest() -> None:
    largest = f'{{"id":{MAX_NUMBER},"type":"notice","code":"a","message":""}}'

    with pytest.raises(RemoteProtocolError, match="'id'"):
        decode_from_server(f'[{largest},{{"type":"notice","code":"a","message":""}}]')
