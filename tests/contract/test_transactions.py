"""The contract of transactions: all of one is executed, once, or nothing of it (P16)."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.topics import session_partition, topic_partition
from gateway.core.types import DeliveryTag, RequestNumber, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    MOST_STAGED_BYTES,
    MOST_TRANSACTIONS,
    NO_NEW_TOPICS,
    TRANSACTION_WAIT,
    Attached,
    Committed,
    Fenced,
    Grid,
    HistoryQuestion,
    MessageId,
    Overflow,
    Ownership,
    QueueBounds,
    SendCommand,
    Sent,
    SessionGone,
    SessionRecord,
    Settlement,
    Staged,
    StagedPublish,
    StagedSend,
    StagedSettle,
    StreamPosition,
    TransactionRefused,
)
from tests.contract.examples import DEPTH, claim, claimed, session
from tests.contract.harness import Harness, MemoryHarness, RedisHarness, node

pytestmark = pytest.mark.promise("P16")

INPUT: Final = TopicPath("work/input")
OUTPUT: Final = TopicPath("results/output")
TOPIC: Final = TopicPath("orders/7")
FREE: Final = QueueBounds()
NOTHING: Final = RequestNumber(0)
FIRST: Final = RequestNumber(1)


class User:
    """A session that consumes from the input, and what it asks of the grid."""

    def __init__(self, grid: Grid, record: SessionRecord) -> None:
        self.grid = grid
        self.record = record
        self.ownership = Ownership(record.id, record.owner, record.epoch)
        self.requests = itertools.count(1)
        self.held: dict[MessageId, DeliveryTag] = {}

    @classmethod
    async def of(cls, grid: Grid) -> User:
        parts = frozenset(topic_partition(each, DEPTH) for each in (INPUT, OUTPUT, TOPIC))
        record = session(partitions=parts)
        await grid.sessions.create(record)
        return cls(grid, record)

    def next(self) -> RequestNumber:
        return RequestNumber(next(self.requests))

    async def put(
        self,
        *texts: str,
        queue: TopicPath = INPUT,
        bounds: QueueBounds = FREE,
        delay: float = 0.0,
        expires: float = 0.0,
    ) -> list[MessageId]:
        """Send messages without a transaction."""
        commands = [
            SendCommand(self.ownership, self.next(), NOTHING, queue, text.encode(), b"", bounds, delay, expires)
            for text in texts
        ]
        return [each.message for each in await self.grid.queues.send(commands) if isinstance(each, Sent)]

    async def consume(self, queue: TopicPath = INPUT, credit: int = 10, bounds: QueueBounds = FREE) -> list[MessageId]:
        """Attach, or attach again, and tell what is held."""
        attached = await self.grid.queues.attach(self.ownership, queue, credit=credit, bounds=bounds, most_consumers=9)
        assert isinstance(attached, Attached)
        self.held = {each.message: each.tag for each in attached.held}
        return list(self.held)

    async def begin(self) -> RequestNumber:
        number = self.next()
        assert await self.grid.transactions.begin(self.ownership, number, settled=NOTHING) is None
        return number

    async def stage(self, transaction: RequestNumber, *operations: Staged) -> None:
        for each in operations:
            assert await self.grid.transactions.stage(self.ownership, transaction, self.next(), each) is None

    def settle(self, *messages: MessageId, outcome: Settlement = Settlement.ACCEPT) -> StagedSettle:
        return StagedSettle(INPUT, outcome, tuple((self.held[each], each) for each in messages))

    async def commit(
        self, transaction: RequestNumber, request: RequestNumber | None = None
    ) -> Committed | TransactionRefused:
        return await self.grid.transactions.commit(self.ownership, transaction, request or self.next(), settled=NOTHING)


def publish(
    text: str = "1",
    topic: TopicPath = TOPIC,
    *,
    most_topics: int = 0,
    most_bytes: int = 0,
    history: HistoryLimits | None = None,
) -> StagedPublish:
    return StagedPublish(topic, text.encode(), most_topics, most_bytes, history)


def send(
    text: str = "1",
    queue: TopicPath = OUTPUT,
    bounds: QueueBounds = FREE,
    *,
    delay: float = 0.0,
    expires: float = 0.0,
) -> StagedSend:
    return StagedSend(queue, text.encode(), b"", bounds, delay, expires)


async def value(grid: Grid, topic: TopicPath = TOPIC) -> tuple[bytes, int] | None:
    """Tell a value, and how many were published."""
    (found,) = await grid.topics.read([topic])
    if found is None:
        return None
    end_of = await grid.topics.position(topic_partition(topic, DEPTH))
    return found.value, end_of.sequence


async def counts(grid: Grid, queue: TopicPath) -> tuple[int, int, int, int]:
    """Tell how many messages are ready, delayed, held and dead."""
    found = await grid.queues.look(queue)
    return (0, 0, 0, 0) if found is None else (found.ready, found.delayed, found.held, found.dead)


def later(harness: Harness, grid: Grid, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the time of the grid be later, as far as one connection is concerned."""
    if isinstance(harness, MemoryHarness):
        harness.clock.advance(seconds)
        return
    assert isinstance(harness, RedisHarness)
    clock = grid._connection.clock  # type: ignore[attr-defined]
    monkeypatch.setattr(clock, "argument", lambda: f"{clock.shift - round(seconds * 1000)} - 0")
    monkeypatch.setattr(clock, "estimate", lambda estimate=clock.estimate: estimate() + seconds * 1000)


