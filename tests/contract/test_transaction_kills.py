"""A node dies or sleeps before each command of a commit: all of the transaction is executed, once, or nothing (P16)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, Final

import pytest

from gateway.adapters.redis import RedisGrid
from gateway.adapters.redis.scripts import Command
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.topics import session_partition, topic_partition
from gateway.core.types import DeliveryTag, MessageId, RequestNumber, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    FINISH_SECONDS,
    Attached,
    Committed,
    Fenced,
    Grid,
    GridRefused,
    GridUnavailable,
    HistoryQuestion,
    Ownership,
    QueueBounds,
    SendCommand,
    SessionGone,
    SessionRecord,
    Settlement,
    Staged,
    StagedPublish,
    StagedSend,
    StagedSettle,
    TransactionRefused,
)
from tests.contract.examples import DEPTH, claim, claimed, session
from tests.contract.harness import Harness, RedisHarness, node

pytestmark = [pytest.mark.promise("P16"), pytest.mark.redis]

NOTHING: Final = RequestNumber(0)
COMMIT: Final = RequestNumber(9)
MOST_COMMANDS: Final = 30
"""More than any commit here sends."""

PREPARED: Final = 4
"""Commands of a commit on a cluster until all is prepared: one takes it, and one prepares it in each partition."""


@pytest.fixture(params=["redis", "cluster"])
def implementation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Mortal:
    """In the place of a node's batcher: from some command on it sends nothing, or waits.

    Attributes:
        left: commands that it sends yet.
        halted: set when the next one was kept back.
        goes_on: once it is set, the rest is sent after all; never with a node that is dead.
    """

    def __init__(self, batcher: Any, left: int, *, refuse: bool = False) -> None:
        self._batcher = batcher
        self._refuse = refuse
        self.left = left
        self.halted = asyncio.Event()
        self.goes_on: asyncio.Event | None = None

    @property
    def undivided(self) -> bool:
        return bool(self._batcher.undivided)

    async def call(self, command: Command, **more: Any) -> Any:
        if self.left == 0:
            self.halted.set()
            if self._refuse:
                self._refuse, self.left = False, MOST_COMMANDS
                raise GridRefused("out of memory")
            if self.goes_on is None:
                raise GridUnavailable("this node is dead")
            await self.goes_on.wait()
        else:
            self.left -= 1
        return await self._batcher.call(command, **more)

    async def call_all(self, commands: Sequence[Command], **more: Any) -> list[Any]:
        return [await self.call(each, **more) for each in commands]


class Case:
    """A session whose transaction takes a message from one queue, puts one into another, and publishes."""

    def __init__(self, grid: Grid, record: SessionRecord, number: int) -> None:
        self.grid = grid
        self.record = record
        self.ownership = Ownership(record.id, record.owner, record.epoch)
        self.input = TopicPath(f"work/{number}")
        self.output = TopicPath(f"results/{number}")
        self.topic = TopicPath(f"orders/{number}")

    @classmethod
    async def begin(cls, grid: Grid, number: int) -> Case:
        paths = ("work", "results", "orders")
        record = session(partitions=frozenset(topic_partition(TopicPath(each), DEPTH) for each in paths))
        await grid.sessions.create(record)
        case = cls(grid, record, number)
        sent = SendCommand(case.ownership, RequestNumber(1), NOTHING, case.input, b'"in"', b"", QueueBounds())
        await grid.queues.send([sent])
        ((tag, message),) = await case.attach()
        await grid.transactions.begin(case.ownership, RequestNumber(2), settled=NOTHING)
        operations: tuple[Staged, ...] = (
            StagedPublish(case.topic, b"1", history=HistoryLimits()),
            StagedSend(case.output, b'"out"', b"", QueueBounds()),
            StagedSettle(case.input, Settlement.ACCEPT, ((tag, message),)),
        )
        for request, operation in enumerate(operations, start=3):
            await grid.transactions.stage(case.ownership, RequestNumber(2), RequestNumber(request), operation)
        return case

    async def attach(self) -> list[tuple[DeliveryTag, MessageId]]:
        attached = await self.grid.queues.attach(
            self.ownership, self.input, credit=5, bounds=QueueBounds(), most_consumers=5
        )
        assert isinstance(attached, Attached)
        return [(each.tag, each.message) for each in attached.held]

    async def commit(self) -> Committed | TransactionRefused:
        return await self.grid.transactions.commit(self.ownership, RequestNumber(2), COMMIT, settled=NOTHING)

    async def move(self, grid: Grid, ref: str) -> None:
        """Let another node own the session."""
        record = claimed(await claim(grid, self.record, node(ref), token_generation=1, attempt=1)).record
        self.grid, self.ownership = grid, Ownership(record.id, record.owner, record.epoch)

    async def is_executed(self, grid: Grid) -> bool:
        """Tell whether all of it was executed; fails if only a part was, or something twice."""
        question = HistoryQuestion(self.topic, None, 10)
        (page,) = await grid.history.read(topic_partition(self.topic, DEPTH), [question])
        before, after = await grid.queues.look(self.input), await grid.queues.look(self.output)
        found = (
            len(page.events),
            0 if before is None else before.ready + before.held,
            0 if after is None else after.ready,
        )
        assert after is None or after.held == 0, "what is sent is held by nobody"
        assert found in {(0, 1, 0), (1, 0, 1)}, found
        return found == (1, 0, 1)


def mortal(grid: Grid, left: int, *, refuse: bool = False) -> Mortal:
    assert isinstance(grid, RedisGrid)
    made = Mortal(grid.transactions._batcher, left, refuse=refuse)
    grid.transactions._batcher = made  # type: ignore[assignment]
    return made


def revive(grid: Grid, made: Mortal) -> None:
    assert isinstance(grid, RedisGrid)
    grid.transactions._batcher = made._batcher


def hurry(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what somebody else has begun be overdue for this node."""
    assert isinstance(grid, RedisGrid)
    clock = grid._connection.clock
    ahead = FINISH_SECONDS * 1000 + 1000
    monkeypatch.setattr(clock, "argument", lambda: f"{clock.shift - round(ahead)} - 0")
    monkeypatch.setattr(clock, "estimate", lambda known=clock.estimate: known() + ahead)


