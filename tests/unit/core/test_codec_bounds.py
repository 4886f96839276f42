"""Messages that cannot be read, and the levels of values (protocol 4.8.1, 9.3)."""

from __future__ import annotations

import json

import pytest

from gateway.core.wire.codec import MAX_NESTING, decode_from_client, json_text, request_of
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Publish, SessionPacket


@pytest.mark.parametrize(
    ("beginning", "number_told"),
    [
        ('{"id":12,"received":40,"type":"publish","request":9,"topic":"', 9),
        (' { "type" : "subscribe" , "request" : 9 , "selector":"' + "x" * 500, 9),
        ('{"resubmitted":true,"x":null,"y":-1,"type":"properties","request":9,"set":{"request":1}', 9),
        ('{"type":"publish","value":{"request":3,},"request":9,', None),
        ('{"type":"publish","value":"\\",\\"request\\":3,","request":9,', None),
        ('{"type":"publish","topic":"' + "x" * 256 + '","request":9,', None),
        ('{"type":"publish","request":9', None),
        ('{"type":"publish","request":0,', None),
        ('{"type":"publish","request":-9,', None),
        ('{"type":"publish","request":"9",', None),
        ('{"type":"ack","request":9,', None),
        ('{"request":9,', None),
        ('[{"type":"publish","request":9,', None),
        ("", None),
    ],
)
def test_which_request_a_message_is_told_by_its_beginning(beginning: str, number_told: int | None) -> None:
    for text in (beginning, beginning.encode()):
        assert request_of(text) == number_told


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
