"""The contract of durable subscriptions: places that outlive sessions, used by one session at a time (P3, P14)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import pytest

from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.core.topics.topics import principal_partition
from gateway.core.types import Epoch, SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    MOST_DURABLES,
    Advance,
    Different,
    Durable,
    DurableName,
    DurableTerms,
    Fenced,
    Grid,
    InUse,
    NotOpened,
    Opened,
    OpenResult,
    Ownership,
    SessionRecord,
)
from tests.contract.examples import new_id, ownership, session
from tests.contract.harness import LONG, Harness, RedisHarness, node
from tests.support.redis_server import RedisServer
from tests.support.seeds import seeds

pytestmark = pytest.mark.promise("P14")

T = TypeVar("T")

TERMS = DurableTerms("orders/**", LONG)
ORDERS = DurableName("alice", "orders")
PARTITION = principal_partition("alice")


def own(record: SessionRecord, epoch: int = 1) -> Ownership:
    return ownership(record, epoch=epoch)


def user() -> SessionRecord:
    return session(partitions=frozenset({PARTITION}))


async def opened(grid: Grid, record: SessionRecord, *, epoch: int = 1, start: str | None = "") -> Opened:
    result = await grid.durables.open(own(record, epoch), ORDERS, TERMS, start=start)
    assert isinstance(result, Opened), result
    return result


async def test_a_place_outlives_its_session(harness: Harness) -> None:
    grid = await harness.grid()
    first, second = user(), user()
    await grid.sessions.create(first)
    assert await opened(grid, first, start="3-1-7") == Opened("3-1-7", created=True)
    assert await grid.durables.advance(own(first), ORDERS, "3-1-9,17-1-2") is Advance.DONE
    assert await opened(grid, first, start="3-1-1") == Opened("3-1-9,17-1-2", created=False), "asked again"
    await grid.sessions.end(own(first), reason=ErrorCode.SESSION_CLOSED)
    found = await grid.durables.find(ORDERS)
    assert found is not None
    assert (found.session, found.position, found.terms) == (None, "3-1-9,17-1-2", TERMS)
    assert found.until is not None
    assert found.until - found.made >= LONG * 1000
    assert await opened(grid, second, start=None) == Opened("3-1-9,17-1-2", created=False)


async def test_a_place_only_moves_forward_in_each_partition(harness: Harness) -> None:
    grid = await harness.grid()
    record = user()
    await opened(grid, record)
    for given, then in (
        ("", ""),
        ("17-1-2", "17-1-2"),
        ("3-1-9", "3-1-9,17-1-2"),
        ("3-1-8,17-1-3", "3-1-9,17-1-3"),
        ("17-2-1", "3-1-9,17-2-1"),
        ("17-1-4294967296", "3-1-9,17-2-1"),
    ):
        assert await grid.durables.advance(own(record), ORDERS, given) is Advance.DONE
        assert (await opened(grid, record)).position == then


@pytest.mark.promise("P3")
async def test_one_session_uses_it_by_its_newest_epoch(harness: Harness) -> None:
    grid = await harness.grid()
    first, second = user(), user()
    await opened(grid, first)
    assert await grid.durables.open(own(second), ORDERS, TERMS, start="") == InUse(first.id)
    assert await grid.durables.advance(own(second), ORDERS, "1-1-1") is Advance.TAKEN
    assert await grid.durables.remove(ORDERS, by=second.id) == InUse(first.id)
    # The session goes on at another node.
    assert await grid.durables.advance(own(first, 3), ORDERS, "1-1-1") is Advance.DONE
    for late in (
        lambda: grid.durables.advance(own(first, 2), ORDERS, "1-1-9"),
        lambda: grid.durables.open(own(first, 2), ORDERS, TERMS, start=""),
        lambda: grid.durables.release(own(first, 2), ORDERS),
    ):
        with pytest.raises(Fenced):
            await late()
    # Somebody who has given up is displaced, and cannot move it any more.
    result = await grid.durables.open(own(second), ORDERS, TERMS, start=None, instead_of=first.id)
    assert result == Opened("1-1-1", created=False)
    assert await grid.durables.advance(own(first, 3), ORDERS, "1-1-9") is Advance.TAKEN
    await grid.durables.release(own(first, 3), ORDERS)
    assert await grid.durables.open(own(first, 3), ORDERS, TERMS, start=None) == InUse(second.id)


async def test_what_is_released_can_be_used_by_others(harness: Harness) -> None:
    grid = await harness.grid()
    first, second = user(), user()
    await opened(grid, first, start="1-1-1")
    await grid.durables.release(own(first), ORDERS)
    await grid.durables.release(own(first), ORDERS)
    assert await grid.durables.advance(own(first), ORDERS, "1-1-2") is Advance.TAKEN
    assert await opened(grid, second) == Opened("1-1-1", created=False)


async def test_an_ended_session_leaves_nothing_and_comes_not_back(harness: Harness) -> None:
    grid = await harness.grid()
    record = user()
    await grid.sessions.create(record)
    await opened(grid, record)
    await grid.sessions.end(own(record), reason=ErrorCode.SESSION_CLOSED)
    with pytest.raises(Fenced):
        await opened(grid, record, epoch=2)
    assert await grid.durables.advance(own(record), ORDERS, "1-1-1") is Advance.TAKEN
    assert await grid.durables.remove(ORDERS) is True
    kept = await harness.inventory()
    assert not [each for each in kept if any(word in each for word in ("durable", "consuming", "use of"))]


async def test_it_is_for_the_topics_that_it_was_made_for(harness: Harness) -> None:
    grid = await harness.grid()
    record = user()
    await opened(grid, record)
    other = await grid.durables.open(own(record), ORDERS, TERMS._replace(selector="sales/**"), start="")
    assert other == Different("orders/**")


async def test_none_is_made_unless_that_is_asked_for(harness: Harness) -> None:
    grid = await harness.grid()
    record = user()
    assert await grid.durables.open(own(record), ORDERS, TERMS, start=None) is NotOpened.ABSENT
    assert await grid.durables.advance(own(record), ORDERS, "1-1-1") is Advance.ABSENT
    assert await grid.durables.remove(ORDERS, by=record.id) is False
    await opened(grid, record)
    assert await grid.durables.remove(ORDERS, by=record.id) is True
    assert await grid.durables.find(ORDERS) is None
    assert await grid.durables.advance(own(record), ORDERS, "1-1-1") is Advance.ABSENT


@pytest.mark.promise("P20")
async def test_a_principal_has_so_many_and_no_more(harness: Harness) -> None:
    grid = await harness.grid()
    record = user()
    for number in range(MOST_DURABLES):
        name = DurableName("alice", f"{number:03}")
        assert isinstance(await grid.durables.open(own(record), name, TERMS, start=""), Opened)
    more = DurableName("alice", "more")
    assert await grid.durables.open(own(record), more, TERMS, start="") is NotOpened.FULL
    listed: list[Durable] = []
    while page := await grid.durables.page(PARTITION, after=listed[-1].name if listed else None, count=30):
        listed += page
    assert [each.name.name for each in listed] == [f"{number:03}" for number in range(MOST_DURABLES)]
    assert all(each.session == record.id and each.until is None for each in listed)
    assert await grid.durables.remove(listed[0].name) is True
    assert isinstance(await grid.durables.open(own(record), more, TERMS, start=""), Opened)


async def test_what_nobody_uses_is_forgotten_after_its_life(harness: Harness) -> None:
    grid = await harness.grid()
    record = user()
    terms = TERMS._replace(life=harness.short)
    unused, used = DurableName("alice", "unused"), DurableName("alice", "used")
    for name in (unused, used):
        await grid.durables.open(own(record), name, terms, start="")
    await grid.durables.release(own(record), unused)
    await harness.advance(harness.short)
    assert [each.name for each in await grid.durables.due(PARTITION, limit=10)] == [unused]
    await grid.durables.prolong(used)
    assert await grid.durables.expire(used) is False
    assert await grid.durables.expire(unused) is True
    assert await grid.durables.expire(unused) is False
    assert list(await grid.durables.due(PARTITION, limit=10)) == []
    assert await grid.durables.find(unused) is None
    assert await grid.durables.find(used) is not None


async def test_any_number_of_sessions_use_one_that_is_shared(harness: Harness) -> None:
    grid = await harness.grid()
    first, second = user(), user()
    terms = TERMS._replace(life=harness.short, shared=True)
    for record, created in ((first, True), (second, False)):
        assert await grid.durables.open(own(record), ORDERS, terms, start="1-1-1") == Opened("1-1-1", created=created)
    assert await grid.durables.open(own(first), ORDERS, TERMS, start="") == Different(TERMS.selector)
    assert await grid.durables.advance(own(first), ORDERS, "1-1-2") is Advance.TAKEN, "its queue knows where it is"
    await grid.durables.release(own(first), ORDERS)
    await harness.advance(harness.short)
    (due,) = await grid.durables.due(PARTITION, limit=10)
    assert due.terms == terms
    await grid.durables.prolong(ORDERS)
    assert await grid.durables.expire(ORDERS) is False
    assert await grid.durables.remove(ORDERS, by=first.id) is True


async def test_answers_that_are_lost_can_be_asked_for_again(harness: Harness) -> None:
    grid = await harness.grid()
    record = user()
    result: OpenResult = await harness.asked_again(
        grid, lambda: grid.durables.open(own(record), ORDERS, TERMS, start="1-1-1")
    )
    assert isinstance(result, Opened)
    assert result.position == "1-1-1"
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: grid.durables.advance(own(record), ORDERS, "1-1-5"),
        lambda: grid.durables.release(own(record), ORDERS),
    ]
    for call in calls:
        await harness.asked_again(grid, call)
    assert (await opened(grid, record)).position == "1-1-5"


STEPS: Final = 300
SESSIONS: Final = 4
NAMES: Final = 3


@pytest.fixture
async def twins(shared_redis: RedisServer) -> AsyncIterator[tuple[Grid, Grid]]:
    memory = MemoryGrid(MemoryGridServer(), node=node("n1"))
    await memory.start()
    harness = RedisHarness(shared_redis)
    yield memory, await harness.grid()
    await memory.close()
    await harness.close()


@pytest.mark.redis
@pytest.mark.parametrize("seed", seeds(4))
async def test_memory_and_redis_answer_alike(twins: tuple[Grid, Grid], seed: int) -> None:
    """Random steps of some sessions, by old and new epochs, on both."""
    dice = random.Random(seed)
    users = [new_id() for _ in range(SESSIONS)]
    epochs = dict.fromkeys(users, 1)
    names = [DurableName("alice", str(number)) for number in range(NAMES)]

    def step() -> Callable[[Grid], Awaitable[object]]:
        who: SessionId = dice.choice(users)
        epochs[who] += dice.random() < 0.2
        right = Ownership(who, node("n1"), Epoch(max(1, epochs[who] - (dice.random() < 0.2))))
        name = dice.choice(names)
        position = f"{dice.randrange(3)}-1-{dice.randrange(20)},{dice.randrange(3, 6)}-2-{dice.randrange(20)}"
        start = dice.choice([None, "", position])
        terms = TERMS if dice.random() < 0.9 else TERMS._replace(selector="other/*")
        instead_of = dice.choice([None, None, *users])
        by = dice.choice([None, *users])
        return dice.choice(
            [
                lambda grid: grid.durables.open(right, name, terms, start=start, instead_of=instead_of),
                lambda grid: grid.durables.open(right, name, terms, start=start),
                lambda grid: grid.durables.advance(right, name, position),
                lambda grid: grid.durables.advance(right, name, position),
                lambda grid: grid.durables.release(right, name),
                lambda grid: grid.durables.remove(name, by=by),
            ]
        )

    for _ in range(STEPS):
        call = step()
        answers = [await _answer(call, grid) for grid in twins]
        assert answers[0] == answers[1]
        pages = [await grid.durables.page(PARTITION, after=None, count=10) for grid in twins]
        memory, redis = ([each._replace(made=0, until=each.until and 1) for each in page] for page in pages)
        assert memory == redis


async def _answer(call: Callable[[Grid], Awaitable[object]], grid: Grid) -> object:
    try:
        return await call(grid)
    except Fenced:
        return Fenced
