"""Who shares a durable subscription: each event is given to one of them, as a message of its queue."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from gateway.client import Message, MessageConsumer, Session
from gateway.core.client.errors import NoSuchDurable, NoSuchQueue
from tests.chaos.account.messages import Given, Messages
from tests.chaos.account.shared import SharedReading
from tests.chaos.load.crowd import Crowd
from tests.chaos.load.queueing import CREDIT, HISTORIES, Worker

NAME: Final = "shared"
"""Of the subscription, and of the principal whose it is."""

SELECTOR: Final = f"{HISTORIES[0]}/**"


class SharedReader(Worker):
    """Is given events of one root together with others of its principal; it leaves, or is lost, as every worker."""

    shared_principal = NAME

    def __init__(self, crowd: Crowd, name: str) -> None:
        super().__init__(crowd, name)
        self.reading = crowd.account.shared.setdefault(NAME, SharedReading(NAME, SELECTOR))

    @property
    def messages(self) -> Messages:
        """See ``Worker``."""
        return self.reading.messages

    async def _begin(self, session: Session) -> list[MessageConsumer]:
        return [await session.subscribe_durable(NAME, SELECTOR, shared=True, credit=CREDIT, ack="each")]

    async def _consume(self, session: Session, consumer: MessageConsumer) -> None:
        # A grid that was emptied has forgotten the subscription with its queue: the client is told, and opens it again.
        while True:
            with suppress(NoSuchDurable, NoSuchQueue):
                await super()._consume(session, consumer)
                return
            (consumer,) = await self._begin(session)

    def _given(self, message: Message, given: Given) -> int | None:
        headers = message.headers
        return self.reading.given(
            headers["topic"], message.value, headers["event"], given, gap=headers.get("gap") == "true"
        )
