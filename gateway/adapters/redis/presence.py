"""Members of trees: implements ``gateway.ports.PresenceStore``. Each step is one script; see ``presence.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.batcher import fresh
from gateway.adapters.redis.foreign import ForeignData, read_topic
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.adapters.redis.scripts import Argument, Command
from gateway.core.destinations.presence import count_topic
from gateway.core.topics.topics import topic_partition
from gateway.core.types import SessionId, TopicPath
from gateway.core.wire.errors import GatewayError
from gateway.ports import (
    COUNTS_APART,
    PRESENCE_REMOVAL,
    Enter,
    Entered,
    Fenced,
    GridRefused,
    Leave,
    MemberPage,
    Ownership,
    TellMembers,
    Untold,
)

PRESENCE_MARK: Final = "\n"
"""What stands in front of a tree among what a session leaves in a partition: no path has a line break. Alone it stands
for the epoch of the session's owner."""

_SHOWN_BYTES: Final = 100
"""Of a name that is no tree, in the log."""


class RedisPresence:
    """Members of trees in Redis.

    Args:
        grid: the connection.
        keys: names of all keys.
        foreign: told of what is not the gateway's.
        depth: leading path segments that decide a topic's partition.
    """

    def __init__(self, *, grid: GridConnection, keys: Keys, foreign: ForeignData, depth: int) -> None:
        self._grid = grid
        self._batcher = grid.batcher
        self._keys = keys
        self._foreign = foreign
        self._depth = depth
        self._watched: set[int] = set()
        """Topic partitions in which somebody watched a moment ago."""

    async def enter(self, entries: Sequence[Enter]) -> list[Entered | Fenced]:
        """See ``PresenceStore.enter``."""
        results: list[Entered | Fenced | None] = [None] * len(entries)
        # Where nobody watched a moment ago: mostly nobody does now.
        quick = [place for place, each in enumerate(entries) if self._partition(each.tree) not in self._watched]
        replies = await self._run([self._keep(entries[place]) for place in quick])
        for place, reply in zip(quick, replies, strict=True):
            if reply == b"watched":
                self._watched.add(self._partition(entries[place].tree))
            elif reply == b"fenced":
                results[place] = _fenced(entries[place].ownership)
            else:
                results[place] = Entered(reply == 1, listed=False)
        left = [(place, entries[place]) for place, result in enumerate(results) if result is None]
        replies = await self._run(
            [
                scripts.PRESENCE_ENTER(
                    *tree_keys(self._keys, self._partition(each.tree), each.tree),
                    *self._own(each.ownership, each.tree),
                    *begin(self._grid, each.tree),
                    *(each.value, each.most_listed, each.most_topics, each.most_bytes),
                    *_owner(each.ownership),
                )
                for _, each in left
            ]
        )
        for (place, each), reply in zip(left, replies, strict=True):
            if reply == b"fenced":
                results[place] = _fenced(each.ownership)
                continue
            results[place] = Entered(reply[0] == b"1", reply[1] == b"1")
            if reply[2] == b"0":
                self._watched.discard(self._partition(each.tree))
        return [each for each in results if each is not None]

    async def leave(self, leaves: Sequence[Leave]) -> list[bool | Fenced]:
        """See ``PresenceStore.leave``."""
        replies = await self._run(
            [
                scripts.PRESENCE_LEAVE(
                    *tree_keys(self._keys, self._partition(each.tree), each.tree),
                    *self._own(each.ownership, each.tree),
                    *begin(self._grid, each.tree),
                    *_owner(each.ownership),
                )
                for each in leaves
            ]
        )
        return [
            _fenced(each.ownership) if reply == b"fenced" else reply == 1
            for each, reply in zip(leaves, replies, strict=True)
        ]

    async def watch(self, partitions: Sequence[int], *, duration: float) -> list[Untold]:
        """See ``PresenceStore.watch``."""
        keys, arguments = [self._keys.watched[each] for each in partitions], self._watching(duration)
        watch = scripts.PRESENCE_WATCH.across
        if self._batcher.undivided:
            replies = await self._batcher.call_all([watch(len(keys), *keys, *arguments)])
        else:
            replies = await self._batcher.call_all([watch(1, key, *arguments) for key in keys])
        since = zip(partitions, chain.from_iterable(replies), strict=True)
        return [Untold(number, moment.decode()) for number, moment in since if moment]

    async def tell_members(self, tell: TellMembers) -> str | None:
        """See ``PresenceStore.tell_members``."""
        tree, step, most_listed, most_topics, most_bytes, at_once = tell
        keys = tree_keys(self._keys, self._partition(tree), tree)
        try:
            (reply,) = await self._run(
                [
                    scripts.PRESENCE_LIST(
                        *(*keys, *begin(self._grid, tree), step or "0"),
                        *(most_listed, most_topics, most_bytes, at_once),
                    )
                ]
            )
        except GridRefused:
            (reply,) = await self._run(
                [
                    scripts.PRESENCE_LIST_FULL(
                        *keys, *begin(self._grid, tree), "0", *(0, most_topics, most_bytes, at_once)
                    )
                ]
            )
        return None if reply == b"0" else str(reply.decode())

    async def all_told(self, untold: Untold) -> None:
        """See ``PresenceStore.all_told``."""
        await self._batcher.call(scripts.PRESENCE_TOLD(self._keys.watched[untold.partition], untold.since))

    async def tell_due(self, partitions: Sequence[int], *, limit: int) -> int:
        """See ``PresenceStore.tell_due``."""
        keys, clock = [self._keys.presence_due[each] for each in partitions], self._grid.clock.argument()
        due = scripts.TOPIC_DUE.across
        if self._batcher.undivided:
            replies = await self._batcher.call_all([due(len(keys), *keys, clock, limit)])
        else:
            replies = await self._batcher.call_all([due(1, key, clock, limit) for key in keys])
        trees = await self._readable("presence-due", list(chain.from_iterable(replies)), keys)
        told = await self._run(
            [
                scripts.PRESENCE_TELL(*tree_keys(self._keys, self._partition(each), each), *begin(self._grid, each))
                for each in trees
            ]
        )
        return sum(told)

    async def trees(self, partition: int) -> list[TopicPath]:
        """See ``PresenceStore.trees``."""
        return await self._readable("presence", await self._batcher.call(("HKEYS", self._keys.presence[partition])), ())

    async def members(self, tree: TopicPath, *, step: str | None, count: int) -> MemberPage:
        """See ``PresenceStore.members``."""
        key = self._keys.present(self._partition(tree), tree)
        cursor, found = await self._batcher.call(("HSCAN", key, step or "0", "COUNT", count))
        sessions = [SessionId(name.decode(errors="replace")) for name in found[::2]]
        return MemberPage(sessions, None if cursor == b"0" else cursor.decode())

    async def counts(self, trees: Sequence[TopicPath]) -> list[int]:
        """See ``PresenceStore.counts``."""
        return await self._batcher.call_all(
            [("HLEN", self._keys.present(self._partition(each), each)) for each in trees]
        )

    async def discard(self, tree: TopicPath, sessions: Sequence[SessionId]) -> int:
        """See ``PresenceStore.discard``."""
        partition, mark = self._partition(tree), PRESENCE_MARK + tree
        return sum(await self._run([end_member(self._grid, self._keys, partition, each, mark) for each in sessions]))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _partition(self, tree: TopicPath) -> int:
        return topic_partition(count_topic(tree), self._depth)

    def _watching(self, duration: float) -> tuple[Argument, ...]:
        return self._grid.clock.argument(), scripts.milliseconds(duration)

    def _own(self, ownership: Ownership, tree: TopicPath) -> tuple[str, str, str]:
        """Name what the session itself has in the partition of a tree, as ``presence_owner.lua`` takes it."""
        partition, session, keys = self._partition(tree), ownership.session, self._keys
        return keys.consuming(partition, session), keys.receipts(partition, session), keys.closed[partition]

    def _keep(self, entry: Enter) -> Command:
        keys, tree, partition = self._keys, entry.tree, self._partition(entry.tree)
        return scripts.PRESENCE_KEEP(
            *(keys.presence[partition], keys.present(partition, tree), keys.watched[partition]),
            *self._own(entry.ownership, tree),
            *(self._grid.clock.argument(), tree, entry.value),
            *_owner(entry.ownership),
        )

    async def _run(self, commands: Sequence[Command]) -> list[Any]:
        """Have steps executed.

        Raises:
            GridRefused: the grid is full.
            GridUnavailable: see the port.
        """
        if not commands:
            return []
        replies = await self._batcher.submit(commands, gated=True)
        if b"emptied" in replies:
            raise self._grid.stale(emptied=True)
        if b"stale" in replies:
            raise self._grid.stale()
        for reply in replies:
            if isinstance(reply, GridRefused):
                raise reply
            if isinstance(reply, Exception):
                raise fresh(reply)
        return list(replies)

    async def _readable(self, where: str, names: Sequence[bytes], keys: Sequence[str]) -> list[TopicPath]:
        """Read names of trees; what is none is told, and taken out of *keys*, as it would be met for ever."""
        found: list[TopicPath] = []
        for name in names:
            try:
                found.append(read_topic(name))
            except (ValueError, GatewayError) as error:
                self._foreign.skipped(where, repr(name[:_SHOWN_BYTES]), error)
                await self._batcher.call_all([("ZREM", key, name) for key in keys])
        return found


