"""Good clients of the attacked node, in a process of their own: ``python -m benchmarks.hostile.witness TARGET OUT``.

One session publishes by a schedule that waits for nobody; some others select what it publishes. How long an update took
is counted from the time on the schedule (no coordinated omission). Every second a new session is opened, cut and
resumed, and each step is timed. A witness that loses its connection comes back, as a good client would, and says how
often.

It makes the file OUT.ready when everything flows. It ends when it is told to (SIGTERM): it publishes no more, waits for
what is under way, and writes ``Account`` to OUT.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import orjson
import uvloop
from pydantic import TypeAdapter

from benchmarks.hostile.connection import PATIENCE, Connection, Lost
from benchmarks.hostile.target import WITNESS, Target
from benchmarks.storm import wire

PRINCIPAL: Final = "witness"
TOPIC: Final = "witness/updates"
SUBSCRIBERS: Final = 4
RATE: Final = 40.0
"""Updates a second, to each subscriber: enough for a p99 of some seconds, and little beside what a node can do."""

WINDOW: Final = 200
"""Publishes without a reply; below what a node announces. Later ones wait here, and their latency grows."""

LOGIN_EVERY: Final = 1.0
"""Seconds between two logins."""

FAREWELL: Final = 10.0
"""Seconds for which the witness waits, at the end, for what is under way."""

_COME_BACK: Final = 0.25
"""Seconds before a lost connection is opened again: the first bound of a node's advice."""

_ACKNOWLEDGE: Final = 0.25
"""Seconds between two acknowledgements of a subscriber (protocol 5.3.2 asks for less than 0.5)."""

_POLL: Final = 0.02
_LAST: Final = 9007199254740991


@dataclass
class Account:
    """What the witnesses saw. Times are seconds of the machine's monotonic clock.

    Attributes:
        updates: for each update and subscriber that got it: when it was due, and how long it took.
        missing: when each was due that was promised, for each subscriber that it did not reach: lost.
        unanswered: when each publish was due that had no answer in the end.
        refused: when each publish was due that was refused.
        cuts: when a witness lost its connection, and what it was told.
        disordered: updates that came again or before older ones.
        folded: updates that the node folded, and declared.
        logins: when each new session was asked for, how long its welcome took, and why there was none.
        resumes: the same of each resume.
        ended: when the witness stopped waiting.
    """

    updates: list[tuple[float, float]] = field(default_factory=list)
    missing: list[float] = field(default_factory=list)
    unanswered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    cuts: list[tuple[float, str]] = field(default_factory=list)
    disordered: int = 0
    folded: int = 0
    logins: list[tuple[float, float, str]] = field(default_factory=list)
    resumes: list[tuple[float, float, str]] = field(default_factory=list)
    ended: float = 0.0

    @classmethod
    def read(cls, file: Path) -> Account:
        """Read what a witness wrote.

        Raises:
            OSError: it cannot be read.
        """
        return TypeAdapter(cls).validate_json(file.read_bytes())

    def write(self, file: Path) -> None:
        """Write it for ``read``."""
        file.write_bytes(TypeAdapter(type(self)).dump_json(self))


