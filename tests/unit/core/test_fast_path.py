"""The short ways mean what the general one means (``gateway.core.wire.fast_path``)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types import EventId, PacketId, RequestNumber, Version
from gateway.core.wire import fast_path as quick
from gateway.core.wire.codec import decode_from_client, encode_link, encode_reply
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Ack, Pong, Reply

NUMBERS = st.integers(min_value=0, max_value=10**15 - 1)


@given(NUMBERS)
def test_an_acknowledgement_in_the_usual_form_is_read(number: int) -> None:
    assert quick.acknowledged(encode_link(Ack(PacketId(number)))) == number
    assert quick.acknowledged(encode_link(Pong(PacketId(number)))) == number


TAIL = st.text(alphabet='0123456789-+.eE,"}{] x', max_size=20).map(str.encode)


@given(st.sampled_from((Ack, Pong)), TAIL)
def test_whatever_is_read_is_what_the_codec_reads(packet: type[Ack | Pong], tail: bytes) -> None:
    message = b'{"type":"%b","received":' % packet.__name__.lower().encode() + tail
    received = quick.acknowledged(message)
    if received is not None:
        assert decode_from_client(message) == [packet(received)]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{}",
        b'{"type":"ack","received":}',
        b'{"type":"ack","received":5',
        b'{"type":"ack","received":05}',
        b'{"type":"ack","received":-5}',
        b'{"type":"ack","received":5.0}',
        b'{"type":"ack","received":5 }',
        b'{"type":"ack","received":5,"type":"bye"}',
        b'{"type":"ack","received":9007199254740992}',
        b'{"type":"ack", "received":5}',
        b'[{"type":"ack","received":5}]',
        b'{"type":"pong","received":',
        b'{"type":"pong","received":}',
        b'{"type":"pong","received":5',
        b'{"type":"pong","received":05}',
        b'{"type":"pong","received":5,"type":"bye"}',
        b'{"type":"pongs","received":5}',
        b'{"type":"ping","received":5}',
    ],
)
def test_everything_else_is_left_to_the_codec(message: bytes) -> None:
    assert quick.acknowledged(message) is None


def test_the_largest_number_is_left_to_the_codec_and_one_above_it_is_refused() -> None:
    assert quick.acknowledged(b'{"type":"ack","received":9007199254740991}') is None
    with pytest.raises(RemoteProtocolError):
        decode_from_client(b'{"type":"ack","received":9007199254740992}')


@given(NUMBERS, NUMBERS, st.from_regex(r"\A[0-9]{1,2}-[0-9]{1,6}-[0-9]{1,12}\Z"))
def test_a_reply_is_what_the_codec_writes(request_number: int, version: int, event: str) -> None:
    request, number, name = RequestNumber(request_number), Version(version), EventId(event)
    assert quick.published(request, number, name) == encode_reply(Reply(request=request, version=number, event=name))
