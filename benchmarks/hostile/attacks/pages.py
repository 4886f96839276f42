"""Pages of values over HTTP: as large as they may be, and such as look at many topics and find none."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import PRINCIPAL, Attack, Attacker
from benchmarks.hostile.attacks.requests import Pump
from benchmarks.hostile.connection import READ_BYTES, Lost
from benchmarks.hostile.target import HOST

TITLE: Final = "Pages of values"

TOPICS: Final = 5_000
"""That are there to be looked at."""

_TOGETHER: Final = 32
"""Publishes in a message."""

_ANSWER: Final = 30.0
"""Seconds for which an answer is waited for."""


@dataclass(frozen=True, kw_only=True)
class Pages(Attack):
    """Asks for a page of values, and for the next one when it is there, on many connections.

    Attributes:
        query: which values.
        lanes: connections that are kept alive.
    """

    query: str
    lanes: int = 64

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        proof = base64.b64encode(f"{PRINCIPAL}:{attacker.target.secrets.get(PRINCIPAL, '')}".encode()).decode()
        head = f"GET /v1/values?{self.query} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Basic {proof}\r\n\r\n".encode()
        loop = asyncio.get_running_loop()
        await _publish(attacker)

        async def once() -> None:
            peer = await attacker.dial(head)
            try:
                async with asyncio.timeout(_ANSWER) as waiting:
                    while data := await loop.sock_recv(peer, READ_BYTES):
                        attacker.effort.received += len(data)
                        for _ in range(data.count(b"HTTP/1.1 ")):
                            attacker.effort.done += 1
                            await loop.sock_sendall(peer, head)
                            attacker.effort.sent += len(head)
                            waiting.reschedule(loop.time() + _ANSWER)
            except (OSError, TimeoutError) as error:
                raise Lost(f"read: {type(error).__name__}") from error
            finally:
                peer.close()

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(self.lanes))


async def _publish(attacker: Attacker) -> None:
    """Publish what there is to be looked at."""
    connection = await attacker.session()
    try:
        pump = Pump(connection, _fields, 2 * _TOGETHER, _uncounted)
        for _ in range(0, attacker.target.scaled(TOPICS), _TOGETHER):
            while pump.unanswered > _TOGETHER:
                await connection.skim()
            await pump.ask(_TOGETHER)
        await pump.answered()
    finally:
        attacker.drop(connection)


def _fields(number: int) -> str:
    return f'"type":"publish","topic":"pages{number % 64}/{number}","value":{number}'


def _uncounted(_: int) -> None:
    """It does not count before it has begun."""


ATTACKS: Final = (
    Pages(
        name="values-pages",
        about="pages of 1,000 of 5,000 values over HTTP, 64 at a time",
        counts="answers",
        query="selector=**&limit=1000",
    ),
    Pages(
        name="values-of-nothing",
        about="pages over HTTP that look at all of 5,000 topics and find none, 8 at a time",
        counts="answers",
        query="&".join(f"selector=*/*/{number}/**" for number in range(20)),
        lanes=8,
    ),
)
