"""The wire protocol's document and the code say the same (docs/reference/protocol.md).

Blocks are marked by the words after ``json``: ``client|server|both NAME`` is decoded, compared and encoded again;
``… accepted`` is only decoded and compared; ``… rejected CODE`` must be refused with that error code;
``exchange SENDER`` is compared byte for byte with what two session machines write.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import orjson
import pytest

from gateway.app.connections.hello import MAX_CLIENT_TYPE
from gateway.core.topics.selectors import MAX_ANY
from gateway.core.topics.topics import MAX_PATH_BYTES, MAX_SEGMENTS
from gateway.core.types import (
    Attempt,
    DeliveryTag,
    EventId,
    MessageId,
    NodeId,
    PacketId,
    RequestNumber,
    Version,
)
from gateway.core.wire import codec, properties
from gateway.core.wire.codec import readers
from gateway.core.wire.codes import (
    CLOSE_CODES,
    ERRORS,
    REVOKED,
    ErrorCode,
    FailoverReason,
    MirrorMode,
    Numbering,
    Outcome,
)
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import (
    Ack,
    Authenticate,
    Backoff,
    Bye,
    Error,
    GoAway,
    Hello,
    HistoryPart,
    Malformed,
    Notice,
    NoticeCode,
    Packet,
    Ping,
    Pong,
    Publish,
    ReadHistory,
    Reply,
    Resume,
    SessionPacket,
    SetProperties,
    Subscribe,
    Unsubscribe,
    Update,
    Welcome,
)
from gateway.core.wire.queue_packets import (
    AckMode,
    Cancel,
    Consume,
    Declare,
    Message,
    Send,
    Settle,
    Settlement,
)
from gateway.core.wire.topology_packets import Cluster, ListedNode, Topology
from gateway.settings import Settings
from tests.docs.exchange import OF_LATER_SECTIONS, WELCOME, Exchange, encode_body
from tests.docs.later_examples import LATER, session

N1 = ListedNode(NodeId("n1"), ("wss://n1.example.com",))
N2_URLS = ("wss://n2.example.com:8443", "wss://10.0.0.2")

ROOT: Final = Path(__file__).parents[2]

SUPPORTS: Final = frozenset({"handed_over", "mirrored", "replay"})
"""What clients of this release say; the exchange is with one that holds no positions."""
TEXT: Final = (ROOT / "docs" / "reference" / "protocol.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"^```json ([^\n]*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """A marked block.

    Attributes:
        sender: client, server or both.
        rule: what is to be done with it; empty, ``accepted`` or ``rejected``.
        code: for ``rejected``, the error code.
        text: the JSON.
    """

    sender: str
    rule: str
    code: str
    text: str


def read_examples() -> dict[str, Example]:
    examples: dict[str, Example] = {}
    for mark, text in BLOCKS:
        sender, name, rule, code = [*mark.split(), "", ""][:4]
        if sender != "exchange":
            assert name not in examples, f"two examples are called {name}"
            examples[name] = Example(sender, rule, code, text)
    return examples


EXAMPLES: Final = read_examples()


def refused(request: int, kind: str, field: str, why: str, code: ErrorCode) -> Malformed:
    return Malformed(RequestNumber(request), f"{kind} packet: '{field}' {why}", code)


NOT_UNICODE: Final = "is not Unicode: a surrogate in it has no other half"
TOO_WIDE: Final = "you may not select all of 'prices/**', but of it 'prices/public/**'"
UNAVAILABLE: Final = "the grid is unreachable and nothing was done; ask again"
NINE: Final = RequestNumber(9)

EXPECTED: Final[dict[str, Packet | list[Packet]]] = {
    "hello": Hello(
        principal="alice",
        secret="s3cret",
        properties={"team": "fx"},
        client="example/1",
        window=60.0,
        supports=SUPPORTS,
    ),
    "resume": Resume(
        token="token-1", attempt=Attempt(3), received=PacketId(41), oldest=PacketId(17), supports=SUPPORTS
    ),
    "resume-with-fresh-credentials": Resume(
        token="token-1", attempt=Attempt(4), received=PacketId(41), oldest=PacketId(17), secret="s3cret-2"
    ),
    "resume-with-time-away": Resume(
        token="token-1", attempt=Attempt(5), received=PacketId(41), oldest=PacketId(17), away=1840
    ),
    "resume-with-positions": Resume(
        token="token-1",
        attempt=Attempt(6),
        received=PacketId(41),
        oldest=PacketId(17),
        supports=frozenset({"replay"}),
        positions={25: EventId("25-1-8"), 40: EventId("40-1-0")},
        unfinished={RequestNumber(12): "orders/*"},
    ),
    "resume-without-buffers": Resume(
        token="token-1", attempt=Attempt(1795249200123), received=PacketId(0), oldest=PacketId(codec.MAX_NUMBER)
    ),
    "welcome": Welcome(
        session=WELCOME.session,
        principal="alice",
        node=NodeId("n2"),
        token="token-4",
        outcome=Outcome.FAILED_OVER,
        numbering=Numbering.RESTARTED,
        reason=FailoverReason.GAP,
        received=PacketId(0),
        resent=0,
        lost=37,
        conflated=None,
        window=60.0,
        ping_interval=20.0,
        ping_timeout=45.0,
        replicated=True,
        limits=WELCOME.limits,
        backoff=WELCOME.backoff,
        properties={"$session": "s-4f1c", "$principal": "alice", "$node": "n2", "team": "fx"},
        selections=("+prices/**", "-prices/secret/**"),
    ),
    "welcome-with-an-outcome-of-the-future": replace(
        WELCOME,
        node=NodeId("n2"),
        token="token-4",
        outcome="beamed_up",
        numbering=Numbering.KEPT,
        received=PacketId(17),
        properties={},
    ),
    "welcome-with-a-backup": replace(
        WELCOME,
        node=NodeId("n2"),
        token="token-4",
        outcome=Outcome.MIRRORED,
        numbering=Numbering.KEPT,
        received=PacketId(17),
        properties={},
        backup=NodeId("n3"),
        mirror=MirrorMode.SYNC,
    ),
    "welcome-replayed": replace(
        WELCOME,
        node=NodeId("n2"),
        token="token-4",
        outcome=Outcome.FAILED_OVER,
        numbering=Numbering.RESTARTED,
        reason=FailoverReason.OTHER_NODE,
        lost=None,
        conflated=None,
        properties={},
        selections=("+prices/**",),
        replayed={40: "gap"},
    ),
    "ack": Ack(PacketId(44)),
    "ping": Ping(),
    "ping-with-a-renewed-token": Ping("token-1b"),
    "ping-with-new-advice": Ping(backoff=Backoff(initial=3.0, maximum=10.0, stable_after=10.0)),
    "pong": Pong(PacketId(44)),
    "go-away": GoAway("the node drains", 1.0),
    "go-away-to-a-node": GoAway("an administrator moves the session to n2", 1.0, NodeId("n2")),
    "go-away-with-advice": GoAway(
        "the node drains", 0.0, backoff=Backoff(initial=3.0, maximum=10.0, stable_after=10.0)
    ),
    "topology": Topology(Cluster("5d41402abc4b", (N1, ListedNode(NodeId("n2"), N2_URLS)))),
    "bye": Bye("done"),
    "error": Error(ErrorCode.PROTOCOL_ERROR, f"'attempt' must be an integer from 1 to {codec.MAX_NUMBER}"),
    "error-not-master": Error(
        ErrorCode.NOT_MASTER, "the master is n1", node=NodeId("n1"), urls=("wss://n1.example.com",)
    ),
    "error-revoked": Error(ErrorCode.REVOKED, REVOKED.meaning),
    "error-that-names-a-request": Error(ErrorCode.MESSAGE_TOO_BIG, "a message has at most 65536 bytes", request=NINE),
    "error-with-retry": Error(ErrorCode.GRID_UNAVAILABLE, "the grid is unreachable; try again", 1.0),
    "publish": session(12, Publish(NINE, "prices/ACME", b'{"bid":1.5}'), 40),
    "publish-resubmitted": session(1, Publish(NINE, "prices/ACME", b'{"bid":1.5}', resubmitted=True)),
    "subscribe-resubmitted": session(1, Subscribe(RequestNumber(10), "prices/**", resubmitted=True)),
    "subscribe": session(1, Subscribe(RequestNumber(1), "prices/**")),
    "unsubscribe": session(2, Unsubscribe(RequestNumber(2), "prices/secret/**")),
    "properties": session(2, SetProperties(RequestNumber(2), {"team": "rates", "desk": None})),
    "authenticate": session(3, Authenticate(RequestNumber(3), "s3cret-2")),
    "send": session(
        7, Send(RequestNumber(7), "jobs/render", b'{"frame":1}', {"kind": "draft"}, delay=2.5, expires=3600.0)
    ),
    "reply-to-send": session(9, Reply(request=RequestNumber(7), sent=MessageId(41))),
    "consume": session(8, Consume(RequestNumber(8), "jobs/render", 32, AckMode.EACH)),
    "message": session(
        10,
        Message(
            queue="jobs/render",
            message=MessageId(41),
            delivery=DeliveryTag(17),
            sent=1767225600000,
            deliveries=1,
            redelivered=True,
            headers={"kind": "draft"},
            value={"frame": 1},
        ),
    ),
    "cancel": session(9, Cancel(RequestNumber(9), "jobs/render")),
    "settle": session(
        10,
        Settle(
            RequestNumber(10),
            "jobs/render",
            ((MessageId(41), DeliveryTag(17)), (MessageId(42), DeliveryTag(18))),
            Settlement.RELEASE,
            5.0,
        ),
    ),
    **OF_LATER_SECTIONS,
    "reply-to-publish": session(41, Reply(request=NINE, version=Version(8), event=EventId("25-1-8")), 12),
    "reply": session(41, Reply(request=NINE)),
    "reply-with-an-error": session(
        41, Reply(request=NINE, error=ErrorCode.GRID_UNAVAILABLE, message=UNAVAILABLE, retry_after=0.5)
    ),
    "an-error-code-of-the-future": session(41, Reply(request=NINE, error=ErrorCode.INTERNAL, message="please wait")),
    "notice-values-reread": session(46, Notice("values_reread", "Current values follow.", partitions=(3, 17))),
    "notice-unmirrored": session(
        48, Notice("unmirrored", "The backup n2 did not answer in time; packets leave without it.")
    ),
    "notice-snapshots-complete": session(
        47,
        Notice(
            "snapshots_complete",
            "All current values that were due have been sent.",
            partitions=(25,),
            positions={25: EventId("25-1-8")},
            request=RequestNumber(12),
        ),
    ),
    "notice": session(45, Notice("grid_lost_writes", "The grid came back with less than it had.")),
    "reply-to-a-selector-that-is-too-wide": session(
        3, Reply(request=RequestNumber(2), error=ErrorCode.FORBIDDEN, message=TOO_WIDE)
    ),
    "notice-of-withdrawn-permissions": session(
        46,
        Notice(
            "permissions_withdrawn",
            "you may not select all of 'prices/**' any more",
            withdrawn=("prices/**",),
            selections=("+prices/public/**",),
        ),
    ),
    "notice-of-withdrawn-queues": session(
        47,
        Notice(
            "permissions_withdrawn",
            "you may not consume from 'jobs/render' any more",
            withdrawn=(),
            selections=("+prices/public/**",),
            queues=("jobs/render",),
        ),
    ),
    "numbers-that-follow": [
        session(51, Notice("values_reread", "51"), 12),
        session(52, Notice("values_reread", "52")),
        Ping(),
        session(53, Notice("values_reread", "53")),
    ],
    "update": session(43, Update("prices/ACME", Version(8), EventId("25-1-8"), {"bid": 1.5})),
    "update-removed": session(45, Update("prices/XYZ", Version(4), EventId("25-1-10"), None, removed=True)),
    "update-folded": session(46, Update("prices/ACME", Version(12), EventId("25-1-12"), {"bid": 1.6}, folded=3)),
    "unsubscribe-but-keep": session(3, Unsubscribe(RequestNumber(3), "prices/**", keep=("prices/ACME",))),
    "history": session(
        15, ReadHistory(RequestNumber(11), "log/**", {17: EventId("17-1-88")}, earliest=True, limit=100)
    ),
    "reply-to-history": session(
        51,
        Reply(
            request=RequestNumber(11),
            history=HistoryPart(
                events=(
                    Update("log/a", Version(5), EventId("17-1-90"), "on"),
                    Update("log/b", Version(9), EventId("17-1-93"), None, removed=True),
                ),
                positions={17: EventId("17-1-95")},
            ),
        ),
    ),
    "reply-to-history-with-a-gap": session(
        52,
        Reply(
            request=RequestNumber(12),
            history=HistoryPart(positions={17: EventId("17-1-95")}, gap=True, missing=("log/a",)),
        ),
    ),
    "declare": session(11, Declare(RequestNumber(11))),
    "reply-to-declare": session(30, Reply(request=RequestNumber(11), queue="$tmp-4c5a0a1b2c3d4e5f60718293/11")),
    **LATER,
    "update-snapshot": session(44, Update("prices/XYZ", Version(3), EventId("25-1-9"), None, snapshot=True), 12),
    "unknown-fields-and-nulls": session(1, Subscribe(RequestNumber(1), "a")),
    "a-topic-that-is-not-unicode": session(1, refused(1, "publish", "topic", NOT_UNICODE, ErrorCode.BAD_TOPIC)),
    "a-bad-value-among-good-packets": [
        session(
            1,
            refused(
                1,
                "publish",
                "value",
                "has the number 1E400, which is beyond what a double can hold",
                ErrorCode.BAD_VALUE,
            ),
        ),
        session(2, Publish(RequestNumber(2), "a", b"1e+40")),
        session(3, refused(3, "subscribe", "selector", NOT_UNICODE, ErrorCode.BAD_SELECTOR)),
        session(4, refused(4, "properties", "set", NOT_UNICODE, ErrorCode.BAD_PROPERTIES)),
    ],
    "a-request-that-only-gets-a-reply": session(
        1, Malformed(RequestNumber(1), "publish packet: 'topic' must be a string")
    ),
}
"""What each example means; the rejected ones mean nothing."""


def decoders(example: Example) -> list[str]:
    return ["client", "server"] if example.sender == "both" else [example.sender]


def decode(text: str, sender: str) -> list[Packet]:
    return codec.decode_from_client(text) if sender == "client" else codec.decode_from_server(text)


def encode(packet: Packet) -> bytes:
    if isinstance(packet, SessionPacket):
        return codec.number(encode_body(packet.body), packet.id, packet.received)
    return codec.encode_link(packet)


# --- Examples -------------------------------------------------------------------------------------------------------


def test_every_example_is_known_and_every_known_one_is_in_the_document() -> None:
    assert {name for name, example in EXAMPLES.items() if example.rule != "rejected"} == set(EXPECTED)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_means_what_the_document_says(name: str) -> None:
    example = EXAMPLES[name]
    for sender in decoders(example):
        if example.rule == "rejected":
            with pytest.raises(RemoteProtocolError) as refusal:
                decode(example.text, sender)
            assert refusal.value.code == example.code
            continue
        expected = EXPECTED[name]
        assert decode(example.text, sender) == (expected if isinstance(expected, list) else [expected])
        if not example.rule:
            assert not isinstance(expected, list)
            assert json.loads(encode(expected)) == json.loads(example.text)


def is_strict(text: str) -> bool:
    """Tell whether a text is JSON to those parsers, too, that take nothing that cannot be passed on."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


