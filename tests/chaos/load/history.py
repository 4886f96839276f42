"""Who reads topics with history, session after session, from where the one before stopped."""

from __future__ import annotations

from typing import Final

from gateway.client import Session
from gateway.client.history_streams import HistoryStream
from gateway.core.client.types import SessionState
from tests.chaos.account.readers import Reader
from tests.chaos.load.application import Application
from tests.chaos.load.crowd import Crowd
from tests.chaos.load.queueing import HISTORIES

SMALL: Final = 10
"""Live updates that a slow reader keeps, so that it has to read the history time and again."""


class HistoryReader(Application):
    """Reads all events of one root, from the earliest one on.

    Args:
        crowd: what it shares with the others.
        name: for violations, also its principal.
    """

    stays = True

    def __init__(self, crowd: Crowd, name: str) -> None:
        super().__init__(crowd, name)
        number = int(name.rpartition("-")[2])
        selector = f"{HISTORIES[number % len(HISTORIES)]}/**"
        self.reader = Reader(name, selector)
        crowd.account.readers.all.append(self.reader)
        self._selector = selector
        self._slow = number % 4 >= len(HISTORIES)
        self._position = "earliest"

    async def _live(self, session: Session, until: float) -> None:
        size = SMALL if self._slow else 10_000
        stream = await session.subscribe(self._selector, start=self._position, queue_size=size)
        self._spawn(self._follow(stream))
        while session.state is not SessionState.CLOSED and not self.crowd.ending.is_set():
            await self.crowd.rest(0.5)
            if self.crowd.now() >= until and self.crowd.publishing.is_set():
                return

    async def _follow(self, stream: HistoryStream) -> None:
        async for update in stream:
            now = self.heard = self.crowd.now()
            if type(update.value) is not int:
                self.crowd.violated("P14", self.name, f"{update.topic} has the value {update.value!r}")
                continue
            if update.snapshot or update.folded:
                self.crowd.violated("P14", self.name, f"{update} is no event")
            self.reader.read(now, update.topic, update.value, update.event_id, gap=update.gap)
            # Topics of one root are in one partition, so that its last event is a position.
            self._position = update.event_id
            if self._slow and self.crowd.publishing.is_set() and self.random.random() < 0.05:
                await self.crowd.rest(self.random.uniform(0.2, 1.5))
