"""Frames against RFC 6455 section 5, with the websockets library as the other end."""

from __future__ import annotations

import gc
import sys
import weakref
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import Protocol, Side

from gateway.adapters.websocket import frames
from gateway.adapters.websocket.frames import Breach, FrameError, FrameReader
from gateway.garbage import uncollected

MOST = 100_000

SIZES = st.sampled_from([0, 1, 3, 4, 125, 126, 127, 65_535, 65_536]) | st.integers(0, 300)
PAYLOADS = SIZES.flatmap(lambda size: st.just(bytes(index * 7 % 128 for index in range(size))))


def from_client(opcode: int, payload: bytes = b"", *, final: bool = True, mask: bool = True) -> bytes:
    """What a client sends, as an independent implementation writes it."""
    return Frame(Opcode(opcode), payload, fin=final).serialize(mask=mask)


def read(*pieces: bytes, most: int = MOST) -> tuple[list[frames.Frame], FrameError | None]:
    reader = FrameReader(most)
    arrived: list[frames.Frame] = []
    for piece in pieces:
        complete, error = reader.feed(piece)
        arrived += complete
        if error is not None:
            return arrived, error
    return arrived, None


def refused(*pieces: bytes, most: int = MOST) -> Breach:
    _, error = read(*pieces, most=most)
    assert error is not None
    return error.code


def received_by_a_client(data: bytes) -> list[Frame]:
    client = Protocol(Side.CLIENT, max_size=None)
    client.receive_data(data)
    return [event for event in client.events_received() if isinstance(event, Frame)]


# --- Reading ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from([frames.TEXT, frames.BINARY]), PAYLOADS), max_size=5),
    st.lists(st.integers(0, 400_000), max_size=8),
)
def test_messages_arrive_however_the_bytes_are_cut(messages: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(from_client(opcode, payload) for opcode, payload in messages)
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]

    arrived, error = read(*(stream[start:end] for start, end in pairwise(places)))

    assert error is None
    assert arrived == messages


@given(st.lists(PAYLOADS, min_size=2, max_size=5), st.booleans())
def test_fragments_make_one_message_with_control_frames_in_between(parts: list[bytes], bytewise: bool) -> None:
    stream = b""
    for index, part in enumerate(parts):
        stream += from_client(frames.TEXT if index == 0 else 0, part, final=index == len(parts) - 1)
        if index < len(parts) - 1:
            stream += from_client(frames.PING, b"%d" % index)
    pieces = [stream[at : at + 1] for at in range(len(stream))] if bytewise and len(stream) < 2000 else [stream]

    arrived, error = read(*pieces, most=5 * MOST)

    assert error is None
    assert arrived == [
        *((frames.PING, b"%d" % index) for index in range(len(parts) - 1)),
        (frames.TEXT, b"".join(parts)),
    ]


def test_a_message_after_fragments_is_a_message_of_its_own() -> None:
    stream = from_client(1, b"a", final=False) + from_client(0, b"b") + from_client(1, b"c")

    assert read(stream) == ([(1, b"ab"), (1, b"c")], None)


def test_a_close_may_come_between_fragments() -> None:
    """It is a control frame as others (section 5.4), and need not wait for a message that is given up."""
    stream = from_client(1, b"a", final=False) + from_client(frames.CLOSE, b"\x03\xe8")

    assert read(stream) == ([(frames.CLOSE, b"\x03\xe8")], None)


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (from_client(frames.TEXT, b"x", mask=False), 1002),
        (b"\xc1\x80abcd", 1002),
        (b"\x91\x80abcd", 1002),
        (b"\x83\x80abcd", 1002),
        (b"\x8b\x80abcd", 1002),
        (b"\x8f\x80abcd", 1002),
        (b"\x09\x80abcd", 1002),
        (b"\x89\xfe\x00\x7eabcd", 1002),
        (from_client(0, b"x"), 1002),
        (from_client(1, b"x", final=False) + from_client(1, b"y"), 1002),
        (from_client(1, b"x", final=False) + from_client(2, b"y", final=False), 1002),
    ],
    ids=[
        "not masked",
        "first reserved bit",
        "third reserved bit",
        "unknown data opcode",
        "unknown control opcode",
        "last control opcode",
        "control frame in fragments",
        "long control frame",
        "continuation of nothing",
        "message within a message",
        "fragments within fragments",
    ],
)
def test_violations_are_refused(stream: bytes, code: int) -> None:
    assert refused(stream) == code
    assert refused(*(stream[at : at + 1] for at in range(len(stream)))) == code


def test_what_came_before_a_violation_counts() -> None:
    arrived, error = read(from_client(1, b"good") + from_client(1, b"bad", mask=False))

    assert arrived == [(1, b"good")]
    assert error is not None


