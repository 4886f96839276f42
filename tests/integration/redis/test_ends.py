"""Every key of a session that ended has an end, in whatever order things arrive (P7).

A publish may be executed long after its caller has given it up. The end of a session is three steps, under hash tags
that may be served by different masters; and a master may be replaced by one that lacks its last steps. Here all of that
happens in every order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import permutations

import pytest

from gateway.adapters.redis import RedisGrid, scripts
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.core.topics.topics import session_partition
from gateway.core.types import SessionId
from gateway.core.wire.codes import ErrorCode
from gateway.ports import SessionChanges
from tests.integration.redis.support import PARTITION, Bench, Publisher, ownership_of, session_record

pytestmark = pytest.mark.promise("P7")

LASTING = frozenset({"grid", "renewed", "opened", "values", "sizes", "stream", "deadlines", "owned", "ids"})
"""Last parts of the names of keys that stay; the last three are indexes, empty and so gone with their last session."""

MEMORY_MS = 60_000
"""Milliseconds for which the end of a session is remembered."""


class Ending:
    """A session that has published once, and the steps of its end.

    Args:
        bench: where.
        grid: the node.
        number: tells it from others.
    """

    def __init__(self, bench: Bench, grid: RedisGrid, number: int) -> None:
        self._bench, self._grid = bench, grid
        self._record = session_record(f"session-{number}")
        self._publisher = Publisher(grid, session=self._record.id)
        keys, session = Keys(bench.prefix), self._record.id
        place = session_partition(session)
        self._receipts, self._closed = keys.receipts(PARTITION, session), keys.closed[PARTITION]
        self._consuming = keys.consuming(PARTITION, session)
        self._indexes = (keys.session(session), keys.owned[place], keys.deadlines[place])
        self._transactions = keys.transactions(session)
        self._ended, self._ids = keys.ended[place], keys.ids[place]
        self._replica: tuple[bytes, int] = (b"", 0)

    @property
    def steps(self) -> tuple[Callable[[], Awaitable[object]], ...]:
        """Everything that may happen; each at most once, and in any order."""
        return self.publish_late, self.mark, self.forget, self.purge, self.promote, self.forget_the_end

    async def begin(self) -> None:
        await self._grid.sessions.create(self._record)
        changes = SessionChanges(publish_partitions=frozenset({PARTITION}))
        await self._grid.sessions.change(ownership_of(self._record), changes)
        await self._publisher.publish(1)
        call = self._bench.server.call
        self._replica = await call("DUMP", self._receipts), await call("PTTL", self._receipts)

    async def publish_late(self) -> None:
        await self._grid.topics.publish([self._publisher.command(2, settled=1)])

    async def mark(self) -> None:
        session, ownership = self._record.id, ownership_of(self._record)
        reason = ErrorCode.SESSION_CLOSED.value
        store = self._grid.sessions
        keys = (*self._indexes, store._opened(session))
        await self._call(
            scripts.SESSION_END(*keys, *store._timed(), session, str(ownership.owner), ownership.epoch, reason, 0)
        )

    async def forget(self) -> None:
        clock, short = self._grid._connection.clock.argument(), short_hash(self._record.id)
        keys = (self._receipts, self._closed, self._consuming)
        await self._call(scripts.TOPIC_FORGET(*keys, clock, short, MEMORY_MS, 10, MEMORY_MS))

    async def purge(self) -> None:
        session = self._record.id
        keys = (*self._indexes, self._ended, self._ids, *self._transactions)
        clock = self._grid._connection.clock.argument()
        await self._call(scripts.SESSION_PURGE(*keys, clock, session, short_hash(session), MEMORY_MS, 10))

    async def promote(self) -> None:
        """The master of the topic partition is replaced by one that has heard of the first publish and nothing else."""
        receipts, left = self._replica
        await self._bench.server.call("DEL", self._closed)
        await self._bench.server.call("RESTORE", self._receipts, max(left, 0), receipts, "REPLACE")

    async def forget_the_end(self) -> None:
        """The window since the end is over."""
        await self._bench.server.call("DEL", self._closed)

    async def _call(self, command: scripts.Command) -> None:
        await self._grid._connection.batcher.call(command)


async def test_in_whatever_order_a_session_ends_nothing_of_it_stays_for_ever(bench: Bench) -> None:
    grid = await bench.grid()
    for number, order in enumerate(permutations(range(6))):
        if number % 5:  # every fifth of 720 orders: 144, in which each step is at each place before and after each
            continue
        ending = Ending(bench, grid, number)
        await ending.begin()
        for step in order:
            await ending.steps[step]()
    # What is marked and not purged is finished by a reaper; as is what is not even marked once its window is over.
    await assert_all_have_an_end(bench, grid)


async def assert_all_have_an_end(bench: Bench, grid: RedisGrid) -> None:
    waiting: set[str] = set()
    for key in await bench.keys():
        kind = key.split(":")[1]
        full = f"{bench.prefix}:{key}"
        if kind == "session":
            waiting.add(full)
        elif kind not in LASTING:
            assert await bench.server.call("PTTL", full) > 0, f"{key} has no end"
    keys = Keys(bench.prefix)
    for full in waiting:
        session = SessionId(full.rsplit(":", 1)[1])
        deadline = await bench.server.call("ZSCORE", keys.deadlines[session_partition(session)], session)
        owned = await grid.sessions.owned(session_record().owner, session_partition(session))
        assert deadline is not None or session in owned, f"{session} is on no clock and nobody's"
