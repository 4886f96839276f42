"""The sessions that an in-memory grid holds: a table with one method per atomic step.

```text
create ──▶ connected ──disconnect, orphan──▶ window runs ──expire──▶ gone, with a tombstone for one window
               ▲ └──────────end───────────────────│──────────────────────▲
               └──────────────claim, restore──────┘
```
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.core.session.stored_size import record_bytes
from gateway.core.topics.topics import SESSION_PARTITIONS, session_partition
from gateway.core.types import Attempt, Epoch, NodeRef, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.will_packets import WILLS_PROPERTY
from gateway.ports import (
    Claimed,
    ClaimRefused,
    ClaimResult,
    Ended,
    Fenced,
    Identity,
    LastWills,
    LeftSizes,
    Ownership,
    Reclaimed,
    Restored,
    SessionChanges,
    SessionEnd,
    SessionGone,
    SessionPage,
    SessionRecord,
)

ENDING_GRACE: Final = 5.0
"""Seconds that whoever marked a session as ended has to finish, as on Redis."""


@dataclass(slots=True)
class _Stored:
    """A session in the table.

    Attributes:
        record: as the port shows it, but for its selections.
        selections: sign by selector, in the order of the list.
        previous: who owned it before the last claim, so that the same claim can be answered again.
        before: who owned it before that one.
        deadline: end of the window by the grid's clock; None while connected.
        ending: set once it is marked as ended, and its wills are being executed.
        executed: they are.
    """

    record: SessionRecord
    selections: dict[str, str]
    previous: NodeRef
    before: NodeRef
    deadline: float | None
    ending: SessionEnd | None = None
    executed: bool = False

    @property
    def has_wills(self) -> bool:
        """Whether there are wills to be executed."""
        return WILLS_PROPERTY in self.record.properties and not self.executed

    def shown(self) -> SessionRecord:
        """Return the record as the port shows it, which nobody else changes."""
        return _copy(replace(self.record, selections=tuple([sign + text for text, sign in self.selections.items()])))


@dataclass(slots=True)
class _Tombstone:
    """What is remembered of an ended session, so that a late claim learns why it is refused.

    Attributes:
        reason: SESSION_CLOSED, SESSION_EXPIRED or REVOKED.
        until: when it is forgotten.
    """

    reason: ErrorCode
    until: float


@dataclass(slots=True)
class _Partition:
    """One session partition.

    Attributes:
        sessions: by id.
        deadlines: of the sessions whose window runs.
        connected: ids of connected sessions by owner, in the order they came.
        tombstones: by id.
        forget: when which tombstone is forgotten, a heap.
    """

    sessions: dict[SessionId, _Stored] = field(default_factory=dict)
    deadlines: dict[SessionId, float] = field(default_factory=dict)
    connected: dict[NodeRef, dict[SessionId, None]] = field(default_factory=dict)
    tombstones: dict[SessionId, _Tombstone] = field(default_factory=dict)
    forget: list[tuple[float, SessionId]] = field(default_factory=list)

    def put(self, stored: _Stored) -> None:
        """Write a session and its places in the indexes."""
        record = stored.record
        self.remove(record.id)
        self.sessions[record.id] = stored
        if stored.deadline is None:
            self.connected.setdefault(record.owner, {})[record.id] = None
        else:
            self.deadlines[record.id] = stored.deadline

    def remove(self, session: SessionId) -> None:
        """Delete a session and its places in the indexes; harmless if it is not there."""
        stored = self.sessions.pop(session, None)
        if stored is None:
            return
        self.deadlines.pop(session, None)
        owner = stored.record.owner
        if (mates := self.connected.get(owner)) is not None:
            mates.pop(session, None)
            if not mates:
                del self.connected[owner]

    def bury(self, session: SessionId, reason: ErrorCode, now: float) -> None:
        """Replace a session by a tombstone that lasts for one window."""
        tombstone = _Tombstone(reason, now + self.sessions[session].record.window)
        self.remove(session)
        self.tombstones[session] = tombstone
        heapq.heappush(self.forget, (tombstone.until, session))

    def sweep(self, now: float) -> None:
        """Forget tombstones whose time is over, so that ended sessions cost nothing in the long run."""
        while self.forget and self.forget[0][0] <= now:
            until, session = heapq.heappop(self.forget)
            tombstone = self.tombstones.get(session)
            # A session created and ended again has a newer tombstone, which has its own place in the heap.
            if tombstone is not None and tombstone.until == until:
                del self.tombstones[session]


class SessionTable:
    """All sessions of the grid. Every method is one atomic step; *now* is the grid's clock in seconds."""

    def __init__(self) -> None:
        self._partitions = [_Partition() for _ in range(SESSION_PARTITIONS)]

    def create(self, record: SessionRecord, now: float) -> None:
        """See ``SessionStore.create``."""
        partition = self._partition_of(record.id, now)
        stored = partition.sessions.get(record.id)
        if stored is None:
            partition.tombstones.pop(record.id, None)
            partition.put(_fresh(record, now))
        elif (stored.record.owner, stored.record.epoch) != (record.owner, record.epoch):
            raise Fenced(f"session {record.id} exists and belongs to {stored.record.owner}")

    def claim(
        self,
        session: SessionId,
        by: NodeRef,
        token_generation: TokenGeneration,
        attempt: Attempt,
        now: float,
        *,
        wall: float,
        identity: Identity | None,
    ) -> ClaimResult:
        """See ``SessionStore.claim``; *wall* is the claimant's clock in seconds since 1970."""
        partition = self._partition_of(session, now)
        reason = self.why_not_claimable(session, by, token_generation, attempt, now)
        if reason is not None:
            return ClaimRefused(reason)
        stored = partition.sessions[session]
        record = stored.record
        if identity is None and record.credential_expires is not None and record.credential_expires <= wall:
            return ClaimRefused(ErrorCode.CREDENTIALS_EXPIRED)
        if identity is not None and identity.principal != record.principal:
            return ClaimRefused(ErrorCode.UNAUTHENTICATED)
        if attempt == record.attempt:
            # Asked again. Meanwhile an expired lease may have put the session on the clock: a claim takes it off.
            again = _Stored(replace(record, connected=True), stored.selections, stored.previous, stored.before, None)
            partition.put(again)
            return Claimed(again.shown(), stored.previous, stored.before)
        claimed = replace(
            record if identity is None else record.shows(identity),
            owner=by,
            epoch=Epoch(record.epoch + 1),
            confirmed=token_generation,
            # A generation above the stored one proves that the grid was rolled back: counting goes on from it.
            token_generation=TokenGeneration(max(token_generation, record.token_generation) + 1),
            attempt=attempt,
            connected=True,
        )
        now_theirs = _Stored(claimed, stored.selections, record.owner, stored.previous, None)
        partition.put(now_theirs)
        return Claimed(now_theirs.shown(), record.owner, stored.previous)

    def reclaim(
        self, held: Ownership, token_generation: TokenGeneration, attempt: Attempt, now: float, *, wall: float
    ) -> Reclaimed | ClaimResult:
        """See ``SessionStore.reclaim``; *wall* is the claimant's clock in seconds since 1970."""
        stored = self._partition_of(held.session, now).sessions.get(held.session)
        was_held = stored is not None and (stored.record.owner, stored.record.epoch) == (held.owner, held.epoch)
        result = self.claim(held.session, held.owner, token_generation, attempt, now, wall=wall, identity=None)
        if was_held and isinstance(result, Claimed) and result.record.epoch != held.epoch:
            return Reclaimed(result.record.epoch, result.record.token_generation, result.before)
        return result

    def why_not_claimable(
        self, session: SessionId, by: NodeRef, token_generation: TokenGeneration, attempt: Attempt, now: float
    ) -> ErrorCode | None:
        """See ``SessionStore.why_not_claimable``."""
        stored = self._partition_of(session, now).sessions.get(session)
        if stored is None:
            return self._why_gone(session, now)
        record = stored.record
        if stored.ending is not None:
            return stored.ending.reason
        if stored.deadline is not None and stored.deadline <= now:
            return ErrorCode.SESSION_EXPIRED
        if token_generation < record.confirmed:
            return ErrorCode.TOKEN_SUPERSEDED
        if attempt < record.attempt or (attempt == record.attempt and by != record.owner):
            return ErrorCode.STALE_ATTEMPT
        return None

    def check(self, ownership: Ownership, now: float) -> None:
        """Expect that an ownership is the session's.

        Raises:
            Fenced, SessionGone: it is not.
        """
        self._owned(ownership, now)

    def change(self, ownership: Ownership, changes: SessionChanges, now: float) -> None:
        """See ``SessionStore.change``."""
        stored = self._owned(ownership, now)
        record = stored.record
        if changes.selections is not None:
            stored.selections = _by_selector(changes.selections)
        elif changes.selection_changes is not None:
            for text in changes.selection_changes.removed:
                stored.selections.pop(text, None)
            for entry in changes.selection_changes.added:
                stored.selections.pop(entry[1:], None)
                stored.selections[entry[1:]] = entry[:1]
        stored.record = replace(
            record if changes.identity is None else record.shows(changes.identity),
            handlers=dict(record.handlers if changes.handlers is None else changes.handlers),
            properties=record.properties if changes.properties is None else dict(changes.properties),
            publish_partitions=(
                record.publish_partitions
                if changes.publish_partitions is None
                else frozenset(changes.publish_partitions)
            ),
            confirmed=record.confirmed if changes.confirmed is None else max(record.confirmed, changes.confirmed),
        )

    def confirm(self, ownership: Ownership, proved: TokenGeneration, now: float) -> bool:
        """See ``SessionStore.confirm``, for one session."""
        try:
            self.change(ownership, SessionChanges(confirmed=proved), now)
        except (Fenced, SessionGone):
            return False
        return True

    def disconnect(self, ownership: Ownership, now: float) -> None:
        """See ``SessionStore.disconnect``; asked again, the window that runs already is not extended."""
        stored = self._owned(ownership, now)
        if stored.deadline is None:
            self._start_window(stored, now)

    def pass_on(self, ownership: Ownership, to: NodeRef, now: float) -> None:
        """See ``SessionStore.pass_on``."""
        partition = self._partition_of(ownership.session, now)
        stored = partition.sessions.get(ownership.session)
        if stored is None:
            raise SessionGone(self._why_gone(ownership.session, now))
        if stored.ending is not None:
            raise SessionGone(stored.ending.reason)
        if stored.deadline is not None and stored.deadline <= now:
            raise SessionGone(ErrorCode.SESSION_EXPIRED)
        record, epoch, is_absent = stored.record, Epoch(ownership.epoch + 1), stored.deadline is not None
        if is_absent and (record.owner, record.epoch, stored.previous) == (to, epoch, ownership.owner):
            return
        if not is_absent or (record.owner, record.epoch) != (ownership.owner, ownership.epoch):
            raise Fenced(f"session {record.id} belongs to {record.owner} in epoch {record.epoch}, or has a client")
        passed = replace(record, owner=to, epoch=epoch)
        partition.put(_Stored(passed, stored.selections, record.owner, stored.previous, stored.deadline))

    def end(self, ownership: Ownership, reason: ErrorCode, now: float) -> None:
        """See ``SessionStore.end``; the receipts are deleted by the caller in the same step."""
        partition = self._partition_of(ownership.session, now)
        stored = partition.sessions.get(ownership.session)
        if stored is not None:
            self._check_owner(stored, ownership)
            partition.bury(ownership.session, reason if stored.ending is None else stored.ending.reason, now)

    def mark(self, end: SessionEnd, now: float) -> LastWills | None:
        """Mark a session as ended if it has wills to be executed, so that nobody can go on with it.

        Raises:
            Fenced: as ``end``.
        """
        partition = self._partition_of(end.ownership.session, now)
        stored = partition.sessions.get(end.ownership.session)
        if stored is None:
            return None
        self._check_owner(stored, end.ownership)
        if not stored.has_wills:
            return None
        ending = end if stored.ending is None else stored.ending
        if stored.ending is None:
            partition.put(replace(stored, ending=ending, deadline=now + ENDING_GRACE))
        record = stored.record
        return LastWills(
            session=record.id,
            owner=record.owner,
            epoch=record.epoch,
            principal=record.principal,
            roles=record.roles,
            principal_properties=record.principal_properties,
            kind=ending.kind,
            wills=record.properties[WILLS_PROPERTY],
        )

    def mark_due(
        self, number: int, limit: int, now: float, *, spares: Callable[[NodeRef, float], bool]
    ) -> list[LastWills]:
        """Mark sessions whose window is over, likewise."""
        marked = []
        for session in self._due(number, limit, now, spares):
            record = self._partitions[number].sessions[session].record
            ownership = Ownership(session, record.owner, record.epoch)
            marked.append(self.mark(SessionEnd(ownership, ErrorCode.SESSION_EXPIRED), now))
        return [each for each in marked if each is not None]

    def wills_executed(self, session: SessionId) -> None:
        """The wills of a session that is marked as ended are executed."""
        stored = self._partitions[session_partition(session)].sessions.get(session)
        if stored is not None:
            stored.executed = True

    def restore(self, record: SessionRecord, now: float, *, recreate: bool) -> Restored:
        """See ``SessionStore.restore``, for one session."""
        partition = self._partition_of(record.id, now)
        stored = partition.sessions.get(record.id)
        if stored is None:
            if record.id in partition.tombstones or not recreate:
                return Restored.GONE
        else:
            held = stored.record
            if stored.ending is not None:
                return Restored.GONE
            another = held.epoch == record.epoch and held.owner != record.owner
            if held.attempt > record.attempt or held.epoch > record.epoch or another:
                return Restored.FENCED
        partition.put(_fresh(record, now))
        return Restored.WRITTEN

    def expire(
        self,
        number: int,
        limit: int,
        now: float,
        executed: Collection[SessionId] | None,
        *,
        spares: Callable[[NodeRef, float], bool],
    ) -> list[Ended]:
        """See ``SessionStore.expire``; the receipts are deleted by the caller in the same step.

        Args:
            number: of the partition.
            limit: most sessions to end.
            now: the grid's clock.
            executed: of those with wills, only these; None for all of them, as wills are not executed.
            spares: tells by owner and deadline of which session the window may not be over.
        """
        partition = self._partitions[number]
        partition.sweep(now)
        due = [*(executed or ()), *self._due(number, limit, now, spares)]
        ended: list[Ended] = []
        for session in dict.fromkeys(due):
            stored = partition.sessions.get(session)
            if stored is None or (executed is not None and stored.has_wills):
                continue
            reason = ErrorCode.SESSION_EXPIRED if stored.ending is None else stored.ending.reason
            if reason is ErrorCode.SESSION_EXPIRED:
                ended.append(Ended(session, stored.record.owner, stored.record.epoch, stored.record.principal))
            partition.bury(session, reason, now)
        return ended

    def _due(self, number: int, limit: int, now: float, spares: Callable[[NodeRef, float], bool]) -> list[SessionId]:
        partition = self._partitions[number]
        due = sorted((at, session) for session, at in partition.deadlines.items() if at <= now)
        found = [
            session
            for at, session in due
            if partition.sessions[session].ending is not None
            or not spares(partition.sessions[session].record.owner, at)
        ]
        return found[:limit]

    def find(self, session: SessionId) -> SessionRecord | None:
        """See ``SessionStore.find``."""
        stored = self._partitions[session_partition(session)].sessions.get(session)
        return None if stored is None or stored.ending is not None else stored.shown()

    def page(self, number: int, after: SessionId | None, limit: int) -> SessionPage:
        """See ``SessionStore.page``."""
        sessions = self._partitions[number].sessions
        found = sorted(session for session in sessions if after is None or session > after)[:limit]
        last = found[-1] if len(found) == limit else None
        return SessionPage([sessions[each].shown() for each in found if sessions[each].ending is None], last)

    def left(self, number: int, besides: Collection[NodeRef], start: int, limit: int) -> LeftSizes:
        """See ``SessionStore.left``."""
        partition = self._partitions[number]
        by_deadline = sorted((deadline, session) for session, deadline in partition.deadlines.items())
        looked_at = [session for _, session in by_deadline[start : start + limit]]
        sizes: dict[str, int] = {}
        for session in looked_at:
            record = partition.sessions[session].shown()
            if record.owner not in besides:
                sizes[record.principal] = sizes.get(record.principal, 0) + record_bytes(
                    properties=record.properties,
                    principal_properties=record.principal_properties,
                    roles=record.roles,
                    entries=len(record.selections),
                    entries_bytes=sum(len(each.encode()) for each in record.selections),
                    publish_partitions=len(record.publish_partitions),
                    handlers=record.handlers,
                )
        return LeftSizes(sizes, start + limit if len(looked_at) == limit else None)

    def owned(self, owner: NodeRef, number: int) -> list[SessionId]:
        """See ``SessionStore.owned``."""
        return list(self._partitions[number].connected.get(owner, {}))

    def owners(self, number: int) -> list[NodeRef]:
        """See ``SessionStore.owners``."""
        return sorted(self._partitions[number].connected)

    def orphan(self, expired: NodeRef, session: SessionId, now: float) -> Epoch | None:
        """See ``SessionStore.orphan``, for one session."""
        stored = self._partition_of(session, now).sessions.get(session)
        if stored is None or stored.record.owner != expired or stored.ending is not None:
            return None
        if stored.deadline is None:
            self._start_window(stored, now)
        return stored.record.epoch

    def prolong(
        self, expired: NodeRef, number: int, after: SessionId | None, limit: int, now: float
    ) -> tuple[int, SessionId | None]:
        """See ``SessionStore.prolong``."""
        partition = self._partitions[number]
        ids = sorted(each for each in partition.sessions if after is None or each > after)[:limit]
        longer = 0
        for session in ids:
            stored = partition.sessions[session]
            deadline = now + stored.record.window
            if stored.record.owner != expired or stored.deadline is None or stored.ending is not None:
                continue
            if deadline > stored.deadline:
                partition.put(replace(stored, deadline=deadline))
                longer += 1
        return longer, ids[-1] if len(ids) == limit else None

    def has_ended(self, session: SessionId, now: float) -> bool:
        """Tell whether a session is remembered as ended."""
        return session in self._partition_of(session, now).tombstones

    def __contains__(self, session: SessionId) -> bool:
        return session in self._partitions[session_partition(session)].sessions

    def inventory(self, now: float) -> set[str]:
        """Name everything that is kept, tombstones included as long as they last."""
        names = set()
        for partition in self._partitions:
            partition.sweep(now)
            names |= {f"session {session}" for session in partition.sessions}
            names |= {f"deadline of {session}" for session in partition.deadlines}
            names |= {f"sessions of {owner}" for owner in partition.connected}
            names |= {f"tombstone of {session}" for session in partition.tombstones}
            names |= {f"end of the tombstone of {session}" for _, session in partition.forget}
        return names

    def _partition_of(self, session: SessionId, now: float) -> _Partition:
        partition = self._partitions[session_partition(session)]
        partition.sweep(now)
        return partition

    def _owned(self, ownership: Ownership, now: float) -> _Stored:
        stored = self._partition_of(ownership.session, now).sessions.get(ownership.session)
        if stored is None:
            raise SessionGone(self._why_gone(ownership.session, now))
        self._check_owner(stored, ownership)
        if stored.ending is not None:
            raise SessionGone(stored.ending.reason)
        return stored

    @staticmethod
    def _check_owner(stored: _Stored, ownership: Ownership) -> None:
        if (stored.record.owner, stored.record.epoch) != (ownership.owner, ownership.epoch):
            raise Fenced(f"session {ownership.session} belongs to {stored.record.owner} in epoch {stored.record.epoch}")

    def _why_gone(self, session: SessionId, now: float) -> ErrorCode:
        tombstone = self._partition_of(session, now).tombstones.get(session)
        return ErrorCode.SESSION_UNKNOWN if tombstone is None else tombstone.reason

    def _start_window(self, stored: _Stored, now: float) -> None:
        record = replace(stored.record, connected=False)
        partition = self._partitions[session_partition(record.id)]
        deadline = now + record.window
        partition.put(_Stored(record, stored.selections, stored.previous, stored.before, deadline))


def _fresh(record: SessionRecord, now: float) -> _Stored:
    """Store a copy, because the caller may go on changing what it passed."""
    deadline = None if record.connected else now + record.window
    entries = _by_selector(record.selections)
    return _Stored(replace(_copy(record), selections=()), entries, record.owner, record.owner, deadline)


def _by_selector(selections: Iterable[str]) -> dict[str, str]:
    return {entry[1:]: entry[:1] for entry in selections}


def _copy(record: SessionRecord) -> SessionRecord:
    return replace(record, properties=dict(record.properties), principal_properties=dict(record.principal_properties))