def test_a_message_may_have_as_many_bytes_as_allowed_and_not_one_more() -> None:
    assert read(from_client(1, b"x" * 200), most=200) == ([(1, b"x" * 200)], None)
    assert refused(from_client(1, b"x" * 201), most=200) == Breach.MESSAGE_TOO_BIG
    halves = from_client(1, b"x" * 101, final=False) + from_client(0, b"x" * 100)
    assert refused(halves, most=200) == Breach.MESSAGE_TOO_BIG
    assert read(from_client(1, b"x" * 100, final=False) + from_client(0, b"x" * 100), most=200)[1] is None


def beginning(*pieces: bytes, most: int) -> bytes | None:
    _, error = read(*pieces, most=most)
    assert error is not None
    return error.beginning


def test_of_a_message_that_is_too_big_the_beginning_is_told_as_far_as_it_has_come() -> None:
    message = b"".join(b"%03d," % number for number in range(200))
    whole = from_client(1, message)
    head = len(whole) - len(message)
    assert beginning(whole, most=200) == message[:456]
    assert beginning(whole[: head + 10], most=200) == message[:10]
    assert beginning(whole[:head], most=200) == b""
    assert beginning(whole[: head - 2], most=200) == b"", "the mask is not whole"
    halves = from_client(1, message[:150], final=False) + from_client(0, message[150:])
    assert beginning(halves, most=200) == message[:456]
    assert beginning(from_client(1, message, mask=False), most=1000) is None


@pytest.mark.parametrize("first", [0, 150])
@pytest.mark.parametrize("size", [201, 300, 5000])
def test_of_a_message_that_is_too_big_as_much_is_waited_for_as_tells_which_packet_it_is(size: int, first: int) -> None:
    message = bytes(at % 251 for at in range(size))
    wanted = min(size, 456)
    reader = FrameReader(200)
    reader.explains = True
    if first:
        assert reader.feed(from_client(1, message[:first], final=False)) == ([], None)
    stream = from_client(0 if first else 1, message[first:])
    needed = len(stream) - (size - wanted)
    for at in range(needed - 1):
        assert reader.feed(stream[at : at + 1]) == ([], None), at
    assert reader.awaits_culprit
    _, error = reader.feed(stream[needed - 1 : needed])
    assert error is not None
    assert error.beginning == message[:wanted]


def test_who_is_not_waited_for_any_more_is_refused_by_what_has_come() -> None:
    reader = FrameReader(200)
    reader.explains = True
    stream = from_client(1, b"[" + b"x" * 500)
    assert reader.feed(stream[:100]) == ([], None)
    reader.explains = False
    _, error = reader.feed(b"")

    assert error is not None
    assert error.beginning == b"[" + b"x" * (99 - (len(stream) - 501))


@pytest.mark.parametrize("size", [126 + MOST, 2**31, 2**63, 2**64 - 1])
def test_a_message_that_is_too_long_is_refused_by_its_head(size: int) -> None:
    assert refused(b"\x81\xff" + size.to_bytes(8, "big")) == Breach.MESSAGE_TOO_BIG


@given(st.binary(max_size=300), st.integers(1, 7))
def test_no_bytes_raise_anything(data: bytes, step: int) -> None:
    read(*(data[at : at + step] for at in range(0, len(data), step)), most=100)


# --- Writing ----------------------------------------------------------------------------------------------------------


@given(PAYLOADS)
def test_text_is_read_by_a_client(payload: bytes) -> None:
    (frame,) = received_by_a_client(frames.text_frame(payload))

    assert (frame.opcode, frame.data, frame.fin) == (Opcode.TEXT, payload, True)


@given(st.binary(max_size=125))
def test_a_pong_returns_what_was_asked(payload: bytes) -> None:
    (frame,) = received_by_a_client(frames.pong_frame(payload))

    assert (frame.opcode, frame.data) == (Opcode.PONG, payload)


@given(st.sampled_from([1000, 1009, 3000, 4200, 4999]), st.text(max_size=200))
def test_a_close_has_its_code_and_as_much_of_the_reason_as_fits(code: int, reason: str) -> None:
    (frame,) = received_by_a_client(frames.close_frame(code, reason))
    close = Close.parse(frame.data)

    assert close.code == code
    assert reason.encode("utf-8", "replace").decode().startswith(close.reason)
    assert len(frame.data) <= 125
    assert frames.close_code(bytes(frame.data)) == code


def test_a_close_may_have_no_code() -> None:
    assert frames.close_frame(None) == b"\x88\x00"
    assert frames.close_code(b"") is None


