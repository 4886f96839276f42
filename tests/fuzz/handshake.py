"""Fuzzes the first packets of a connection: hello and resume, whole and broken, in good frames and bad ones."""

from __future__ import annotations

import asyncio
from random import Random

import orjson

from tests.fuzz import templates
from tests.fuzz.engine import Case, Finding
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.node import NodeUnderWatch
from tests.fuzz.wire import PATIENCE, TEXT, Wire, frame, steps

_OLD_TOKEN = "eyJzIjoieCJ9.ZGVhZA.bm90LWEtc2lnbmF0dXJl"
"""Has the form of a token."""


def judge(wire: Wire) -> None:
    """Look at all that came on a connection.

    Raises:
        Finding: something that only a bug can say.
    """
    for message in wire.messages:
        try:
            packets = orjson.loads(message)
        except orjson.JSONDecodeError:
            raise Finding(f"said what is not JSON: {message[:200]!r}") from None
        for packet in packets if isinstance(packets, list) else [packets]:
            if packet["type"] == "error" and packet["code"] == "internal":
                raise Finding(f"failed: {packet['message']}")
            if packet["type"] == "reply" and packet.get("error", {}).get("code") == "internal":
                raise Finding(f"failed at a request: {packet}")
    if wire.code in {1011, 4005}:
        raise Finding(f"closed with {wire.code}")


class HandshakeFuzzer:
    """See the module."""

    name = "handshake"

    def __init__(self, node: NodeUnderWatch) -> None:
        self._node = node

    def draw(self, random: Random) -> Case:
        """Draw what is said behind the upgrade, and how."""
        data = b""
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            packet = random.choice(
                (templates.hello(random), templates.resume(random, _OLD_TOKEN), templates.request(random))
            )
            payload = templates.written(random, packet).encode("latin-1")
            first = TEXT if random.random() < 0.9 else random.randrange(256)
            mask = random.choice((b"\0\0\0\0", b"mask", b"\xff\0\xff\0"))
            if random.random() < 0.1 and len(payload) > 1:
                half = random.randrange(len(payload))
                data += frame(first & 0x7F, payload[:half], mask=mask) + frame(0x89, b"ping") * random.choice(
                    (0, 1, 1100)
                )
                data += frame(0x80, payload[half:], mask=mask)
            else:
                data += frame(first, payload, mask=mask)
        if random.random() < 0.25:
            data = mutate_bytes(random, data)
        return steps(random, data)

    async def run(self, case: Case) -> None:
        """Say it, and hear what is answered."""
        wire = Wire(self._node.port)
        try:
            async with asyncio.timeout(PATIENCE):
                await wire.dial()
                if not await wire.upgrade():
                    raise Finding(f"a good upgrade was refused: {wire.answer!r}")
                if not await wire.play(case):
                    return
                await wire.to_end()
        except TimeoutError:
            raise Finding(f"not ended within {PATIENCE:g} s") from None
        finally:
            await wire.close()
        judge(wire)

    async def look(self) -> None:
        """Look after the node."""
        await self._node.look()
