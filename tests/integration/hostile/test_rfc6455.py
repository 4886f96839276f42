"""RFC 6455 sections 5 to 8, rule by rule, against a real node with nothing but a socket.

What a client says is a packet, so that a whole message shows itself by its answer: `hello` with a name is answered by a
welcome with the same name. Every case is sent in one piece and byte by byte; both must come to the same end. The cases
follow the order of the Autobahn test suite, which `make autobahn` runs where there is a Python 2.7.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import orjson
import pytest
import pytest_asyncio

from tests.fuzz.node import NodeUnderWatch, watched_node
from tests.fuzz.wire import CLOSE, TEXT, Wire, frame

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST = 65_536
"""Bytes that a message may have."""

BINARY, PING, PONG = 0x82, 0x89, 0x8A
BEGIN, MIDDLE, END = 0x01, 0x00, 0x80
"""First bytes: of the first, a middle and the last fragment of a text."""

PROTOCOL, DATA, NO_TEXT, POLICY, TOO_BIG = 1002, 1003, 1007, 1008, 1009
"""Codes to close with (section 7.4.1)."""

MASK = b"\x37\xfa\x21\x3d"
"""As in section 5.7."""

GOODBYE = frame(CLOSE, b"\x03\xe8", mask=MASK)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NodeUnderWatch]:
    async with watched_node(tmp_path_factory.mktemp("node"), limit_message_bytes=str(MOST)) as running:
        yield running


def f(first: int, payload: bytes = b"") -> bytes:
    return frame(first, payload, mask=MASK)


def close(code: int, reason: bytes = b"") -> bytes:
    return f(CLOSE, code.to_bytes(2, "big") + reason)


def hello(name: bytes = b"alice", *, size: int = 0) -> bytes:
    """Write a good message; blanks make it as long as wanted."""
    return (b'{"type":"hello","principal":"' + name + b'"}').ljust(size)


def cut(message: bytes, *places: int) -> list[bytes]:
    ends = [*places, len(message)]
    return [message[start:end] for start, end in zip([0, *places], ends, strict=True)]


def fragments(*pieces: bytes, between: bytes = b"") -> bytes:
    first, *middle, last = pieces
    return f(BEGIN, first) + between + b"".join(f(MIDDLE, each) + between for each in middle) + f(END, last)


Told = int | str | bytes
"""What the node must say: the number is the code of its close, a text the name in the welcome, bytes the payload of a
pong."""

Cases = Iterator[tuple[str, bytes | tuple[bytes, bytes], Sequence[Told]]]
"""Name; what is sent, of a pair the second once the first is answered; all answers, in order. If the last is no close,
the client then says goodbye, and is heard."""


def framing() -> Cases:
    """1: lengths in all three forms. 5.2: the shortest form has to be used."""
    for size in (125, 126, 127, 128, 65_535, MOST):
        yield f"text of {size}", f(TEXT, hello(size=size)), ["alice"]
        yield f"binary of {size}", f(BINARY, b"\xfe" * size), [DATA]
    yield "text of one byte more", f(TEXT, hello(size=MOST + 1)), [TOO_BIG]
    yield "binary of one byte more", f(BINARY, b"\0" * (MOST + 1)), [TOO_BIG]
    yield "empty text", f(TEXT), [4200]
    yield "empty binary", f(BINARY), [DATA]
    yield "not masked", b"\x81\x02{}", [PROTOCOL]
    yield "a mask of zeros", frame(TEXT, hello()), ["alice"]
    yield "125 in two bytes", b"\x81\xfe\x00\x7d" + MASK, [PROTOCOL]
    yield "65535 in eight bytes", b"\x81\xff" + (65_535).to_bytes(8, "big") + MASK, [PROTOCOL]
    yield "a length with its highest bit", b"\x81\xff" + b"\xff" * 8 + MASK, [TOO_BIG]


def pings() -> Cases:
    """2: pings are answered with what they carry, in order; pongs mean nothing. 5.5: at most 125 bytes."""
    for payload in (b"", b"Hello, world!", b"\0\xff\xfe\xfd\xfc\xfb\0\xff", b"\xfe" * 125):
        yield f"ping of {len(payload)}", f(PING, payload), [payload]
    yield "ping of 126", f(PING, b"\xfe" * 126), [PROTOCOL]
    yield "pong", f(PONG) + f(PONG, b"unsolicited") + f(PING, b"1"), [b"1"]
    yield "pong of 126", f(PONG, b"\xfe" * 126), [PROTOCOL]
    many = [b"payload-%d" % number for number in range(10)]
    yield "ten pings", b"".join(f(PING, each) for each in many), many
    yield "ping not final", f(PING & 0x7F, b"1"), [PROTOCOL]


def reserved() -> Cases:
    """3 and 4: bits and opcodes that nobody has agreed on."""
    for bits in range(1, 8):
        for first, kind in ((TEXT, "text"), (BINARY, "binary"), (PING, "ping"), (PONG, "pong"), (CLOSE, "close")):
            yield f"reserved bits {bits} of {kind}", f(first | bits << 4, b"\x03\xe8"), [PROTOCOL]
    yield "reserved bits behind a message", (f(TEXT, hello()), f(TEXT | 0x40, b"{}")), ["alice", PROTOCOL]
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        yield f"opcode {opcode}", f(0x80 | opcode), [PROTOCOL]
        yield f"opcode {opcode} behind a message", (f(TEXT, hello()), f(0x80 | opcode, b"x")), ["alice", PROTOCOL]


def fragmentation() -> Cases:
    """5: fragments make one message, with control frames between them and nothing else."""
    halves, single = cut(hello(), 12), [hello()[at : at + 1] for at in range(len(hello()))]
    yield "two fragments", fragments(*halves), ["alice"]
    yield "a fragment for each byte", fragments(*single), ["alice"]
    yield "empty fragments", fragments(b"", halves[0], b"", halves[1], b""), ["alice"]
    yield "a ping between", fragments(*halves, between=f(PING, b"1")), [b"1", "alice"]
    yield "pings between all", fragments(*halves, b"", between=f(PING, b"1")), [b"1", b"1", "alice"]
    yield "a pong between", fragments(*halves, between=f(PONG, b"1")), ["alice"]
    yield "a close between", f(BEGIN, halves[0]) + GOODBYE + f(END, halves[1]), [1000]
    yield "a text between", f(BEGIN, halves[0]) + f(TEXT, hello()), [PROTOCOL]
    yield "a binary between", f(BEGIN, halves[0]) + f(BINARY, b"x"), [PROTOCOL]
    yield "a beginning between", f(BEGIN, halves[0]) + f(BEGIN, halves[1]), [PROTOCOL]
    yield "an end of nothing", f(END, hello()), [PROTOCOL]
    yield "a middle of nothing", f(MIDDLE, hello()), [PROTOCOL]
    yield "an end behind a message", (f(TEXT, hello()), f(END, b"x")), ["alice", PROTOCOL]
    yield "an end twice", (fragments(*halves), f(END, b"x")), ["alice", PROTOCOL]
    yield "reserved bits of a fragment", f(BEGIN, halves[0]) + f(END | 0x10, halves[1]), [PROTOCOL]
    yield "binary in fragments", f(BINARY & 0x7F, b"a") + f(END, b"b"), [DATA]
    yield "too long together", f(BEGIN, b" " * MOST) + f(END, b"x"), [TOO_BIG]
    yield "as long as allowed together", fragments(b" " * (MOST - 40), hello(size=40)), ["alice"]


GOOD_TEXTS = (
    "κόσμε",
    "Hello-µ@ßöäüàá-UTF-8!!",
    "\u07ff",
    "\u0800",
    "\ud7ff",
    "\ue000",
    "\ufffd",
    "\uffff",
    "\ufdd0",
    "\U00010000",
    "\U0001fffe",
    "\U0010ffff",
    "💥é",
)
"""Ends of ranges, and characters that are none but may be sent (RFC 3629)."""

BAD_TEXTS = (
    *(b"\x80", b"\xbf", b"\x80\xbf\x80\xbf"),  # what goes on begins
    *(b"\xc2", b"\xc3 ", b"\xe0\xa0", b"\xef\xbf ", b"\xf0\x90\x80", b"\xf4\x8f\xbf"),  # cut short
    *(b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xe0\x9f\xbf", b"\xf0\x80\x80\xaf", b"\xf0\x8f\xbf\xbf"),  # longer
    *(b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80", b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"),  # of five and more
    *(b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xbf\xbf", b"\xed\xa0\x80\xed\xb0\x80"),  # surrogates
    *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf7\xbf\xbf\xbf"),  # above the last
    b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
)


def texts() -> Cases:
    """6: text is UTF-8, wherever it is cut."""
    for text in GOOD_TEXTS:
        data = text.encode()
        yield f"{text!a} whole", f(TEXT, hello(data)), [text]
        message = hello(data)
        at = message.index(data)
        inside = cut(message, *range(at, at + len(data)))
        yield f"{text!a} cut between all bytes", fragments(*inside), [text]
    for data in BAD_TEXTS:
        yield f"{data!r} whole", f(TEXT, hello(data)), [NO_TEXT]
        yield f"{data!r} at the end", f(TEXT, data), [NO_TEXT]
        message = hello(data)
        yield f"{data!r} cut", fragments(*cut(message, message.index(data) + 1)), [NO_TEXT]
    yield "good and then bad", (f(TEXT, hello()), f(TEXT, b"\xff")), ["alice", NO_TEXT]
    yield "bad fragment, and a ping", f(BEGIN, b"\xff") + f(PING, b"1") + f(END), [b"1", NO_TEXT]


SENDABLE = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999)
FORBIDDEN = (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535)


def closing() -> Cases:
    """7: a close is answered with its code, nothing counts behind it, and some codes nobody may send."""
    yield "a message and a close", (f(TEXT, hello()), GOODBYE), ["alice", 1000]
    yield "two closes", GOODBYE + GOODBYE, [1000]
    yield "a ping behind a close", GOODBYE + f(PING, b"1"), [1000]
    yield "a message behind a close", GOODBYE + f(TEXT, hello()), [1000]
    yield "a close of one byte", f(CLOSE, b"\x03"), [PROTOCOL]
    yield "a close of 126 bytes", close(1000, b"x" * 124), [PROTOCOL]
    yield "a reason as long as may be", close(1000, b"x" * 123), [1000]
    yield "a reason that is no text", close(1000, b"\xce\xba\xed\xa0\x80"), [NO_TEXT]
    yield "a close not final", f(CLOSE & 0x7F, b"\x03\xe8"), [PROTOCOL]
    for code in SENDABLE:
        yield f"close {code}", close(code), [code]
        yield f"close {code} with a reason", close(code, "Adieu, é".encode()), [code]
    for code in FORBIDDEN:
        yield f"close {code}, which nobody may send", close(code), [PROTOCOL]


CASES = {
    f"{rule.__name__}: {what}": (data, told)
    for rule in (framing, pings, reserved, fragmentation, texts, closing)
    for what, data, told in rule()
}

BYTE_BY_BYTE = 400
"""Longest data that is sent in single bytes, too: longer ones differ in nothing but time."""

WHOLE = frozenset(
    f"{rule}: {what}"
    for rule, what in (
        ("fragmentation", "a close between"),
        ("closing", "two closes"),
        ("closing", "a ping behind a close"),
        ("closing", "a message behind a close"),
    )
)
"""Cases that are only sent in one piece: what reaches a socket after it was closed makes the kernel break the
connection, and the answer is lost with it."""


async def converse(node: NodeUnderWatch, steps: Sequence[Sequence[bytes]], told: Sequence[Told]) -> None:
    """Send the pieces of each step, and see that the node says what it must and no more, until the connection ends."""
    wire = Wire(node.port)
    try:
        await wire.dial()
        assert await wire.upgrade()
        said: list[Told] = []
        for number, pieces in enumerate(steps):
            for piece in pieces:
                if not await wire.send(piece):
                    break
            while len(said) < len(told) and (number == len(steps) - 1 or not said):
                heard = await wire.frame()
                assert heard is not None, f"it ended after {said}"
                said += meaning(*heard)
        # The goodbye, or the answer to the node's, without which it would wait for one.
        await wire.send(GOODBYE)
        if not isinstance(told[-1], int):
            told = [*told, 1000]
        while heard := await wire.frame():
            said += meaning(*heard)
        assert said == list(told)
    finally:
        await wire.close()


def meaning(first: int, payload: bytes) -> list[Told]:
    if first == PONG:
        return [payload]
    if first == CLOSE:
        payload[2:].decode()
        return [int.from_bytes(payload[:2], "big")]
    assert first == TEXT
    return [each["principal"] for each in packets(payload) if each["type"] == "welcome"]


def packets(message: bytes) -> list[dict[str, str]]:
    content = orjson.loads(message)
    return content if isinstance(content, list) else [content]


async def test_the_exceptions_are_cases() -> None:
    assert set(CASES) >= WHOLE


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", CASES)
async def test_a_client_is_answered_by_the_rules(node: NodeUnderWatch, case: str) -> None:
    sent, told = CASES[case]
    steps = sent if isinstance(sent, tuple) else (sent,)
    await converse(node, [[data] for data in steps], told)
    if case not in WHOLE and sum(map(len, steps)) <= BYTE_BY_BYTE:
        await converse(node, [[data[at : at + 1] for at in range(len(data))] for data in steps], told)


async def test_a_close_without_a_code_is_answered_with_one_without(node: NodeUnderWatch) -> None:
    wire = Wire(node.port)
    await wire.dial()
    assert await wire.upgrade()
    await wire.send(f(CLOSE))
    assert await wire.frame() == (CLOSE, b"")
    assert await wire.frame() is None
    await wire.close()


async def test_nobody_was_harmed(node: NodeUnderWatch) -> None:
    await node.look()
    await node.settle()