# Both may ping and tell of errors; that only a server renews a token, or revokes, is a matter of meaning.
ONE_SIDED: Final = [
    name
    for name, example in EXAMPLES.items()
    if example.sender != "both"
    and not isinstance(EXPECTED.get(name), (Ping, Error))
    and example.rule != "rejected"
    and is_strict(example.text)
]


@pytest.mark.parametrize("name", ONE_SIDED)
def test_what_only_one_side_may_send_is_refused_from_the_other(name: str) -> None:
    example = EXAMPLES[name]
    other = "server" if example.sender == "client" else "client"

    with pytest.raises(RemoteProtocolError) as refusal:
        decode(example.text, other)
    assert refusal.value.code is ErrorCode.UNKNOWN_PACKET_TYPE


def test_every_packet_has_an_example() -> None:
    contents = [json.loads(example.text) for example in EXAMPLES.values() if example.rule != "rejected"]
    shown = {content["type"] for content in contents if isinstance(content, dict)}

    assert shown == {row[0].strip("`") for row in table("| Packet | Kind |")}


# --- The exchange -----------------------------------------------------------------------------------------------------


def test_the_exchange_is_what_two_machines_write_and_understand() -> None:
    written = [(mark, text.removesuffix("\n")) for mark, text in BLOCKS if mark.startswith("exchange")]
    steps = list(Exchange().steps())

    assert [text for _, text in written] == [step.message.decode() for step in steps]
    for (mark, _), step in zip(written, steps, strict=True):
        assert mark == f"exchange {step.sender}" + (" lost" if step.received is None else "")
        assert not any(isinstance(item, RemoteProtocolError) for item in step.received or [])


