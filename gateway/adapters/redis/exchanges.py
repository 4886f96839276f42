"""Questions and answers: implements ``gateway.ports.ExchangeStore``. Each step is one script; see ``exchange.lua``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.adapters.redis.partition_reading import PartitionReading, position_of
from gateway.adapters.redis.scripts import Argument, Command
from gateway.adapters.redis.tail import RedisTail
from gateway.adapters.redis.topics import STORED_RECEIPT_LIFE_MS
from gateway.core.types import RequestNumber, SessionId
from gateway.ports import (
    MOST_HANDLERS,
    MOST_SELECTORS,
    AnswerCommand,
    AnswerRead,
    AnswerResult,
    AnswersRead,
    AnswerState,
    AskCommand,
    AskedAll,
    AskResult,
    AskState,
    ExchangeItem,
    ExchangesLost,
    Fenced,
    Given,
    Handled,
    HandlerSelectors,
    Handling,
    HandlingRefused,
    HeldQuestion,
    Over,
    Ownership,
    QuestionStep,
    StreamPosition,
    TakenQuestion,
)

FIRE_STEPS: Final = 20
"""Steps that do what is due in a partition, a hundred questions each."""

EXCHANGES_LENGTH: Final = 10_000
"""Entries that the exchanges of a partition keep, about: five seconds of a node that does not read while a thousand
questions are put and answered in each. One that is further behind asks what its sessions have."""

EXCHANGE_MARK: Final = "?/"
"""What stands for the questions and handlers of a session among the queues that it consumes from: an empty segment, so
that it is the path of no queue."""

_GONE: Final = b"gone"
_SECOND: Final = 1000
"""Milliseconds in a second."""

_NUMBERS: Final = 3
"""Of a question that a session has: tag, asker, number."""

_TAKEN: Final = 4
"""Of one that was taken: which of those asked for, milliseconds left, whether it was before, what is given."""


class RedisExchanges:
    """Questions and answers in Redis.

    Args:
        grid: the connection.
        keys: names of all keys.
        tail: reads what happens.
        foreign: told of what is not the gateway's.
    """

    def __init__(self, *, grid: GridConnection, keys: Keys, tail: RedisTail, foreign: ForeignData) -> None:
        self._grid = grid
        self._batcher = grid.batcher
        self._keys = keys
        self._tail = tail
        self._foreign = foreign
        self._items: asyncio.Queue[ExchangeItem] = asyncio.Queue()
        self._followed: dict[int, PartitionReading] = {}
        grid.when_writes_are_lost(self._lose_all)

    async def handle(
        self, ownership: Ownership, partition: int, principal: str, handling: Handling
    ) -> Handled | HandlingRefused:
        """See ``ExchangeStore.handle``."""
        reply = await self._owned(
            ownership,
            scripts.EXCHANGE_HANDLE(
                *self._begin(partition, ownership.session),
                *self._receipts(ownership, RequestNumber(0)),
                *(handling.concurrency, int(handling.present), principal, MOST_HANDLERS, MOST_SELECTORS),
                *handling.selectors,
            ),
        )
        if reply == b"full":
            return HandlingRefused.HANDLERS
        held = zip(*(reply[start::_NUMBERS] for start in range(1, _NUMBERS + 1)), strict=True)
        return Handled(position_of(reply[0]), tuple([_held(*each) for each in held]))

    async def ask(self, command: AskCommand) -> AskedAll | HandlerSelectors:
        """See ``ExchangeStore.ask``."""
        questions: list[Argument] = []
        for step in command.steps:
            questions += (step.request, round(step.timeout * _SECOND), _target(step), step.text)
            questions += (len(step.selectors), *step.selectors)
        reply = await self._owned(
            command.ownership,
            scripts.EXCHANGE_ASK(
                *self._begin(command.partition, command.ownership.session),
                *self._receipts(command.ownership, command.settled),
                *(command.revision, command.most, command.most_bytes),
                *questions,
            ),
        )
        if reply[0] == b"selectors":
            return HandlerSelectors(reply[1].decode(), tuple([each.decode(errors="replace") for each in reply[2:]]))
        return AskedAll(position_of(reply[0]), tuple([_asked(each) for each in reply[1:]]))

    async def take(
        self, ownership: Ownership, partition: int, questions: Sequence[HeldQuestion]
    ) -> list[TakenQuestion]:
        """See ``ExchangeStore.take``."""
        if not questions:
            return []
        wanted = [part for each in questions for part in each]
        reply = await self._owned(
            ownership,
            scripts.EXCHANGE_TAKE(
                *self._begin(partition, ownership.session), *self._receipts(ownership, RequestNumber(0)), *wanted
            ),
        )
        return [
            TakenQuestion(questions[place - 1], text, int(left) / _SECOND, again == b"1")
            for place, left, again, text in zip(*(reply[start::_TAKEN] for start in range(_TAKEN)), strict=True)
        ]

    async def answer(self, command: AnswerCommand) -> list[AnswerResult]:
        """See ``ExchangeStore.answer``."""
        answers: list[Argument] = []
        for step in command.steps:
            how = AnswerState.FAILED if step.failed else AnswerState.VALUE
            answers += (step.request, *step.held, how.value.encode() + step.text)
        reply = await self._owned(
            command.ownership,
            scripts.EXCHANGE_ANSWER(
                *self._begin(command.partition, command.ownership.session),
                *self._receipts(command.ownership, command.settled),
                command.most_bytes,
                *answers,
            ),
        )
        return [AnswerResult(each.endswith(b"ok"), each.startswith(b"=")) for each in reply]

    async def read(self, asker: SessionId, partition: int, numbers: Sequence[RequestNumber]) -> AnswersRead:
        """See ``ExchangeStore.read``."""
        reply = await self._call(scripts.EXCHANGE_READ(*self._begin(partition, asker), *numbers))
        return AnswersRead(position_of(reply[0]), tuple([_answer(each) for each in reply[1:]]))

    async def forget(self, asker: SessionId, partition: int, numbers: Sequence[RequestNumber]) -> None:
        """See ``ExchangeStore.forget``."""
        if numbers:
            await self._call(scripts.EXCHANGE_FORGET(*self._begin(partition, asker), *numbers))

    async def fire(self, partition: int) -> None:
        """See ``ExchangeStore.fire``."""
        for _ in range(FIRE_STEPS):
            if not await self._call(scripts.EXCHANGE_FIRE(*self._begin(partition, SessionId("")))):
                return

    # --- Exchanges ----------------------------------------------------------------------------------------------------

    def follow(self, partition: int, position: StreamPosition) -> None:
        """See ``ExchangeStore.follow``."""
        reading = PartitionReading(self._keys.exchanges(partition), partition, position, self, self._foreign)
        self._followed[partition] = reading
        self._tail.attach(reading)

    def unfollow(self, partition: int) -> None:
        """See ``ExchangeStore.unfollow``."""
        reading = self._followed.pop(partition, None)
        if reading is not None:
            self._tail.detach(reading)

    async def exchanges(self) -> AsyncIterator[ExchangeItem]:
        """See ``ExchangeStore.exchanges``."""
        while True:
            yield await self._items.get()

    def arrived(self, partition: int, number: bytes, fields: list[bytes]) -> None:
        """Take in an entry; what the gateway did not write is skipped."""
        try:
            match fields[0], fields[1].decode().split(" "):
                case b"", _:  # the marker that opens a generation
                    pass
                case b"?", [session, tag, asker, request]:
                    held = HeldQuestion(int(tag), SessionId(asker), RequestNumber(int(request)))
                    self._items.put_nowait(Given(partition, position_of(number), SessionId(session), held))
                case b"!", [asker, request]:
                    over = RequestNumber(int(request))
                    self._items.put_nowait(Over(partition, position_of(number), SessionId(asker), over))
                case _:
                    raise ValueError("it is nothing about a question")
        except (ValueError, IndexError) as error:
            self._foreign.skipped(self._keys.exchanges(partition), number.decode(), error)

    def lose(self, reading: PartitionReading) -> None:
        """Tell that a partition's exchanges do not go on."""
        if self._followed.get(reading.partition) is reading:
            self.unfollow(reading.partition)
            self._items.put_nowait(ExchangesLost(reading.partition))

    def _lose_all(self) -> None:
        for each in list(self._followed.values()):
            self.lose(each)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _begin(self, partition: int, session: SessionId) -> tuple[Argument, ...]:
        return begin(self._grid, self._keys, partition, session)

    def _receipts(self, ownership: Ownership, settled: RequestNumber) -> tuple[Argument, ...]:
        return (ownership.epoch, settled, short_hash(ownership.session), STORED_RECEIPT_LIFE_MS)

    async def _call(self, command: Command) -> Any:
        reply = await self._batcher.call(command, gated=True)
        if reply == b"stale":
            raise self._grid.stale()
        return reply

    async def _owned(self, ownership: Ownership, command: Command) -> Any:
        reply = await self._call(command)
        if reply == b"fenced":
            raise Fenced(
                f"{ownership.owner} with epoch {ownership.epoch} does not own session {ownership.session} any more"
            )
        return reply


