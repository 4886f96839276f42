"""What presence costs Redis, with ten thousand members: ``python -m benchmarks.presence_cost``.

Sessions subscribe to topics of a tree by the adapter of a node, as a node has them do it, while nobody watches and
while somebody does; and somebody comes to watch all who are there. What is read is the CPU time of redis-server alone,
and its memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Self

import click
import redis

from benchmarks.measure import process_cpu
from benchmarks.placement import Placement
from benchmarks.processes import HOST, redis_server
from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.core.destinations.presence import count_topic, member_value
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Epoch, Incarnation, NodeId, NodeRef, SessionId, TopicPath
from gateway.ports import (
    Enter,
    Leave,
    Ownership,
    SelectionChanges,
    SessionChanges,
    SessionRecord,
    TellMembers,
)

MEMBERS: Final = 10_000
AT_ONCE: Final = 100
"""Sessions that subscribe at the same time, so that their steps share round trips."""

IN_A_ROOM: Final = 10
"""Members of each tree where there are many trees."""

MOST_LISTED: Final = 1_000
"""As of a destination by default."""

MEMBERS_AT_ONCE: Final = 100
WATCHED: Final = 3600.0
ROUNDS: Final = 3
ONE_ROOM: Final = TopicPath("rooms/all")

_ME: Final = NodeRef(NodeId("n1"), Incarnation("bench"))
_MICROSECONDS: Final = 1e6


@dataclass
class Figures:
    """What was measured, the least of rounds.

    Attributes:
        costs: µs of Redis for each member, by what was done.
        member_bytes: of Redis for a member of whom nobody is told.
        listed_bytes: more of it for one of whom it is told.
        told_in: seconds from a watcher's coming until all was told of one tree.
        told_cost: ms of Redis for that.
    """

    costs: dict[str, float] = field(default_factory=dict)
    member_bytes: float = 0.0
    listed_bytes: float = 0.0
    told_in: float = float("inf")
    told_cost: float = float("inf")

    def note(self, what: str, cost: float) -> None:
        """Take in what something cost in one round."""
        self.costs[what] = min(cost, self.costs.get(what, cost))


class Bench:
    """One round: members, and a node that writes for them.

    Args:
        port: of Redis.
        pid: of redis-server.
        number: of the round; each has keys of its own.
        figures: where it is noted.
    """

    def __init__(self, port: int, pid: int, number: int, figures: Figures) -> None:
        self._pid = pid
        self._redis = redis.Redis(host=HOST, port=port)
        self._grid = RedisGrid(
            node=_ME,
            url=f"redis://{HOST}:{port}/0",
            prefix=f"bench{number}",
            metrics=MemoryMetrics(),
            log=MemoryEventLog(),
        )
        self._owners = [Ownership(SessionId(f"{each:032}"), _ME, Epoch(1)) for each in range(MEMBERS)]
        self._figures = figures

    async def __aenter__(self) -> Self:
        await self._grid.start()
        places = frozenset({topic_partition(count_topic(ONE_ROOM), 1)})
        records = [
            SessionRecord(id=each.session, principal="alice", window=3600.0, owner=_ME, publish_partitions=places)
            for each in self._owners
        ]
        await self._all(lambda number: self._grid.sessions.create(records[number]))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._grid.close()

    async def run(self) -> None:
        """Measure all of it once."""
        await self._timed("a change of selections, no tree marked", self._select)
        before = self._memory()
        await self._timed("entering a tree of 10, nobody watches", self._enter(_room))
        self._figures.member_bytes = (self._memory() - before) / MEMBERS
        await self._timed("leaving it", self._leave(_room))
        await self._timed("entering a tree of 10,000, nobody watches", self._enter(_one_room))
        before = self._memory()
        await self._watch(ONE_ROOM)
        self._figures.listed_bytes = (self._memory() - before) / MOST_LISTED
        await self._timed("leaving a tree of 10,000, watched", self._leave(_one_room))
        await self._timed("entering it, watched", self._enter(_one_room))
        await self._timed("entering a tree of 10, watched", self._enter(_room))
        await self._timed("leaving it, watched", self._leave(_room))

    # --- Inside -------------------------------------------------------------------------------------------------------

    async def _select(self, number: int) -> None:
        changes = SelectionChanges((), (f"+rooms/{number // IN_A_ROOM}/chat",))
        await self._grid.sessions.change(self._owners[number], SessionChanges(selection_changes=changes))

    def _enter(self, tree: Callable[[int], TopicPath]) -> Callable[[int], Awaitable[None]]:
        async def enter(number: int) -> None:
            owner = self._owners[number]
            value = member_value(owner.session, "alice", {"name": "Alice"}, ("name",))
            await self._grid.presence.enter([Enter(owner, tree(number), value, MOST_LISTED)])

        return enter

    def _leave(self, tree: Callable[[int], TopicPath]) -> Callable[[int], Awaitable[None]]:
        async def leave(number: int) -> None:
            await self._grid.presence.leave([Leave(self._owners[number], tree(number))])

        return leave

    async def _watch(self, tree: TopicPath) -> None:
        """Come to watch, as a node does for its first session that wants to know."""
        began, before = time.perf_counter(), process_cpu(self._pid)
        presence, figures = self._grid.presence, self._figures
        (untold,) = await presence.watch([topic_partition(count_topic(tree), 1)], duration=WATCHED)
        step: str | None = None
        while True:
            step = await presence.tell_members(TellMembers(tree, step, MOST_LISTED, 0, 0, MEMBERS_AT_ONCE))
            if step is None:
                break
        await presence.all_told(untold)
        figures.told_in = min(figures.told_in, time.perf_counter() - began)
        figures.told_cost = min(figures.told_cost, (process_cpu(self._pid) - before) * 1000)

    def _memory(self) -> int:
        return int(self._redis.info("memory")["used_memory"])

    async def _timed(self, what: str, do: Callable[[int], Awaitable[None]]) -> None:
        before = process_cpu(self._pid)
        await self._all(do)
        self._figures.note(what, (process_cpu(self._pid) - before) / MEMBERS * _MICROSECONDS)

    async def _all(self, do: Callable[[int], Awaitable[object]]) -> None:
        for start in range(0, MEMBERS, AT_ONCE):
            await asyncio.gather(*map(do, range(start, start + AT_ONCE)))


def _room(number: int) -> TopicPath:
    return TopicPath(f"rooms/{number // IN_A_ROOM}")


def _one_room(_: int) -> TopicPath:
    return ONE_ROOM


async def run(port: int, pid: int) -> Figures:
    """Measure at the Redis on *port*."""
    figures = Figures()
    for number in range(ROUNDS):
        async with Bench(port, pid, number, figures) as bench:
            await bench.run()
    return figures


@click.command()
def main() -> None:
    """Measure what it costs Redis that sessions enter and leave trees, and that somebody comes to watch them."""
    placement = Placement.of_this_machine()
    with redis_server(placement.server) as (server, port):
        figures = asyncio.run(run(port, server.pid))
    click.echo(f"| {MEMBERS:,} members | CPU of Redis for each, least of {ROUNDS} rounds, µs |\n| --- | --: |")
    for what, cost in figures.costs.items():
        click.echo(f"| {what} | {cost:.1f} |")
    click.echo(
        f"\nMemory of Redis: {figures.member_bytes:.0f} B for a member, {figures.listed_bytes:.0f} B more once it is "
        f"told of. Somebody comes to watch {MEMBERS:,} members, of whom {MOST_LISTED:,} are listed: all is told after "
        f"{figures.told_in * 1000:.0f} ms, for {figures.told_cost:.0f} ms of Redis."
    )


if __name__ == "__main__":
    main()