# --- Tables -----------------------------------------------------------------------------------------------------------


def table(head: str) -> list[list[str]]:
    """Return the cells of the only table whose first line begins with *head*."""
    (rows,) = re.findall(rf"^{re.escape(head)}[^\n]*\n\|[- |]+\|\n((?:\|[^\n]*\n)+)", TEXT, re.MULTILINE)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows.splitlines()]


def test_the_table_of_packets_is_that_of_the_codec() -> None:
    senders: dict[str, set[str]] = {}
    kinds: dict[str, str] = {}
    for kind, sender, known in (
        ("link", "client", readers.LINK_FROM_CLIENT),
        ("link", "server", readers.LINK_FROM_SERVER),
        ("session", "client", readers.BODIES_FROM_CLIENT),
        ("session", "server", readers.BODIES_FROM_SERVER),
    ):
        for name in known:
            kinds[name] = kind
            senders.setdefault(name, set()).add(sender)

    assert {row[0].strip("`"): (row[1], row[2]) for row in table("| Packet | Kind |")} == {
        name: (kinds[name], "both" if len(who) > 1 else who.pop()) for name, who in senders.items()
    }


def test_the_table_of_errors_is_that_of_the_registry() -> None:
    assert table("| Code | Retryable | Meaning |") == [
        [f"`{spec.code.value}`", "yes" if spec.retryable else "no", spec.meaning] for spec in ERRORS.values()
    ]


