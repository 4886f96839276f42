"""Unauthenticated clients at the admin port, which an operator has put where the attacker can reach it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker
from benchmarks.hostile.connection import READ_BYTES, Lost
from benchmarks.hostile.target import HOST

TITLE: Final = "Admin port"

SOCKETS: Final = 600
"""More than the 512 connections that the port has."""

PIPELINED: Final = 32
"""Requests that are sent together on a connection that is kept alive."""

LANES: Final = 8


def request(path: str, *headers: str) -> bytes:
    """Write a request."""
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {HOST}", *headers, "", ""]).encode()


@dataclass(frozen=True, kw_only=True)
class Held(Attack):
    """Connections that are held for as long as the node lets them be, then opened anew.

    Attributes:
        begun: what is sent on each.
        sockets: how many.
    """

    begun: bytes = b""
    sockets: int = SOCKETS

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def once() -> None:
            reader, writer = await attacker.stream(attacker.target.admin)
            try:
                if self.begun:
                    writer.write(self.begun)
                    attacker.effort.sent += len(self.begun)
                attacker.effort.done += 1
                while data := await reader.read(READ_BYTES):
                    attacker.effort.received += len(data)
            except OSError as error:
                raise Lost(f"read: {type(error).__name__}") from error
            finally:
                writer.transport.abort()
            raise Lost("closed")

        attacker.begin(seconds)
        number = attacker.target.scaled(self.sockets)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(number))


@dataclass(frozen=True, kw_only=True)
class Asked(Attack):
    """Requests on connections that are kept alive, as fast as they are answered.

    Attributes:
        asked: the request.
    """

    asked: bytes

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def once() -> None:
            reader, writer = await attacker.stream(attacker.target.admin)
            try:
                asking = asyncio.ensure_future(_ask(writer, self.asked * PIPELINED, attacker))
                try:
                    while data := await reader.read(READ_BYTES):
                        attacker.effort.received += len(data)
                        attacker.effort.done += data.count(b"HTTP/1.1 ")
                finally:
                    asking.cancel()
                    await asyncio.gather(asking, return_exceptions=True)
            except OSError as error:
                raise Lost(f"read: {type(error).__name__}") from error
            finally:
                writer.transport.abort()
            raise Lost("closed")

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(LANES))


async def _ask(writer: asyncio.StreamWriter, requests: bytes, attacker: Attacker) -> None:
    while not attacker.over:
        writer.write(requests)
        attacker.effort.sent += len(requests)
        await writer.drain()
        await asyncio.sleep(0)


ATTACKS: Final = (
    Held(name="admin-idle", about="600 connections that ask nothing", counts="connections"),
    Held(
        name="admin-half-requests",
        about="600 connections with half a request",
        counts="connections",
        begun=request("/metrics")[:-2],
    ),
    Asked(
        name="admin-metrics",
        about="requests for /metrics on 8 connections that are kept alive",
        counts="answers",
        asked=request("/metrics"),
    ),
    Asked(
        name="admin-health",
        about="requests for /readyz on 8 connections that are kept alive",
        counts="answers",
        asked=request("/readyz"),
    ),
    Asked(
        name="admin-wrong-tokens",
        about="requests with a wrong token on 8 connections that are kept alive",
        counts="answers",
        asked=request("/v1/sessions", "Authorization: Bearer wrong"),
    ),
)
