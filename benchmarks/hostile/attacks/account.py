"""What an account leaves behind: sessions, buffers, topics, values."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker, Needs
from benchmarks.hostile.attacks.hashing import LAST
from benchmarks.hostile.attacks.requests import SEVERAL, VALUE_BYTES, Pump, Requests, pump_until_over
from benchmarks.hostile.attacks.selectors import fill_selections
from benchmarks.hostile.connection import Connection

TITLE: Final = "What an account leaves behind"

LONGEST_WINDOW: Final = 86_400.0
"""Seconds that are asked for; the node grants its maximum."""

_FULL_BUFFER: Final = 32
"""Values of 32 KB that fill the resend buffer of a session, 1 MiB by default."""

_REDIS_MEGABYTES: Final = 64

_FILLING_BYTES: Final = (VALUE_BYTES, 1_000, 1)
"""Of the values that fill Redis, one size after the other."""

_FILLING_WINDOW: Final = 16
"""Requests without a reply of who fills it."""

_VALUE: Final = "v" * VALUE_BYTES


_OWN: Final = itertools.count()
"""Numbers of topics that a session has to itself."""


@dataclass(frozen=True, kw_only=True)
class DroppedSessions(Attack):
    """Sessions with the longest window whose buffers are filled, and that are left behind.

    Attributes:
        filled: whether the buffers are filled first.
        lanes: side by side.
    """

    filled: bool
    lanes: int = SEVERAL

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def once() -> None:
            connection = await attacker.session(window=LONGEST_WINDOW)
            try:
                if self.filled:
                    await _fill(connection)
                attacker.effort.done += 1
            finally:
                attacker.drop(connection)

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(self.lanes))


async def _fill(connection: Connection) -> None:
    """Publish to oneself what fills the buffer, and acknowledge nothing of it."""
    topic = f"mallory/own-{next(_OWN)}"
    asks = Pump(connection, lambda _: f'"type":"subscribe","selector":"{topic}"', 1, lambda _: None)
    await asks.ask(1)
    await asks.answered()
    connection.received = 0
    publishes = Pump(
        connection, lambda _: f'"type":"publish","topic":"{topic}","value":"{_VALUE}"', 256, lambda _: None
    )
    for _ in range(_FULL_BUFFER):
        # Each says again that nothing has come.
        connection.received = 0
        await publishes.ask(1)
    await publishes.answered()


@dataclass(frozen=True, kw_only=True)
class FullRedis(Attack):
    """Publishes to ever new topics until Redis refuses, before the attack begins, and goes on with it.

    Values become smaller when large ones are refused, so that nobody else finds the room that is left. In the attack
    each session has one request under way: until a client has acknowledged a refusal, nothing else of it gets to Redis.

    Attributes:
        connections: sessions side by side, all of one principal.
    """

    connections: int

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        opened = [await attacker.session() for _ in range(attacker.target.scaled(self.connections))]
        # One bound after the other: smaller values still find room when large ones are refused.
        for size in _FILLING_BYTES:
            await asyncio.gather(*(_publish_until_refused(each, size) for each in opened))

        def fields(_: int) -> str:
            return _sized_topic(_FILLING_BYTES[-1])

        async def once() -> None:
            connection = opened.pop() if opened else await attacker.session()
            await pump_until_over(attacker, connection, fields, 1)

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(len(opened)))


async def _publish_until_refused(connection: Connection, size: int) -> None:
    pump, refused = Pump(connection, lambda _: _sized_topic(size), _FILLING_WINDOW, lambda _: None), connection.refusals
    while connection.refusals == refused:
        await pump.stroke()
    await pump.answered()


@dataclass(frozen=True, kw_only=True)
class ResumeHandler(Attack):
    """Sessions that lose their connection and come back, again and again.

    Attributes:
        sessions: side by side.
        buffers: whether the client still has its buffers (rung 1); else the node restores from the grid each time.
        selections: entries in each session's list.
    """

    sessions: int
    buffers: bool
    selections: int = 0

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        number = attacker.target.scaled(self.sessions)
        opened = await attacker.gathered(number, attacker.session)
        for each in opened:
            await fill_selections(each, attacker.target.scaled(self.selections) if self.selections else 0)

        async def come_back(connection: Connection) -> None:
            token, attempt = connection.token, 0
            received, oldest = connection.received, connection.number + 1
            attacker.drop(connection)

            async def once() -> None:
                nonlocal token, attempt, received
                attempt += 1
                fresh = await attacker.upgraded()
                try:
                    welcome = await fresh.resume(
                        token,
                        attempt,
                        received=received if self.buffers else 0,
                        oldest=oldest if self.buffers else LAST,
                    )
                    attacker.effort.done += 1
                    received = fresh.received if welcome["numbering"] == "kept" else 0
                finally:
                    token = fresh.token or token
                    attacker.drop(fresh)

            await attacker.again_and_again(once)

        attacker.begin(seconds)
        await attacker.at_once(come_back(each) for each in opened)


def _new_topic(number: int) -> str:
    return f'"type":"publish","topic":"mallory/new-{number}","value":1'


def _sized_topic(size: int) -> str:
    """Make a publish of so many bytes to a topic that is new, one root after the other."""
    number = next(_OWN)
    return f'"type":"publish","topic":"mallory-{number % 512}/{number}","value":"{_VALUE[:size]}"'


def _large_new_topic(_: int) -> str:
    return _sized_topic(VALUE_BYTES)


ATTACKS: Final = (
    DroppedSessions(
        name="dropped-sessions",
        about="sessions with the longest window, opened and left behind, 16 at a time, one account",
        counts="sessions",
        filled=False,
    ),
    DroppedSessions(
        name="dropped-full-sessions",
        about="the same with 1 MB in the buffer of each",
        counts="sessions",
        filled=True,
    ),
    ResumeHandler(
        name="resumes", about="a session that comes back again and again", counts="resumes", sessions=1, buffers=True
    ),
    ResumeHandler(
        name="resumes-several",
        about="16 sessions of one account that come back again and again",
        counts="resumes",
        sessions=SEVERAL,
        buffers=True,
    ),
    ResumeHandler(
        name="failovers-several",
        about="16 sessions with 200 selectors of 1 KB that come back without their buffers, again and again",
        counts="resumes",
        sessions=SEVERAL,
        buffers=False,
        selections=200,
    ),
    Requests(
        name="new-topics",
        about="publishes to ever new topics, 16 sessions of one account",
        counts="requests",
        fields=_new_topic,
        connections=SEVERAL,
    ),
    FullRedis(
        name="full-redis",
        about="values to ever new topics at a Redis that is full of such, 16 sessions of one account",
        counts="requests",
        connections=SEVERAL,
        needs=Needs(redis_megabytes=_REDIS_MEGABYTES, full=True),
    ),
    Requests(
        name="filled-partitions",
        about="values of 32 KB to ever new topics in all partitions, 16 sessions of one account",
        counts="requests",
        fields=_large_new_topic,
        connections=SEVERAL,
        needs=Needs(redis_part=1 / 16),
    ),
)
