"""Clients of the admin port and of HAProxy's agent check, which an operator has put where the attacker can reach them.

All but one have no token. That one may look at everything and change nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker
from benchmarks.hostile.connection import READ_BYTES, Lost
from benchmarks.hostile.target import HOST

TITLE: Final = "Ports for administration"

SOCKETS: Final = 600
"""More than the 512 connections that the port has."""

PIPELINED: Final = 32
"""Requests that are sent together on a connection that is kept alive."""

LANES: Final = 8

_WRONG: Final = "wrong"

VIEWER: Final = "viewer"
"""Stands for the token of an administrator who may look at everything and change nothing; each stack has another."""


def request(path: str, *headers: str) -> bytes:
    """Write a request."""
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {HOST}", *headers, "", ""]).encode()


@dataclass(frozen=True, kw_only=True)
class Held(Attack):
    """Connections that are held for as long as the node lets them be, then opened anew.

    Attributes:
        begun: what is sent on each.
        sockets: how many.
        agent: whether they are opened at the port of HAProxy's agent check, which answers whoever connects.
    """

    begun: bytes = b""
    sockets: int = SOCKETS
    agent: bool = False

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def once() -> None:
            target = attacker.target
            reader, writer = await attacker.stream(target.agent if self.agent else target.admin)
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
        path: of the request.
        token: what is shown; nothing if it is empty, ``VIEWER`` for the token of a viewer.
    """

    path: str
    token: str = ""

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        token = attacker.target.viewer if self.token == VIEWER else self.token
        # A viewer who is refused attacks with nothing that a stranger has not: only what is served counts.
        answer = b"HTTP/1.1 200" if self.token == VIEWER else b"HTTP/1.1 "
        asked = request(self.path, *([f"Authorization: Bearer {token}"] if token else []))

        async def once() -> None:
            reader, writer = await attacker.stream(attacker.target.admin)
            try:
                asking = asyncio.ensure_future(_ask(writer, asked * PIPELINED, attacker))
                try:
                    while data := await reader.read(READ_BYTES):
                        attacker.effort.received += len(data)
                        attacker.effort.done += data.count(answer)
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
        path="/metrics",
    ),
    Asked(
        name="admin-health",
        about="requests for /readyz on 8 connections that are kept alive",
        counts="answers",
        path="/readyz",
    ),
    Asked(
        name="admin-wrong-tokens",
        about="requests with a wrong token on 8 connections that are kept alive",
        counts="answers",
        path="/v1/sessions",
        token=_WRONG,
    ),
    *(
        Asked(
            name=f"admin-viewer-{name}",
            about=f"requests for the list of {name} with the token of a viewer on 8 connections that are kept alive",
            counts="answers",
            path=path,
            token=VIEWER,
        )
        for name, path in (("sessions", "/v1/sessions"), ("topics", "/v1/topics"))
    ),
    Held(name="agent", about="600 connections to the port of the agent check", counts="connections", agent=True),
    Held(
        name="agent-talks",
        about="600 connections to the port of the agent check that send 64 KB before they read",
        counts="connections",
        begun=b"x" * 65_536,
        agent=True,
    ),
)