def test_the_table_of_close_codes_is_that_of_the_registry() -> None:
    assert table("| Code | Name | Meaning |") == [
        [str(each.code), f"`{each.name}`", each.meaning] for each in CLOSE_CODES
    ]


def test_the_table_of_notices_is_that_of_the_code() -> None:
    assert [row[0] for row in table("| Code | Meaning |")] == [f"`{code.value}`" for code in NoticeCode]


def test_the_numbers_that_the_protocol_fixes_are_those_of_the_code() -> None:
    assert [int(row[1]) for row in table("| What | Value |")] == [
        codec.MAX_NUMBER,
        MAX_PATH_BYTES,
        MAX_SEGMENTS,
        codec.MAX_NESTING,
        MAX_ANY,
        properties.MAX_PROPERTIES,
        properties.MAX_PROPERTY_NAME,
        properties.MAX_PROPERTY_VALUE,
        MAX_CLIENT_TYPE,
    ]


def test_the_defaults_of_what_the_welcome_announces_are_those_of_the_settings() -> None:
    settings = Settings()
    expected = [
        f"{settings.limit_message_bytes}",
        f"{settings.limit_value_bytes}",
        f"{settings.limit_requests}",
        f"{settings.limit_selections}",
        f"{settings.limit_selection_bytes}",
        f"{settings.limit_resend_packets}",
        f"{settings.limit_resend_bytes}",
        f"{settings.limit_questions}",
        f"{settings.limit_handlers}",
        f"{settings.window_default:g}",
        f"{settings.ping_interval:g}, {settings.ping_timeout:g}",
        f"{settings.backoff_initial:g}, {settings.backoff_maximum:g}, {settings.backoff_stable:g}",
    ]

    assert [row[1] for row in table("| Field | Default of a node |")] == expected


