"""Fuzzes the request that opens a WebSocket: lines, headers and bodies, good and bad, cut anywhere."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz.engine import Case, Finding
from tests.fuzz.mutation import INTERESTING_BYTES, mutate_bytes
from tests.fuzz.node import NodeUnderWatch
from tests.fuzz.wire import PATIENCE, Wire, frame, steps

_DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "reference" / "protocol.md"

STATUSES: Final = frozenset(
    map(int, re.findall(r"^\| (\d{3}) \|", _DOCUMENT.read_text("utf-8").partition("\n1.4 ")[0], re.MULTILINE))
)
"""What may be answered (protocol 1.3)."""

_METHODS: Final = (b"GET",) * 12 + (
    b"POST",
    b"HEAD",
    b"OPTIONS",
    b"CONNECT",
    b"get",
    b"G\0T",
    b"",
    b"PRI",
    b"\x16\x03\x01",
)
_TARGETS: Final = (
    (b"/v1/connect",) * 8
    + (b"/v1/connect?node=n1",) * 3
    + (
        b"/v1/connect?token=secret",
        b"/v1/connect?%74oken=x",
        b"/v1/connect?a&secret",
        b"/v1/connect?" + b"x&" * 2000,
        b"http://gateway.example/v1/connect",
        b"HTTP://a@b:1/v1/connect",
        b"http://",
        b"*",
        b"/",
        b"//v1/connect",
        b"/v1/../v1/connect",
        b"/v1/connect#x",
        b"/v1/connect\0",
        b"/v1/connect%",
        b"/\xff",
        b"/v1/" + b"a" * 20_000,
        b"?",
    )
)
_VERSIONS: Final = (b"HTTP/1.1",) * 14 + (
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"HTTP/1.2",
    b"HTTP/1.11",
    b"http/1.1",
    b"",
    b"HTTP/9",
)
_ENDS: Final = (b"\r\n",) * 30 + (b"\n", b"\r", b"\r\r\n", b" \r\n", b"\0\r\n")
_HEADERS: Final = (
    (b"Host", b"gateway.example"),
    (b"Upgrade", b"websocket"),
    (b"Connection", b"Upgrade"),
    (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    (b"Sec-WebSocket-Version", b"13"),
    (b"Sec-WebSocket-Protocol", b"gateway.v1.json"),
)
_EXTRA: Final = (
    (b"Origin", b"https://app.example"),
    (b"Origin", b"https://evil.example"),
    (b"Origin", b"null"),
    (b"Content-Length", b"0"),
    (b"Content-Length", b"5"),
    (b"Content-Length", b"-1"),
    (b"Content-Length", b"1e9"),
    (b"Content-Length", b"18446744073709551616"),
    (b"Transfer-Encoding", b"chunked"),
    (b"Transfer-Encoding", b"x, chunked"),
    (b"Transfer-Encoding ", b"chunked"),
    (b"Expect", b"100-continue"),
    (b"X-Forwarded-For", b"1.2.3.4, " * 500),
    (b"X-Forwarded-For", b"::ffff:1.2.3.4%eth0, \xff"),
    (b"Sec-WebSocket-Extensions", b"permessage-deflate"),
    (b"Cookie", b"a=" + b"b" * 8000),
    (b"Authorization", b"Bearer secret"),
    (b"", b""),
    (b"A" * 5000, b""),
    (b"X-Null", b"a\0b"),
    (b" folded", b"x"),
    (b"Connection", b"close"),
    (b"Keep-Alive", b"timeout=999999"),
    (b"TE", b"trailers"),
    (b"Host", b"evil.example"),
    (b"Upgrade", b"h2c"),
    (b"HTTP2-Settings", b"AAMAAABkAAQAAP__"),
)
_BEHIND: Final = (b"",) * 6 + (
    frame(0x81, b'{"type":"hello","principal":"a"}'),
    b"0\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff" * 50,
)


class UpgradeFuzzer:
    """See the module."""

    name = "upgrade"

    def __init__(self, node: NodeUnderWatch) -> None:
        self._node = node

    def draw(self, random: Random) -> Case:
        """Draw a request and how it is sent."""
        headers = [each for each in _HEADERS if random.random() > 0.05]
        for _ in range(random.choice((0, 0, 1, 1, 2, 5, 120))):
            headers.insert(random.randrange(len(headers) + 1), random.choice((*_EXTRA, *_HEADERS)))
        if random.random() < 0.2 and headers:
            at = random.randrange(len(headers))
            headers[at] = (headers[at][0], mutate_bytes(random, headers[at][1]))
        separator = random.choice((b": ",) * 20 + (b":", b" : ", b"", b":\t", b"=\0"))
        line = b" ".join((random.choice(_METHODS), random.choice(_TARGETS), random.choice(_VERSIONS)))
        data = line + random.choice(_ENDS)
        for name, content in headers:
            data += name + separator + content + random.choice(_ENDS)
        data += random.choice(_ENDS) + random.choice(_BEHIND)
        if random.random() < 0.35:
            data = mutate_bytes(random, data)
        if random.random() < 0.03:
            data = random.choice(INTERESTING_BYTES) * random.randrange(3000)
        return steps(random, data)

    async def run(self, case: Case) -> None:
        """Send it, and look at the answer."""
        wire = Wire(self._node.port)
        try:
            async with asyncio.timeout(PATIENCE):
                await wire.dial()
                if not await wire.play(case):
                    return
                answer = b""
                try:
                    while more := await wire.reader.read(65_536):
                        answer += more
                except OSError:
                    # What was sent too much makes the kernel break the connection, also with an answer unread.
                    return
        except TimeoutError:
            raise Finding(f"neither answered nor ended within {PATIENCE:g} s") from None
        finally:
            await wire.close()
        self._judge(answer, b"".join(step[1].encode("latin-1") for step in case))

    async def look(self) -> None:
        """Look after the node."""
        await self._node.look()

    def _judge(self, answer: bytes, asked: bytes) -> None:
        if not answer:
            return
        found = re.match(rb"HTTP/1\.1 (\d{3}) [ -~]+\r\n", answer)
        if found is None:
            raise Finding(f"answered with {answer[:200]!r}")
        status = int(found[1])
        if status not in STATUSES:
            raise Finding(f"answered with status {status}, which the protocol does not list")
        if status == 101:
            return
        head, end, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"\r\nContent-Length: (\d+)", head)
        if not end or length is None or len(body) not in {int(length[1]), 0}:
            raise Finding(f"an answer that is not whole: {answer[:300]!r}")
        if b"secret" in asked and b"secret" in body.replace(b"tokens and secrets do not belong", b""):
            raise Finding("an answer repeats a secret")