class Witnesses:
    """All of them, and what they share."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._secret = target.secrets.get(PRINCIPAL, "")
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
            await connection.hello(PRINCIPAL, self._secret)
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
        self._begin(self._log_in_again_and_again())
        await self._until(lambda: bool(self.account.updates and self.account.resumes))
        announce()
        await self._until(stop.is_set)
        self.stopping = True
        await self._until(self._complete, seconds=FAREWELL)
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

    async def _log_in_again_and_again(self) -> None:
        began = time.monotonic()
        for number in itertools.count():
            await asyncio.sleep(max(0.0, began + number * LOGIN_EVERY - time.monotonic()))
            if self.stopping:
                return
            self._begin(self._log_in())

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


class _Witness:
    """A session that comes back when its connection is lost."""

    def __init__(self, witnesses: Witnesses) -> None:
        self._witnesses = witnesses
        self._connection: Connection
        self._attempt = 0
        self._token = ""

    async def begin(self) -> None:
        """Open the session and take part.

        Raises:
            Lost: the node refused.
        """
        self._connection = await self._witnesses.session()
        self._token = self._connection.token
        await self._enter()

    async def live(self) -> None:
        """Take what comes, and come back when the connection is lost; never ends by itself."""
        while True:
            try:
                while True:
                    for packet in await self._connection.packets():
                        await self._take(packet)
                    await self._after()
            except Lost as lost:
                self._witnesses.account.cuts.append((time.monotonic(), str(lost)))
                self._connection.cut()
                await self._come_back()

    async def _come_back(self) -> None:
        old = self._connection
        received, oldest = self._position()
        while True:
            await asyncio.sleep(_COME_BACK)
            self._attempt += 1
            try:
                self._connection, welcome = await self._witnesses.resumed(
                    self._token, self._attempt, received=received, oldest=oldest
                )
            except Lost as lost:
                self._witnesses.account.cuts.append((time.monotonic(), f"coming back: {lost}"))
                continue
            self._token = self._connection.token
            kept = welcome["numbering"] == "kept"
            self._connection.number = old.number if kept else 0
            self._connection.request = old.request
            # The handshake has counted what came with the welcome; here each is counted as it is taken.
            self._connection.received = received if kept else 0
            for packet in self._connection.first[1:]:
                await self._take(packet)
            await self._returned()
            return

    def _position(self) -> tuple[int, int]:
        """Tell what was received, and the oldest packet that can be sent again."""
        return self._connection.received, self._connection.number + 1

    def _numbered(self, packet: dict[str, Any]) -> None:
        """Count a session packet."""
        self._connection.received = int(packet.get("id", self._connection.received + 1))

    async def _answer(self, packet: dict[str, Any]) -> None:
        if packet.get("type") == "ping":
            self._token = packet.get("token", self._token)
            await self._connection.send(wire.frame(b'{"type":"pong","received":%d}' % self._connection.received))

    async def _enter(self) -> None:
        """Begin, after the first welcome."""

    async def _returned(self) -> None:
        """Go on, after a later welcome."""

    async def _after(self) -> None:
        """Called after the packets of a message."""

    async def _take(self, packet: dict[str, Any]) -> None:
        """Take one packet."""
        raise NotImplementedError


class Subscriber(_Witness):
    """Selects the topic.

    Attributes:
        seen: numbers of the updates that came.
        folded: updates that were declared as folded.
    """

    def __init__(self, witnesses: Witnesses) -> None:
        super().__init__(witnesses)
        self._acknowledged_at = 0.0
        self._newest = -1
        self.seen: set[int] = set()
        self.folded = 0

    async def _enter(self) -> None:
        self._connection.number = self._connection.request = 1
        await self._connection.send(
            wire.frame(b'{"id":1,"type":"subscribe","request":1,"selector":"%b"}' % TOPIC.encode())
        )

    async def _take(self, packet: dict[str, Any]) -> None:
        kind = packet.get("type")
        if kind in {"reply", "update", "notice"}:
            self._numbered(packet)
        if kind == "reply" and packet.get("error"):
            raise RuntimeError(f"a witness may not select its topic: {packet['error']}")
        if kind == "update":
            self._update(packet)
        await self._answer(packet)

    def _update(self, packet: dict[str, Any]) -> None:
        account = self._witnesses.account
        self.folded += int(packet.get("folded", 0))
        if packet.get("value") is None:
            return
        number = int(packet["value"])
        if packet.get("snapshot") and number <= self._newest:
            account.disordered += number < self._newest
            return
        if number <= self._newest:
            account.disordered += 1
            return
        self._newest = number
        self.seen.add(number)
        due = self._witnesses.due[number]
        account.updates.append((due, time.monotonic() - due))

    async def _after(self) -> None:
        now = time.monotonic()
        if now >= self._acknowledged_at + _ACKNOWLEDGE:
            self._acknowledged_at = now
            await self._connection.send(wire.frame(b'{"type":"ack","received":%d}' % self._connection.received))


class Publisher(_Witness):
    """Publishes by the schedule.

    Attributes:
        promised: numbers of the publishes that the node has confirmed.
    """

    def __init__(self, witnesses: Witnesses) -> None:
        super().__init__(witnesses)
        self._open: dict[int, int] = {}
        """Numbers of updates by their request."""
        self._waiting: list[int] = []
        self._here = False
        self._news = asyncio.Event()
        self.promised: set[int] = set()

    @property
    def idle(self) -> bool:
        """Whether everything that was due has been answered."""
        return not self._open and not self._waiting

    def open_numbers(self) -> list[int]:
        """Tell which updates have no answer."""
        return [*self._open.values(), *self._waiting]

    async def follow_schedule(self) -> None:
        """Note what is due until the witnesses stop; a node that takes nothing does not stop the schedule."""
        began = time.monotonic()
        due = self._witnesses.due
        while not self._witnesses.stopping:
            await asyncio.sleep(max(0.0, began + len(due) / RATE - time.monotonic()))
            self._waiting.append(len(due))
            due.append(began + len(due) / RATE)
            self._news.set()

    async def send_on(self) -> None:
        """Publish what waits whenever there is news: something is due, or the window has room; never ends by itself."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._publish()

    async def _enter(self) -> None:
        self._here = True

    async def _take(self, packet: dict[str, Any]) -> None:
        kind = packet.get("type")
        if kind in {"reply", "update", "notice"}:
            self._numbered(packet)
        if kind == "reply":
            number = self._open.pop(int(packet["request"]), None)
            if number is not None and packet.get("error"):
                self._witnesses.account.refused.append(self._witnesses.due[number])
            elif number is not None:
                self.promised.add(number)
        await self._answer(packet)

    async def _after(self) -> None:
        self._news.set()

    async def _publish(self) -> None:
        """Send what the window has room for; a lost connection is for ``live`` to notice."""
        connection, packets = self._connection, []
        while self._here and self._waiting and len(self._open) < WINDOW:
            number = self._waiting.pop(0)
            connection.request += 1
            self._open[connection.request] = number
            packets.append(self._packet(connection.request, number))
        await self._send(packets)

    def _packet(self, request: int, number: int, **more: bool) -> dict[str, Any]:
        self._connection.number += 1
        return {
            "id": self._connection.number,
            "received": self._connection.received,
            "type": "publish",
            "request": request,
            **more,
            "topic": TOPIC,
            "value": number,
        }

    async def _send(self, packets: list[dict[str, Any]]) -> None:
        if packets:
            try:
                await self._connection.send(wire.frame(orjson.dumps(packets)))
            except Lost:
                self._connection.cut()

    def _position(self) -> tuple[int, int]:
        # It keeps no packets, only requests: the node restores it, and all that is unanswered is asked again.
        self._here = False
        return 0, _LAST

    async def _returned(self) -> None:
        await self._send([self._packet(request, number, resubmitted=True) for request, number in self._open.items()])
        self._here = True
        self._news.set()


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
