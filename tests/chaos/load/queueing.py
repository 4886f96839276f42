"""Who sends messages to queues, and who is given them: some lose their consumers, and some messages are bad."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gateway.client import Message, MessageConsumer, Session
from gateway.core.client.errors import NotHeld, RequestRefused, RequestTimedOut, SessionEnded
from gateway.core.client.types import SessionState
from tests.chaos.account.messages import Answer, Given, Messages, Way
from tests.chaos.account.transactions import INPUT, OUTPUT
from tests.chaos.load.application import Application

WORK: Final = "c2/work"
FRAGILE: Final = "c3/fragile"
"""A message of this queue is a dead letter after ``FAILURES`` failed deliveries."""

QUEUES: Final = (WORK, FRAGILE)

LOOKED_AT: Final = (*QUEUES, INPUT)
"""Queues of which each message is accounted for."""

FAILURES: Final = 3

HISTORIES: Final = ("c0", "c1")
"""Roots whose topics have history: of every third publisher and witness."""

_DECLARED: Final = f"""
[[destination]]
path = "{WORK}"
kind = "queue"
dead_count = 100_000

[[destination]]
path = "{FRAGILE}"
kind = "queue"
deliveries = {FAILURES}
dead_count = 100_000

[[destination]]
path = "{INPUT}"
kind = "queue"
deliveries = 1000

[[destination]]
path = "{OUTPUT}"
kind = "queue"
count = 1_000_000
bytes = "1GiB"
"""

_HISTORY: Final = """
[[destination]]
selector = "{root}/**"
kind = "history"
count = 1_000_000
bytes = "64MiB"
"""

PACE: Final = (0.05, 0.2)
"""Seconds between two messages of a sender, from and to."""

DONE: Final = (0.0, 0.4)
"""Seconds that the work for a message takes, from and to: so faults find messages in the hands of consumers."""

CREDIT: Final = 8

LIFE: Final = (4.0, 15.0)
"""Seconds after which a consumer leaves, from and to."""

WINDOW: Final = 10.0
"""Seconds after which what a lost consumer held goes to others: less than a run waits at its end."""

BAD: Final = 40
"""Of so many messages one is rejected, one always released, and one expires before anybody may be given it."""


def declare(folder: Path) -> Path:
    """Write the file of destinations that the nodes of a run have; returns where it is, from anywhere."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder.resolve() / "destinations.toml"
    file.write_text(_DECLARED + "".join(_HISTORY.format(root=root) for root in HISTORIES), "utf-8")
    return file


class Sender(Application):
    """Sends messages to the queues in turn, some of them to be delivered later, or never.

    Attributes:
        queues: which.
    """

    queues: Sequence[str] = QUEUES

    async def _live(self, session: Session, until: float) -> None:
        messages = self.crowd.account.messages
        while session.state is not SessionState.CLOSED and not self.crowd.ending.is_set():
            if self.crowd.now() >= until:
                return
            queue = self.random.choice(self.queues)
            stale = queue in QUEUES and self.random.randrange(BAD) == 0
            delay = 2.0 if stale else self.random.choice((0.0, 0.0, 0.0, 0.5))
            value = messages.ask(self.crowd.now(), queue, session.id, expires=stale)
            try:
                receipt = await session.send(queue, value, delay=delay, expires=1.0 if stale else None)
            except RequestRefused as refused:
                self.crowd.violated("P4", self.name, f"a message was refused: {refused!r}")
                continue
            self.heard = self.crowd.now()
            messages.sent(self.heard, value, receipt.message_id)
            await self.crowd.rest(self.random.uniform(*PACE))


class Worker(Application):
    """Consumes from both queues; it leaves by bye, by cancelling, or is lost with what it holds.

    Attributes:
        queues: from which it consumes.
    """

    queues: Sequence[str] = QUEUES
    life = LIFE
    window = WINDOW
    stays = True

    @property
    def messages(self) -> Messages:
        """What is noted of them."""
        return self.crowd.account.messages

    async def _live(self, session: Session, until: float) -> None:
        consumers = await self._begin(session)
        for consumer in consumers:
            self._spawn(self._consume(session, consumer))
        while session.state is not SessionState.CLOSED and not self.crowd.ending.is_set():
            await self.crowd.rest(0.2)
            if self.crowd.now() < until:
                continue
            end = self.random.choice(("bye", "cancel", "lost", "stay"))
            if end == "stay":
                until += LIFE[1]
                continue
            if end == "lost":
                await self._abandon(session)
            elif end == "cancel":
                self.messages.left(self.crowd.now(), session.id)
                for consumer in consumers:
                    await consumer.cancel()
            return

    async def _begin(self, session: Session) -> list[MessageConsumer]:
        return [await session.consume(queue, credit=CREDIT, ack="each") for queue in self.queues]

    async def close(self) -> None:
        """End the session there is; what it holds may be given to others from now on."""
        if self.session is not None:
            self._leave(self.session)
        await super().close()

    def _lost(self, session: Session) -> None:
        self._leave(session)
        super()._lost(session)

    def _leave(self, session: Session) -> None:
        # Without a connection nobody knows when its window ended.
        connected = session.state is SessionState.CONNECTED
        self.messages.left(self.crowd.now() if connected else self.heard, session.id)

    async def _abandon(self, session: Session) -> None:
        """Vanish in the middle of the work: nobody hears a good-bye, and the window ends the session."""
        self.session = None
        self._leave(session)
        await session.close(timeout=0)
        self.crowd.account.sessions.left(self.crowd.now(), session.id, confirmed=False)
        await self._stop()

    async def _consume(self, session: Session, consumer: MessageConsumer) -> None:
        async for message in consumer:
            if session.state is SessionState.CLOSED:
                return
            self.heard = self.crowd.now()
            value = self._given(message, Given(self.heard, session.id, message.id, message.redelivered))
            if value is not None:
                self._spawn(self._settle(session, message, value))

    def _given(self, message: Message, given: Given) -> int | None:
        """Note that a message was given; returns the value that it is known by, None if that means nothing."""
        return message.value if self.messages.given(given.at, message.queue, message.value, given) else None

    async def _settle(self, session: Session, message: Message, value: int) -> None:
        await asyncio.sleep(self.random.uniform(*DONE))
        # Which messages are bad is decided by their value, so that all consumers agree.
        way = {1: Way.REJECT, 2: Way.RELEASE}.get(value % BAD, Way.ACCEPT)
        if way is Way.RELEASE and message.queue != FRAGILE and message.redelivered:
            way = Way.ACCEPT  # nothing else would end it
        settling = self.messages.settle(self.crowd.now(), value, session.id, way)
        try:
            match way:
                case Way.ACCEPT:
                    await message.accept()
                case Way.REJECT:
                    await message.reject()
                case Way.RELEASE:
                    await message.release(delay=self.random.choice((0.0, 0.3)))
        except NotHeld:
            settling.answer = Answer.NOT_HELD
        except (SessionEnded, RequestTimedOut):
            return
        else:
            settling.answer = Answer.DONE
        settling.answered = self.heard = self.crowd.now()
