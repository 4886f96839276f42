"""Frames and messages of node links: whatever is written is read, however it is cut; what is none is refused."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.peers.frames import BODY_BYTES, FRAME_BYTES, MORE, Frame, FrameError, FrameReader, FrameType
from gateway.adapters.peers.hello import Hello, Refused
from gateway.adapters.peers.messages import (
    MESSAGE_OVERHEAD,
    MOST_UNFINISHED,
    Assembler,
    SendQueue,
    answer_body,
    question_body,
    read_answer,
    read_question,
    read_record,
    record_body,
)
from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.ports.peers import AnswerStatus

SIZES = st.one_of(
    st.integers(0, 40), st.sampled_from([BODY_BYTES - 1, BODY_BYTES, BODY_BYTES + 1, 2 * BODY_BYTES, 600_000])
)
MESSAGES = st.lists(
    st.tuples(st.sampled_from([FrameType.RECORD, FrameType.QUESTION, FrameType.ANSWER]), SIZES), max_size=12
)
KINDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=32)


def frames_of(reader: FrameReader) -> list[Frame]:
    frames = []
    while (frame := reader.next()) is not None:
        frames.append(frame)
    return frames


@given(messages=MESSAGES, most=st.sampled_from([1, 1000, FRAME_BYTES]), cuts=st.data())
def test_messages_arrive_as_they_were_put(
    messages: list[tuple[FrameType, int]], most: int, cuts: st.DataObject
) -> None:
    queue, reader = SendQueue(1), FrameReader()
    assembler = Assembler(message=1_000_000, total=8_000_000)
    put: dict[tuple[FrameType, int], list[bytes]] = {}
    for number, (type_, size) in enumerate(messages, start=1):
        stream = 0 if type_ is FrameType.RECORD else number
        body = bytes([number]) * size
        queue.put(type_, stream, body)
        put.setdefault((type_, stream), []).append(body)
    came: dict[tuple[FrameType, int], list[bytes]] = {}
    while queue:
        data = b"".join(queue.take(most))
        assert data
        cut = cuts.draw(st.integers(0, len(data)))
        for piece in (data[:cut], data[cut:]):
            reader.feed(piece)
            for frame in frames_of(reader):
                assert len(frame.body) <= BODY_BYTES
                whole = assembler.take(frame)
                if whole is not None:
                    came.setdefault((frame.type, frame.stream), []).append(whole)
    assert came == put
    assert queue.bytes == assembler.bytes == 0


@given(sizes=st.lists(SIZES, min_size=1, max_size=6), taken=st.integers(0, 6))
def test_what_a_queue_counts_bounds_what_the_peer_has_to_hold(sizes: list[int], taken: int) -> None:
    queue, reader = SendQueue(1), FrameReader()
    assembler = Assembler(message=1_000_000, total=8_000_000)
    for stream, size in enumerate(sizes, start=1):
        queue.put(FrameType.QUESTION, stream, bytes(size))
    assert queue.bytes == sum(sizes) + MESSAGE_OVERHEAD * len(sizes)
    for _ in range(taken):
        reader.feed(b"".join(queue.take(1)))
        for frame in frames_of(reader):
            assembler.take(frame)
        assert assembler.bytes <= queue.bytes


@given(data=st.binary(max_size=400))
def test_anything_is_read_or_refused(data: bytes) -> None:
    reader, assembler = FrameReader(), Assembler(message=1000, total=2000)
    reader.feed(data)
    with suppress(FrameError):
        for frame in frames_of(reader):
            assembler.take(frame)
    for read in (Hello.decode, Refused.decode, read_record, read_question, read_answer):
        with suppress(FrameError):
            read(data)


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">IBBI", 5, FrameType.BEAT, 1, 0),
        struct.pack(">IBBI", FRAME_BYTES, FrameType.RECORD, 1, 0),
        struct.pack(">IBBI", 2**32 - 1, FrameType.RECORD, 1, 0),
        struct.pack(">IBBI", 6, 0, 1, 0),
        struct.pack(">IBBI", 6, 99, 1, 0),
        struct.pack(">IBBI", 6, FrameType.BEAT | MORE, 1, 0),
        struct.pack(">IBBI", 6, FrameType.HELLO | MORE, 1, 0),
    ],
)
def test_a_head_that_is_none_is_refused_before_anything_is_held(head: bytes) -> None:
    reader = FrameReader()
    reader.feed(head)
    with pytest.raises(FrameError):
        reader.next()


def test_a_message_without_an_end_is_refused_at_its_bound() -> None:
    assembler = Assembler(message=10 * BODY_BYTES, total=20 * BODY_BYTES)
    piece = Frame(FrameType.QUESTION, True, 1, 7, bytes(BODY_BYTES))
    for _ in range(10):
        assert assembler.take(piece) is None
    with pytest.raises(FrameError):
        assembler.take(piece)


def test_messages_without_an_end_are_refused_at_the_bound_of_all() -> None:
    assembler = Assembler(message=10 * BODY_BYTES, total=5 * BODY_BYTES)
    for stream in range(5):
        assembler.take(Frame(FrameType.QUESTION, True, 1, stream, bytes(BODY_BYTES)))
    with pytest.raises(FrameError):
        assembler.take(Frame(FrameType.QUESTION, True, 1, 5, bytes(BODY_BYTES)))


def test_a_message_in_small_pieces_is_held_in_about_its_bytes() -> None:
    size = 200_000
    assembler = Assembler(message=size, total=size)
    piece = Frame(FrameType.RECORD, True, 1, 0, b"")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(size // 2 - 1):
            assert assembler.take(piece._replace(body=bytes(2))) is None
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2 * size
    assert assembler.take(piece._replace(body=b"xy", more=False)) == bytes(size - 2) + b"xy"


def test_messages_that_are_begun_are_counted_too() -> None:
    assembler = Assembler(message=1000, total=1000)
    for stream in range(MOST_UNFINISHED):
        assembler.take(Frame(FrameType.ANSWER, True, 1, stream, b"x"))
    with pytest.raises(FrameError):
        assembler.take(Frame(FrameType.ANSWER, True, 1, MOST_UNFINISHED, b"x"))


def test_a_message_of_empty_frames_is_refused() -> None:
    assembler = Assembler(message=1000, total=1000)
    with pytest.raises(FrameError):
        assembler.take(Frame(FrameType.RECORD, True, 1, 0, b""))


@given(kind=KINDS, content=st.binary(max_size=50), within=st.floats(0, 1e6), status=st.sampled_from(AnswerStatus))
def test_bodies_are_read_as_written(kind: str, content: bytes, within: float, status: AnswerStatus) -> None:
    assert read_record(record_body(kind, content)) == (kind, content)
    waits, *rest = read_question(question_body(kind, content, within))
    assert rest == [kind, content]
    assert abs(waits - within) <= 0.0005 + within * 1e-9
    assert read_answer(answer_body(status, content)) == (status, content)


@pytest.mark.parametrize("kind", ["", "x" * 33, "ünfit", "a\nb"])
def test_a_kind_that_is_none_is_the_callers_mistake(kind: str) -> None:
    with pytest.raises(ValueError, match=r"kind|ascii"):
        record_body(kind, b"")


@given(
    started=st.floats(0, 2**53),
    protocols=st.frozensets(st.integers(1, 99), max_size=5),
    features=st.frozensets(st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True), max_size=5),
)
def test_a_hello_is_read_as_written(started: float, protocols: frozenset[int], features: frozenset[str]) -> None:
    hello = Hello(
        cluster="c-1",
        node=NodeRef(NodeId("n1"), Incarnation("0f")),
        started=started,
        protocols=protocols,
        features=features,
    )
    reader = FrameReader()
    reader.feed(hello.encode())
    frame = reader.next()
    assert frame is not None
    assert Hello.decode(frame.body) == hello


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"cluster":"c","node":"n1","incarnation":"x","started":true,"protocols":[1]}',
        b'{"cluster":"c","node":"n1","incarnation":"x","started":-1,"protocols":[1]}',
        b'{"cluster":"c","node":"n1","incarnation":"x","started":1e300,"protocols":[1]}',
        b'{"cluster":"c","node":"n1","incarnation":"x","started":1,"protocols":["1"]}',
        b'{"cluster":"c","node":"n1","incarnation":"x","started":1,"protocols":1}',
        b'{"cluster":"c","node":"../n1","incarnation":"x","started":1,"protocols":[1]}',
        b'{"cluster":"c","node":"n1","incarnation":"","started":1,"protocols":[1]}',
        b'{"cluster":"c","node":"n1","incarnation":"x","started":1,"protocols":[1],"features":"all"}',
    ],
)
def test_a_hello_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        Hello.decode(body)


def test_a_hello_of_a_later_version_is_read() -> None:
    hello = Hello.decode(
        b'{"cluster":"c","node":"n1","incarnation":"x","started":1,"protocols":[1,2],"features":["a","B!",7],"more":1}'
    )
    assert hello.protocols == {1, 2}
    assert hello.features == {"a"}
