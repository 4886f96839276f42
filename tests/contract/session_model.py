"""A model of ``SessionStore`` to compare implementations with: the words of the port as the simplest code possible.

A *step* is one call. The model keeps one flat dictionary and scans it; there is no index that could be wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from gateway.core.topics.topics import session_partition
from gateway.core.types import Attempt, Epoch, NodeRef, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    Claimed,
    ClaimRefused,
    Ended,
    Fenced,
    Ownership,
    Reclaimed,
    Restored,
    SelectionChanges,
    SessionChanges,
    SessionGone,
    SessionRecord,
    SessionStore,
)
from tests.contract.examples import ids_in_one_partition, new_id
from tests.contract.harness import node

T = TypeVar("T")
Choose: TypeAlias = Callable[[Sequence[T]], T]
"""Picks one of several: ``random.choice``, or a draw of hypothesis."""

EVERYTHING: Final = 1000
"""A limit that no test reaches."""


@dataclass(frozen=True)
class Create:
    """See the port."""

    record: SessionRecord


@dataclass(frozen=True)
class Claim:
    """See the port."""

    session: SessionId
    by: NodeRef
    token_generation: TokenGeneration
    attempt: Attempt


@dataclass(frozen=True)
class Change:
    """See the port."""

    ownership: Ownership
    changes: SessionChanges


@dataclass(frozen=True)
class Reclaim:
    """See the port."""

    held: Ownership
    token_generation: TokenGeneration
    attempt: Attempt


@dataclass(frozen=True)
class Disconnect:
    """See the port."""

    ownership: Ownership


@dataclass(frozen=True)
class End:
    """See the port."""

    ownership: Ownership
    reason: ErrorCode


@dataclass(frozen=True)
class Restore:
    """See the port."""

    record: SessionRecord
    recreate: bool


@dataclass(frozen=True)
class Expire:
    """See the port; the order of what was ended is not compared."""

    partition: int


@dataclass(frozen=True)
class Orphan:
    """See the port; how many were looked at is not compared."""

    expired: NodeRef
    partition: int


Step: TypeAlias = Create | Claim | Reclaim | Change | Disconnect | End | Restore | Expire | Orphan
Outcome: TypeAlias = object
"""What a step came to, comparable: its result, or ``(error, reason)``."""


async def perform(store: SessionStore, step: Step) -> Outcome:  # noqa: C901 - one case per method
    """Perform a step on an implementation."""
    try:
        match step:
            case Create(record):
                await store.create(record)
            case Claim(session, by, token_generation, attempt):
                return await store.claim(session, by=by, token_generation=token_generation, attempt=attempt)
            case Reclaim(held, token_generation, attempt):
                return await store.reclaim(held, token_generation=token_generation, attempt=attempt)
            case Change(ownership, changes):
                await store.change(ownership, changes)
            case Disconnect(ownership):
                await store.disconnect(ownership)
            case End(ownership, reason):
                await store.end(ownership, reason=reason)
            case Restore(record, recreate):
                return await store.restore([record], recreate=recreate)
            case Expire(partition):
                return frozenset(await store.expire(partition, limit=EVERYTHING))
            case Orphan(expired, partition):
                await store.orphan(expired, await store.owned(expired, partition))
    except Fenced:
        return "fenced"
    except SessionGone as gone:
        return ("gone", gone.reason)
    return None


class Model:
    """What a ``SessionStore`` does, by the words of the port.

    Attributes:
        now: the grid's clock; moved by whoever compares.
        sessions: by id.
        ends: when the window of a disconnected session is over.
        previous: who owned a session before its last claim.
        before: who owned it before that one.
        remembered: why a session ended, and until when that is remembered.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.sessions: dict[SessionId, SessionRecord] = {}
        self.ends: dict[SessionId, float] = {}
        self.previous: dict[SessionId, NodeRef] = {}
        self.before: dict[SessionId, NodeRef] = {}
        self.remembered: dict[SessionId, tuple[ErrorCode, float]] = {}

    def perform(self, step: Step) -> Outcome:
        """Perform a step."""
        match step:
            case Create(record):
                return self._create(record)
            case Claim():
                return self._claim(step)
            case Reclaim(held, token_generation, attempt):
                return self._reclaim(held, token_generation, attempt)
            case Change(ownership, changes):
                return self._change(ownership, changes)
            case Disconnect(ownership):
                return self._disconnect(ownership)
            case End(ownership, reason):
                return self._end(ownership, reason)
            case Restore(record, recreate):
                return [self._restore(record, recreate=recreate)]
            case Expire(partition):
                return self._expire(partition)
            case Orphan(expired, partition):
                return self._orphan(expired, partition)

    def _why_gone(self, session: SessionId) -> ErrorCode:
        reason, until = self.remembered.get(session, (ErrorCode.SESSION_UNKNOWN, 0.0))
        return reason if self.now < until else ErrorCode.SESSION_UNKNOWN

    def _may_not(self, ownership: Ownership) -> Outcome:
        held = self.sessions.get(ownership.session)
        if held is None:
            return ("gone", self._why_gone(ownership.session))
        return "fenced" if (held.owner, held.epoch) != (ownership.owner, ownership.epoch) else None

    def _put(self, record: SessionRecord) -> None:
        self.sessions[record.id] = record
        self.ends.pop(record.id, None)
        if not record.connected:
            self.ends[record.id] = self.now + record.window

    def _bury(self, session: SessionId, reason: ErrorCode) -> None:
        self.remembered[session] = (reason, self.now + self.sessions.pop(session).window)
        self.ends.pop(session, None)

    def _create(self, record: SessionRecord) -> Outcome:
        held = self.sessions.get(record.id)
        if held is not None:
            return None if (held.owner, held.epoch) == (record.owner, record.epoch) else "fenced"
        self.remembered.pop(record.id, None)
        self.previous[record.id] = self.before[record.id] = record.owner
        self._put(record)
        return None

    def _claim(self, claim: Claim) -> Outcome:
        held = self.sessions.get(claim.session)
        if held is None:
            return ClaimRefused(self._why_gone(claim.session))
        if self.ends.get(held.id, self.now + 1) <= self.now:
            return ClaimRefused(ErrorCode.SESSION_EXPIRED)
        if claim.token_generation < held.confirmed:
            return ClaimRefused(ErrorCode.TOKEN_SUPERSEDED)
        again = claim.attempt == held.attempt and claim.by == held.owner
        if claim.attempt <= held.attempt and not again:
            return ClaimRefused(ErrorCode.STALE_ATTEMPT)
        if again:
            self._put(replace(held, connected=True))
        else:
            self.before[held.id] = self.previous[held.id]
            self.previous[held.id] = held.owner
            self._put(
                replace(
                    held,
                    owner=claim.by,
                    epoch=Epoch(held.epoch + 1),
                    token_generation=TokenGeneration(max(claim.token_generation, held.token_generation) + 1),
                    confirmed=claim.token_generation,
                    attempt=claim.attempt,
                    connected=True,
                )
            )
        return Claimed(self.sessions[held.id], self.previous[held.id], self.before[held.id])

    def _reclaim(self, held: Ownership, token_generation: TokenGeneration, attempt: Attempt) -> Outcome:
        record = self.sessions.get(held.session)
        is_held = record is not None and (record.owner, record.epoch) == (held.owner, held.epoch)
        result = self._claim(Claim(held.session, held.owner, token_generation, attempt))
        if is_held and isinstance(result, Claimed) and result.record.epoch > held.epoch:
            return Reclaimed(result.record.epoch, result.record.token_generation, result.before)
        return result

    def _change(self, ownership: Ownership, changes: SessionChanges) -> Outcome:
        if (refusal := self._may_not(ownership)) is not None:
            return refusal
        held = self.sessions[ownership.session]
        if changes.properties is not None:
            held = replace(held, properties=changes.properties)
        if changes.selections is not None:
            held = replace(held, selections=changes.selections)
        if changes.selection_changes is not None:
            going = {*changes.selection_changes.removed, *(each[1:] for each in changes.selection_changes.added)}
            left = [each for each in held.selections if each[1:] not in going]
            held = replace(held, selections=(*left, *changes.selection_changes.added))
        if changes.publish_partitions is not None:
            held = replace(held, publish_partitions=changes.publish_partitions)
        if changes.confirmed is not None and changes.confirmed > held.confirmed:
            held = replace(held, confirmed=changes.confirmed)
        self.sessions[held.id] = held
        return None

    def _disconnect(self, ownership: Ownership) -> Outcome:
        if (refusal := self._may_not(ownership)) is not None:
            return refusal
        held = self.sessions[ownership.session]
        if held.connected:
            self._put(replace(held, connected=False))
        return None

    def _end(self, ownership: Ownership, reason: ErrorCode) -> Outcome:
        if ownership.session not in self.sessions:
            return None
        if (refusal := self._may_not(ownership)) is not None:
            return refusal
        self._bury(ownership.session, reason)
        return None

    def _restore(self, record: SessionRecord, *, recreate: bool) -> Restored:
        held = self.sessions.get(record.id)
        if held is None:
            if not recreate or self._why_gone(record.id) is not ErrorCode.SESSION_UNKNOWN:
                return Restored.GONE
        elif (
            held.attempt > record.attempt
            or held.epoch > record.epoch
            or (held.epoch == record.epoch and held.owner != record.owner)
        ):
            return Restored.FENCED
        self.previous[record.id] = self.before[record.id] = record.owner
        self._put(record)
        return Restored.WRITTEN

    def _expire(self, partition: int) -> Outcome:
        due = [
            session for session, end in self.ends.items() if end <= self.now and session_partition(session) == partition
        ]
        found = [self.sessions[session] for session in due]
        ended = frozenset(Ended(each.id, each.owner, each.epoch, each.principal) for each in found)
        for session in due:
            self._bury(session, ErrorCode.SESSION_EXPIRED)
        return ended

    def _orphan(self, expired: NodeRef, partition: int) -> Outcome:
        for held in list(self.sessions.values()):
            if held.owner == expired and held.connected and session_partition(held.id) == partition:
                self._put(replace(held, connected=False))
        return None


