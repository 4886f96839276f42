"""Guesses at secrets whose check is slow on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.hostile.attack import PRINCIPAL, Attack, Attacker, Needs
from benchmarks.hostile.connection import Lost
from benchmarks.hostile.tokens import with_wrong_signature
from benchmarks.storm import wire

TITLE: Final = "Guesses at secrets"

USERS: Final = Needs(users=True)

SERVICE: Final = Needs(service=2.9)
"""A little less than a node waits for an answer by default, so that each guess takes a place for as long as one can."""

LAST: Final = 9007199254740991
"""What a client without buffers says of the oldest packet that it can resend (protocol 5.4.4)."""


@dataclass(frozen=True, kw_only=True)
class WrongHellos(Attack):
    """Hellos with a wrong secret, each on a connection of its own, by a schedule.

    Attributes:
        rate: hellos a second.
        made_up: each names a principal of its own that does not exist.
    """

    rate: float
    made_up: bool = False

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def guess(number: int) -> None:
            connection = await attacker.upgraded()
            try:
                await connection.hello(f"nobody {number}" if self.made_up else PRINCIPAL, f"wrong {number}")
            finally:
                attacker.effort.done += 1
                attacker.drop(connection)

        attacker.begin(seconds)
        await by_schedule(attacker, self.rate, guess)


@dataclass(frozen=True, kw_only=True)
class WrongSignatures(Attack):
    """Hellos with a token whose signature is wrong, which is found by computing it, each on a connection of its own.

    Attributes:
        rate: hellos a second.
    """

    rate: float

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        token = attacker.target.secrets[PRINCIPAL]

        async def guess(number: int) -> None:
            connection = await attacker.upgraded()
            try:
                await connection.hello("", with_wrong_signature(token, number))
            finally:
                attacker.effort.done += 1
                attacker.drop(connection)

        attacker.begin(seconds)
        await by_schedule(attacker, self.rate, guess)


@dataclass(frozen=True, kw_only=True)
class ResumesOfEnded(Attack):
    """Resumes with a wrong secret and the token of a session that has ended.

    Attributes:
        rate: resumes a second.
    """

    rate: float

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        ended = await attacker.session()
        token = ended.token
        await ended.send(wire.frame(b'{"type":"bye"}'))
        await ended.until_closed()
        attacker.drop(ended)

        async def come_back(number: int) -> None:
            connection = await attacker.upgraded()
            try:
                await connection.resume(
                    token, number + 1, received=0, oldest=LAST, principal=PRINCIPAL, secret=f"wrong {number}"
                )
            finally:
                attacker.effort.done += 1
                attacker.drop(connection)

        attacker.begin(seconds)
        await by_schedule(attacker, self.rate, come_back)


Act = Callable[[int], Coroutine[Any, Any, None]]
"""Makes one action by its number."""


async def by_schedule(attacker: Attacker, rate: float, act: Act) -> None:
    """Act at a rate until the time is up or this is cancelled, whether or not what was begun before has ended."""
    acting: set[asyncio.Task[None]] = set()
    try:
        async for number in attacker.paced(rate):
            task = asyncio.ensure_future(_counted(attacker, act(number)))
            acting.add(task)
            task.add_done_callback(acting.discard)
    finally:
        for each in acting:
            each.cancel()
        await asyncio.gather(*acting, return_exceptions=True)


async def _counted(attacker: Attacker, action: Coroutine[Any, Any, None]) -> None:
    try:
        await action
    except Lost as lost:
        attacker.effort.refuse(str(lost))


ATTACKS: Final = (
    *(
        WrongHellos(
            name=f"wrong-hellos-{rate}",
            about=f"{rate} hellos a second with a wrong secret",
            counts="guesses",
            rate=rate,
            needs=USERS,
        )
        for rate in (15, 100)
    ),
    WrongHellos(
        name="wrong-hellos-100-names",
        about="100 hellos a second, each with a principal that does not exist",
        counts="guesses",
        rate=100,
        made_up=True,
        needs=USERS,
    ),
    WrongSignatures(
        name="wrong-signatures-200",
        about="200 hellos a second with a token whose signature is wrong",
        counts="guesses",
        rate=200,
        needs=Needs(tokens=True),
    ),
    *(
        WrongHellos(
            name=f"wrong-hellos-100-service{suffix}",
            about=f"100 hellos a second with {what}, which a service takes 2.9 s to refuse",
            counts="guesses",
            rate=100,
            made_up=made_up,
            needs=SERVICE,
        )
        for suffix, what, made_up in (
            ("", "a wrong secret", False),
            ("-names", "principals that do not exist", True),
        )
    ),
    ResumesOfEnded(
        name="wrong-resumes-60",
        about="60 resumes a second of a session that has ended, with a wrong secret",
        counts="guesses",
        rate=60,
        needs=USERS,
    ),
)
