"""The page of node links is what the code speaks: every frame, field, reason, status and number, and all examples."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Final

import orjson

from gateway.adapters import acceptor
from gateway.adapters.peers import dialer, link, links
from gateway.adapters.peers.frames import (
    FRAME_BYTES,
    HELLO_BYTES,
    MORE,
    PROTOCOLS,
    Frame,
    FrameReader,
    FrameType,
    encode,
)
from gateway.adapters.peers.hello import Hello
from gateway.adapters.peers.messages import (
    MOST_UNFINISHED,
    answer_body,
    question_body,
    read_answer,
    read_question,
    read_record,
    record_body,
)
from gateway.adapters.tls import LINK_ALPN
from gateway.app.cluster.handoff import giver, taker
from gateway.app.registry import former_sessions
from gateway.catalogue.refusals import LinkRefusal
from gateway.core.session.handoff import MOST_OFFERED, OFFER, TAKE, TAKEN, Given, GiveStatus, Take
from gateway.core.stream.byte_form import part
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, SessionId
from gateway.ports import NodeReport
from gateway.ports.peers import KIND_BYTES, NODE_URI, AnswerStatus, LinkLimits

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "node-links.md"
TEXT: Final = PAGE.read_text("utf-8")
EXAMPLES: Final = {
    name: bytes.fromhex(content)
    for name, content in re.findall(r"^```text frame (\w+)\n(.*?)\n```$", TEXT, re.MULTILINE)
}
HELLO: Final = Hello(
    cluster="c1",
    node=NodeRef(NodeId("n1"), Incarnation("k3x")),
    started=1_700_000_000.0,
    protocols=frozenset({1}),
)


def table(head: str) -> list[list[str]]:
    """Return the cells of the only table whose first line begins with *head*."""
    (rows,) = re.findall(rf"^{re.escape(head)}[^\n]*\n\|[- |]+\|\n((?:\|[^\n]*\n)+)", TEXT, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows.splitlines()]


def one_frame(name: str) -> Frame:
    """Read the only frame of an example."""
    reader = FrameReader()
    reader.feed(EXAMPLES[name])
    frame = reader.next()
    assert frame is not None
    assert reader.next() is None
    return frame


def test_the_title_tells_the_newest_version() -> None:
    assert TEXT.startswith(f"# Node links, version {PROTOCOLS[-1]}\n")


def test_the_frames_are_those_of_the_code() -> None:
    rows = table("| Type | Name | Since |")
    assert [(row[0], row[1]) for row in rows] == [(str(int(each)), f"`{each.name.lower()}`") for each in FrameType]
    # What the source says of each is a text behind it, which begins with its version.
    source = inspect.getsource(FrameType)
    since = dict(re.findall(r'(\w+) = \d+\n    """Since (\d+)\.', source))
    assert {row[1].strip("`").upper(): row[2] for row in rows} == since
    assert f"(0x{MORE:x})" in TEXT


def test_the_head_of_a_frame_is_what_the_table_says() -> None:
    sizes = [int(row[1]) for row in table("| Field | Bytes |")[:-1]]
    frame = encode(FrameType.QUESTION, 0x01020304, b"body", version=9, more=True)
    parts = []
    for size in sizes:
        parts.append(int.from_bytes(frame[:size], "big"))
        frame = frame[size:]
    assert parts == [sum(sizes[1:]) + len(b"body"), FrameType.QUESTION | 0x80, 9, 0x01020304]
    assert frame == b"body"


def test_the_fields_of_a_hello_are_those_that_are_sent_and_needed() -> None:
    said = orjson.loads(HELLO.encode()[10:])
    assert [row[0].strip("`") for row in table("| Field | Type |")] == list(said)
    assert Hello.decode(orjson.dumps({**said, "later": 1, "features": ["word_of_later"]})).cluster == "c1"


def test_the_reasons_are_those_of_the_catalogue() -> None:
    source = inspect.getsource(LinkRefusal)
    meanings = {
        value: " ".join(meaning.split())
        for value, meaning in re.findall(r'= "(\w+)"\n    """(.*?)"""', source, re.DOTALL)
    }
    assert table("| Reason | Meaning |") == [[f"`{each.value}`", meanings[each.value]] for each in LinkRefusal]


