"""What is written of a session, by the one rule of fencing (``fencing``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from gateway.app.context import Context
from gateway.app.registry.fenced_presence import FencedPresence
from gateway.app.registry.fencing import NotWritten, Outdated, SessionLost
from gateway.app.registry.recent_ends import End, RecentEnds
from gateway.app.session.session import Session, StoredUnder
from gateway.core.session.server_session import NO_HANDLERS
from gateway.core.topics.selections import Selections
from gateway.core.types import Attempt, Epoch, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.will_packets import WILLS_PROPERTY
from gateway.ports import (
    ClaimRefused,
    ClaimResult,
    Fenced,
    GridUnavailable,
    Identity,
    LastWills,
    Ownership,
    PublishCommand,
    PublishResult,
    Reclaimed,
    Restored,
    SelectionChanges,
    SessionChanges,
    SessionEnd,
    SessionGone,
    SessionRecord,
    WillExecutor,
)

Proof: TypeAlias = tuple[Ownership, TokenGeneration]
"""The generation of a token that a client has shown to hold, and by whose ownership the grid is told."""

RESTORE_BATCH: Final = 100
"""Sessions that are written again, or ended again, in one step: some milliseconds of the grid's time, so that claims
come through between two steps."""

_GONE: Final = frozenset(
    {ErrorCode.SESSION_UNKNOWN, ErrorCode.SESSION_EXPIRED, ErrorCode.SESSION_CLOSED, ErrorCode.REVOKED}
)
"""Refusals of a claim that mean that there is no such session any more, so that none can be held here either."""


class FencedStore(FencedPresence):
    """The store of the sessions: every write by the owner of one goes through here.

    Two writes have no owner and so are not here, but in ``gateway.app.cluster.membership``: ``orphan``, for sessions of
    a node that is dead, and ``expire``, for sessions whose windows are over.

    Args:
        context: of the node.

    Attributes:
        execute_wills: executes what sessions leave; set once there is somebody to judge it.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._me = context.me
        self._ends = RecentEnds(context.clock.monotonic)
        self._restore_rate = context.parameters.restore_rate
        self.execute_wills: WillExecutor | None = None

    # --- Opened and claimed -------------------------------------------------------------------------------------------

    async def create(self, session: Session) -> None:
        """Write a new session.

        Raises:
            SessionLost: its id is another session's.
            GridUnavailable: it may have been written; the client will open another one.
        """
        if self.replicated:
            stored_under = self.writes_under
            try:
                await self._grid.sessions.create(replace(session.record(), connected=True))
            except Fenced:
                raise SessionLost from None
            session.stored_under = stored_under

    async def claim(
        self,
        session: SessionId,
        token_generation: TokenGeneration,
        attempt: Attempt,
        *,
        now: float,
        identity: Identity | None,
    ) -> ClaimResult:
        """Claim a session that this node does not hold; see ``SessionStore.claim``.

        Raises:
            GridUnavailable: the claim may have been executed; the same claim can be asked again.
        """
        return await self._grid.sessions.claim(
            session, by=self._me, token_generation=token_generation, attempt=attempt, now=now, identity=identity
        )

    async def claim_held(
        self,
        session: Session,
        token_generation: TokenGeneration,
        attempt: Attempt,
        *,
        now: float,
        identity: Identity | None,
    ) -> Reclaimed | ClaimResult:
        """Claim a session that this node holds; see ``SessionStore.reclaim``.

        It is restored first, if it has to be; and all of it is read where it is not known to be in the grid as it is
        here. If the grid turns out to hold a newer one, or none, the result of the claim says so; in the latter case
        the copy here is dropped.

        Args:
            session: which.
            token_generation: of the client's token.
            attempt: of the resume.
            now: seconds since 1970.
            identity: whose fresh credentials were shown; None if none were.

        Raises:
            GridUnavailable: the claim may have been executed; the same claim can be asked again.
        """
        if self.must_restore(session):
            await self.restore([session])
        ownership = session.ownership
        result: Reclaimed | ClaimResult
        if identity is None and session.written is not None:
            result = await self._grid.sessions.reclaim(
                ownership, token_generation=token_generation, attempt=attempt, now=now
            )
        else:
            result = await self._grid.sessions.claim(
                session.id,
                by=session.owner,
                token_generation=token_generation,
                attempt=attempt,
                now=now,
                identity=identity,
            )
        if isinstance(result, ClaimRefused) and result.reason in _GONE:
            self.lost(session, ownership, SessionGone(result.reason))
        return result

    async def release(self, session: SessionId, *, is_held: Callable[[], bool]) -> Epoch | None:
        """Start the window of a session that the grid holds for this node, and that this node does not serve (P7).

        Args:
            session: which.
            is_held: tells whether this node serves it by now.

        Returns:
            Its epoch; None if there was nothing to do.

        Raises:
            GridUnavailable: to be tried again.
        """
        record = await self._grid.sessions.find(session)
        # The grid answers in order. If the record tells of a claim or an opening by this node, whoever asked for that
        # has had his answer and has taken the session in by now; a later one has a higher epoch and fences this.
        if record is None or record.owner != self._me or is_held():
            return None
        try:
            await self._grid.sessions.disconnect(Ownership(session, self._me, record.epoch))
        except (Fenced, SessionGone):
            return None
        return record.epoch

    async def accept(self, offered: Ownership) -> tuple[SessionRecord, StoredUnder] | None:
        """Become the owner of a session without a client, which its owner has offered; see ``SessionStore.pass_on``.

        Returns:
            The session, and where it is stored; None if it is not to be had, or the grid cannot tell. Should it be this
            node's nevertheless, its window runs in the grid, and whoever claims it has it.
        """
        stored_under = self.writes_under
        try:
            await self._grid.sessions.pass_on(offered, to=self._me)
            record = await self._grid.sessions.find(offered.session)
        except (Fenced, SessionGone, GridUnavailable):
            return None
        if record is None or record.connected or (record.owner, record.epoch) != (self._me, offered.epoch + 1):
            return None
        return record, stored_under

    # --- Changed ------------------------------------------------------------------------------------------------------

    async def select(self, session: Session, selections: Selections) -> None:
        """Write a list of selections that a reply is going to promise; the caller holds ``session.selecting``.

        What is written are the entries by which it differs from the list that the grid holds. Where that is not known,
        because an answer was lost or the session was written again, the whole list is. The session leaves trees with
        presence before, and enters others behind; see ``fenced_presence``.

        Raises:
            Outdated, SessionLost: see ``fencing``.
            GridUnavailable: it may have been written.
        """
        trees = self.trees(session, selections)
        await self.leave_trees(session, trees)
        places = self.partitions_of(trees)
        noted = None if places <= session.publish_partitions else self._places(session, places)
        if await self._write(session, lambda ownership: self._select(session, ownership, selections, noted)):
            session.written = selections
            if noted is not None:  # a union with nothing is a set of its own, of 216 bytes
                session.publish_partitions |= places
        await self.enter_trees(session, trees)

    async def _select(
        self, session: Session, ownership: Ownership, selections: Selections, places: frozenset[int] | None
    ) -> None:
        # A grid that may have gone back may hold any list.
        written = None if self.must_restore(session) else session.written
        session.written = None  # until there is an answer
        changes = None if written is None else selections.changes_since(written)
        await self._grid.sessions.change(
            ownership,
            SessionChanges(selections=selections.to_wire(), publish_partitions=places)
            if changes is None
            else SessionChanges(
                selection_changes=SelectionChanges(changes.removed, tuple(map(str, changes.added))),
                publish_partitions=places,
            ),
        )

    async def handle(self, session: Session, handlers: dict[str, int]) -> None:
        """Write ahead what a session handles, as ``change`` does."""
        await self.change(session, SessionChanges(handlers=handlers))
        session.handlers = handlers or NO_HANDLERS

    async def confirm(self, proofs: Mapping[Session, Proof]) -> None:
        """Have the grid refuse tokens that are older than those which clients have proved to hold (P8)."""
        try:
            written = await self._grid.sessions.confirm(list(proofs.values()))
        except GridUnavailable:
            for session in proofs:
                session.unsaved = True  # written when the grid is back
            return
        for (session, (_, proved)), done in zip(proofs.items(), written, strict=True):
            if not done:
                await self.attempt(partial(self.change, session, SessionChanges(confirmed=proved)))

    async def disconnect(self, session: Session) -> None:
        """Start the window in the grid; if its client is just coming back, not before it is known whether it does.

        Raises:
            Outdated, SessionLost: see ``fencing``; in the first case the client is back.
            GridUnavailable: to be written when the grid is back.
        """
        # A claim has its epoch before it has its client, and nothing would fence what is written in between.
        async with session.resuming:
            pass
        if session.connected:
            raise Outdated
        ownership = session.ownership
        await self._write(session, self._grid.sessions.disconnect)
        session.on_clock = session.ownership == ownership and not session.connected

    # --- Published ----------------------------------------------------------------------------------------------------

    def publish(self, commands: Sequence[PublishCommand]) -> Awaitable[list[PublishResult]]:
        """Publish in the name of a session that is ready; see ``TopicStore.publish``.

        The answer has a result for each command, and the caller asks about one that is Fenced (``is_outdated``,
        ``lost``). No coroutine stands between the caller and the grid: this is the hottest of all writes.
        """
        return self._grid.topics.publish(commands)

    # --- Of other nodes -----------------------------------------------------------------------------------------------

    def claimed_elsewhere(self, session: Session, epoch: Epoch) -> None:
        """Another node says that it has claimed a session: drop the copy, unless this node has claimed it since."""
        if session.epoch < epoch:
            self._drop(session, Fenced("another node has claimed the session"))

    async def is_taken(self, session: Session) -> bool:
        """Tell whether a session has been claimed or ended elsewhere, and this node has not heard of it yet.

        It never hears of it if the other node has died before it could tell. Nothing is changed by asking.
        """
        if not self.replicated:
            return False
        try:
            record = await self._grid.sessions.find(session.id)
        except GridUnavailable:
            return False  # nobody can have claimed it meanwhile
        if record is None:
            # This grid has held it, so it has ended; another one may just not have it yet.
            return not session.connected and not self.must_restore(session)
        return record.owner != self._me and record.epoch > session.epoch

    async def drop_taken(self, sessions: Sequence[Session]) -> None:
        """Drop those of some sessions that are another node's or have ended, which costs the grid a look at each.

        Raises:
            GridUnavailable: nobody knows.
        """
        asked = [(session, session.ownership) for session in sessions if not self.must_restore(session)]
        answers = await self._grid.sessions.confirm([(ownership, session.confirmed) for session, ownership in asked])
        for (session, ownership), accepted in zip(asked, answers, strict=True):
            if not accepted and not self.is_outdated(session, ownership):
                with suppress(NotWritten):
                    await self.change(session, SessionChanges())

    # --- Ended --------------------------------------------------------------------------------------------------------

    async def end(self, ended: Session | Ownership, reason: ErrorCode, *, removed: bool = False) -> bool:
        """Delete everything of a session.

        One that is held here, or was until now, may be ahead of the grid: its client came back while the grid was
        unreachable, or the grid lost it. It is written first then. Else the grid would take its end for one of an older
        owner, or know nothing of it, and an older copy elsewhere could bring it back. A claim by this very node, for a
        client that came back meanwhile, does not keep it from ending either.

        Args:
            ended: a session; or the ownership by which this node has claimed one that it does not hold.
            reason: why, as for ``SessionStore.end``.
            removed: whether an administrator has asked for it, which counts for its wills.

        Returns:
            False if it is another node's, and only its copy here is dropped.

        Raises:
            GridUnavailable: to be tried again.
        """
        if not self.replicated:
            await self._execute_unheld(ended, SessionEnd(_ownership(ended), reason, removed))
            return True
        if isinstance(ended, Ownership):
            return await self._end(ended, SessionEnd(ended, reason, removed))
        while True:
            ownership = ended.ownership
            restored = Restored.WRITTEN
            if self.must_restore(ended):
                (restored,) = await self.restore([ended])
            if restored is Restored.GONE:
                return True
            if restored is Restored.WRITTEN and await self._end(ended, SessionEnd(ownership, reason, removed)):
                return True
            if ended.ownership == ownership:
                self._lose(ended, Fenced("another node has claimed the session"))
                return False

    async def _end(self, ended: Session | Ownership, end: SessionEnd) -> bool:
        ownership, reason, removed = end
        try:
            await self._grid.sessions.end(ownership, reason=reason, removed=removed, execute=self.execute_wills)
        except Fenced:
            return False
        # As it is by now: a claim may have been answered meanwhile.
        self._ends.put(ended if isinstance(ended, Ownership) else ended.record(), reason, removed=removed)
        return True

    async def _execute_unheld(self, ended: Session | Ownership, end: SessionEnd) -> None:
        """Execute the wills of a session that the grid does not hold: once, as nobody else knows of it."""
        if self.execute_wills is None or not isinstance(ended, Session):
            return
        if wills := ended.properties.pop(WILLS_PROPERTY, None):
            left = LastWills(
                session=ended.id,
                owner=ended.owner,
                epoch=ended.epoch,
                principal=ended.principal,
                roles=ended.roles,
                principal_properties=ended.principal_properties,
                kind=end.kind,
                wills=wills,
            )
            executed: Collection[SessionId] = ()
            try:
                executed = await self.execute_wills([left])
            finally:
                if ended.id not in executed:
                    ended.properties[WILLS_PROPERTY] = wills
            if ended.id not in executed:
                raise GridUnavailable("what the session has left cannot be published now")

    async def end_again(self) -> None:
        """End once more what this node has ended lately: a grid that has lost writes may have lost an end (P7).

        Many together, and at the rate at which sessions are written back.
        """
        ends = list(self._ends)
        for start in range(0, len(ends), RESTORE_BATCH):
            batch = ends[start : start + RESTORE_BATCH]
            await self.until_known(partial(self._end_again, batch))
            await asyncio.sleep(len(batch) / self._restore_rate)

    async def _end_again(self, ends: Sequence[End]) -> None:
        # The grid may hold a session as it was before its last claim, and would take the end for one of an older owner.
        # One that is not written has ended, or somebody's newer claim was not lost.
        records = [end.session for end in ends if isinstance(end.session, SessionRecord)]
        written = iter(await self._grid.sessions.restore(records, recreate=False) if records else ())
        again: list[SessionEnd] = []
        for end in ends:
            ended = end.session
            if isinstance(ended, Ownership):
                again.append(SessionEnd(ended, end.reason, end.removed))
            elif next(written) is Restored.WRITTEN:
                ownership = Ownership(ended.id, ended.owner, ended.epoch)
                again.append(SessionEnd(ownership, end.reason, end.removed))
        if again:
            await self._grid.sessions.end_all(again, execute=self.execute_wills)


def _ownership(ended: Session | Ownership) -> Ownership:
    return ended if isinstance(ended, Ownership) else ended.ownership
