"""What a transaction has: each operation that was confirmed, and none that was refused (P16, P4)."""

from __future__ import annotations

from typing import Final

import pytest

from gateway.core.topics.topics import topic_partition
from gateway.core.types import RequestNumber
from gateway.ports import MOST_STAGED_BYTES, Committed, Grid, Staged, StreamPosition, TransactionRefused
from tests.contract.examples import DEPTH
from tests.contract.harness import Harness
from tests.contract.test_transactions import TOPIC, User, publish

pytestmark = [pytest.mark.promise("P16"), pytest.mark.promise("P4")]

HUGE: Final = publish("1" * MOST_STAGED_BYTES)
LARGE: Final = publish("1" * (MOST_STAGED_BYTES * 2 // 3))


class Stager:
    """Stages in one transaction, by the numbers of requests."""

    def __init__(self, grid: Grid, user: User, transaction: RequestNumber) -> None:
        self.grid = grid
        self.user = user
        self.transaction = transaction

    @classmethod
    async def of(cls, grid: Grid, user: User | None = None) -> Stager:
        user = user or await User.of(grid)
        return cls(grid, user, await user.begin())

    async def stage(self, request: RequestNumber, operation: Staged) -> TransactionRefused | None:
        return await self.grid.transactions.stage(self.user.ownership, self.transaction, request, operation)

    async def commit(self) -> Committed | TransactionRefused:
        return await self.user.commit(self.transaction)


async def published(grid: Grid) -> list[bytes]:
    """Tell what was published in the partition, in order."""
    partition = topic_partition(TOPIC, DEPTH)
    end = await grid.topics.position(partition)
    found = await grid.topics.between(partition, StreamPosition(end.grid_generation, 0), end)
    assert found is not None
    return [each.value for each in found]


async def test_what_was_refused_is_refused_again_after_a_later_one(harness: Harness) -> None:
    """As a client asks again whose node has died before the replies left."""
    grid = await harness.grid()
    t = await Stager.of(grid)
    first, second = t.user.next(), t.user.next()
    assert await t.stage(first, HUGE) is TransactionRefused.SIZE
    assert await t.stage(second, publish("2")) is None
    assert await t.stage(first, HUGE) is TransactionRefused.SIZE
    assert await t.stage(second, publish("2")) is None
    assert await t.commit() == Committed(1, duplicate=False)
    assert await published(grid) == [b"2"]


async def test_what_finds_room_when_it_is_asked_for_again_has_its_place(harness: Harness) -> None:
    """What is confirmed is executed, in the order of the requests: it was asked for before the other."""
    grid = await harness.grid()
    t = await Stager.of(grid)
    other = await Stager.of(grid, t.user)
    assert await other.stage(t.user.next(), LARGE) is None
    first, second = t.user.next(), t.user.next()
    assert await t.stage(first, LARGE) is TransactionRefused.SIZE
    assert await t.stage(second, publish("2")) is None
    await grid.transactions.roll_back(t.user.ownership, other.transaction)
    for _ in range(2):
        assert await t.stage(first, LARGE) is None
    assert await t.commit() == Committed(2, duplicate=False)
    assert await published(grid) == [LARGE.value, b"2"]


async def test_what_was_confirmed_is_once_in_it_however_many_follow(harness: Harness) -> None:
    """Also where numbers have more digits than those before, and another transaction has a name that begins alike."""
    grid = await harness.grid()
    t = await Stager.of(grid)
    requests = [RequestNumber(each) for each in range(8, 13)]
    alike = RequestNumber(t.transaction * 10)
    assert await grid.transactions.begin(t.user.ownership, alike, settled=RequestNumber(0)) is None
    other = Stager(grid, t.user, alike)
    assert await other.stage(RequestNumber(alike + 1), publish('"other"')) is None
    for request in (*requests, *requests):
        assert await t.stage(request, publish(str(request))) is None
    assert await t.user.commit(t.transaction, RequestNumber(99)) == Committed(5, duplicate=False)
    assert await published(grid) == [b"8", b"9", b"10", b"11", b"12"]
    assert await t.user.commit(alike, RequestNumber(100)) == Committed(1, duplicate=False)
    left = await harness.inventory()
    assert not {each for each in left if "operations" in each}, "none of them stays"