@pytest.mark.parametrize(
    "payload", [b"\x03", b"\x00\x00", b"\x03\xe7", b"\x03\xec", b"\x03\xed", b"\x03\xee", b"\x13\x88"]
)
def test_codes_that_nobody_may_send_are_refused(payload: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        frames.close_code(payload)

    assert caught.value.code == Breach.PROTOCOL_ERROR


def test_a_reason_must_be_text() -> None:
    with pytest.raises(FrameError) as caught:
        frames.close_code(b"\x03\xe8\xff")

    assert caught.value.code == Breach.INVALID_TEXT


@pytest.mark.parametrize(
    "begin",
    [b"", from_client(9, b"ping"), from_client(1, b"x", final=False)],
    ids=["at the start", "after a ping", "within a message"],  # masks are random, and so would be names made of them
)
def test_messages_of_every_short_length_are_read_alone_and_among_others(begin: bytes) -> None:
    messages = [bytes(range(48, 48 + 64))[:size] + b"x" * max(0, size - 64) for size in range(130)]
    alone = [frame for message in messages for frame in read(from_client(1, message))[0]]
    assert alone == [(frames.TEXT, message) for message in messages]

    end = from_client(0, b"y") if begin[:1] == b"\x01" else b""
    reader = frames.FrameReader(1000)
    arrived, error = reader.feed(begin + end + b"".join(from_client(1, message) for message in messages))
    behind = [reader.is_behind]
    assert error is None
    assert len(arrived) == frames.FRAMES_AT_ONCE - bool(end), "no more are read at once, also of messages"
    rest, error = reader.feed(b"")
    behind.append(reader.is_behind)
    assert error is None
    assert behind == [True, False]
    assert [message for _, message in arrived + rest][bool(begin) :] == messages


@pytest.mark.parametrize("most", [1, 5, 124, 125])
def test_short_messages_have_a_largest_size_too(most: int) -> None:
    reader = frames.FrameReader(most)
    assert reader.feed(from_client(1, b"x" * most)) == ([(frames.TEXT, b"x" * most)], None)
    arrived, error = reader.feed(from_client(1, b"x" * (most + 1)))
    assert not arrived
    assert error is not None
    assert error.code == 1009


@pytest.mark.promise("P20")
@pytest.mark.parametrize("data", [b"\x81\x00", from_client(1, b"\xed\xa0\x80")], ids=["unmasked", "no text"])
def test_a_violation_is_held_by_nobody(data: bytes) -> None:
    """Its trace would hold the buffers of its connection until the collector comes round, which is seldom."""
    gc.collect()
    with uncollected():

        class Buffers:
            pass

        def violate() -> weakref.ref[Buffers]:
            held = Buffers()
            _, error = FrameReader(100).feed(data)
            assert error is not None
            return weakref.ref(held)

        assert violate()() is None


# --- What reading costs -----------------------------------------------------------------------------------------------

STEP = 5
"""Bytes in which a stream comes that is cut small."""

COSTLY = {
    "a large message": from_client(1, b"x" * 60_000),
    "a large message of two bytes a letter": from_client(1, "\u00fc".encode() * 30_000),
    "a large binary message": from_client(2, b"\0" * 60_000),
    "messages of every size": b"".join(from_client(1, b"x" * size) for size in range(0, 1_500, 7)),
    "fragments": from_client(1, b"x", final=False) + from_client(0, b"x" * 300, final=False) * 150,
    "fragments of a byte": from_client(1, b"x", final=False) + from_client(0, b"x", final=False) * 3_000,
    "pings of 125 bytes": from_client(9, b"x" * 125) * 200,
    "a message that is too long": from_client(1, b"x" * (MOST + 1)),
}


@pytest.mark.promise("P20")
@pytest.mark.parametrize("step", [STEP, 1_460, 1_000_000], ids=["small", "segments", "whole"])
@pytest.mark.parametrize("stream", COSTLY.values(), ids=COSTLY)
def test_no_byte_is_unmasked_twice_however_the_stream_is_cut(
    stream: bytes, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P20: what is charged is a constant for a byte, so a client must not be able to have one looked at again."""
    unmask, unmasked = frames._unmask, 0

    def count(payload: bytes, mask: bytes, size: int) -> bytes:
        nonlocal unmasked
        assert len(payload) == size
        unmasked += size
        return unmask(payload, mask, size)

    monkeypatch.setattr(frames, "_unmask", count)
    read(*(stream[at : at + step] for at in range(0, len(stream), step)))

    # The shortest that come whole are unmasked without a call, each where it is taken off the stream.
    assert unmasked <= len(stream)


@pytest.mark.promise("P20")
@pytest.mark.parametrize("size", [126, frames.LARGE - 1, frames.LARGE, 60_000])
def test_unmasking_takes_no_more_steps_for_a_long_payload_than_for_a_short_one(size: int) -> None:
    """P20: each step is one call into C over a part of the payload; no loop of Python goes over bytes."""
    payload, calls = bytes(size), 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        frames._unmask(payload, b"abcd", size)
    finally:
        sys.setprofile(None)
    assert calls <= 12