async def reap(grid: Grid, case: Case) -> None:
    partitions = {topic_partition(each, DEPTH) for each in (case.input, case.output, case.topic)}
    for partition in {session_partition(case.record.id), *partitions}:
        await grid.transactions.reap(partition)


async def leftovers(harness: Harness) -> set[str]:
    assert isinstance(harness, RedisHarness)
    return {each for each in await harness.inventory() if "prepared" in each or "operations" in each}


@pytest.mark.parametrize("saviour", ["next owner", "any node", "any node, without the session"])
async def test_a_commit_whose_node_dies_comes_to_one_end(
    harness: Harness, saviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await harness.grid("n2")
    executed = []
    for left in itertools.count():
        grid = await harness.grid("n1", f"run{left}")
        case = await Case.begin(grid, left)
        dying = mortal(grid, left)
        try:
            await case.commit()
        except GridUnavailable:
            pass
        else:
            break
        with monkeypatch.context() as patch:
            if saviour == "next owner":
                await case.move(other, "n2")
                assert isinstance(await case.commit(), Committed)
            elif saviour == "any node":
                hurry(other, patch)
                await reap(other, case)
                await case.move(other, "n2")
                assert isinstance(await case.commit(), Committed)
            else:
                await other.sessions.end(case.ownership, reason=ErrorCode.SESSION_CLOSED)
                hurry(other, patch)
                await reap(other, case)
        executed.append(await case.is_executed(other))
        assert not await leftovers(harness)
        revive(grid, dying)
        await grid.close()
    assert left < MOST_COMMANDS
    if saviour != "any node, without the session":
        assert all(executed)
    else:
        assert executed == sorted(executed), "before the decision nothing, after it all"


async def test_a_node_that_wakes_up_in_a_commit_changes_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await harness.grid("n2")
    for left in itertools.count():
        grid = await harness.grid("n1", f"run{left}")
        case = await Case.begin(grid, left)
        sleeping = mortal(grid, left)
        sleeping.goes_on = asyncio.Event()
        asleep = asyncio.create_task(case.commit())
        halted = asyncio.create_task(sleeping.halted.wait())
        await asyncio.wait({asleep, halted}, return_when=asyncio.FIRST_COMPLETED)
        halted.cancel()
        if asleep.done():
            break
        await case.move(other, "n2")
        assert isinstance(await case.commit(), Committed)
        sleeping.goes_on.set()
        woken = (await asyncio.gather(asleep, return_exceptions=True))[0]
        assert isinstance(woken, Committed | Fenced | GridUnavailable), woken
        with monkeypatch.context() as patch:
            hurry(other, patch)
            await reap(other, case)
        assert await case.is_executed(other)
        assert not await leftovers(harness)
        assert isinstance(await case.commit(), Committed)
        revive(grid, sleeping)
        await grid.close()
    assert left < MOST_COMMANDS


async def test_a_transaction_is_open_again_when_there_was_no_memory(harness: Harness) -> None:
    for left in itertools.count():
        grid = await harness.grid("n1", f"run{left}")
        case = await Case.begin(grid, left)
        failing = mortal(grid, left, refuse=True)
        try:
            await case.commit()
        except GridRefused:
            assert not await case.is_executed(grid)
        except GridUnavailable:
            assert left, "it was decided, or may have been"
        else:
            break
        revive(grid, failing)
        assert isinstance(await case.commit(), Committed)
        assert await case.is_executed(grid)
        await grid.close()
    assert left < MOST_COMMANDS


async def test_an_ended_session_leaves_nothing_of_a_transaction(harness: Harness) -> None:
    grid = await harness.grid()
    case = await Case.begin(grid, 0)
    await grid.sessions.end(case.ownership, reason=ErrorCode.SESSION_CLOSED)
    assert not await case.is_executed(grid)
    assert not await leftovers(harness)
    with pytest.raises(SessionGone):
        await case.commit()


async def test_what_a_forgotten_transaction_had_prepared_is_given_again(
    harness: Harness, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's slot has lost it, and not those of the queues. Its client was told that it holds nothing."""
    if implementation != "cluster":
        return  # one Redis prepares nothing
    grid = await harness.grid()
    assert isinstance(grid, RedisGrid)
    case = await Case.begin(grid, 0)
    ((former, message),) = await case.attach()
    dying = mortal(grid, PREPARED)
    with pytest.raises(GridUnavailable):
        await case.commit()
    revive(grid, dying)
    assert await leftovers(harness)
    for key in grid.transactions._keys.transactions(case.record.id)[:2]:
        await grid.transactions._batcher.call(("DEL", key))
    assert await case.commit() is TransactionRefused.UNKNOWN
    with monkeypatch.context() as patch:
        hurry(grid, patch)
        await reap(grid, case)
    assert not await case.is_executed(grid)
    assert not await leftovers(harness)
    ((tag, again),) = await case.attach()
    assert again == message
    assert tag > former, "it is another delivery"
