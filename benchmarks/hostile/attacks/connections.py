"""Connections that come and go, and connections that take every descriptor."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker, Needs
from benchmarks.hostile.connection import READ_BYTES, SUBPROTOCOL, Lost
from benchmarks.hostile.target import HOST, PATH
from benchmarks.storm import wire

TITLE: Final = "Connections"

DESCRIPTORS: Final = 1_024
"""The soft limit of a shell."""

_WORKERS: Final = 16
_HELLO: Final = wire.frame(b'{"type":"hello","principal":"mallory"}')
_REQUEST: Final = wire.upgrade_request(HOST, 80, PATH, SUBPROTOCOL)
_BYE: Final = wire.frame(b'{"type":"bye"}')
_ELSEWHERE: Final = _REQUEST.replace(PATH.encode(), b"/" + b"x" * 1_000)
_POST: Final = _REQUEST.replace(b"GET ", b"POST ")
_LONG_HEAD: Final = _REQUEST[:-2] + b"".join(b"X-%d: %b\r\n" % (number, b"y" * 50) for number in range(265))
"""Nearly as long as the head of a request may be, in many lines, and without its end."""

_ANSWER: Final = 10.0
"""Seconds for which an answer is waited for; a head without an end has none until its time is up."""

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
class Left(Attack):
    """Opens a session and ends it by a bye, 16 at a time: each is written to Redis and removed again."""

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def once() -> None:
            connection = await attacker.session()
            try:
                await connection.send(_BYE)
                await connection.until_closed()
                attacker.effort.done += 1
            finally:
                attacker.drop(connection)

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(_WORKERS))


@dataclass(frozen=True, kw_only=True)
class PlainRequests(Attack):
    """Says what is no request for a WebSocket, takes the answer, and goes on with the next, many side by side.

    Attributes:
        said: what is sent.
    """

    said: bytes

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        loop = asyncio.get_running_loop()

        async def once() -> None:
            peer = await attacker.dial(self.said)
            try:
                async with asyncio.timeout(_ANSWER):
                    while data := await loop.sock_recv(peer, READ_BYTES):
                        attacker.effort.received += len(data)
                        attacker.effort.done += data.count(b"HTTP/1.1 ")
            except (OSError, TimeoutError) as error:
                raise Lost(f"read: {type(error).__name__}") from error
            finally:
                peer.close()

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(_LANES))


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
    Left(name="byes", about="sessions that are ended as soon as they are open, 16 at a time", counts="sessions"),
    PlainRequests(name="http-404", about="requests for a path that is not there", counts="answers", said=_ELSEWHERE),
    PlainRequests(name="http-405", about="requests by POST", counts="answers", said=_POST),
    PlainRequests(
        name="http-long-heads",
        about="heads of requests of 16 KB and more",
        counts="answers",
        said=_LONG_HEAD * 2,
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
    *(
        Descriptors(
            name=f"descriptors-hard{'-sessions' if greeted else ''}",
            about=f"1,280 {'sessions' if greeted else 'silent connections'} at a node with 1,024 descriptors",
            counts="sessions" if greeted else "connections",
            greeted=greeted,
            needs=Needs(descriptors=DESCRIPTORS, descriptors_hard=True),
        )
        for greeted in (False, True)
    ),
)
