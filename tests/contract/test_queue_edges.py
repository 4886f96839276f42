"""The contract of queues at their edges: odd paths, large messages, many messages in one step (P7, P15, P20)."""

from __future__ import annotations

import itertools

import pytest

from gateway.core.destinations.reserved import shared_queue
from gateway.core.topics.topics import topic_partition
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import (
    MOST_CREDIT,
    Attached,
    Committed,
    DeliveryTag,
    Grid,
    Overflow,
    QueueBounds,
    QueueFull,
    SendCommand,
    Sent,
    SessionRecord,
    SettleCommand,
    Settlement,
    SettleStep,
    StagedSend,
    TransactionRefused,
)
from tests.contract.examples import DEPTH, expire_all, ownership, session
from tests.contract.harness import Harness
from tests.contract.queue_users import FREE, JOBS, MANY

NOTHING = RequestNumber(0)
CROWD = 10
PILE = 9_500
"""Messages that wait: more than Lua can hand to a command at once, but for those that one consumer holds."""
FED = 500
STEP = 1_000
"""Messages that one step of the grid assigns."""
SMALL = QueueBounds(messages=100, size=4_096, overflow=Overflow.DROP_OLDEST, dead=1)


class Sender:
    """A session that sends, alone or in transactions."""

    def __init__(self, grid: Grid, record: SessionRecord, *, transacted: bool) -> None:
        self.grid = grid
        self.record = record
        self.transacted = transacted
        self.numbers = itertools.count(1)

    @classmethod
    async def of(cls, grid: Grid, *, transacted: bool = False) -> Sender:
        record = session(partitions=frozenset({topic_partition(JOBS, DEPTH)}))
        await grid.sessions.create(record)
        return cls(grid, record, transacted=transacted)

    def next(self) -> RequestNumber:
        return RequestNumber(next(self.numbers))

    async def send(self, *texts: str, bounds: QueueBounds, queue: TopicPath = JOBS) -> bool:
        """Send messages; tells whether all were taken, or all refused because the queue is full."""
        mine, values = ownership(self.record), [each.encode() for each in texts]
        if not self.transacted:
            commands = [SendCommand(mine, self.next(), NOTHING, queue, each, b"", bounds) for each in values]
            results = await self.grid.queues.send(commands)
            assert all(isinstance(each, Sent) for each in results) or set(results) == {QueueFull(duplicate=False)}
            return isinstance(results[0], Sent)
        transactions, number = self.grid.transactions, self.next()
        assert await transactions.begin(mine, number, settled=NOTHING) is None
        for each in values:
            staged = StagedSend(queue, each, b"", bounds)
            assert await transactions.stage(mine, number, self.next(), staged) is None
        done = await transactions.commit(mine, number, self.next(), settled=NOTHING)
        assert isinstance(done, Committed) or done is TransactionRefused.QUEUE_FULL
        return isinstance(done, Committed)


async def ready(grid: Grid, queue: TopicPath = JOBS) -> int:
    state = await grid.queues.look(queue)
    return 0 if state is None else state.ready


async def spread(grid: Grid, queue: TopicPath) -> tuple[int, int]:
    """Tell how many messages are ready, and how many held."""
    state = await grid.queues.look(queue)
    return (0, 0) if state is None else (state.ready, state.held)


async def attach(
    grid: Grid, record: SessionRecord, queue: TopicPath, credit: int, bounds: QueueBounds = FREE
) -> Attached:
    attached = await grid.queues.attach(ownership(record), queue, credit=credit, bounds=bounds, most_consumers=MANY)
    assert isinstance(attached, Attached), attached
    return attached


@pytest.mark.promise("P7")
@pytest.mark.parametrize("path", ["?", "-", "+", "!", "=", "0"])
async def test_a_session_that_ends_leaves_a_queue_whatever_its_path_is(harness: Harness, path: str) -> None:
    """What the grid notes beside the queues of a session is the path of none."""
    grid = await harness.grid()
    queue = TopicPath(path)
    partitions = frozenset({topic_partition(queue, DEPTH)})
    record = session(window=harness.short, connected=False, partitions=partitions)
    other = session(partitions=partitions)
    await grid.sessions.create(record)
    await attach(grid, record, queue, 5)
    await attach(grid, other, queue, 5)
    await harness.advance(harness.short)
    assert [each.session for each in await expire_all(grid)] == [record.id]
    assert list(await grid.queues.consumers(queue)) == [other.id]
    await grid.queues.leave(ownership(other), queue, seen=DeliveryTag(0))
    assert not {each for each in await harness.inventory() if record.id in each and "tombstone" not in each}


