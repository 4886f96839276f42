"""Connections that come and go, and connections that take every descriptor."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker, Needs
from benchmarks.hostile.connection import PATH, SUBPROTOCOL
from benchmarks.hostile.target import HOST
from benchmarks.storm import wire

TITLE: Final = "Connections"

DESCRIPTORS: Final = 1_024
"""The soft limit of a shell."""

_WORKERS: Final = 16
_HELLO: Final = wire.frame(b'{"type":"hello","principal":"mallory"}')
_REQUEST: Final = wire.upgrade_request(HOST, 80, PATH, SUBPROTOCOL)
_LANES: Final = 64
"""Side by side: where the node's queue of connections is full, one waits for a second and the others go on."""


@dataclass(frozen=True, kw_only=True)
class HungUp(Attack):
    """Connects, says a part of the request, and hangs up, as fast as one process can with many side by side.

    Attributes:
        said: what is sent.
    """

    said: bytes

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def once() -> None:
            (await attacker.dial(self.said)).close()
            attacker.effort.done += 1

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(_LANES))


@dataclass(frozen=True, kw_only=True)
class Gone(Attack):
    """Opens a WebSocket and goes, with or without having said hello; 16 at a time.

    Attributes:
        greeting: what is sent after the upgrade.
    """

    greeting: bytes

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def once() -> None:
            connection = await attacker.upgraded()
            try:
                if self.greeting:
                    await connection.send(self.greeting)
                attacker.effort.done += 1
                # What was written must leave before the reset throws it away.
                await asyncio.sleep(0)
            finally:
                attacker.drop(connection)

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(_WORKERS))


@dataclass(frozen=True, kw_only=True)
class Descriptors(Attack):
    """Holds more connections than the node has descriptors; what is closed is opened anew.

    Attributes:
        greeted: whether they are sessions; else unauthenticated clients that say nothing.
    """

    greeted: bool

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def once() -> None:
            connection = await (attacker.session() if self.greeted else attacker.connect())
            attacker.effort.done += 1
            try:
                while True:
                    await connection.skim()
            finally:
                attacker.drop(connection)

        attacker.begin(seconds)
        number = attacker.target.scaled(DESCRIPTORS + DESCRIPTORS // 4)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(number))


ATTACKS: Final = (
    HungUp(name="connects", about="TCP connections, hung up at once", counts="connections", said=b""),
    HungUp(
        name="half-requests",
        about="half a request, and hung up",
        counts="connections",
        said=_REQUEST[: len(_REQUEST) // 2],
    ),
    HungUp(name="requests-gone", about="a whole request, and hung up", counts="connections", said=_REQUEST),
    Gone(name="upgrades", about="a WebSocket, and hung up, 16 at a time", counts="WebSockets", greeting=b""),
    Gone(
        name="hellos-gone",
        about="a hello, and hung up before the welcome, 16 at a time",
        counts="hellos",
        greeting=_HELLO,
    ),
    Descriptors(
        name="descriptors",
        about="1,280 silent connections at a node with 1,024 descriptors",
        counts="connections",
        greeted=False,
        needs=Needs(descriptors=DESCRIPTORS),
    ),
    Descriptors(
        name="descriptors-sessions",
        about="1,280 sessions at a node with 1,024 descriptors",
        counts="sessions",
        greeted=True,
        needs=Needs(descriptors=DESCRIPTORS),
    ),
)
