"""Questions as one connection of one node to the in-memory grid has them; the steps are in ``exchange_table``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from gateway.adapters.memory.grid_connection import GridConnection
from gateway.core.types import RequestNumber, SessionId
from gateway.ports import (
    AnswerCommand,
    AnswerResult,
    AnswersRead,
    AskCommand,
    AskedAll,
    ExchangeItem,
    ExchangesLost,
    Handled,
    HandlerSelectors,
    Handling,
    HandlingRefused,
    HeldQuestion,
    Ownership,
    StreamPosition,
    TakenQuestion,
)


class MemoryExchangeStore:
    """``ExchangeStore`` of one connection to the in-memory grid."""

    def __init__(self, connection: GridConnection) -> None:
        self._connection = connection
        self._followed: dict[int, StreamPosition] = {}
        self._items: deque[ExchangeItem] = deque()
        self._wake = asyncio.Event()
        connection.watch_deliveries(self._look)

    async def handle(
        self, ownership: Ownership, partition: int, principal: str, handling: Handling
    ) -> Handled | HandlingRefused:
        """See the port."""
        return await self._connection.run(
            lambda grid, now: grid.handle_questions(ownership, partition, principal, handling, now)
        )

    async def ask(self, command: AskCommand) -> AskedAll | HandlerSelectors:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.ask(command, now))

    async def take(
        self, ownership: Ownership, partition: int, questions: Sequence[HeldQuestion]
    ) -> list[TakenQuestion]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.take_questions(ownership, partition, questions, now))

    async def answer(self, command: AnswerCommand) -> list[AnswerResult]:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.answer(command, now))

    async def read(self, asker: SessionId, partition: int, numbers: Sequence[RequestNumber]) -> AnswersRead:
        """See the port."""
        return await self._connection.run(lambda grid, now: grid.read_answers(asker, partition, numbers, now))

    async def forget(self, asker: SessionId, partition: int, numbers: Sequence[RequestNumber]) -> None:
        """See the port."""
        await self._connection.run(lambda grid, _now: grid.exchanges.forget_answers(asker, partition, numbers))

    async def fire(self, partition: int) -> None:
        """See the port."""
        await self._connection.run(lambda grid, now: grid.exchanges.open(partition, grid.generation, now))

    def follow(self, partition: int, position: StreamPosition) -> None:
        """See the port."""
        self._followed[partition] = position
        self._look()

    def unfollow(self, partition: int) -> None:
        """See the port."""
        self._followed.pop(partition, None)

    async def exchanges(self) -> AsyncIterator[ExchangeItem]:
        """See the port. The iterator ends when the grid is closed."""
        while not self._connection.closed:
            while self._items:
                yield self._items.popleft()
                await asyncio.sleep(0)
            self._wake.clear()
            await self._wake.wait()

    def _look(self) -> None:
        """Take in what happened in the followed partitions."""
        if self._connection.readable:
            for partition, position in list(self._followed.items()):
                # What was given before the grid went back is told anew to who asks.
                is_known = position.grid_generation == self._connection.generation
                read = self._connection.server.exchanges_after(partition, position) if is_known else None
                if read is None:
                    del self._followed[partition]
                    self._items.append(ExchangesLost(partition))
                elif read:
                    self._items.extend(read)
                    self._followed[partition] = read[-1].position
        self._wake.set()