# --- Sections ---------------------------------------------------------------------------------------------------------

QUOTE: Final = re.compile(r"\bprotocol(?: sections?)? (\d+(?:\.\d+)*)(?:(?: and| to|,) (\d+(?:\.\d+)*))?")


def headings() -> set[str]:
    """Numbers of sections and of numbered paragraphs."""
    return set(re.findall(r"^(?:#+ )?(\d+(?:\.\d+)*)\b(?!\.\s)", TEXT, re.MULTILINE))


def test_each_number_of_a_section_or_paragraph_is_given_once_and_in_order() -> None:
    # Lines of text may begin with a number, too, but not with one and a new sentence.
    marked = re.findall(r"^#+ (\d+(?:\.\d+)*)|^(\d+(?:\.\d+)+) (?=[A-Z`*])", TEXT, re.MULTILINE)
    numbers = [tuple(map(int, (heading or paragraph).split("."))) for heading, paragraph in marked]

    assert len(numbers) > 100
    assert numbers == sorted(set(numbers))


def test_every_section_that_the_code_quotes_exists() -> None:
    known = headings()
    missing = {
        f"{path.relative_to(ROOT)} quotes protocol {number}"
        for folder in ("gateway", "lb", "tests", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".lua"}
        for quote in QUOTE.findall(path.read_text(encoding="utf-8"))
        for number in quote
        if number and number not in known
    }

    assert not missing


def test_every_section_that_the_document_quotes_exists() -> None:
    quoted = set(re.findall(r"[( ](\d{1,2}(?:\.\d+)+)(?=[),; :.]|$)", TEXT, re.MULTILINE))
    known = headings()
    # Everything else that looks like a section number is a number of seconds.
    seconds = {"0.25", "0.5", "1.0", "20.0", "45.0", "60.0", "10.0", "1.5", "0.0", "3.0"}

    assert quoted - known - seconds == set()
