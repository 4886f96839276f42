"""Who reads durable subscriptions: session after session, each from where the one before had acknowledged."""

from __future__ import annotations

from typing import Final

from gateway.client import DurableInUse, DurableStream, Session, Update
from gateway.core.client.errors import NoSuchDurable, SessionEnded
from gateway.core.client.types import SessionState
from tests.chaos.account.durables import DurableReader as Reading
from tests.chaos.load.application import Application
from tests.chaos.load.crowd import Crowd
from tests.chaos.load.queueing import HISTORIES, LIFE

NAME: Final = "all"
"""Of the subscription; each principal has one of its own."""

BATCH: Final = 20
"""Events that are acknowledged together, at most."""

SHORT: Final = 10.0
"""Seconds for which a session that was abandoned survives."""

TAKEN: Final = 3
"""Times that somebody finds a subscription in use before it takes it over from a session that is still connected."""


class DurableReader(Application):
    """Reads all events of one root by a durable subscription; it leaves by bye, by closing it, or is lost.

    Args:
        crowd: what it shares with the others.
        name: for violations, also its principal.
    """

    life = LIFE
    window = SHORT
    stays = True

    def __init__(self, crowd: Crowd, name: str) -> None:
        super().__init__(crowd, name)
        number = int(name.rpartition("-")[2])
        self._selector = f"{HISTORIES[number % len(HISTORIES)]}/**"
        self.reading = Reading(name, self._selector)
        crowd.account.readers.durables.append(self.reading)
        self._refused = 0

    async def _live(self, session: Session, until: float) -> None:
        stream = await self._subscribe_durable(session)
        if stream is None:
            return
        self.reading.open()
        self._spawn(self._follow(session, stream))
        while session.state is not SessionState.CLOSED and not self.crowd.ending.is_set():
            await self.crowd.rest(0.2)
            if stream.closed:
                return  # another session of its principal has taken it, or the grid forgot it
            if self.crowd.now() < until or not self.crowd.publishing.is_set():
                continue
            end = self.random.choice(("bye", "close", "lost"))
            if end == "lost":
                await self._abandon(session)
            elif end == "close":
                await stream.close()
            return

    async def _subscribe_durable(self, session: Session) -> DurableStream | None:
        """Open the subscription; None if a session that was left behind still has it."""
        try:
            stream = await session.subscribe_durable(NAME, self._selector, ack="client", take=self._refused >= TAKEN)
        except DurableInUse:
            self._refused += 1
            await self.crowd.rest(0.3)
            return None
        self._refused = 0
        return stream

    async def _abandon(self, session: Session) -> None:
        """Vanish with what was not acknowledged; nobody hears a good-bye."""
        self.session = None
        await session.close(timeout=0)
        self.crowd.account.sessions.left(self.crowd.now(), session.id, confirmed=False)
        await self._stop()

    async def _follow(self, session: Session, stream: DurableStream) -> None:
        try:
            async for update in stream:
                self._had(update)
                if self.random.random() < 1 / BATCH or update.value % BATCH == 0:
                    await self._acknowledge(stream)
        except (DurableInUse, NoSuchDurable):
            return

    def _had(self, update: Update) -> None:
        self.heard = self.crowd.now()
        if update.snapshot or update.folded:
            self.crowd.violated("P14", self.name, f"{update} is no event")
        self.reading.read(self.heard, update.topic, update.value, update.event_id, gap=update.gap)

    async def _acknowledge(self, stream: DurableStream) -> None:
        acknowledgement = self.reading.acknowledge(self.crowd.now())
        try:
            await stream.acknowledge()
        except SessionEnded:
            return
        self.heard = acknowledgement.answered = self.crowd.now()
