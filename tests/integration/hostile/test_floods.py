"""Floods of frames that make no message, against a real node with its default limits and a real Redis (P20).

They come from the node's own machine, to which no limit by address applies. Meanwhile a witness hears every number in
order, the node is ready whenever it is asked, and it keeps its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.core.wire.codes import HANDSHAKE_TIMEOUT
from gateway.settings import SETTINGS
from tests.fuzz.node import NodeUnderWatch, watched_node
from tests.fuzz.wire import CLOSE, TEXT, Wire, frame
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P20")

SIDE_BY_SIDE: Final = 4
"""Attackers of each kind at a time, with a session; and as many without."""

FLOODS: Final[dict[str, tuple[bytes, bytes]]] = {
    "pings": (b"", frame(0x89, b"")),
    "pongs": (b"", frame(0x8A, b"")),
    "empty fragments": (frame(0x01, b"x"), frame(0x00, b"")),
    "one-byte fragments": (frame(0x01, b"x"), frame(0x00, b"x")),
}
"""What a flood begins with, and what comes again and again."""

AT_ONCE: Final = 10_000
"""Frames that an attacker hands to its kernel at once."""

ASK_EVERY: Final = 0.05
"""Seconds between two looks at the node's readiness."""

POLICY_VIOLATION: Final = 1008

DEFAULTS: Final = ("lease", "lease_renew", "handshake_timeout", "limit_message_bytes", "limit_value_bytes")
"""Settings that nodes under watch have otherwise: these shall be as an operator has them who sets nothing."""


async def flood(node: NodeUnderWatch, name: str, *, greeted: bool) -> int | None:
    """Send frames for as long as they are taken; returns the code with which the node closes."""
    begin, more = FLOODS[name]
    wire = Wire(node.port)
    await wire.dial()
    assert await wire.upgrade()
    if greeted:
        await wire.send(frame(TEXT, b'{"type":"hello","principal":"mallory"}'))
        assert await wire.frame()
    await wire.send(begin)

    async def hear() -> None:
        while (heard := await wire.frame()) is not None and heard[0] != CLOSE:
            pass

    async def send() -> None:
        while await wire.send(more * AT_ONCE):
            pass

    hearing, sending = asyncio.create_task(hear()), asyncio.create_task(send())
    await asyncio.wait([hearing], return_when=asyncio.FIRST_COMPLETED)
    sending.cancel()
    await asyncio.gather(sending, hearing, return_exceptions=True)
    await wire.close()
    return wire.code


@asynccontextmanager
async def always_ready(node: NodeUnderWatch) -> AsyncIterator[list[int]]:
    """Ask all the time whether the node is ready, and list what it says."""
    answers: list[int] = []

    async def ask() -> None:
        async with aiohttp.ClientSession() as http:
            while True:
                async with http.get(f"http://127.0.0.1:{node.admin_port}/readyz") as answer:
                    answers.append(answer.status)
                await asyncio.sleep(ASK_EVERY)

    asking = asyncio.create_task(ask())
    try:
        yield answers
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_floods_of_frames_hurt_nobody_but_those_who_send_them(tmp_path: Path) -> None:
    settings = {name: SETTINGS[name].show(SETTINGS[name].default) for name in DEFAULTS}
    async with (
        time_limit(180.0),
        RedisServer() as server,
        watched_node(tmp_path, grid=server.url, grid_prefix=unique_prefix(), **settings) as node,
    ):
        async with always_ready(node) as answers:
            before = len(answers)
            codes = await asyncio.gather(
                *(
                    flood(node, name, greeted=greeted)
                    for name in FLOODS
                    for greeted in (True, False)
                    for _ in range(SIDE_BY_SIDE)
                )
            )
            assert len(answers) > before
            assert set(answers) == {200}
        await node.look()
        metrics = await node.metrics()
        figures = await node.settle()

    # Where the node has little time, an unauthenticated client may first be closed for saying nothing else.
    assert set(codes) <= {POLICY_VIOLATION, HANDSHAKE_TIMEOUT.code}
    assert codes.count(POLICY_VIOLATION) >= len(FLOODS) * SIDE_BY_SIDE
    assert metrics['gateway_frame_violations_total{rule="flood"}'] == codes.count(POLICY_VIOLATION)
    assert metrics["gateway_lease_lost_total"] == 0
    assert not any(event in node.log() for event in ('"lease_lost"', '"fenced"', '"session_fenced"'))
    assert figures["witnessed"] > 0
