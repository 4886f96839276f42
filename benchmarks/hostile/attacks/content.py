"""Many bytes at once: large values handed over together, not read, or handed over while Redis is unreachable."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker, Needs
from benchmarks.hostile.attacks.requests import Fields, Pump, large_publish, pump_until_over
from benchmarks.hostile.connection import Connection, Lost
from benchmarks.storm import wire

TITLE: Final = "Bytes"

SESSIONS: Final = 60

HANDED_OVER: Final = 250
"""Publishes without a reply of each session: nearly all that it may have."""

ACKNOWLEDGED_TOGETHER: Final = 32
"""Replies that are acknowledged by one message."""

_OUTAGE_SECONDS: Final = 3.0
"""Half of the lease, so that it need not expire."""

_SMALL_BUFFER: Final = 4_096

_PUBLISHING: Final = 32
"""Requests without a reply of the session that publishes to those who do not read."""


def _resubmitted(number: int) -> str:
    return f'"resubmitted":true,{large_publish(number)}'


class Messages:
    """Requests as they go over the wire, one a message, each made once.

    Packets and requests are numbered from 1 in every session, so that the messages of all sessions are the same bytes.

    Args:
        fields: of each request.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._made: list[bytes] = []

    def of(self, number: int) -> bytes:
        """Tell the frame of a session's request *number*, the first of which is 1."""
        for each in range(len(self._made) + 1, number + 1):
            self._made.append(wire.frame(f'{{"id":{each},"request":{each},{self._fields(each)}}}'.encode()))
        return self._made[number - 1]


@dataclass(frozen=True, kw_only=True)
class HandOver(Attack):
    """Sessions that hand over as many large requests as they may have, all at once, and another for each reply.

    They are open and their messages are made before the attack begins. From there on a request costs the attacker
    little more than the kernel takes to copy it, so that it is the node that decides how many there are.

    Attributes:
        fields: of each request.
    """

    fields: Fields

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        messages = Messages(self.fields)
        messages.of(HANDED_OVER)
        number = attacker.target.scaled(SESSIONS)
        opened = await attacker.gathered(number, attacker.session)

        async def once() -> None:
            connection = opened.pop() if opened else await attacker.session()
            try:
                await _hand_over(attacker, connection, messages)
            finally:
                attacker.drop(connection)

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(number))


async def _hand_over(attacker: Attacker, connection: Connection, messages: Messages) -> None:
    acknowledged = 0
    while not attacker.over:
        if connection.request - connection.replies < HANDED_OVER:
            connection.request += 1
            attacker.effort.done += 1
            await connection.send(messages.of(connection.request))
            continue
        await connection.skim()
        if connection.received - acknowledged >= ACKNOWLEDGED_TOGETHER:
            acknowledged = connection.received
            await connection.send(wire.frame(b'{"type":"ack","received":%d}' % acknowledged))


@dataclass(frozen=True, kw_only=True)
class SlowReaders(Attack):
    """Sessions that select what another one publishes, and never read."""

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def deaf() -> Connection:
            connection = await attacker.session(receive_buffer=_SMALL_BUFFER)
            pump = Pump(connection, lambda _: '"type":"subscribe","selector":"mallory/*"', 1, lambda _: None)
            await pump.ask(1)
            await pump.answered()
            return connection

        async def publish() -> None:
            await pump_until_over(attacker, await attacker.session(), large_publish, _PUBLISHING)

        async def come_back() -> None:
            # Whoever is closed for reading too slowly opens another session.
            connection = await deaf()
            while not connection.closing:  # noqa: ASYNC110 - nobody tells of the end of what is not read
                await asyncio.sleep(_LOOK)
            attacker.drop(connection)
            raise Lost("closed")

        number = attacker.target.scaled(SESSIONS)
        attacker.begin(seconds)
        await attacker.at_once(
            [
                attacker.again_and_again(publish),
                *(attacker.again_and_again(come_back) for _ in range(number)),
            ]
        )


_LOOK: Final = 0.2
"""Seconds between two looks whether a connection that is not read is still there."""

ATTACKS: Final = (
    HandOver(
        name="handed-over",
        about="60 sessions that hand over 250 publishes of 32 KB each, and more as replies come",
        counts="requests",
        fields=large_publish,
    ),
    SlowReaders(
        name="slow-readers", about="60 sessions that select values of 32 KB and do not read them", counts="publishes"
    ),
    HandOver(
        name="resubmitted",
        about="60 sessions that hand over 250 publishes of 32 KB each as resubmitted, while Redis is down and after",
        counts="requests",
        fields=_resubmitted,
        needs=Needs(outage=_OUTAGE_SECONDS),
    ),
)