def tree_keys(keys: Keys, partition: int, tree: str) -> tuple[str, ...]:
    """Name the keys of every step, in the order of ``presence.lua``."""
    return (
        *(keys.values[partition], keys.stream[partition], keys.removed[partition], keys.sizes[partition]),
        *(keys.origins[partition], keys.presence[partition], keys.presence_due[partition]),
        *(keys.present(partition, tree), keys.watched[partition]),
    )


def begin(grid: GridConnection, tree: str) -> tuple[Argument, ...]:
    """The first arguments of every step."""
    return (
        *(grid.clock.argument(), grid.generation, grid.stream_length, grid.stream_bytes, tree),
        *(round(PRESENCE_REMOVAL * 1000), round(COUNTS_APART * 1000)),
    )


def end_member(grid: GridConnection, keys: Keys, partition: int, session: SessionId, mark: str) -> Command:
    """Make the command by which a session that has ended leaves a tree.

    Args:
        grid: the connection.
        keys: names of all keys.
        partition: of the tree.
        session: which has ended.
        mark: what stands for the tree among what it leaves, with ``PRESENCE_MARK``.
    """
    tree = mark.removeprefix(PRESENCE_MARK)
    return scripts.PRESENCE_END(
        *tree_keys(keys, partition, tree), keys.consuming(partition, session), *begin(grid, tree), session
    )


def _owner(ownership: Ownership) -> tuple[Argument, ...]:
    """The last arguments of the steps that an owner asks for."""
    return ownership.session, ownership.epoch, short_hash(ownership.session)


def _fenced(ownership: Ownership) -> Fenced:
    return Fenced(f"{ownership.owner} with epoch {ownership.epoch} does not own session {ownership.session} any more")