class Steps:
    """Makes steps that matter: few sessions and nodes, small numbers, and mostly rights that are in force.

    Args:
        model: as it is when the next step is made.
        windows: to choose from, in seconds.
    """

    def __init__(self, model: Model, windows: Sequence[float]) -> None:
        self._model = model
        self._windows = windows
        run = uuid.uuid4().hex
        self.sessions = [*ids_in_one_partition(2), new_id(), new_id()]
        self.nodes = [node(name, run) for name in ("n1", "n2", "n3")]

    def make(self, choose: Choose[object]) -> Step:
        """Make any step."""
        kinds: list[Callable[[Choose[object]], Step]] = [
            self.create,
            *[self.claim] * 3,
            *[self.reclaim] * 3,
            *[self.change] * 2,
            *[self.disconnect] * 2,
            self.end,
            self.restore,
            *[self.expire] * 2,
            self.orphan,
        ]
        return _chosen(choose, kinds)(choose)

    def create(self, choose: Choose[object]) -> Step:
        """Make a ``create``."""
        return Create(self._record(choose))

    def claim(self, choose: Choose[object]) -> Step:
        """Make a ``claim``, often one that succeeds or repeats."""
        session = _chosen(choose, self.sessions)
        return Claim(session, _chosen(choose, self.nodes), *self._numbers(choose, session))

    def _numbers(self, choose: Choose[object], session: SessionId) -> tuple[TokenGeneration, Attempt]:
        held = self._model.sessions.get(session)
        token_generation, attempt = (held.token_generation, held.attempt) if held else (1, 0)
        return (
            TokenGeneration(max(1, token_generation + _chosen(choose, (0, 0, -1, -2, 1)))),
            Attempt(max(1, attempt + _chosen(choose, (1, 1, 1, 2, 0, 0, -1)))),
        )

    def reclaim(self, choose: Choose[object]) -> Step:
        """Make a ``reclaim``, often by the right that the session has."""
        held = self._ownership(choose)
        return Reclaim(held, *self._numbers(choose, held.session))

    def change(self, choose: Choose[object]) -> Step:
        """Make a ``change``."""
        held = self._model.sessions.get(self.sessions[0])
        whole = _chosen(choose, (None, None, (), ("+a",), ("+a", "-b/**")))
        some = SelectionChanges(
            removed=_chosen(choose, ((), ("a",), ("b/**", "c"))),
            added=_chosen(choose, ((), ("+a",), ("-a",), ("+c", "-b/**"))),
        )
        return Change(
            self._ownership(choose),
            SessionChanges(
                properties=_chosen(choose, (None, {}, {"a": "1"}, {"b": "2", "c": ""})),
                selections=whole,
                selection_changes=None if whole is not None else _chosen(choose, (None, some)),
                publish_partitions=_chosen(choose, (None, frozenset(), frozenset({3}), frozenset({0, 63}))),
                confirmed=_chosen(
                    choose, (None, TokenGeneration(1), held.token_generation if held else TokenGeneration(2))
                ),
            ),
        )

    def disconnect(self, choose: Choose[object]) -> Step:
        """Make a ``disconnect``."""
        return Disconnect(self._ownership(choose))

    def end(self, choose: Choose[object]) -> Step:
        """Make an ``end``."""
        return End(self._ownership(choose), _chosen(choose, (ErrorCode.SESSION_CLOSED, ErrorCode.SESSION_EXPIRED)))

    def restore(self, choose: Choose[object]) -> Step:
        """Make a ``restore``."""
        return Restore(self._record(choose), _chosen(choose, (True, False)))

    def expire(self, choose: Choose[object]) -> Step:
        """Make an ``expire``."""
        return Expire(session_partition(_chosen(choose, self.sessions)))

    def orphan(self, choose: Choose[object]) -> Step:
        """Make an ``orphan``."""
        return Orphan(_chosen(choose, self.nodes), session_partition(_chosen(choose, self.sessions)))

    def _ownership(self, choose: Choose[object]) -> Ownership:
        session = _chosen(choose, self.sessions)
        held = self._model.sessions.get(session)
        if held is None or _chosen(choose, (False, False, False, True)):
            return Ownership(session, _chosen(choose, self.nodes), Epoch(_chosen(choose, (1, 2, 3))))
        return Ownership(session, held.owner, held.epoch)

    def _record(self, choose: Choose[object]) -> SessionRecord:
        session = _chosen(choose, self.sessions)
        held = self._model.sessions.get(session)
        return SessionRecord(
            id=session,
            principal="alice",
            properties=_chosen(choose, ({}, {"team": "fx"})),
            selections=_chosen(choose, ((), ("+prices/**",))),
            window=_chosen(choose, self._windows),
            epoch=Epoch(max(1, (held.epoch if held else 1) + _chosen(choose, (0, 0, 1, -1)))),
            owner=_chosen(choose, (*self.nodes, held.owner if held else self.nodes[0])),
            token_generation=TokenGeneration(_chosen(choose, (1, 2, 3))),
            confirmed=TokenGeneration(1),
            attempt=Attempt(_chosen(choose, (0, 1, 2))),
            connected=_chosen(choose, (True, True, True, False)),
        )


def _chosen(choose: Choose[object], options: Sequence[T]) -> T:
    """Choose with the type of the options: a ``Choose`` cannot be generic by itself."""
    picked: T = choose(options)  # type: ignore[assignment]
    return picked