async def test_a_commit_executes_all_of_it(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    await user.put('"in"')
    (message,) = await user.consume()
    number = await user.begin()
    await user.stage(number, publish('"a"'), send('"out"'), user.settle(message), publish('"b"'))
    assert await value(grid) is None
    assert await counts(grid, INPUT) == (0, 0, 1, 0)
    settled = (user.settle(message),)
    assert await user.commit(number) == Committed(4, duplicate=False, settled=settled)
    assert (await value(grid) or (b"", 0))[0] == b'"b"'
    assert await counts(grid, INPUT) == (0, 0, 0, 0)
    assert await counts(grid, OUTPUT) == (1, 0, 0, 0)
    await user.put('"more"')
    (other,) = await user.consume()
    assert other > message


async def test_followers_see_what_was_published(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    partition = topic_partition(TOPIC, DEPTH)
    before = await grid.topics.position(partition)
    number = await user.begin()
    await user.stage(number, publish("1"), publish("2"), publish("3", TopicPath("orders/8")))
    await user.commit(number)
    after = await grid.topics.position(partition)
    found = await grid.topics.between(partition, before, StreamPosition(after.grid_generation, after.sequence))
    assert found is not None
    assert [(each.topic, each.value) for each in found] == [(TOPIC, b"1"), (TOPIC, b"2"), ("orders/8", b"3")]
    assert found[0].version < found[1].version


async def test_history_keeps_what_was_published(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    limits = HistoryLimits()
    for text in ("1", "2"):
        number = await user.begin()
        await user.stage(number, publish(text, history=limits), publish(text * 2, history=limits))
        await user.commit(number)
    question = HistoryQuestion(TOPIC, None, 10)
    (page,) = await grid.history.read(topic_partition(TOPIC, DEPTH), [question])
    assert [each.value for each in page.events] == [b"1", b"11", b"2", b"22"]
    assert not page.has_gap


async def test_a_rollback_does_nothing(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    await user.put("1")
    (message,) = await user.consume()
    number = await user.begin()
    await user.stage(number, publish(), send(), user.settle(message))
    await grid.transactions.roll_back(user.ownership, number)
    await grid.transactions.roll_back(user.ownership, number)
    assert await value(grid) is None
    assert await counts(grid, INPUT) == (0, 0, 1, 0)
    assert await counts(grid, OUTPUT) == (0, 0, 0, 0)
    assert await user.commit(number) is TransactionRefused.UNKNOWN


async def test_each_request_counts_once(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    number = user.next()
    for _ in range(2):
        assert await grid.transactions.begin(user.ownership, number, settled=NOTHING) is None
    request = user.next()
    for _ in range(2):
        assert await grid.transactions.stage(user.ownership, number, request, send()) is None
    commit = user.next()
    assert await user.commit(number, commit) == Committed(1, duplicate=False)
    assert await user.commit(number, commit) == Committed(1, duplicate=True)
    assert await user.commit(number) is TransactionRefused.UNKNOWN
    assert await counts(grid, OUTPUT) == (1, 0, 0, 0)


async def test_an_answer_that_was_lost_is_given_again(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    number = await user.begin()
    await user.stage(number, publish(), send())
    request = user.next()
    outcome = await harness.asked_again(grid, lambda: user.commit(number, request))
    assert isinstance(outcome, Committed)
    assert await counts(grid, OUTPUT) == (1, 0, 0, 0)
    assert (await value(grid) or (b"", 0))[1] == 1


@pytest.mark.parametrize("outcome", list(Settlement))
async def test_what_is_held_is_settled_as_told(harness: Harness, outcome: Settlement) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    await user.put("1", "2")
    first, second = await user.consume(credit=2)
    number = await user.begin()
    await user.stage(number, user.settle(first, outcome=outcome))
    assert isinstance(await user.commit(number), Committed)
    expected = {Settlement.ACCEPT: (0, 0, 1, 0), Settlement.REJECT: (0, 0, 1, 1), Settlement.RELEASE: (0, 0, 2, 0)}
    assert await counts(grid, INPUT) == expected[outcome]
    again = await user.consume(credit=2)
    assert (first in again) is (outcome is Settlement.RELEASE)
    assert second in again


async def test_delays_begin_with_the_commit(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    number = await user.begin()
    await user.stage(number, send(delay=3600.0), send("2", expires=3600.0))
    await user.commit(number)
    assert await counts(grid, OUTPUT) == (1, 1, 0, 0)


async def test_what_is_not_held_any_more_refuses_all(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    await user.put("1", "2")
    first, second = await user.consume()
    number = await user.begin()
    await user.stage(number, send(), publish(), user.settle(second), user.settle(first))
    await grid.queues.leave(user.ownership, INPUT, seen=DeliveryTag(0))
    request = user.next()
    for _ in range(2):
        assert await user.commit(number, request) is TransactionRefused.NOT_HELD
    assert await value(grid) is None
    assert await counts(grid, OUTPUT) == (0, 0, 0, 0)
    assert await counts(grid, INPUT) == (2, 0, 0, 0)


async def test_what_is_settled_twice_refuses_all_and_gives_back(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    await user.put("1")
    (message,) = await user.consume()
    number = await user.begin()
    await user.stage(number, user.settle(message), user.settle(message))
    assert await user.commit(number) is TransactionRefused.NOT_HELD
    assert await user.consume() == [message]


async def test_a_full_queue_refuses_all(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    bounds = QueueBounds(messages=2)
    await user.put("1", queue=OUTPUT, bounds=bounds)
    number = await user.begin()
    await user.stage(number, publish(), send("2", bounds=bounds), send("3", bounds=bounds))
    assert await user.commit(number) is TransactionRefused.QUEUE_FULL
    assert await value(grid) is None
    assert await counts(grid, OUTPUT) == (1, 0, 0, 0)
    number = await user.begin()
    await user.stage(number, send("2", bounds=bounds))
    assert isinstance(await user.commit(number), Committed)


async def test_what_has_expired_leaves_room_for_a_commit(harness: Harness) -> None:
    """Found: the in-memory grid counted it until somebody looked after the queue."""
    grid = await harness.grid()
    user = await User.of(grid)
    bounds = QueueBounds(messages=2)
    await user.put("1", "2", queue=OUTPUT, bounds=bounds, expires=harness.short)
    await harness.advance(harness.short)
    number = await user.begin()
    await user.stage(number, send("3", bounds=bounds), send("4", bounds=bounds))
    assert isinstance(await user.commit(number), Committed)
    assert await counts(grid, OUTPUT) == (2, 0, 0, 2)


async def test_what_is_due_is_done_also_by_a_commit_that_is_refused(harness: Harness) -> None:
    """And what it settles is not taken back at that moment."""
    grid = await harness.grid()
    user, other = await User.of(grid), await User.of(grid)
    bounds = QueueBounds(messages=2, ack_within=harness.short)
    await user.put("1", bounds=bounds)
    (message,) = await user.consume(credit=1, bounds=bounds)
    await other.put("2", bounds=bounds, delay=harness.short)
    await other.consume(bounds=bounds)
    await harness.advance(harness.short)
    number = await user.begin()
    await user.stage(number, user.settle(message), *[send("3", INPUT, bounds)] * 9)
    assert await user.commit(number) is TransactionRefused.QUEUE_FULL
    assert (await counts(grid, INPUT))[:3] == (0, 0, 2), "nothing waits for the next step"


async def test_what_is_held_too_long_is_settled_by_a_commit_that_comes_before_it_is_taken_back(
    harness: Harness,
) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    bounds = QueueBounds(messages=1, ack_within=harness.short)
    await user.put("1", bounds=bounds)
    (message,) = await user.consume(credit=1, bounds=bounds)
    await harness.advance(harness.short)
    number = await user.begin()
    await user.stage(number, user.settle(message), send("2", INPUT, bounds))
    assert isinstance(await user.commit(number), Committed)


async def test_what_it_accepts_makes_room(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    bounds = QueueBounds(messages=1)
    await user.put("1", bounds=bounds)
    (message,) = await user.consume(credit=1)
    number = await user.begin()
    await user.stage(number, send("2", INPUT, bounds), user.settle(message))
    assert isinstance(await user.commit(number), Committed)
    assert len(await user.consume(credit=1)) == 1


async def test_the_oldest_make_room_where_the_queue_says_so(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    bounds = QueueBounds(messages=2, overflow=Overflow.DROP_OLDEST)
    await user.put("1", "2", queue=OUTPUT, bounds=bounds)
    number = await user.begin()
    await user.stage(number, send("3", bounds=bounds))
    assert isinstance(await user.commit(number), Committed)
    assert await counts(grid, OUTPUT) == (2, 0, 0, 1)


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        ((NO_NEW_TOPICS, 0), TransactionRefused.TOPICS),
        ((1, 0), TransactionRefused.TOPICS),
        ((0, 300), TransactionRefused.BYTES),
    ],
)
async def test_topics_without_room_refuse_all(
    harness: Harness, limits: tuple[int, int], refusal: TransactionRefused
) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    number = await user.begin()
    await user.stage(number, send())
    await user.stage(number, StagedPublish(TOPIC, b"1" * 100, *limits))
    await user.stage(number, StagedPublish(TopicPath("orders/8"), b"1" * 100, *limits))
    assert await user.commit(number) is refusal
    assert await value(grid) is None
    assert await counts(grid, OUTPUT) == (0, 0, 0, 0)


async def test_it_goes_on_at_the_next_node(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    await user.put("1")
    (message,) = await user.consume()
    number = await user.begin()
    await user.stage(number, send(), user.settle(message))
    other = await harness.grid("n2")
    record = claimed(await claim(other, user.record, node("n2"), token_generation=1, attempt=1)).record
    with pytest.raises(Fenced):
        await grid.transactions.stage(user.ownership, number, user.next(), publish())
    with pytest.raises(Fenced):
        await user.commit(number)
    user.grid, user.ownership = other, Ownership(record.id, node("n2"), record.epoch)
    await user.stage(number, publish())
    assert isinstance(await user.commit(number), Committed)
    assert await counts(other, OUTPUT) == (1, 0, 0, 0)
    assert await counts(other, INPUT) == (0, 0, 0, 0)
    assert await value(other) is not None


async def test_transactions_are_bounded(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    numbers = [await user.begin() for _ in range(MOST_TRANSACTIONS)]
    refused = await grid.transactions.begin(user.ownership, user.next(), settled=NOTHING)
    assert refused is TransactionRefused.TRANSACTIONS
    large = publish("1" * (MOST_STAGED_BYTES // 2))
    assert await grid.transactions.stage(user.ownership, numbers[0], user.next(), large) is None
    refused = await grid.transactions.stage(user.ownership, numbers[1], user.next(), large)
    assert refused is TransactionRefused.SIZE
    await grid.transactions.roll_back(user.ownership, numbers[0])
    await user.stage(numbers[1], large)
    await user.begin()


@pytest.mark.parametrize("ask", ["stage", "commit", "reap"])
async def test_what_nobody_goes_on_with_is_rolled_back(
    harness: Harness, ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    number = await user.begin()
    await user.stage(number, publish())
    partition = session_partition(user.record.id)
    assert (await grid.transactions.reap(partition)).rolled_back == 0
    (shown,) = [each for each in await grid.transactions.open(partition, limit=99) if each.session == user.record.id]
    assert (shown.number, shown.committing, shown.operations) == (number, False, 1)
    later(harness, grid, monkeypatch, TRANSACTION_WAIT + 1)
    if ask == "stage":
        refused = await grid.transactions.stage(user.ownership, number, user.next(), publish())
        assert refused is TransactionRefused.UNKNOWN
    elif ask == "commit":
        assert await user.commit(number) is TransactionRefused.UNKNOWN
    else:
        assert (await grid.transactions.reap(partition)).rolled_back == 1
        assert (await grid.transactions.reap(partition)).kept == 0
    assert await value(grid) is None
    assert not [each for each in await grid.transactions.open(partition, limit=99) if each.session == user.record.id]


async def test_the_end_of_a_session_ends_its_transactions(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    number = await user.begin()
    await user.stage(number, publish())
    done = await user.begin()
    await user.stage(done, send())
    await user.commit(done)
    before = await harness.inventory()
    await grid.sessions.end(user.ownership, reason=ErrorCode.SESSION_CLOSED)
    for call in _all_calls(user, number):
        with pytest.raises(SessionGone):
            await call()
    left = await harness.inventory()
    assert not {each for each in left if "transactions" in each or "operations" in each}
    assert left != before


def _all_calls(user: User, number: RequestNumber) -> list[Callable[[], Awaitable[object]]]:
    store = user.grid.transactions
    return [
        lambda: store.begin(user.ownership, user.next(), settled=NOTHING),
        lambda: store.stage(user.ownership, number, user.next(), publish()),
        lambda: user.commit(number),
        lambda: store.roll_back(user.ownership, number),
    ]


async def test_outcomes_are_forgotten_when_they_are_known(harness: Harness) -> None:
    grid = await harness.grid()
    user = await User.of(grid)
    number = await user.begin()
    commit = user.next()
    await user.commit(number, commit)
    other = user.next()
    await grid.transactions.begin(user.ownership, other, settled=commit)
    assert await user.commit(number, commit) is TransactionRefused.UNKNOWN


@pytest.mark.parametrize("later", [False, True], ids=["at once", "after more of it"])
async def test_one_of_which_the_grid_may_have_lost_a_part_is_rolled_back(fragile: Harness, *, later: bool) -> None:
    """Otherwise its input would be settled without what it was to lead to."""
    grid = await fragile.grid()
    user = await User.of(grid)
    await user.put("1")
    (message,) = await user.consume()
    number = await user.begin()
    await user.stage(number, user.settle(message))
    snapshot = await fragile.snapshot()
    await user.stage(number, send())
    await fragile.restart(grid, snapshot=snapshot)
    if later:
        staged = await grid.transactions.stage(user.ownership, number, user.next(), publish())
        assert staged is TransactionRefused.UNKNOWN
    assert await user.commit(number) is TransactionRefused.UNKNOWN
    assert await counts(grid, INPUT) == (0, 0, 1, 0), "it is held as before"
    assert await counts(grid, OUTPUT) == (0, 0, 0, 0)
    again = await user.begin()
    await user.stage(again, user.settle(message), send())
    assert isinstance(await user.commit(again), Committed)
    assert await counts(grid, OUTPUT) == (1, 0, 0, 0)


async def test_what_became_of_a_commit_is_known_after_a_restart(fragile: Harness) -> None:
    grid = await fragile.grid()
    user = await User.of(grid)
    number, commit = await user.begin(), user.next()
    await user.stage(number, send())
    assert isinstance(await user.commit(number, commit), Committed)
    await fragile.restart(grid)
    assert await user.commit(number, commit) == Committed(1, duplicate=True)
    assert await counts(grid, OUTPUT) == (1, 0, 0, 0)
