"""Many bytes at once: large values handed over together, not read, or handed over while Redis is away."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker, Needs
from benchmarks.hostile.attacks.requests import Pump, Requests, large_publish, pump_until_over
from benchmarks.hostile.connection import Connection, Lost

TITLE: Final = "Bytes"

SESSIONS: Final = 60

HANDED_OVER: Final = 250
"""Publishes without a reply of each session: nearly all that it may have."""

_OUTAGE_SECONDS: Final = 3.0
"""Half of the lease, so that it need not lapse."""

_SMALL_BUFFER: Final = 4_096

_PUBLISHING: Final = 32
"""Requests without a reply of the session that publishes to those who do not read."""


def _resubmitted(number: int) -> str:
    return f'"resubmitted":true,{large_publish(number)}'


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
    Requests(
        name="handed-over",
        about="60 sessions that hand over 250 publishes of 32 KB each, and more as replies come",
        counts="requests",
        fields=large_publish,
        connections=SESSIONS,
        window=HANDED_OVER,
    ),
    SlowReaders(
        name="slow-readers", about="60 sessions that select values of 32 KB and do not read them", counts="publishes"
    ),
    Requests(
        name="resubmitted",
        about="60 sessions that hand over 250 publishes of 32 KB each as resubmitted, while Redis is away and after",
        counts="requests",
        fields=_resubmitted,
        connections=SESSIONS,
        window=HANDED_OVER,
        needs=Needs(outage=_OUTAGE_SECONDS),
    ),
)