def begin(grid: GridConnection, keys: Keys, partition: int, session: SessionId) -> tuple[Argument, ...]:
    """The keys and first arguments of every step."""
    return (
        *keys.exchange(partition, session),
        *(grid.clock.argument(), grid.generation, EXCHANGES_LENGTH, session),
    )


def leave_exchanges(grid: GridConnection, keys: Keys, partition: int, session: SessionId) -> Command:
    """Make the command by which a partition forgets a session that has ended."""
    return scripts.EXCHANGE_LEAVE(*begin(grid, keys, partition, session))


def _target(step: QuestionStep) -> str:
    if step.session is not None:
        return f"s{step.session}"
    return "" if step.principal is None else f"p{step.principal}"


def _held(tag: bytes, asker: bytes, number: bytes) -> HeldQuestion:
    return HeldQuestion(int(tag), SessionId(asker.decode()), RequestNumber(int(number)))


def _asked(answer: bytes) -> AskResult:
    before, text = answer.startswith(b"="), answer.removeprefix(b"=")
    return AskResult(AskState.FORGOTTEN if text == _GONE else AskState(text.decode()), before)


def _answer(reply: bytes) -> AnswerRead:
    state, text = AnswerState(reply[:1].decode()), reply[1:]
    if state is AnswerState.WAITING:
        return AnswerRead(state, b"", int(text) / _SECOND)
    return AnswerRead(state, text, 0.0)