@pytest.mark.promise("P15")
@pytest.mark.parametrize("transacted", [False, True])
async def test_what_can_never_have_room_drops_nothing(harness: Harness, transacted: bool) -> None:
    """A message larger than its queue is refused, and the backlog stays; so is one that what is held leaves no room."""
    grid = await harness.grid()
    user = await Sender.of(grid, transacted=transacted)
    await user.send(*["x"] * 5, bounds=SMALL)
    assert not await user.send("x" * 5_000, bounds=SMALL)
    assert await ready(grid) == 5
    # Two are held of 1,200 bytes each: with one of 1,500 the queue is too large, whatever is dropped.
    queue = TopicPath("jobs/other")
    await user.send("a" * 1_200, "b" * 1_200, bounds=SMALL, queue=queue)
    await attach(grid, user.record, queue, 2, SMALL)
    await user.send("c", "d", bounds=SMALL, queue=queue)
    assert not await user.send("e" * 1_500, bounds=SMALL, queue=queue)
    assert await ready(grid, queue) == 2
    assert not await grid.queues.dead(queue, count=10)
    assert not await grid.queues.dead(JOBS, count=10)


@pytest.mark.promise("P15")
async def test_as_many_are_dropped_as_a_message_has_bytes(harness: Harness) -> None:
    """A transaction counts them as a message alone does, and what it sends is not dropped for itself."""
    for transacted in (False, True):
        grid = await harness.grid(f"n{transacted:d}")
        user = await Sender.of(grid, transacted=transacted)
        queue = TopicPath(f"jobs/{transacted:d}")
        await user.send(*["x"] * 10, bounds=SMALL, queue=queue)
        assert await user.send("y" * 2_600, bounds=SMALL, queue=queue)
        state = await grid.queues.look(queue)
        assert state is not None
        assert (state.ready, state.dead) == (5, 1)
        attached = await attach(grid, user.record, queue, 10, SMALL)
        found = await grid.queues.read(queue, [each.message for each in attached.held])
        assert [each.value[:1] for each in found if each is not None] == [b"x"] * 4 + [b"y"]
        await grid.queues.leave(ownership(user.record), queue, seen=DeliveryTag(0))


@pytest.mark.promise("P16")
async def test_a_transaction_is_refused_that_only_fits_without_itself(harness: Harness) -> None:
    grid = await harness.grid()
    user = await Sender.of(grid, transacted=True)
    await user.send(*["x"] * 5, bounds=SMALL)
    assert not await user.send("a" * 2_000, "b" * 2_000, bounds=SMALL)
    assert await ready(grid) == 5


@pytest.mark.promise("P15")
@pytest.mark.promise("P20")
async def test_a_step_that_sets_thousands_free_gives_some_and_the_next_ones_the_rest(harness: Harness) -> None:
    """All who stand by behind the one consumer of an exclusive queue are served as soon as it is exclusive no more."""
    grid = await harness.grid()
    queue, alone = shared_queue("alice", "billing"), QueueBounds(exclusive=True)
    partition = topic_partition(queue, DEPTH)
    users = [session() for _ in range(CROWD)]
    assert await grid.queues.declare(queue, alone, source="of a test")
    for user in users:
        await attach(grid, user, queue, MOST_CREDIT, alone)
    for number in range(0, PILE, FED):
        after = str(number) if number else ""
        await grid.queues.feed(queue, alone, after=after, upto=str(number + FED), events=[(b"", b"1")] * FED)
    held = (await attach(grid, users[0], queue, MOST_CREDIT, alone)).held
    assert len(held) == MOST_CREDIT
    step = SettleStep(RequestNumber(0), Settlement.RELEASE, ((held[0].tag, held[0].message),))
    await grid.queues.settle(SettleCommand(ownership(users[0]), NOTHING, queue, DeliveryTag(0), (step,)))

    await grid.queues.feed(queue, QueueBounds(), after=str(PILE), upto="end", events=[(b"", b"2")])
    assert await spread(grid, queue) == (PILE + 1 - MOST_CREDIT - STEP, MOST_CREDIT + STEP)
    for _ in range(-(-(PILE - MOST_CREDIT - STEP) // STEP)):
        assert await grid.queues.fire(partition) == 1
    assert await spread(grid, queue) == (0, PILE + 1)
    assert await grid.queues.fire(partition) == 0, "nobody looks after a queue where all is done"
    all_held = [(await attach(grid, each, queue, MOST_CREDIT)).held for each in users]
    assert len({each.message for held in all_held for each in held}) == PILE + 1
