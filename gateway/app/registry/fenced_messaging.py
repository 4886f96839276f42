"""What a session sends, consumes, asks, answers and commits, written by the one rule of fencing (``fencing``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from gateway.app.context import Context
from gateway.app.registry.fencing import Fencing
from gateway.app.session.consumer import Terms
from gateway.app.session.session import Session
from gateway.core.types import DeliveryTag, RequestNumber, SessionId, TopicPath
from gateway.ports import (
    Advance,
    AnswerCommand,
    AnswerResult,
    AnswerStep,
    AskCommand,
    AskedAll,
    Attached,
    AttachRefused,
    Committed,
    DurableName,
    DurableTerms,
    Handled,
    HandlerSelectors,
    Handling,
    HandlingRefused,
    HeldQuestion,
    OpenResult,
    Ownership,
    QuestionStep,
    QueueBounds,
    SendCommand,
    SendResult,
    SettleCommand,
    SettleResult,
    SettleStep,
    Staged,
    TakenQuestion,
    TransactionRefused,
)

T = TypeVar("T")

MOST_CONSUMERS: Final = 10_000
"""Sessions that may consume from one queue: some 2 MB of the grid, and more than one queue can keep busy (P20)."""


class FencedMessaging(Fencing):
    """What the owner of a session writes to queues, durable subscriptions, questions and transactions.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._parameters = context.parameters

    # --- Queues -------------------------------------------------------------------------------------------------------

    def send(self, commands: Sequence[SendCommand]) -> Awaitable[list[SendResult]]:
        """Send messages in the name of a session that is ready, as ``publish`` does; see ``QueueStore.send``."""
        return self._grid.queues.send(commands)

    async def attach_consumer(self, session: Session, queue: TopicPath, terms: Terms) -> Attached | AttachRefused:
        """Let a session consume; only of sessions that are replicated. See ``QueueStore.attach``.

        Raises:
            Outdated, SessionLost: see ``fencing``.
            GridUnavailable: it may have been done.
        """
        answers: list[Attached | AttachRefused] = []

        async def attach(ownership: Ownership) -> None:
            answers.append(
                await self._grid.queues.attach(
                    ownership, queue, credit=terms.credit, bounds=terms.bounds, most_consumers=MOST_CONSUMERS
                )
            )

        await self._write(session, attach)
        return answers[-1]

    async def detach_consumer(self, session: Session, queue: TopicPath, seen: DeliveryTag) -> None:
        """Let a session consume no more; see ``QueueStore.leave``.

        Raises:
            Outdated, SessionLost, GridUnavailable: as above.
        """
        await self._write(session, lambda ownership: self._grid.queues.leave(ownership, queue, seen=seen))

    async def settle(
        self, session: Session, queue: TopicPath, seen: DeliveryTag, steps: tuple[SettleStep, ...]
    ) -> list[SettleResult]:
        """Settle what a session holds; only of sessions that are replicated. See ``QueueStore.settle``.

        Raises:
            Outdated, SessionLost, GridUnavailable: as above.
        """
        answers: list[list[SettleResult]] = []

        async def settle(ownership: Ownership) -> None:
            command = SettleCommand(ownership, session.settled(), queue, seen, steps)
            answers.append(await self._grid.queues.settle(command))

        await self._write(session, settle)
        return answers[-1]

    async def declare_queue(self, session: Session, queue: TopicPath, bounds: QueueBounds, *, most: int) -> bool:
        """Make a queue for the life of a session; see ``QueueStore.declare``.

        Raises:
            Outdated, SessionLost, GridUnavailable: as above.
        """
        answers: list[bool] = []

        async def declare(ownership: Ownership) -> None:
            answers.append(await self._grid.queues.declare(queue, bounds, owner=ownership, most=most))

        await self._write(session, declare)
        return answers[-1]

    # --- Durable subscriptions ----------------------------------------------------------------------------------------

    async def open_durable(
        self, session: Session, name: DurableName, terms: DurableTerms, start: str | None, instead_of: SessionId | None
    ) -> OpenResult:
        """Let a session use a durable subscription; only of sessions that are replicated. See ``DurableStore.open``.

        Raises:
            Outdated, SessionLost, GridUnavailable: as above.
        """
        answers: list[OpenResult] = []

        async def open_it(ownership: Ownership) -> None:
            answers.append(await self._grid.durables.open(ownership, name, terms, start=start, instead_of=instead_of))

        await self._write(session, open_it)
        return answers[-1]

    async def advance_durable(self, session: Session, name: DurableName, position: str) -> Advance:
        """Acknowledge what a session had; see ``DurableStore.advance``.

        Raises:
            Outdated, SessionLost, GridUnavailable: as above.
        """
        answers: list[Advance] = []

        async def advance(ownership: Ownership) -> None:
            answers.append(await self._grid.durables.advance(ownership, name, position))

        await self._write(session, advance)
        return answers[-1]

    async def release_durable(self, session: Session, name: DurableName) -> None:
        """Let a session use one no more; see ``DurableStore.release``.

        Raises:
            Outdated, SessionLost, GridUnavailable: as above.
        """
        await self._write(session, lambda ownership: self._grid.durables.release(ownership, name))

    # --- Questions ----------------------------------------------------------------------------------------------------

    async def handle_questions(self, session: Session, partition: int, handling: Handling) -> Handled | HandlingRefused:
        """Tell a partition what a session handles; see ``ExchangeStore``. These steps raise as ``change`` does."""
        handle = self._grid.exchanges.handle
        return await self._asked(session, lambda mine: handle(mine, partition, session.principal, handling))

    async def ask(
        self, session: Session, partition: int, revision: str, steps: tuple[QuestionStep, ...]
    ) -> AskedAll | HandlerSelectors:
        """Put questions; see ``ExchangeStore.ask``."""
        ask, settled, limits = self._grid.exchanges.ask, session.settled(), self._parameters.exchanges
        most, most_bytes = limits.partition_questions, limits.partition_bytes
        return await self._asked(
            session, lambda mine: ask(AskCommand(mine, settled, partition, revision, steps, most, most_bytes))
        )

    async def take_questions(
        self, session: Session, partition: int, questions: Sequence[HeldQuestion]
    ) -> list[TakenQuestion]:
        """Take questions that a session was given; see ``ExchangeStore.take``."""
        return await self._asked(session, lambda mine: self._grid.exchanges.take(mine, partition, questions))

    async def answer_questions(
        self, session: Session, partition: int, steps: tuple[AnswerStep, ...]
    ) -> list[AnswerResult]:
        """Answer questions; see ``ExchangeStore.answer``."""
        answer, settled = self._grid.exchanges.answer, session.settled()
        most_bytes = self._parameters.exchanges.partition_bytes
        return await self._asked(
            session, lambda mine: answer(AnswerCommand(mine, settled, partition, steps, most_bytes))
        )

    # --- Transactions -------------------------------------------------------------------------------------------------

    async def begin_transaction(self, session: Session, number: RequestNumber) -> TransactionRefused | None:
        """Begin a transaction; only of sessions that are replicated. See ``TransactionStore.begin``.

        Raises:
            Outdated, SessionLost: see ``fencing``.
            GridUnavailable: it may have been done.
        """
        transactions, settled = self._grid.transactions, session.settled()
        return await self._asked(session, lambda ownership: transactions.begin(ownership, number, settled=settled))

    async def stage(
        self, session: Session, transaction: RequestNumber, request: RequestNumber, operation: Staged
    ) -> TransactionRefused | None:
        """Add to a transaction; see ``TransactionStore.stage``.

        Raises:
            Outdated, SessionLost, GridUnavailable: as above.
        """
        transactions = self._grid.transactions
        return await self._asked(
            session, lambda ownership: transactions.stage(ownership, transaction, request, operation)
        )

    async def commit(
        self, session: Session, transaction: RequestNumber, request: RequestNumber
    ) -> Committed | TransactionRefused:
        """Execute a transaction, or nothing of it; see ``TransactionStore.commit``.

        Raises:
            Outdated, SessionLost, GridUnavailable: as above.
        """
        transactions, settled = self._grid.transactions, session.settled()
        return await self._asked(
            session, lambda ownership: transactions.commit(ownership, transaction, request, settled=settled)
        )

    async def roll_back(self, session: Session, transaction: RequestNumber) -> None:
        """Forget a transaction; see ``TransactionStore.roll_back``.

        Raises:
            Outdated, SessionLost, GridUnavailable: as above.
        """
        await self._write(session, lambda ownership: self._grid.transactions.roll_back(ownership, transaction))

    async def _asked(self, session: Session, ask: Callable[[Ownership], Awaitable[T]]) -> T:
        """Write, and tell what the grid has answered."""
        answers: list[T] = []

        async def write(ownership: Ownership) -> None:
            answers.append(await ask(ownership))

        await self._write(session, write)
        return answers[-1]
