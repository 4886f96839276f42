"""Messages that cannot be read, and the levels of values (protocol 4.8.1, 9.3)."""

from __future__ import annotations

import json

import pytest

from gateway.core.types import PacketId, RequestNumber
from gateway.core.wire.codec import (
    MAX_NESTING,
    MAX_NUMBER,
    decode_from_client,
    encode_request,
    encode_value,
    excessive_request,
    json_text,
    number,
    unreadable_request,
)
from gateway.core.wire.errors import RemoteProtocolError, RequestRefused
from gateway.core.wire.packets import (
    Authenticate,
    ClientRequest,
    Publish,
    SessionPacket,
    SetProperties,
    Subscribe,
    Unsubscribe,
)


@pytest.mark.parametrize(
    ("beginning", "number_told"),
    [
        ('{"id":12,"received":40,"type":"publish","request":9,"topic":"', 9),
        (' { "type" : "subscribe" , "request" : 9 , "selector":"' + "x" * 500, 9),
        ('{"resubmitted":true,"x":null,"y":-1,"type":"properties","request":9,"set":{"request":1}', 9),
        ('{"type":"publish","value":{"request":3,},"request":9,', 9),
        ('{"type":"publish","value":"\\",\\"request\\":3,","request":9,', 9),
        ('{"type":"publish","topic":"' + "x" * 256 + '","request":9,', 9),
        ('{"type":"publish","request":3,"request":9,', 3),
        ('{"topic":"request","value":"type","type":"publish","request":9,', 9),
        ('{"type":"publish","value":"open,"request":9,', None),
        ('{"type":"publish","request":9.5,', None),
        ('{"type":"publish","value":' + "[" * 30_000 + "{" + "}" + "]" * 30_000 + ',"request":9,', 9),
        ('{"type":"publish","request":9', None),
        ('{"type":"publish","request":0,', None),
        ('{"type":"publish","request":-9,', None),
        ('{"type":"publish","request":"9",', None),
        ('{"type":"ack","request":9,', None),
        ('{"request":9,', None),
        ('{"type":"publish","request":9007199254740992,', None),
        ('[{"type":"publish","request":9,', 9),
        ("[]", None),
        ("", None),
    ],
)
def test_which_request_a_packet_is_told_by_its_beginning(beginning: str, number_told: int | None) -> None:
    assert unreadable_request(beginning) == number_told
    assert unreadable_request(beginning.encode()) == number_told
    assert excessive_request(beginning.encode(), 65536) == number_told


LONG = "x" * 200


@pytest.mark.parametrize(
    "request_of_client",
    [
        Subscribe(RequestNumber(MAX_NUMBER), LONG),
        Unsubscribe(RequestNumber(MAX_NUMBER), LONG, keep=(LONG,)),
        Publish(RequestNumber(MAX_NUMBER), LONG, encode_value(LONG), resubmitted=True),
        SetProperties(RequestNumber(MAX_NUMBER), {LONG: LONG}),
        Authenticate(RequestNumber(MAX_NUMBER), LONG, LONG),
    ],
    ids=lambda request: type(request).__name__,
)
def test_clients_write_the_type_and_the_number_of_a_request_before_what_may_be_long(
    request_of_client: ClientRequest,
) -> None:
    """4.8.1: both clients in Python encode requests here; JavaScript's is looked at in refused.test.mjs."""
    text = number(encode_request(request_of_client), PacketId(MAX_NUMBER), MAX_NUMBER)
    early = text[: text.index(LONG.encode()) + 1]

    assert len(early) <= 150
    assert unreadable_request(early) == MAX_NUMBER
    assert excessive_request(early, 65536) == MAX_NUMBER


def packet(number: int, value: str) -> str:
    return f'{{"id":{number},"type":"publish","request":{number},"topic":"é","value":{value}}}'


GOOD = packet(1, '{"a":[0,"]}\\"]"]}')
UNFIT = packet(3, '"\\ud83d"')
DEEP = packet(4, "[" * 5000 + "]" * 5000)


@pytest.mark.parametrize("value", ["NaN", "tru", '"open', "[1}", ""])
@pytest.mark.parametrize(
    ("message", "number_told"),
    [
        ("[GOOD,BAD]", 2),
        ("[BAD,GOOD]", 2),
        (" [ GOOD , BAD , GOOD ] ", 2),
        ("[UNFIT,BAD,GOOD]", 2),
        ('[GOOD,{"type":"ping"},BAD]', 2),
        ('[{"type":"ping","x":tru},BAD]', None),
        ("[GOOD GOOD,BAD]", None),
        ("[DEEP,BAD]", 2),
    ],
)
def test_of_several_packets_the_first_that_cannot_be_read_is_to_blame(
    message: str, value: str, number_told: int | None
) -> None:
    for name, text in (("GOOD", GOOD), ("UNFIT", UNFIT), ("DEEP", DEEP), ("BAD", packet(2, value))):
        message = message.replace(name, text)

    assert unreadable_request(message) == number_told
    with pytest.raises(RemoteProtocolError) as refused:
        decode_from_client(message)
    assert refused.value.request == number_told


@pytest.mark.parametrize(
    ("sizes", "number_told"),
    [
        ((1, 900, 1), 2),
        ((900,), 1),
        ((900, 1, 1), 1),
        ((1, 1, 900), 3),
        ((200, 200, 200), 2),
        ((10, 5000, 5000), 2),
    ],
)
def test_of_several_packets_the_one_with_which_a_message_is_too_large_is_to_blame(
    sizes: tuple[int, ...], number_told: int
) -> None:
    most = 512
    packets = [packet(number, '"' + "ä" * (size // 2) + '"') for number, size in enumerate(sizes, 1)]
    whole = f"[{','.join(packets)}]".encode()
    for came in (whole, whole[: most + 256], whole[: most + 300]):
        assert excessive_request(came, most) == number_told


def test_the_levels_of_a_value_are_counted_exactly() -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        for levels, good in ((MAX_NESTING, True), (MAX_NESTING + 1, False), (254, False), (255, False)):
            for beside in ("1", "[" + "[],{}," * 200 + "0]", '"' + "[" * 1000 + '"'):
                inner = levels - 3 if beside.startswith("[") else levels - 1
                text = f"[{opening * inner}{beside}{closing * inner}]"
                packet = f'{{"type":"publish","id":1,"request":1,"topic":"a","value":{text}}}'
                (read,) = decode_from_client(packet)
                assert isinstance(read, SessionPacket)
                assert isinstance(read.body, Publish) is good, (levels, beside[:3])
                if good:
                    assert json_text(json.loads(text)) == read.body.value  # type: ignore[union-attr]
                else:
                    with pytest.raises(RequestRefused):
                        json_text(json.loads(text))


@pytest.mark.promise("P20")
@pytest.mark.parametrize("filling", ["{},", '{"":"","":""},'])
def test_what_is_made_to_be_looked_at_for_long_is_not_named(filling: str) -> None:
    """As much as a client of ours may put into one message is looked at; the last of these would be to blame."""
    bad = packet(2, "tru")
    usual = packet(1, "1") + ","
    assert unreadable_request(f"[{usual * (65_000 // len(usual))}{bad}]") == 2
    assert unreadable_request(f"[{filling * (65_000 // len(filling))}{bad}]") is None
