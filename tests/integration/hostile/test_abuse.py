"""Clients that mean no good, by the thousand, against a real node: refused, counted, and nobody else is worse off.

A witness session beside them must hear every number in order, and the node's memory is looked at before and after.
"""

from __future__ import annotations

import asyncio
import os
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import click
import pytest
import pytest_asyncio

from gateway.app.admission.limits import MOST_ACCOUNTS
from tests.fuzz.node import NodeUnderWatch, watched_node
from tests.fuzz.wire import CLOSE, TEXT, Wire, frame
from tests.support.upgrade import UPGRADE_REQUEST

SIDE_BY_SIDE: Final = 50
"""Attackers at a time."""

ROUNDS: Final = int(os.environ.get("ABUSE_ROUNDS", "6"))
"""Of them: some eight thousand attacks altogether. With 60, three thousand of each kind."""

GROWTH_BYTES: Final = 500
"""More memory for each attack that a node may hold afterwards: what an allocator keeps of its peak, and caches that are
bounded by far more than this. What belongs to one connection is larger."""

REPEATED: Final = 3
"""How often all attacks are done at most, until they leave nothing; a leak is there every time."""

ADDRESSES: Final = 36_000 if ROUNDS >= 60 else 1_200
"""From which handshakes come, once each; with 60 rounds more than a node remembers."""

FIRST: Final = IPv4Address("10.0.0.0")
"""Of them."""

ACCOUNT_BYTES: Final = 640
"""Most that a remembered address takes: ``MOST_ACCOUNTS`` of them are said to take some 20 MB."""

ALLOCATOR_BYTES: Final = 4 * 1024**2
"""That an allocator may keep besides, however few addresses there are."""

HELLO: Final = frame(TEXT, b'{"type":"hello","principal":"mallory"}')

pytestmark = pytest.mark.asyncio(loop_scope="module")

