"""How sessions end in the grid, and their wills are executed: the last steps of ``SessionStore``."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import orjson

from gateway.adapters.redis import scripts
from gateway.adapters.redis.batcher import fresh
from gateway.adapters.redis.durables import DURABLE_MARK, read_member, release_command
from gateway.adapters.redis.exchanges import EXCHANGE_MARK, leave_exchanges
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.adapters.redis.presence import PRESENCE_MARK, end_member
from gateway.adapters.redis.queues import head, leave_command
from gateway.adapters.redis.scripts import Command
from gateway.core.topics.topics import session_partition
from gateway.core.types import Epoch, NodeRef, SessionId, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.will_packets import WILLS_PROPERTY, EndKind
from gateway.ports import (
    Ended,
    GridRefused,
    GridUnavailable,
    LastWills,
    ReceiptsLeft,
    SavedUntil,
    SessionEnd,
    WillExecutor,
)

ENDING_GRACE_MS: Final = 5_000
"""Milliseconds that whoever marked a session as ended has to finish, before a reaper does; the steps that are left take
two round trips."""

ENDED_MOST: Final = 10_000
"""Ended sessions that one partition remembers: about 1 MB, and beyond it the oldest are refused as unknown."""

_SHORTEST_MEMORY_MS: Final = 1_000
"""Milliseconds for which an ended session is remembered at least, however short its window was."""

_LATE_PUBLISH_MS: Final = 600_000
"""Milliseconds for which a publish of a session that has ended may be under way: at a node that was suspended, at one
that tries again while it cannot reach Redis, in buffers of the network or of a Redis that stands still."""

_CLOCK_SET_MS: Final = 3_600_000
"""Milliseconds by which the clock of Redis may be set forward without a record being forgotten that others rely on: a
machine that keeps time at all is never off by that much, and an administrator may take one hour for another."""


class _Marked(NamedTuple):
    """A session that is marked as ended.

    Attributes:
        session: its id.
        partitions: topic partitions that may hold receipts, as the grid holds them.
        window: likewise.
        wills: what it has left; None for nothing.
    """

    session: SessionId
    partitions: bytes
    window: bytes
    wills: LastWills | None


class _Finished(NamedTuple):
    """What became of sessions that were marked as ended.

    Attributes:
        deleted: those that this call has deleted.
        waiting: those of which the grid refuses a step now; they stay marked, and are due again after a while.
    """

    deleted: AbstractSet[SessionId]
    waiting: AbstractSet[SessionId]


class _Refusals:
    """Which sessions have to wait, as a step of theirs is refused.

    Attributes:
        of: these.
    """

    def __init__(self) -> None:
        self.of: set[SessionId] = set()
        self._bug: Exception | None = None

    def has(self, session: SessionId, reply: object) -> bool:
        """Tell whether a step of a session was refused, by the reply to it."""
        if not isinstance(reply, Exception):
            return False
        self.of.add(session)
        if not isinstance(reply, GridRefused):
            self._bug = reply
        return True

    def tell(self) -> None:
        """Raise what is no refusal: a bug, or foreign data, which somebody should hear of once the others are done."""
        if self._bug is not None:
            raise fresh(self._bug)


class SessionEnds:
    """Ends sessions.

    Args:
        grid: executes commands, and is told of a grid that lost sessions.
        keys: names of all keys.
        foreign: told of what is not the gateway's.
    """

    def __init__(self, grid: GridConnection, keys: Keys, foreign: ForeignData) -> None:
        self._grid = grid
        self._batcher = grid.batcher
        self._keys = keys
        self._foreign = foreign

    async def end(self, end: SessionEnd, execute: WillExecutor | None) -> bool:
        """See ``SessionStore.end``; False in the place of Fenced."""
        (ended,), waiting = await self._end_all([end], execute)
        if waiting:
            raise GridUnavailable("a step of the session's end, or what it has left, is refused; it is finished later")
        return ended

    async def end_all(self, ends: Sequence[SessionEnd], execute: WillExecutor | None) -> list[bool]:
        """See ``SessionStore.end_all``."""
        ended, _ = await self._end_all(ends, execute)
        return ended

    async def _end_all(
        self, ends: Sequence[SessionEnd], execute: WillExecutor | None
    ) -> tuple[list[bool], AbstractSet[SessionId]]:
        """Mark and finish; tells for each whether its ownership was accepted, and which ones have to wait.

        Several steps, as receipts and the topics of wills live under other hash tags: mark the sessions, from which
        moment they are refused; execute their wills; delete the receipts; delete the sessions. If this node dies in
        between, a reaper finishes.
        """
        keys, grid = self._keys, self._grid
        replies = await self._batcher.call_all(
            [
                scripts.SESSION_END(
                    *self._keys_of(ownership.session),
                    keys.opened[session_partition(ownership.session)],
                    *(grid.clock.argument(), grid.seal),
                    *(ownership.session, str(ownership.owner), ownership.epoch, reason.value, ENDING_GRACE_MS),
                    SessionEnd(ownership, reason, removed).kind.value,
                )
                for ownership, reason, removed in ends
            ],
            gated=True,
        )
        self._see_to(*replies)
        finished = await self._finish(
            [
                self._marked(each.ownership.session, reply, 3)
                for each, reply in zip(ends, replies, strict=True)
                if reply not in (b"fenced", b"gone")
            ],
            execute,
        )
        return [reply != b"fenced" for reply in replies], finished.waiting

    async def expire(
        self, sessions: Sequence[SessionId], execute: WillExecutor | None, saved: SavedUntil, horizon: float
    ) -> tuple[list[Ended], int, int]:
        """End sessions of a partition whose windows may be over; see ``SessionStore.expire``.

        Args:
            sessions: which.
            execute: as of ``SessionStore.expire``.
            saved: likewise.
            horizon: see ``SavedUntil.spares``.

        Returns:
            Those that have ended, how many were spared, and how many wait, marked, for the grid to accept their end.
        """
        keys, clock = self._keys, self._grid.clock.argument()
        # After an outage that was over so lately, all is in doubt that its owner has not confirmed since.
        after = 0 if saved.outage_over > horizon else round(horizon * 1000)
        told = [part for node, until in saved.nodes.items() for part in (str(node), round(until * 1000))]
        replies = await self._batcher.call_all(
            [
                scripts.SESSION_EXPIRE(*self._keys_of(each), clock, each, ENDING_GRACE_MS, after, *told)
                for each in sessions
            ]
        )
        for session, reply in zip(sessions, replies, strict=True):
            if reply == b"foreign":
                self._foreign.skipped(keys.session(session), "its fields", "they are not those of a session")
        marked = [(session, reply) for session, reply in zip(sessions, replies, strict=True) if type(reply) is list]
        finished = await self._finish([self._marked(session, reply, 7) for session, reply in marked], execute)
        ended = [
            Ended(session, NodeRef.parse(reply[3].decode()), Epoch(int(reply[5])), reply[6].decode(errors="replace"))
            for session, reply in marked
            # What an ender left behind is finished here, but it was no window that ended.
            if session in finished.deleted and reply[4] == ErrorCode.SESSION_EXPIRED.value.encode()
        ]
        return ended, replies.count(b"spared"), len(finished.waiting)

    def _marked(self, session: SessionId, reply: list[Any], place: int) -> _Marked:
        """Read what a step answers, which has the wills at a place behind all others, if there are any."""
        wills = self._wills(session, reply[place]) if len(reply) > place else None
        return _Marked(session, reply[1], reply[2], wills)

    def _wills(self, session: SessionId, left: list[bytes]) -> LastWills | None:
        try:
            kind, owner, epoch, principal, roles, vouched, properties = left
            wills = orjson.loads(properties).get(WILLS_PROPERTY)
            return wills and LastWills(
                session=session,
                owner=NodeRef.parse(owner.decode()),
                epoch=Epoch(int(epoch)),
                principal=principal.decode(),
                roles=frozenset(orjson.loads(roles)) if roles else frozenset(),
                principal_properties=orjson.loads(vouched) if vouched else {},
                kind=EndKind(kind.decode()),
                wills=wills,
            )
        except (ValueError, TypeError, AttributeError) as error:
            self._foreign.skipped(self._keys.session(session), "its wills", error)
            return None

    async def _finish(self, marked: Sequence[_Marked], execute: WillExecutor | None) -> _Finished:
        """Execute the wills of sessions that are marked as ended, and delete them; see ``_delete``."""
        left = [each.wills for each in marked if each.wills is not None]
        if not left or execute is None:
            return await self._delete(marked, ())
        try:
            receipts = await execute(left)
        except Exception:
            # Those that have left nothing do not wait for what others have left.
            await self._delete([each for each in marked if each.wills is None], ())
            raise
        # From here on the receipts are not needed: whoever finishes this does not execute them again.
        noted = await self._batcher.call_each([scripts.SESSION_EXECUTED(self._keys.session(each)) for each in receipts])
        executed = {each for each, reply in zip(receipts, noted, strict=True) if not isinstance(reply, Exception)}
        ready = [each for each in marked if each.wills is None or each.session in executed]
        deleted, waiting = await self._delete(ready, [place for each in executed for place in receipts[each]])
        return _Finished(deleted, waiting | {each.session for each in left if each.session not in executed})

    async def _delete(self, marked: Sequence[_Marked], others: Sequence[ReceiptsLeft]) -> _Finished:
        """Delete sessions, with their receipts; they use no queue or durable subscription any more.

        A session of which a step is refused is not deleted, and keeps no other from it (P20): on a Redis Cluster, one
        that has published to a slot that stays half moved.

        Args:
            marked: which.
            others: receipts of their wills. Where these cannot be deleted now, they end by themselves.
        """
        keys = self._keys
        clock = self._grid.clock.argument()
        places: list[tuple[SessionId, int]] = [(each.publisher, each.partition) for each in others]
        forget: list[Command] = [self._forget(*each, _LATE_PUBLISH_MS) for each in others]
        purge: dict[SessionId, Command] = {}
        for session, partitions, window, _ in marked:
            memory = max(_SHORTEST_MEMORY_MS, round(float(window) * 1000))
            late = max(memory, _LATE_PUBLISH_MS)
            forget += [self._forget(session, each, late) for each in split_partitions(partitions)]
            places += [(session, each) for each in split_partitions(partitions)]
            partition = session_partition(session)
            purge[session] = scripts.SESSION_PURGE(
                *(*self._keys_of(session), keys.ended[partition], keys.ids[partition], *keys.transactions(session)),
                *(clock, session, short_hash(session), memory, ENDED_MOST),
            )
        refusals = _Refusals()
        left: list[tuple[SessionId, Command]] = []
        for (session, partition), queues in zip(places, await self._batcher.call_each(forget), strict=True):
            if refusals.has(session, queues):
                continue
            for name in (each.decode() for each in queues):
                if name == EXCHANGE_MARK:
                    command = leave_exchanges(self._grid, keys, partition, session)
                elif name.startswith(PRESENCE_MARK):
                    command = end_member(self._grid, keys, partition, session, name)
                elif name.startswith(DURABLE_MARK):
                    command = release_command(keys, read_member(name), session, clock)
                else:
                    queue = TopicPath(name)
                    command = leave_command(keys, (partition, queue), session, head(self._grid, queue))
                left.append((session, command))
        if left:
            # What the session holds is in its queues again before the session is gone: who finishes this finds them.
            replies = await self._batcher.call_each([command for _, command in left])
            for (session, _), reply in zip(left, replies, strict=True):
                refusals.has(session, reply)
            self._see_to(*replies)
        ready = [each for each in purge if each not in refusals.of]
        replies = await self._batcher.call_each([purge[each] for each in ready])
        deleted = {
            session
            for session, reply in zip(ready, replies, strict=True)
            if not refusals.has(session, reply) and reply == 1
        }
        refusals.tell()
        return _Finished(deleted, refusals.of & purge.keys())

    def _forget(self, session: SessionId, partition: int, late: int) -> Command:
        """Have the receipts of a session or a publisher in a topic partition deleted, and late publishes refused."""
        keys = self._keys
        return scripts.TOPIC_FORGET(
            *(keys.receipts(partition, session), keys.closed[partition], keys.consuming(partition, session)),
            *(self._grid.clock.argument(), short_hash(session), late, ENDED_MOST, _CLOCK_SET_MS),
        )

    def _keys_of(self, session: SessionId) -> tuple[str, str, str]:
        partition = session_partition(session)
        return self._keys.session(session), self._keys.owned[partition], self._keys.deadlines[partition]

    def _see_to(self, *replies: Any) -> None:
        """Have the grid adopted again if it has lost sessions, or others have adopted it anew.

        Raises:
            GridUnavailable: so it is.
        """
        if b"emptied" in replies:
            raise self._grid.stale(emptied=True)
        if b"stale" in replies:
            raise self._grid.stale()


def split_partitions(partitions: bytes) -> list[int]:
    """Read a list of topic partitions as the grid holds it."""
    return [int(each) for each in partitions.split(b",")] if partitions else []
