"""The reader of frames against an independent one: the sans-I/O protocol of the websockets library."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import Protocol, Side, State

from gateway.adapters.websocket.frames import CLOSE, FrameError, FrameReader, close_code

MOST = 300
"""Largest message here, in bytes: small, so that many streams meet it."""

Outcome = tuple[list[tuple[int, bytes]], int | None]
"""What was read, up to and with a close; and the code of the violation that ended it, or None."""


@st.composite
def _frames(draw: st.DrawFn) -> bytes:
    """Draw a frame: mostly a good one, now and then one with something wrong."""
    opcode = draw(st.sampled_from([0, 0, 1, 1, 1, 2, 8, 9, 10]) | st.integers(0, 15))
    payload = draw(
        st.binary(max_size=20)
        | st.text(max_size=20).map(str.encode)
        | st.sampled_from([b"", b"\x03\xe8", b"\x03\xe8bye", b"\x03\xee", b"\x13\x88", b"\x03"])
        | st.integers(120, MOST + 10).map(lambda size: b"x" * size)
    )
    first = opcode | (0x80 if draw(st.integers(0, 3)) else 0) | draw(st.sampled_from([0] * 30 + [0x10, 0x20, 0x40]))
    is_masked = draw(st.integers(0, 30)) > 0
    size = len(payload)
    head = bytes([first])
    bit = 0x80 if is_masked else 0
    if size <= 125:
        head += bytes([bit | size])
    elif size <= 0xFFFF:
        head += bytes([bit | 126]) + size.to_bytes(2, "big")
    if not is_masked:
        return head + payload
    mask = draw(st.binary(min_size=4, max_size=4))
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def read_by_us(pieces: Iterable[bytes]) -> Outcome:
    reader = FrameReader(MOST)
    arrived: list[tuple[int, bytes]] = []
    for piece in pieces:
        complete, error = reader.feed(piece)
        for opcode, payload in complete:
            arrived.append((opcode, payload))
            if opcode == CLOSE:
                try:
                    close_code(payload)
                except FrameError as bad:
                    return arrived[:-1], bad.code
                return arrived, None
        if error is not None:
            return arrived, error.code
    return arrived, None


class _Oracle(Protocol):
    """The other library, but for a rule that it has and RFC 6455 has not."""

    def recv_frame(self, frame: Frame) -> None:
        """Let a close come between fragments: it is a control frame as others (sections 5.4 and 5.5.1)."""
        if frame.opcode is Opcode.CLOSE:
            self.current_size = None
        super().recv_frame(frame)


def read_by_them(pieces: Iterable[bytes]) -> Outcome:
    # Left to itself, that library counts a ping between two fragments as a part of their message.
    protocol = _Oracle(Side.SERVER, state=State.OPEN, max_size=None)
    arrived: list[tuple[int, bytes]] = []
    begun: tuple[int, bytes] | None = None
    for piece in pieces:
        protocol.receive_data(piece)
        for event in protocol.events_received():
            assert isinstance(event, Frame)
            payload = bytes(event.data)
            if event.opcode in {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}:
                begun = (int(event.opcode), payload) if begun is None else (begun[0], begun[1] + payload)
                if len(begun[1]) > MOST:
                    return arrived, 1009
                if not event.fin:
                    continue
                opcode, payload = begun
                begun = None
                # That library leaves it to the layers above to look at texts.
                if opcode == Opcode.TEXT and not _is_text(payload):
                    return arrived, 1007
                arrived.append((opcode, payload))
            else:
                arrived.append((int(event.opcode), payload))
                if event.opcode is Opcode.CLOSE:
                    return arrived, None
        if protocol.parser_exc is not None:
            sent = protocol.close_sent
            return arrived, sent.code if isinstance(sent, Close) else None
    return arrived, None


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """Cut a stream at some places."""
    bounds = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


@settings(max_examples=500)
@given(st.lists(_frames(), max_size=8), st.lists(st.integers(0, 5000), max_size=6))
@example(frames=[b"\x01\x80mask", b"\x88\x80mask"], places=[])
@example(frames=[b"\x01\x80mask", b"\x88\x81maskx"], places=[7])
@example(frames=[b"\x01\xfe\x01\x2c" + bytes(304), b"\x89\x81" + bytes(5)], places=[])
@example(frames=[b"\x01\xfe\x01\x2c" + bytes(304), b"\x80\x81" + bytes(5)], places=[])
def test_both_readers_agree(frames: list[bytes], places: list[int]) -> None:
    """On what is accepted, on what it says, and on the code with which the rest is refused."""
    pieces = cut(b"".join(frames), places)

    ours, our_refusal = read_by_us(pieces)
    theirs, their_refusal = read_by_them(pieces)

    assert ours == theirs
    # A frame that breaks two rules may be refused for either: out of place and too long, or a close with a bad code and
    # a bad reason.
    assert our_refusal == their_refusal or {our_refusal, their_refusal} in ({1002, 1009}, {1002, 1007})


@settings(max_examples=300)
@given(st.lists(_frames(), min_size=1, max_size=4))
def test_it_makes_no_difference_where_the_bytes_are_cut(frames: list[bytes]) -> None:
    stream = b"".join(frames)

    assert read_by_us([stream[at : at + 1] for at in range(len(stream))]) == read_by_us([stream])


@given(st.binary(max_size=100), st.lists(st.integers(0, 200), max_size=4))
def test_bytes_of_any_kind_end_in_frames_or_a_refusal(stream: bytes, places: list[int]) -> None:
    """No other exception escapes."""
    read_by_us(cut(stream, places))


@pytest.mark.parametrize(("form", "size"), [(126, 0), (126, 125), (127, 0), (127, 126), (127, 0xFFFF)], ids=str)
def test_lengths_that_take_more_bytes_than_they_need_are_refused(form: int, size: int) -> None:
    """Section 5.2; the other library lets them pass."""
    head = bytes([0x81, 0x80 | form]) + size.to_bytes(2 if form == 126 else 8, "big")

    assert read_by_us([head + b"mask" + b"x" * size]) == ([], 1002)
