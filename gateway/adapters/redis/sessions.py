"""Sessions in the grid: implements ``gateway.ports.SessionStore``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from gateway.adapters.redis import scripts
from gateway.adapters.redis.batcher import ScriptFailed, fresh
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.adapters.redis.scripts import Argument, Command
from gateway.adapters.redis.session_ends import SessionEnds, split_partitions
from gateway.adapters.redis.write_gate import ANY_TERM, WriteGate
from gateway.core.session.stored_size import ENTRY_BYTES, HANDLER_BYTES, RECEIPTS_BYTES, SESSION_BYTES
from gateway.core.topics.selectors import NO_PARTITIONS
from gateway.core.topics.topics import session_partition
from gateway.core.types import Attempt, Epoch, NodeRef, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    ALL_SAVED,
    Claimed,
    ClaimRefused,
    ClaimResult,
    Ended,
    Fenced,
    Identity,
    LeftSizes,
    Ownership,
    Reclaimed,
    Restored,
    SavedUntil,
    SessionChanges,
    SessionEnd,
    SessionGone,
    SessionPage,
    SessionRecord,
    WillExecutor,
)


class RedisSessions:
    """Sessions in the grid.

    Args:
        grid: executes commands, and is told of a grid that lost sessions.
        keys: names of all keys.
        write_gate: this node's lease, and what it knows of those it takes over.
        foreign: told of what is not the gateway's.
    """

    def __init__(self, grid: GridConnection, keys: Keys, write_gate: WriteGate, foreign: ForeignData) -> None:
        self._foreign = foreign
        self._grid = grid
        self._batcher = grid.batcher
        self._keys = keys
        self._write_gate = write_gate
        self._ends = SessionEnds(grid, keys, foreign)

    async def create(self, record: SessionRecord) -> None:
        """See ``SessionStore.create``."""
        partition = session_partition(record.id)
        keys = self._keys
        reply = await self._batcher.call(
            scripts.SESSION_CREATE(
                *(keys.session(record.id), keys.owned[partition], keys.deadlines[partition], keys.ids[partition]),
                *(keys.opened[partition], *self._timed()),
                *_identity(record),
                *_list(record.selections),
                *self._fields(record),
                *(("handlers", _handlers(record)) if record.handlers else ()),
            ),
            gated=True,
            patient=True,
        )
        self._see_to(reply)
        if reply == b"fenced":
            raise Fenced(f"session {record.id} exists already")

    async def claim(
        self,
        session: SessionId,
        *,
        by: NodeRef,
        token_generation: TokenGeneration,
        attempt: Attempt,
        now: float = 0.0,
        identity: Identity | None = None,
    ) -> ClaimResult:
        """See ``SessionStore.claim``."""
        shown = () if identity is None else (identity.principal, *_shown(identity))
        claim = self._claim(session, by, token_generation, attempt, now, "", *shown)
        reply = await self._batcher.call(claim, gated=True, patient=True)
        return self._claimed(session, by, reply)

    async def reclaim(
        self, held: Ownership, *, token_generation: TokenGeneration, attempt: Attempt, now: float = 0.0
    ) -> Reclaimed | ClaimResult:
        """See ``SessionStore.reclaim``."""
        claim = self._claim(held.session, held.owner, token_generation, attempt, now, held.epoch)
        reply = await self._batcher.call(claim, gated=True, patient=True)
        if reply[0] == b"reclaimed":
            return Reclaimed(Epoch(int(reply[1])), TokenGeneration(int(reply[2])), _node_ref(reply[3]))
        return self._claimed(held.session, held.owner, reply)

    def _claim(
        self,
        session: SessionId,
        by: NodeRef,
        token_generation: TokenGeneration,
        attempt: Attempt,
        now: float,
        *held_and_shown: Argument,
    ) -> Command:
        return scripts.SESSION_CLAIM(
            *(*self._all_keys(session), self._opened(session), *self._timed()),
            *(session, str(by), token_generation, attempt, short_hash(session)),
            *(self._write_gate.term, repr(float(now)), *held_and_shown),
        )

    def _claimed(self, session: SessionId, by: NodeRef, reply: Any) -> ClaimResult:
        self._see_to(reply)
        if reply[0] == b"refused":
            return ClaimRefused(ErrorCode(reply[1].decode()))
        try:
            previous = _node_ref(reply[1])
            before = previous if reply[2] == reply[1] else _node_ref(reply[2])
            return Claimed(_record(session, _fields(reply[3]), owner=by, connected=True), previous, before)
        except _UNREADABLE as error:
            # What is left of it cannot be served; its client is told so, and may open another one.
            self._foreign.skipped(self._keys.session(session), "its fields", error)
            return ClaimRefused(ErrorCode.SESSION_UNKNOWN)

    async def why_not_claimable(
        self, session: SessionId, *, by: NodeRef, token_generation: TokenGeneration, attempt: Attempt
    ) -> ErrorCode | None:
        """See ``SessionStore.why_not_claimable``."""
        reply = await self._batcher.call(
            scripts.SESSION_CLAIMABLE(
                *(*self._all_keys(session), self._opened(session), *self._timed()),
                *(session, str(by), token_generation, attempt, short_hash(session)),
            ),
            patient=True,
        )
        self._see_to(reply)
        return None if reply == b"claimable" else ErrorCode(reply[1].decode())

    async def change(self, ownership: Ownership, changes: SessionChanges) -> None:
        """See ``SessionStore.change``."""
        fields: list[Argument] = []
        if changes.properties is not None:
            fields += ["properties", orjson.dumps(dict(changes.properties))]
        if changes.publish_partitions is not None:
            fields += ["partitions", _join(changes.publish_partitions)]
        if changes.handlers is not None:
            fields += ["handlers", orjson.dumps(dict(changes.handlers))]
        if changes.identity is not None:
            fields += _shown(changes.identity)
        confirmed = "" if changes.confirmed is None else changes.confirmed
        session = ownership.session
        grown = (changes.properties, changes.selections, changes.selection_changes, changes.publish_partitions)
        grows = any(each is not None for each in (*grown, changes.handlers))
        change = scripts.SESSION_CHANGE if grows else scripts.SESSION_KEEP
        reply = await self._batcher.call(
            change(
                *self._keys_to_change(session),
                *(str(ownership.owner), ownership.epoch, short_hash(session), confirmed),
                *_list_changes(changes),
                *fields,
            ),
            gated=True,
        )
        self._check(reply, ownership)

    async def confirm(self, proofs: Sequence[tuple[Ownership, TokenGeneration]]) -> list[bool]:
        """See ``SessionStore.confirm``."""
        replies = await self._batcher.call_all(
            [
                scripts.SESSION_CONFIRM(
                    *(self._keys.session(ownership.session), self._opened(ownership.session), self._grid.seal),
                    *(str(ownership.owner), ownership.epoch, proved),
                )
                for ownership, proved in proofs
            ],
            gated=True,
        )
        self._see_to(*replies)
        return [reply == 1 for reply in replies]

    async def disconnect(self, ownership: Ownership) -> None:
        """See ``SessionStore.disconnect``."""
        session = ownership.session
        reply = await self._batcher.call(
            scripts.SESSION_DISCONNECT(
                *(*self._all_keys(session), self._opened(session), *self._timed()),
                *(session, str(ownership.owner), ownership.epoch, short_hash(session)),
            ),
            gated=True,
        )
        self._check(reply, ownership)

    async def pass_on(self, ownership: Ownership, *, to: NodeRef) -> None:
        """See ``SessionStore.pass_on``."""
        session = ownership.session
        reply = await self._batcher.call(
            scripts.SESSION_PASS(
                *(*self._all_keys(session), self._opened(session), *self._timed()),
                *(session, str(ownership.owner), ownership.epoch, str(to), short_hash(session), self._write_gate.term),
            ),
            gated=True,
            patient=True,
        )
        self._check(reply, ownership)

    async def end(
        self,
        ownership: Ownership,
        *,
        reason: ErrorCode,
        removed: bool = False,
        execute: WillExecutor | None = None,
    ) -> None:
        """See ``SessionStore.end``."""
        if not await self._ends.end(SessionEnd(ownership, reason, removed), execute):
            raise _fenced(ownership)

    async def end_all(self, ends: Sequence[SessionEnd], *, execute: WillExecutor | None = None) -> list[bool]:
        """See ``SessionStore.end_all``."""
        return await self._ends.end_all(ends, execute)

    async def expire(
        self,
        partition: int,
        *,
        limit: int,
        execute: WillExecutor | None = None,
        saved: SavedUntil = ALL_SAVED,
        patience: float = 0.0,
    ) -> list[Ended]:
        """See ``SessionStore.expire``."""
        keys, clock = self._keys, self._grid.clock
        deadlines, ended = keys.deadlines[partition], keys.ended[partition]
        all_expired: list[Ended] = []
        left_out = 0
        for _ in range(SPARED_PAGES):
            most = limit - len(all_expired)
            due = await self._batcher.call(scripts.SESSION_DUE(deadlines, ended, clock.argument(), left_out, most))
            if not due:
                break
            sessions = await self._named(partition, deadlines, due)
            # By the time here and not when Redis gets to it: should it stand still, nobody is spared for less.
            horizon = (clock.estimate() or 0.0) / 1000 - patience
            expired, spared, waiting = await self._ends.expire(sessions, execute, saved, horizon)
            all_expired += expired
            # What waits for the grid to accept its end is due again after a while, and keeps nobody behind it.
            if not spared + waiting or len(all_expired) >= limit:
                break
            left_out += spared
        return all_expired

    async def restore(self, records: Sequence[SessionRecord], *, recreate: bool) -> list[Restored]:
        """See ``SessionStore.restore``."""
        keys = self._keys
        replies = await self._batcher.call_all(
            [
                scripts.SESSION_RESTORE(
                    *self._all_keys(each.id),
                    *(keys.ids[session_partition(each.id)], self._opened(each.id), *self._timed()),
                    *_identity(each),
                    *(short_hash(each.id), int(recreate), each.attempt),
                    *_list(each.selections),
                    *self._fields(each),
                    *("handlers", _handlers(each)),
                )
                for each in records
            ]
        )
        self._see_to(*replies)
        return [Restored(reply.decode()) for reply in replies]

    async def find(self, session: SessionId) -> SessionRecord | None:
        """See ``SessionStore.find``."""
        (reply,) = await self._batcher.submit((("HGETALL", self._keys.session(session)),))
        return self._readable(session, reply)

    async def page(self, partition: int, *, after: SessionId | None, limit: int) -> SessionPage:
        """See ``SessionStore.page``."""
        found, last = await self._ids(partition, after, limit)
        replies = await self._batcher.submit([("HGETALL", self._keys.session(each)) for each in found]) if found else []
        records = [self._readable(session, reply) for session, reply in zip(found, replies, strict=True)]
        return SessionPage([each for each in records if each is not None], last)

    async def left(self, partition: int, *, besides: Collection[NodeRef], start: int, limit: int) -> LeftSizes:
        """See ``SessionStore.left``."""
        deadlines = self._keys.deadlines[partition]
        names = await self._batcher.call(("ZRANGEBYSCORE", deadlines, "-inf", "+inf", "LIMIT", start, limit))
        found = await self._named(partition, deadlines, names)
        sizes: dict[str, int] = {}
        if found:
            told = await self._batcher.call(
                scripts.SESSION_SIZES.across(
                    len(found),
                    *map(self._keys.session, found),
                    *(SESSION_BYTES, ENTRY_BYTES, RECEIPTS_BYTES, HANDLER_BYTES),
                    *map(str, besides),
                )
            )
            for principal, size in zip(told[::2], told[1::2], strict=True):
                # A name that is foreign to the gateway is nobody's, but what it takes counts for all.
                name = principal.decode(errors="replace")
                sizes[name] = sizes.get(name, 0) + size
        return LeftSizes(sizes, start + len(found) if len(names) == limit else None)

    async def owned(self, owner: NodeRef, partition: int) -> list[SessionId]:
        """See ``SessionStore.owned``."""
        names = await self._batcher.call(self._names(owner, partition))
        # The name of another owner may begin with this one's and a space; an id holds none.
        return [session for session in (_id(owner, name) for name in names) if " " not in session]

    async def owners(self, partition: int) -> list[NodeRef]:
        """See ``SessionStore.owners``."""
        names = await self._batcher.call(scripts.SESSION_OWNERS(self._keys.owned[partition]))
        owners: list[NodeRef] = []
        for name in names:
            try:
                owners.append(NodeRef.parse(name.decode()))
            except ValueError as error:
                self._foreign.skipped(self._keys.owned[partition], repr(name[:_SHOWN_BYTES]), error)
        return owners

    async def prolong(
        self, expired: NodeRef, partition: int, *, after: SessionId | None, limit: int
    ) -> tuple[int, SessionId | None]:
        """See ``SessionStore.prolong``."""
        term, clock = self._write_gate.expired.get(expired, ANY_TERM), self._grid.clock.argument()
        found, last = await self._ids(partition, after, limit)
        longer = await self._batcher.call_all(
            [scripts.SESSION_PROLONG(*self._all_keys(each)[:3], clock, each, str(expired), term) for each in found],
            gated=True,
        )
        return sum(longer), last

    async def orphan(self, expired: NodeRef, sessions: Sequence[SessionId]) -> list[Epoch | None]:
        """See ``SessionStore.orphan``."""
        term, clock = self._write_gate.expired.get(expired, ANY_TERM), self._grid.clock.argument()
        epochs = await self._batcher.call_all(
            [scripts.SESSION_ORPHAN(*self._all_keys(each)[:3], clock, each, str(expired), term) for each in sessions],
            gated=True,
        )
        return [Epoch(epoch) if epoch else None for epoch in epochs]

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _ids(
        self, partition: int, after: SessionId | None, limit: int
    ) -> tuple[list[SessionId], SessionId | None]:
        """Read a page of ids of a partition, and the last of them; None for that if there is nothing after it."""
        beginning = "-" if after is None else f"({after}"
        names: list[bytes] = []
        found: list[SessionId] = []
        while not found:
            names = await self._batcher.call(
                ("ZRANGEBYLEX", self._keys.ids[partition], beginning, "+", "LIMIT", 0, limit)
            )
            found = await self._named(partition, self._keys.ids[partition], names)
            if len(found) == len(names):
                break
        return found, found[-1] if len(names) == limit else None

    async def _named(self, partition: int, key: str, names: Sequence[bytes]) -> list[SessionId]:
        """Read ids of sessions out of a sorted set; what is none is taken out of it, as it would be met for ever."""
        sessions: list[SessionId] = []
        foreign: list[bytes] = []
        for name in names:
            try:
                session = SessionId(name.decode())
                if session_partition(session) != partition:
                    raise ValueError("no session of this name is in this partition")
                sessions.append(session)
            except ValueError as error:
                foreign.append(name)
                self._foreign.skipped(key, repr(name[:_SHOWN_BYTES]), error)
        if foreign:
            await self._batcher.call(("ZREM", key, *foreign))
        return sessions

    def _readable(self, session: SessionId, reply: Any) -> SessionRecord | None:
        """Read the hash of a session; None if there is none, or none that can be read."""
        if isinstance(reply, ScriptFailed):
            return None  # of another type, which was told already
        if isinstance(reply, Exception):
            raise fresh(reply)
        try:
            return _read(session, reply)
        except _UNREADABLE as error:
            self._foreign.skipped(self._keys.session(session), "its fields", error)
            return None

    def _names(self, owner: NodeRef, partition: int) -> Command:
        # "!" follows the space that ends the owner's name.
        return ("ZRANGEBYLEX", self._keys.owned[partition], f"[{owner} ", f"({owner}!")

    def _see_to(self, *replies: Any) -> None:
        """Have the grid adopted again if it has lost sessions, or others have adopted it anew.

        Raises:
            GridUnavailable: so it is.
        """
        if b"stale" in replies:
            raise self._grid.stale()

    def _check(self, reply: Any, ownership: Ownership) -> None:
        self._see_to(reply)
        if reply == b"fenced":
            raise _fenced(ownership)
        if reply != b"ok":
            raise SessionGone(ErrorCode(reply[1].decode()))

    def _timed(self) -> tuple[str, str]:
        """The first arguments of scripts that depend on the time and look for the seal of the generation."""
        return (self._grid.clock.argument(), self._grid.seal)

    def _opened(self, session: SessionId) -> str:
        return self._keys.opened[session_partition(session)]

    def _keys_to_change(self, session: SessionId) -> tuple[str, str, str, str]:
        ended = self._keys.ended[session_partition(session)]
        return (self._keys.session(session), ended, self._opened(session), self._grid.seal)

    def _all_keys(self, session: SessionId) -> tuple[str, str, str, str]:
        partition = session_partition(session)
        keys = self._keys
        return (keys.session(session), keys.owned[partition], keys.deadlines[partition], keys.ended[partition])

    def _fields(self, record: SessionRecord) -> tuple[Argument, ...]:
        return (
            *("principal", record.principal, "properties", orjson.dumps(dict(record.properties))),
            *("generation", record.token_generation, "confirmed", record.confirmed, "attempt", record.attempt),
            *("partitions", _join(record.publish_partitions), "term", self._write_gate.term),
            *_credentials(record.roles, record.principal_properties, record.credential_expires, record.credential),
        )


_NO_LIST_CHANGES: Final[tuple[Argument, ...]] = ("", 0, 0)


def _list(selections: Sequence[str]) -> tuple[Argument, ...]:
    """A list of selections as a script takes it."""
    return (len(selections), *selections)


def _list_changes(changes: SessionChanges) -> tuple[Argument, ...]:
    """What is to become of a list of selections, likewise."""
    if changes.selections is not None:
        return ("all", 0, len(changes.selections), *changes.selections)
    some = changes.selection_changes
    return (
        _NO_LIST_CHANGES if some is None else ("some", len(some.removed), len(some.added), *some.removed, *some.added)
    )


def _listed(stored: Mapping[bytes, bytes]) -> tuple[str, ...]:
    """Read a list of selections as ``selections.lua`` describes it, from all fields of its session."""
    written = stored.get(b"selections")
    if written is not None:
        return tuple(orjson.loads(written))  # as a node of the first release wrote it
    entries = [(value, name) for name, value in stored.items() if name[:2] == _ENTRY]
    if len(entries) > 1:
        entries.sort(key=_rank)
    return tuple([f"{sign[:1].decode()}{name[2:].decode()}" for sign, name in entries])


def _rank(entry: tuple[bytes, bytes]) -> int:
    return int(entry[0][1:])


def _id(owner: NodeRef, name: bytes) -> SessionId:
    return SessionId(name.decode().removeprefix(f"{owner} "))


def _identity(record: SessionRecord) -> tuple[Argument, ...]:
    return (record.id, str(record.owner), record.epoch, int(record.connected), repr(float(record.window)))


def _shown(identity: Identity) -> tuple[Argument, ...]:
    return _credentials(identity.roles, identity.properties, identity.expires, identity.credential)


def _credentials(
    roles: frozenset[str], properties: Mapping[str, str], expires: float | None, credential: str | None
) -> tuple[Argument, ...]:
    """Fields and values of what credentials gave; an empty value stands for None or nothing."""
    return (
        *("roles", orjson.dumps(sorted(roles)) if roles else ""),
        *("principal_properties", orjson.dumps(dict(properties)) if properties else ""),
        *("credential_expires", "" if expires is None else repr(float(expires))),
        *("credential", credential or ""),
    )


_ENTRY: Final = b"s:"
"""How the fields of entries of a list of selections begin (``selections.lua``)."""

_NODES: Final = 256
"""Runs of nodes whose names are remembered: many times those that own sessions of a cluster at a time."""


_NO_ROLES: Final[frozenset[str]] = frozenset()

_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError)
"""What reading the fields of a session raises if the gateway did not write them: a field that is missing, is no number,
or is JSON of another form."""

SPARED_PAGES: Final = 10
"""Pages of sessions whose windows are over that are looked through for some that are not spared, and can end. After a
long outage, those of all who were away may be over, and nobody knows of it yet: the others wait then."""

_SHOWN_BYTES: Final = 60
"""Of a name that cannot be read, in a log event."""


def _fields(reply: Sequence[bytes]) -> dict[bytes, bytes]:
    """Read all fields of a hash as Redis answers them."""
    parts = iter(reply)
    return dict(zip(parts, parts, strict=True))


def _read(session: SessionId, reply: Sequence[bytes]) -> SessionRecord | None:
    """Read the hash of a session; None if there is none, or what is left of one that has ended."""
    stored = _fields(reply)
    if not stored or b"ended" in stored:
        return None
    return _record(session, stored, owner=_node_ref(stored[b"owner"]), connected=stored[b"connected"] == b"1")


def _record(session: SessionId, stored: Mapping[bytes, bytes], *, owner: NodeRef, connected: bool) -> SessionRecord:
    # What came after the first release is missing in a session that an older node wrote; empty, it stands for nothing.
    roles, properties, handlers = stored.get(b"roles"), stored.get(b"principal_properties"), stored.get(b"handlers")
    expires, credential = stored.get(b"credential_expires"), stored.get(b"credential")
    partitions = stored[b"partitions"]
    return SessionRecord(
        id=session,
        principal=stored[b"principal"].decode(),
        properties=orjson.loads(stored[b"properties"]),
        selections=_listed(stored),
        window=float(stored[b"window"]),
        epoch=Epoch(int(stored[b"epoch"])),
        owner=owner,
        token_generation=TokenGeneration(int(stored[b"generation"])),
        confirmed=TokenGeneration(int(stored[b"confirmed"])),
        attempt=Attempt(int(stored[b"attempt"])),
        connected=connected,
        publish_partitions=frozenset(split_partitions(partitions))
        if (partitions := stored[b"partitions"])
        else NO_PARTITIONS,
        roles=frozenset(orjson.loads(roles)) if roles else _NO_ROLES,
        principal_properties=orjson.loads(properties) if properties else {},
        credential_expires=float(expires) if expires else None,
        credential=credential.decode() if credential else None,
        handlers=orjson.loads(handlers) if handlers else {},
    )


@lru_cache(_NODES)
def _node_ref(name: bytes) -> NodeRef:
    return NodeRef.parse(name.decode())


def _handlers(record: SessionRecord) -> Argument:
    return orjson.dumps(dict(record.handlers)) if record.handlers else ""


def _fenced(ownership: Ownership) -> Fenced:
    return Fenced(f"{ownership.owner} with epoch {ownership.epoch} does not own session {ownership.session} any more")


def _join(partitions: frozenset[int]) -> str:
    return ",".join(map(str, sorted(partitions)))
