"""Who passes messages on in transactions: each is accepted, sent and published as a whole, or not at all."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from gateway.client import Message, MessageConsumer, Session
from gateway.core.client.errors import NoSuchTransaction, NotHeld, SessionEnded
from gateway.core.client.types import SessionState
from tests.chaos.account.messages import Answer, Given, Settling, Way
from tests.chaos.account.transactions import INPUT, OUTPUT, Commit, Ending
from tests.chaos.load.queueing import Sender, Worker

ROOT: Final = "c1"
"""Of the topics of what is published; they have history."""

BATCH: Final = 3
"""Messages of one transaction, at most."""

TOGETHER: Final = 0.05
"""Seconds that a transaction waits for one more message."""

WORK: Final = 0.2
"""Seconds that a transaction stays open before its commit, at most."""


class InputSender(Sender):
    """Sends what is passed on."""

    queues = (INPUT,)


class Processor(Worker):
    """Passes on all that it is given, one transaction after the other; it leaves, or is lost, as every worker."""

    queues = (INPUT,)

    async def _consume(self, session: Session, consumer: MessageConsumer) -> None:
        # What waits for its transaction has been given already: others may be given it meanwhile, if the grid forgets.
        waiting: asyncio.Queue[Message] = asyncio.Queue()
        self._spawn(self._process(session, waiting))
        async for message in consumer:
            if session.state is SessionState.CLOSED:
                return
            self.heard = self.crowd.now()
            given = Given(self.heard, session.id, message.id, message.redelivered)
            if self._given(message, given) is not None:
                waiting.put_nowait(message)

    async def _process(self, session: Session, waiting: asyncio.Queue[Message]) -> None:
        topic = f"{ROOT}/{self.name}/{session.id[:8]}"
        while session.state is not SessionState.CLOSED:
            batch = [await waiting.get()]
            with suppress(TimeoutError):
                async with asyncio.timeout(TOGETHER):
                    while len(batch) < self.random.randint(1, BATCH):
                        batch.append(await waiting.get())
            await self._pass_on(session, topic, batch)

    async def _pass_on(self, session: Session, topic: str, batch: list[Message]) -> None:
        """Pass messages on, and try again what was rolled back."""
        while batch and not await self._commit(session, topic, batch):
            if len(batch) > 1:  # if one of them is not held any more, the others may be
                for each in batch:
                    await self._pass_on(session, topic, [each])
                return
            if session.state is SessionState.CLOSED:
                return

    async def _commit(self, session: Session, topic: str, batch: list[Message]) -> bool:
        """Pass messages on in one transaction; False if that was rolled back, and can be tried again."""
        account = self.crowd.account
        commit = Commit(session.id)
        settlings: list[Settling] = []
        try:
            async with session.transaction() as transaction:
                for each in batch:
                    await transaction.accept(each)
                    await transaction.send(OUTPUT, each.value)
                    count = account.publishes.ask(self.crowd.now(), topic, session.id)
                    await transaction.publish(topic, count)
                    commit.publishes[each.value] = (topic, count)
                await asyncio.sleep(self.random.uniform(0, WORK))
                commit.asked = self.crowd.now()
                account.transactions.commits.append(commit)
                settlings += [
                    account.messages.settle(commit.asked, each.value, session.id, Way.ACCEPT) for each in batch
                ]
        except NotHeld:
            self._ended(commit, Ending.REFUSED, settlings if len(batch) == 1 else (), Answer.NOT_HELD)
            return len(batch) == 1
        except NoSuchTransaction:
            self._ended(commit, Ending.REFUSED)
            return False
        except SessionEnded:
            return True
        self._ended(commit, Ending.DONE, settlings, Answer.DONE)
        return True

    def _ended(
        self,
        commit: Commit,
        ending: Ending,
        settlings: list[Settling] | tuple[()] = (),
        answer: Answer = Answer.NONE,
    ) -> None:
        commit.ending = ending
        commit.answered = self.heard = self.crowd.now()
        for each in settlings:
            each.answer, each.answered = answer, commit.answered
