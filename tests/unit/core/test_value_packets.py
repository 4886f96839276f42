"""What of a reading of values breaks the protocol, and what is refused alone (protocol 2.6, 6.7)."""

from __future__ import annotations

import json

import pytest

from gateway.core.wire.codec import decode_from_client, decode_from_server
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Malformed, SessionPacket


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"selector": 7},
        {"selector": "a", "after": 7},
        {"selector": "a", "limit": 0},
        {"selector": "a", "limit": -1},
        {"selector": "a", "limit": "all"},
    ],
)
def test_a_reading_of_values_that_cannot_be_understood_is_refused_alone(wrong: dict[str, object]) -> None:
    text = json.dumps({"id": 1, "type": "values", "request": 1} | wrong)
    (packet,) = decode_from_client(text)
    assert isinstance(packet, SessionPacket)
    assert isinstance(packet.body, Malformed)
    assert (packet.body.request, packet.body.code) == (1, ErrorCode.BAD_REQUEST)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        {"items": {}},
        {"items": [7]},
        {"items": [{"topic": "a", "version": 1, "event": "1-1-1"}]},
        {"items": [{"topic": "a", "version": 0, "event": "1-1-1", "value": 1}]},
        {"items": [{"topic": 7, "version": 1, "event": "1-1-1", "value": 1}]},
        {"items": [], "next": 7},
    ],
)
def test_a_page_of_values_that_is_none_breaks_the_protocol(wrong: object) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_from_server(json.dumps({"id": 1, "type": "reply", "request": 1, "values": wrong}))
