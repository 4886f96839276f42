"""Good clients of the attacked node, in a process of their own: ``python -m benchmarks.hostile.witness TARGET OUT``.

One session publishes by a schedule that waits for nobody; some others select what it publishes. How long an update took
is counted from the time on the schedule (no coordinated omission). Every second a new session is opened, cut and
resumed, and each step is timed.

It makes the file OUT.ready when everything flows. It ends when it is told to (SIGTERM): it publishes no more, waits for
what is under way, and writes its ``Account`` to OUT.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import click
import uvloop

from benchmarks.hostile.account import Account
from benchmarks.hostile.connection import PATIENCE, Connection, Lost
from benchmarks.hostile.target import WITNESS, WITNESS_PRINCIPAL, Target
from benchmarks.hostile.witness_sessions import Publisher, Subscriber
from benchmarks.storm import wire

SUBSCRIBERS: Final = 4

LOGIN_EVERY: Final = 1.0
"""Seconds between two logins."""

SETTLE_SECONDS: Final = 10.0
"""Seconds for which the witness waits, at the end, for what is under way."""

_POLL: Final = 0.02


class Witnesses:
    """All of them, and what they share."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._secret = target.secrets.get(WITNESS_PRINCIPAL, "")
        self._subscribers = [Subscriber(self) for _ in range(SUBSCRIBERS)]
        self._publisher = Publisher(self)
        self._tasks: list[asyncio.Future[Any]] = []
        self.account = Account()
        self.due: list[float] = []
        """When each update was due, by its number."""
        self.stopping = False
        self.logging_in = 0
        """Logins that are under way."""

    async def session(self) -> Connection:
        """Open a session.

        Raises:
            Lost: the node refused.
        """
        connection = await Connection.open(self._target, WITNESS)
        try:
            await connection.upgrade()
            await connection.hello(WITNESS_PRINCIPAL, self._secret)
        except BaseException:
            connection.cut()
            raise
        return connection

    async def resumed(
        self, token: str, attempt: int, *, received: int, oldest: int
    ) -> tuple[Connection, dict[str, Any]]:
        """Come back to a session.

        Returns:
            The connection and the welcome.

        Raises:
            Lost: the node refused.
        """
        connection = await Connection.open(self._target, WITNESS)
        try:
            await connection.upgrade()
            welcome = await connection.resume(token, attempt, received=received, oldest=oldest)
        except BaseException:
            connection.cut()
            raise
        return connection, welcome

    async def run(self, announce: Callable[[], None], stop: asyncio.Event) -> None:
        """Witness until *stop*.

        Args:
            announce: called when everything flows.
            stop: ends it; what is under way then is waited for, for a while.
        """
        for each in self._subscribers:
            await each.begin()
            self._begin(each.live())
        await self._publisher.begin()
        self._begin(self._publisher.live())
        self._begin(self._publisher.send_on())
        self._begin(self._publisher.follow_schedule())
        self._begin(self._again_and_again(self._log_in))
        first = await self.session()
        self._begin(self._come_back(first))
        await self._until(lambda: bool(self.account.updates and self.account.resumes and self.account.returns))
        announce()
        await self._until(stop.is_set)
        self.stopping = True
        await self._until(self._complete, seconds=SETTLE_SECONDS)
        self._close_account()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def _until(self, condition: Callable[[], bool], *, seconds: float = math.inf) -> None:
        """Wait, for so long, until something holds that several tasks have a part in; an error of theirs ends it."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            await asyncio.sleep(_POLL)
            for each in self._tasks:
                if each.done():
                    each.result()

    def _complete(self) -> bool:
        wanted = self._publisher.promised
        return not self.logging_in and self._publisher.idle and all(wanted <= each.seen for each in self._subscribers)

    def _close_account(self) -> None:
        account, due = self.account, self.due
        account.ended = time.monotonic()
        for each in self._subscribers:
            missed = sorted(self._publisher.promised - each.seen)
            # What was folded is declared, and newer values came in its place: the newest cannot have been folded.
            folded = min(each.folded, len(missed))
            account.folded += folded
            account.missing += [due[number] for number in missed[folded:]]
        account.unanswered = [due[number] for number in self._publisher.open_numbers()]

    # --- Logins ----------------------------------------------------------------------------------------------------

    async def _again_and_again(self, once: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async for _ in self._schedule():
            self._begin(once())

    async def _schedule(self) -> AsyncIterator[int]:
        """Count from 0 once for each login that is due, until the witnesses stop."""
        began = time.monotonic()
        for number in itertools.count():
            await asyncio.sleep(max(0.0, began + number * LOGIN_EVERY - time.monotonic()))
            if self.stopping:
                return
            yield number

    async def _come_back(self, connection: Connection) -> None:
        """Lose the connection of a session and return, again and again: it has been there since before the attack."""
        token = connection.token
        async for number in self._schedule():
            connection.cut()
            self.logging_in += 1
            began, why = time.monotonic(), ""
            try:
                connection, _ = await self.resumed(token, number + 1, received=connection.received, oldest=1)
                token = connection.token
            except Lost as lost:
                why = str(lost)
            finally:
                self.logging_in -= 1
            self.account.returns.append((began, time.monotonic() - began, why))

    async def _log_in(self) -> None:
        self.logging_in += 1
        try:
            await self._log_in_and_resume()
        finally:
            self.logging_in -= 1

    async def _log_in_and_resume(self) -> None:
        began = time.monotonic()
        try:
            first = await self.session()
        except Lost as lost:
            self.account.logins.append((began, time.monotonic() - began, str(lost)))
            return
        self.account.logins.append((began, time.monotonic() - began, ""))
        first.cut()
        again = time.monotonic()
        try:
            second, _ = await self.resumed(first.token, 1, received=first.received, oldest=1)
        except Lost as lost:
            self.account.resumes.append((again, time.monotonic() - again, str(lost)))
            return
        self.account.resumes.append((again, time.monotonic() - again, ""))
        try:
            async with asyncio.timeout(PATIENCE):
                await second.send(wire.frame(b'{"type":"bye"}'))
                while True:
                    await second.packets()
        except (Lost, TimeoutError):
            second.cut()


async def _witness(target: Target, out: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    witnesses = Witnesses(target)
    await witnesses.run(out.with_name(f"{out.name}.ready").touch, stop)
    witnesses.account.write(out)


@click.command()
@click.argument("target", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--core", type=int, required=True, help="That it runs on.")
def main(target: Path, out: Path, *, core: int) -> None:
    """Witness what an attack on TARGET does to others, and write it to OUT."""
    os.sched_setaffinity(0, {core})
    uvloop.install()
    asyncio.run(_witness(Target.read(target), out))
    # The stack is about to be stopped; nothing needs to be tidied up.
    os._exit(0)


if __name__ == "__main__":
    main()
