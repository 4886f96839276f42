"""Sessions that ask and handle, for the contract of questions and answers, and what they are told."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.core.topics.topics import partition_of
from gateway.core.types import RequestNumber, SessionId
from gateway.ports import (
    AnswerCommand,
    AnswerRead,
    AnswerResult,
    AnswerState,
    AnswerStep,
    AskCommand,
    AskedAll,
    AskResult,
    AskState,
    ExchangeItem,
    Given,
    Grid,
    Handled,
    HandlerSelectors,
    Handling,
    HeldQuestion,
    Over,
    QuestionStep,
    SessionRecord,
    TakenQuestion,
)
from tests.contract.examples import DEPTH, ownership, session
from tests.contract.harness import LONG

QUOTES = "quotes/**"
PARTITION = partition_of(["quotes"], DEPTH)
CROWD = 350
"""More questions than some steps of the grid look after when their time is over."""
PUT = AskResult(AskState.PUT, duplicate=False)


class User:
    """A session that asks and handles."""

    def __init__(self, grid: Grid, record: SessionRecord | None = None, principal: str = "alice") -> None:
        self.grid = grid
        self.record = session(partitions=frozenset({PARTITION})) if record is None else record
        self.principal = principal
        self.epoch = 1
        self.asked = 0
        self.revision = ""
        self.most, self.most_bytes = 0, 0

    @property
    def id(self) -> SessionId:
        return self.record.id

    async def handle(self, *selectors: str, concurrency: int = 10, present: bool = True) -> Handled:
        handled = await self.grid.exchanges.handle(
            ownership(self.record, epoch=self.epoch),
            PARTITION,
            self.principal,
            Handling(selectors, concurrency, present),
        )
        assert isinstance(handled, Handled), handled
        return handled

    def question(self, number: int, text: str = "1", **more: object) -> QuestionStep:
        given = {"selectors": (QUOTES,), "timeout": LONG} | more
        return QuestionStep(RequestNumber(number), text=text.encode(), **given)  # type: ignore[arg-type]

    def command(self, *steps: QuestionStep) -> AskCommand:
        mine = ownership(self.record, epoch=self.epoch)
        return AskCommand(mine, RequestNumber(0), PARTITION, self.revision, steps, self.most, self.most_bytes)

    async def put(self, *steps: QuestionStep) -> AskedAll:
        """Put questions, by the selectors that there are."""
        answer = await self.grid.exchanges.ask(self.command(*steps))
        if isinstance(answer, HandlerSelectors):
            self.revision = answer.revision
            answer = await self.grid.exchanges.ask(self.command(*steps))
        assert isinstance(answer, AskedAll), answer
        return answer

    async def ask(self, text: str = "1", **more: Any) -> RequestNumber:
        """Put a question; returns its number."""
        self.asked += 1
        asked = await self.put(self.question(self.asked, text, **more))
        assert asked.results == (PUT,), asked
        return RequestNumber(self.asked)

    async def held(self) -> list[HeldQuestion]:
        """Tell what it has, as it would after a failover."""
        return list((await self.handle(QUOTES)).held)

    async def take(self, *held: HeldQuestion) -> list[TakenQuestion]:
        return await self.grid.exchanges.take(ownership(self.record, epoch=self.epoch), PARTITION, held)

    async def answer(
        self, held: HeldQuestion, text: str = "42", *, request: int = 1000, failed: bool = False
    ) -> AnswerResult:
        step = AnswerStep(RequestNumber(request), held, text.encode(), failed)
        mine = ownership(self.record, epoch=self.epoch)
        command = AnswerCommand(mine, RequestNumber(0), PARTITION, (step,), self.most_bytes)
        (result,) = await self.grid.exchanges.answer(command)
        return result

    async def look(self, *numbers: RequestNumber) -> list[AnswerRead]:
        read = await self.grid.exchanges.read(self.id, PARTITION, numbers)
        return [each._replace(left=0.0) for each in read.answers]


class Listener:
    """Hears what happens."""

    def __init__(self, grid: Grid, handled: Handled) -> None:
        self.items: list[ExchangeItem] = []
        self._grid = grid
        grid.exchanges.follow(PARTITION, handled.position)
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for item in self._grid.exchanges.exchanges():
            self.items.append(item)

    def given(self, user: User) -> list[HeldQuestion]:
        return [each.held for each in self.items if isinstance(each, Given) and each.session == user.id]

    def over(self, user: User) -> list[RequestNumber]:
        return [each.number for each in self.items if isinstance(each, Over) and each.asker == user.id]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


WAITING = AnswerRead(AnswerState.WAITING, b"", 0.0)
UNKNOWN = AnswerRead(AnswerState.UNKNOWN, b"", 0.0)