Attack = Callable[[NodeUnderWatch], Awaitable[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NodeUnderWatch]:
    """A node for all tests of this module, with a witness."""
    folder: Path = tmp_path_factory.mktemp("node")
    async with watched_node(folder, limit_message_bytes="65536", handshake_timeout="10") as running:
        yield running


async def asked(node: NodeUnderWatch, request: bytes) -> None:
    """Send a request, and read to the end."""
    wire = Wire(node.port)
    await wire.dial()
    await wire.send(request)
    try:
        while await wire.reader.read(65_536):
            pass
    except OSError:
        pass
    await wire.close()


async def said(node: NodeUnderWatch, *data: bytes, greeted: bool = True) -> None:
    """Open a WebSocket, say something, and read to the end."""
    wire = Wire(node.port)
    await wire.dial()
    assert await wire.upgrade()
    if greeted:
        await wire.send(HELLO)
        await wire.frame()
    for each in data:
        if not await wire.send(each):
            break
    while (heard := await wire.frame()) is not None:
        if heard[0] == CLOSE:
            await wire.send(frame(CLOSE, heard[1][:2]))
    assert wire.code not in {1011, 4005}
    await wire.close()


def refused(request: bytes) -> Attack:
    """Ask for what is refused."""
    return lambda node: asked(node, request)


def broken(*data: bytes) -> Attack:
    """Break a rule of frames."""
    return lambda node: said(node, *data, greeted=False)


def with_header(line: bytes) -> bytes:
    return UPGRADE_REQUEST[:-2] + line + b"\r\n\r\n"


def upgrade(reason: str) -> str:
    return f'gateway_upgrades_refused_total{{reason="{reason}"}}'


def violation(rule: str) -> str:
    return f'gateway_frame_violations_total{{rule="{rule}"}}'


def closed(code: int) -> str:
    return f'gateway_closes_total{{code="{code}"}}'


async def vanish_in_the_request(node: NodeUnderWatch) -> None:
    wire = Wire(node.port)
    await wire.dial()
    await wire.send(UPGRADE_REQUEST[:60])
    wire.reset()
    await wire.close()


async def vanish_silently(node: NodeUnderWatch) -> None:
    wire = Wire(node.port)
    await wire.dial()
    wire.reset()
    await wire.close()


FLOOD: Final = 10_000
"""Frames that carry nothing: three times what an unauthenticated client may send."""

BOMB: Final = zlib.compress(b"\0" * 10_000_000, 9)[2:-4]
"""Ten megabytes in ten kilobytes, as permessage-deflate would send them."""

VANISHING: Final = frozenset({"gone in the middle of the request", "gone without a word"})

ATTACKS: Final[dict[str, tuple[str, Attack]]] = {
    "gone in the middle of the request": (upgrade("gone"), vanish_in_the_request),
    "gone without a word": (upgrade("gone"), vanish_silently),
    "no HTTP": (
        upgrade("malformed"),
        refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500 + b"\r\n\r\n"),
    ),
    "HTTP/1.0": (upgrade("http_version"), refused(UPGRADE_REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0"))),
    "bare LF": (upgrade("malformed"), refused(UPGRADE_REQUEST.replace(b"\r\n", b"\n"))),
    "NUL in a header": (upgrade("malformed"), refused(with_header(b"X: a\0b"))),
    "bytes that are no text in a header's name": (upgrade("malformed"), refused(with_header(b"\xff\xfe: a"))),
    "smuggling by both lengths": (
        upgrade("malformed"),
        refused(
            with_header(b"Content-Length: 30\r\nTransfer-Encoding: chunked") + b"0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n"
        ),
    ),
    "smuggling by a length": (
        upgrade("body"),
        refused(with_header(b"Content-Length: 24") + b"GET /admin HTTP/1.1\r\n\r\n"),
    ),
    "smuggling by chunks": (upgrade("body"), refused(with_header(b"Transfer-Encoding: chunked") + b"0\r\n\r\n")),
    "two hosts": (upgrade("ambiguous"), refused(with_header(b"Host: evil.example"))),
    "absolute URI of another place": (
        upgrade("path"),
        refused(UPGRADE_REQUEST.replace(b"/v1/connect", b"http://evil.example/admin")),
    ),
    "too many headers": (upgrade("head_too_long"), refused(UPGRADE_REQUEST[:-2] + b"a: b\r\n" * 5000 + b"\r\n")),
    "a header too long": (upgrade("head_too_long"), refused(with_header(b"Cookie: " + b"x" * 20_000))),
    "page of another origin": (upgrade("origin"), refused(with_header(b"Origin: https://evil.example"))),
    "token in the URL": (
        upgrade("secret_in_url"),
        refused(UPGRADE_REQUEST.replace(b"/v1/connect", b"/v1/connect?token=hunter2hunter2")),
    ),
    "unmasked frame": (violation("unmasked"), broken(b"\x81\x02{}")),
    "compressed message": (violation("reserved_bits"), broken(frame(0xC1, BOMB))),
    "oversized frame, announced": (violation("too_big"), broken(b"\x81\xff" + (1 << 40).to_bytes(8, "big") + b"mask")),
    "oversized message, in fragments": (
        violation("too_big"),
        broken(frame(0x01, b"x" * 30_000) + frame(0x00, b"x" * 30_000) + frame(0x00, b"x" * 30_000)),
    ),
    "flood of empty fragments": (violation("flood"), broken(frame(0x01, b"x") + frame(0x00, b"") * FLOOD)),
    "flood of pings": (violation("flood"), broken(frame(0x89, b"") * FLOOD)),
    "text that is not UTF-8": (violation("not_utf_8"), broken(frame(TEXT, b"\xed\xa0\x80"))),
    "binary": (violation("binary"), broken(frame(0x82, b"\0"))),
    "a close that nobody may send": (violation("close"), broken(frame(CLOSE, b"\x03\xed"))),
    "JSON that nests without end": (closed(4200), broken(frame(TEXT, b"[" * 60_000))),
    "a packet that nobody knows": (closed(4200), broken(frame(TEXT, b'{"type":"x"}'))),
    "no hello but a request": (
        closed(4200),
        lambda node: said(node, frame(TEXT, b'{"id":1,"type":"publish","request":1,"topic":"a"}'), greeted=False),
    ),
}


@pytest.mark.thorough
@pytest.mark.promise("P20")
async def test_abuse_is_refused_counted_and_leaves_nothing(node: NodeUnderWatch) -> None:
    for _, attack in ATTACKS.values():
        await asyncio.gather(*(attack(node) for _ in range(SIDE_BY_SIDE)))
    # What a leak takes it takes each time; what the allocator keeps of a peak, on a busy machine, it takes once.
    grown = [await growth_by_all_attacks(node)]
    while grown[-1] >= GROWTH_BYTES and len(grown) < REPEATED:
        grown.append(await growth_by_all_attacks(node))
    assert grown[-1] < GROWTH_BYTES, f"memory grows each time: {grown} bytes an attack"


async def growth_by_all_attacks(node: NodeUnderWatch) -> float:
    """Do every attack, look that it was counted and harmed nobody, and return the bytes that each one has left."""
    await node.settle()
    memory = node.memory()
    for what, (series, attack) in ATTACKS.items():
        before = await node.metrics()
        for _ in range(ROUNDS):
            await asyncio.gather(*(attack(node) for _ in range(SIDE_BY_SIDE)))
        after = await node.metrics()
        counted = after[series] - before[series]
        if series == violation("flood"):
            # Where the node has little time, that of an unauthenticated client may be over before its flood is seen to
            # be one.
            counted += after[closed(4102)] - before[closed(4102)]
        # Who breaks a connection before it was accepted is let go by the kernel, more often than not.
        least = 1 if what in VANISHING else SIDE_BY_SIDE * ROUNDS
        assert least <= counted <= SIDE_BY_SIDE * ROUNDS, what
        click.echo(f"{what}: {counted:,.0f} in {series}")
        await node.look()

    figures = await node.settle()
    attacks, grown = len(ATTACKS) * ROUNDS * SIDE_BY_SIDE, node.memory() - memory
    click.echo(
        f"{attacks:,} attacks: {memory / 1024:,.0f} KiB, then {grown / 1024:+,.0f} KiB; "
        f"{figures['witnessed']:,.0f} numbers witnessed"
    )
    return grown / attacks


async def test_a_crowd_of_addresses_takes_no_more_than_a_table(tmp_path: Path) -> None:
    """Each handshake comes from another address, by a proxy that is trusted; each is refused, and leaves an account."""
    attack = with_header(b"Origin: https://evil.example")
    async with watched_node(tmp_path) as node:
        await asyncio.gather(*(asked(node, attack) for _ in range(200)))
        await node.settle()
        memory = node.memory()
        for start in range(0, ADDRESSES, SIDE_BY_SIDE):
            await asyncio.gather(
                *(
                    asked(node, attack[:-2] + b"X-Forwarded-For: %b\r\n\r\n" % str(FIRST + start + each).encode())
                    for each in range(SIDE_BY_SIDE)
                )
            )
        figures = await node.settle()
        assert (await node.metrics())['gateway_limited_accounts{of="address"}'] == min(ADDRESSES, MOST_ACCOUNTS)
        grown = node.memory() - memory
        click.echo(f"{ADDRESSES:,} addresses: {grown / 1024:+,.0f} KiB, {figures['witnessed']:,.0f} numbers witnessed")
        assert grown < ACCOUNT_BYTES * min(ADDRESSES, MOST_ACCOUNTS) + ALLOCATOR_BYTES


@pytest.mark.thorough
@pytest.mark.promise("P20")
async def test_who_is_slow_or_silent_is_let_go(node: NodeUnderWatch) -> None:
    """Slowloris in the request, and a handshake whose packet never comes; the time limits are the node's own."""
    before = await node.metrics()
    silent = [Wire(node.port) for _ in range(100)]
    for wire in silent:
        await wire.dial()
        assert await wire.upgrade()
        # Half a frame: something has come, and yet no packet.
        await wire.send(HELLO[:5])
    loris = [Wire(node.port) for _ in range(100)]
    for wire in loris:
        await wire.dial()

    async def trickle(wire: Wire) -> bytes:
        for at in range(len(UPGRADE_REQUEST) - 1):
            if not await wire.send(UPGRADE_REQUEST[at : at + 1]) or wire.reader.at_eof():
                break
            # The pace of the attack, which nothing waits for.
            await asyncio.sleep(0.1)
        try:
            return await wire.reader.read(65_536)
        except OSError:
            # It went on sending after it had been hung up on.
            return b""

    answers, _ = await asyncio.gather(
        asyncio.gather(*map(trickle, loris)), asyncio.gather(*(wire.to_end() for wire in silent))
    )
    assert {wire.code for wire in silent} == {4102}
    assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in answers if answer)
    for wire in [*silent, *loris]:
        await wire.close()
    after = await node.metrics()
    assert after[closed(4102)] == before[closed(4102)] + 100
    assert after[upgrade("slow")] + after[upgrade("gone")] == before[upgrade("slow")] + before[upgrade("gone")] + 100
    await node.settle()


@pytest.mark.promise("P8")
async def test_no_secret_of_a_url_is_anywhere(node: NodeUnderWatch) -> None:
    for place in (b"?token=hunter2hunter2", b"?a=b&secret=hunter2hunter2", b"?%74oken=hunter2hunter2"):
        await asked(node, UPGRADE_REQUEST.replace(b"/v1/connect", b"/v1/connect" + place))
    await node.look()

    assert "hunter2" not in node.log()
    assert not re.search("hunter2", str(await node.metrics()))