def test_the_statuses_are_those_of_the_port() -> None:
    assert [row[:2] for row in table("| Status | Name |")] == [
        [str(int(each)), f"`{each.name.lower()}`"] for each in AnswerStatus
    ]


def test_the_bounds_are_those_of_the_code() -> None:
    limits = LinkLimits()
    assert [float(row[1]) for row in table("| What | Value |")] == [
        FRAME_BYTES,
        HELLO_BYTES,
        KIND_BYTES,
        limits.message,
        limits.queue,
        limits.inbox,
        limits.inbox_messages,
        limits.questions,
        MOST_UNFINISHED,
        link.FRAME_RATE,
        link.FRAME_BURST,
        link.IDLE_RATE,
        link.IDLE_BURST,
        links.MOST_LINKS,
        acceptor.STRANGERS,
        acceptor.ACCEPT_RATE,
        links.GREETING_SECONDS,
        link.SILENT_BEATS,
    ]


def test_the_kinds_are_those_of_the_code() -> None:
    kinds = [row[:2] for row in table("| Kind | Is a | Since |")]
    assert kinds == [[f"`{TAKE}`", "question"], [f"`{TAKEN}`", "record"], [f"`{OFFER}`", "question"]]
    assert orjson.loads(Take(SessionId("s"), Epoch(1)).encode()).keys() == {"session", "epoch"}
    head = orjson.loads(part(Given(GiveStatus.GIVEN).encode())[0])
    rows = {row[0].strip("`"): row[2] for row in table("| Name | Type |")}
    assert list(rows) == list(head)
    assert [each.value for each in GiveStatus if f"`{each.value}`" in rows["status"]] == [e.value for e in GiveStatus]
    said = " ".join(TEXT.split())
    assert f"an array of such objects, {MOST_OFFERED} at most" in said
    assert f"waits for {round(taker.TAKE_SECONDS * 1000)} ms at most" in said
    assert f"waits {round(giver.STEP_SECONDS * 1000)} ms for what has begun" in said
    assert f"until `taken` comes, or for {former_sessions.KEPT_SECONDS:g} s" in said


def test_what_the_text_says_in_numbers_and_words_is_so() -> None:
    said = " ".join(TEXT.split())
    patience = inspect.signature(links.StreamPeerLinks).parameters["patience"].default
    assert patience == 1.0
    assert "the other one waits for a second first" in said
    assert f"growing pauses of up to {dialer.BACKOFF.maximum:g} s" in said
    assert f"said good-bye is left alone for {dialer.AFTER_GOODBYE:g} s" in said
    assert f"may have a link for {links.UNLISTED_SECONDS:g} s" in said
    assert links.FRESH_BEATS == 2
    assert "for two heartbeats" in said
    assert f"(ALPN) is `{', '.join(LINK_ALPN)}`" in said
    assert f"`{NODE_URI}NAME`" in said
    report = NodeReport.__dataclass_fields__
    assert {"link", "link_protocols"} <= report.keys()


def test_the_examples_are_what_is_written_and_read() -> None:
    (shown,) = re.findall(r"^```json hello\n(.*?)\n```$", TEXT, re.MULTILINE)
    assert EXAMPLES["hello"] + shown.encode() == HELLO.encode()
    assert f"which is {len(shown)} bytes long" in TEXT
    assert Hello.decode(shown.encode()) == HELLO

    assert one_frame("beat") == Frame(FrameType.BEAT, False, 1, 0, b"")
    assert encode(FrameType.RECORD, 0, record_body("log", b"x"), version=1) == EXAMPLES["record"]
    assert read_record(one_frame("record").body) == ("log", b"x")
    assert encode(FrameType.QUESTION, 7, question_body("echo", b"hi", 0.25), version=1) == EXAMPLES["question"]
    assert read_question(one_frame("question").body) == (0.25, "echo", b"hi")
    assert encode(FrameType.ANSWER, 7, answer_body(AnswerStatus.ANSWERED, b"hi"), version=1) == EXAMPLES["answer"]
    assert read_answer(one_frame("answer").body) == (AnswerStatus.ANSWERED, b"hi")
    assert EXAMPLES.keys() == {"hello", "beat", "record", "question", "answer"}
