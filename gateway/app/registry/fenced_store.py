"""What of a session is written to the grid, and when it has to be written again (P1, P3, P4, P10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from gateway.app.context import Context
from gateway.app.registry.recent_ends import End, RecentEnds
from gateway.app.session.session import Session, StoredUnder
from gateway.catalogue import metrics as catalogue
from gateway.core.topics.selections import Selections
from gateway.core.types import Attempt, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports import (
    ClaimResult,
    Fenced,
    GridState,
    GridUnavailable,
    Identity,
    Ownership,
    Restored,
    SelectionChanges,
    SessionChanges,
    SessionGone,
    SessionRecord,
)

T = TypeVar("T")

Proof: TypeAlias = tuple[Ownership, TokenGeneration]
"""The generation of a token that a client has shown to hold, and the right by which the grid is told."""

LOOK_AGAIN: Final = 0.1
"""Seconds between two looks whether the grid is back: short against the time a person notices."""

RESTORE_BATCH: Final = 100
"""Sessions that are written again, or ended again, in one step: some milliseconds of the grid's time, so that claims
come through between two steps."""


class FencedStore:
    """Writes sessions to the grid, if sessions are replicated at all.

    A grid that lost writes may hold an older copy of a session, or none, and refuse a write for that reason alone. So a
    refusal counts only if the session is known to have been stored since: else it is written again first.

    Args:
        context: of the node.

    Attributes:
        replicated: whether sessions are written to the grid; if not, every write succeeds and does nothing.
    """

    def __init__(self, context: Context) -> None:
        self._grid = context.grid
        self._metrics = context.metrics
        self._lapses = 0
        self._ends = RecentEnds(context.clock.monotonic)
        self._restore_rate = context.policy.restore_rate
        self.replicated = context.policy.replicated

    @property
    def available(self) -> bool:
        """Whether promises that need the grid can be made now."""
        return self._grid.state is GridState.UP

    async def until_available(self) -> None:
        """Wait until the grid is back, but at least one look: a step that failed must not be repeated at full speed."""
        while True:
            await asyncio.sleep(LOOK_AGAIN)
            if self.available:
                return

    def must_restore(self, session: Session) -> bool:
        """Tell whether the grid may not hold the session as it is here."""
        return self.replicated and (session.unsaved or self._is_outdated(session.stored_under))

    def lease_lapsed(self) -> None:
        """Note that this node's lease has lapsed: every session may be another node's, or on the clock (P3, P7)."""
        self._lapses += 1

    @property
    def writes_under(self) -> StoredUnder:
        """What a session is stored under that is written from now on; to be read before the grid is asked."""
        return StoredUnder(self._grid.generation, self._lapses)

    def _is_outdated(self, stored_under: StoredUnder) -> bool:
        return stored_under.grid_generation < self._grid.generation or stored_under.lapsed_leases < self._lapses

    async def create(self, session: Session) -> None:
        """Write a new session.

        Raises:
            GridUnavailable: it may have been written; the client will open another one.
        """
        if self.replicated:
            stored_under = self.writes_under
            await self._grid.sessions.create(replace(session.record(), connected=True))
            session.stored_under = stored_under

    async def claim(
        self,
        session: Session,
        token_generation: TokenGeneration,
        attempt: Attempt,
        *,
        now: float,
        identity: Identity | None,
    ) -> ClaimResult:
        """Claim a session that this node holds already; see ``SessionStore.claim``.

        If the grid turns out to hold a newer one, or none, the result of the claim says so.

        Raises:
            GridUnavailable: the claim may have been executed; the same claim can be asked again.
        """
        if self.must_restore(session):
            await self.restore([session])
        return await self._grid.sessions.claim(
            session.id, by=session.owner, token_generation=token_generation, attempt=attempt, now=now, identity=identity
        )

    async def verify(self, session: Session) -> None:
        """Make sure that the session is this node's, if that is not certain, before anything is written in its name.

        Raises:
            Fenced, SessionGone: the session is not this node's any more.
            GridUnavailable: nobody knows.
        """
        if self.must_restore(session):
            await self._restore_one(session)

    async def change(self, session: Session, changes: SessionChanges) -> None:
        """Write a change that a reply is going to promise.

        Raises:
            Fenced, SessionGone: the session is not this node's any more.
            GridUnavailable: it may have been written.
        """
        await self._write(session, lambda ownership: self._grid.sessions.change(ownership, changes))

    async def select(self, session: Session, selections: Selections) -> None:
        """Write a list of selections that a reply is going to promise; the caller holds ``session.selecting``.

        What is written are the entries by which it differs from the list that the grid holds. Where that is not known,
        because an answer was lost or the session was written again, the whole list is.

        Raises:
            Fenced, SessionGone: the session is not this node's any more.
            GridUnavailable: it may have been written.
        """
        if await self._write(session, lambda ownership: self._select(session, ownership, selections)):
            session.written = selections

    async def _select(self, session: Session, ownership: Ownership, selections: Selections) -> None:
        # A grid that may have gone back may hold any list.
        written = None if self.must_restore(session) else session.written
        session.written = None  # until there is an answer
        changes = None if written is None else selections.changes_since(written)
        await self._grid.sessions.change(
            ownership,
            SessionChanges(selections=selections.to_wire())
            if changes is None
            else SessionChanges(selection_changes=SelectionChanges(changes.removed, tuple(map(str, changes.added)))),
        )

    async def confirm(self, proofs: Mapping[Session, Proof]) -> list[Session]:
        """Have the grid refuse tokens that are older than those which clients have proved to hold (P8).

        Returns:
            Sessions for which that was refused: ``change`` tells why.
        """
        try:
            written = await self._grid.sessions.confirm(list(proofs.values()))
        except GridUnavailable:
            for session in proofs:
                session.unsaved = True  # written when the grid is back
            return []
        return [session for session, done in zip(proofs, written, strict=True) if not done]

    async def refused(self, sessions: Sequence[Session]) -> list[Session]:
        """Tell whose writes the grid would refuse now, which costs it a look at each and changes nothing.

        Returns:
            Those of *sessions* that are another node's or have ended, unless they have to be written again anyway.

        Raises:
            GridUnavailable: nobody knows.
        """
        asked = [(session, session.ownership) for session in sessions if not self.must_restore(session)]
        answers = await self._grid.sessions.confirm([(ownership, session.confirmed) for session, ownership in asked])
        return [
            session
            for (session, ownership), accepted in zip(asked, answers, strict=True)
            if not accepted and session.ownership == ownership and not self.must_restore(session)
        ]

    async def disconnect(self, session: Session) -> None:
        """Start the window in the grid.

        Raises:
            Fenced, SessionGone: the session is not this node's any more.
            GridUnavailable: to be written when the grid is back.
        """
        await self._write(session, self._grid.sessions.disconnect)

    async def end(self, ended: Session | Ownership, reason: ErrorCode) -> None:
        """Delete everything of a session.

        One that is held here, or was until now, may be ahead of the grid: its client came back while the grid was away,
        or the grid lost it. It is written first then. Else the grid would take its end for one of an older owner, or
        know nothing of it, and an older copy elsewhere could bring it back. A claim by this very node, for a client
        that came back meanwhile, does not keep it from ending either.

        Args:
            ended: a session; or the right by which this node has claimed one that it does not hold.
            reason: why, as for ``SessionStore.end``.

        Raises:
            Fenced: another node has it.
            GridUnavailable: to be tried again.
        """
        if not self.replicated:
            return
        if isinstance(ended, Ownership):
            await self._grid.sessions.end(ended, reason=reason)
            self._ends.put(ended, reason)
            return
        while True:
            ownership = ended.ownership
            try:
                if self.must_restore(ended):
                    await self._restore_one(ended)
                await self._grid.sessions.end(ownership, reason=reason)
            except SessionGone:
                return
            except Fenced:
                if ended.ownership == ownership:
                    self._metrics.add(catalogue.FENCED_WRITES)
                    raise
            else:
                self._ends.put(ended.record(), reason)
                return

    async def end_again(self) -> None:
        """End once more what this node has ended lately: a grid that has lost writes may have lost an end (P7).

        Many together, and at the rate at which sessions are written back.
        """
        ends = list(self._ends)
        for start in range(0, len(ends), RESTORE_BATCH):
            batch = ends[start : start + RESTORE_BATCH]
            while True:
                try:
                    await self._end_again(batch)
                except GridUnavailable:
                    await self.until_available()
                    continue
                break
            await asyncio.sleep(len(batch) / self._restore_rate)

    async def _end_again(self, ends: Sequence[End]) -> None:
        # The grid may hold a session as it was before its last claim, and would take the end for one of an older owner.
        # One that is not written has ended, or somebody's newer claim was not lost.
        records = [end.session for end in ends if isinstance(end.session, SessionRecord)]
        written = iter(await self._grid.sessions.restore(records, recreate=False) if records else ())
        again: list[tuple[Ownership, ErrorCode]] = []
        for end in ends:
            ended = end.session
            if isinstance(ended, Ownership):
                again.append((ended, end.reason))
            elif next(written) is Restored.WRITTEN:
                again.append((Ownership(ended.id, ended.owner, ended.epoch), end.reason))
        if again:
            await self._grid.sessions.end_all(again)

    async def restore(self, sessions: Sequence[Session]) -> list[Restored]:
        """Write sessions again as they are here.

        Returns:
            One result per session; what to do with those that are not WRITTEN is the caller's matter.

        Raises:
            GridUnavailable: to be tried again.
        """
        stored_under = self.writes_under
        results: list[Restored] = [Restored.WRITTEN] * len(sessions)
        # Only what a loss of writes can explain may be created again; anything else has ended for a reason.
        may_be_lost = [each.stored_under.grid_generation < stored_under.grid_generation for each in sessions]
        for recreate in (True, False):
            chosen = [index for index, may_be in enumerate(may_be_lost) if may_be is recreate]
            if chosen:
                records = [sessions[index].record() for index in chosen]
                for index in chosen:
                    sessions[index].restores += 1
                    sessions[index].written = None  # what is being written beside it may come before it or after
                written = await self._grid.sessions.restore(records, recreate=recreate)
                for index, record, result in zip(chosen, records, written, strict=True):
                    results[index] = result
                    session = sessions[index]
                    if result is Restored.WRITTEN:
                        session.stored_under = stored_under
                        # What has changed while the grid was asked is not what was written.
                        session.unsaved = session.unsaved and session.record() != record
        return results

    async def _write(self, session: Session, step: Callable[[Ownership], Awaitable[T]]) -> bool:
        """Take a step, and restore the session first if the grid has lost it.

        Returns:
            Whether the grid holds now what was written; if not, the session was written again meanwhile.
        """
        if not self.replicated:
            return True
        ownership = session.ownership
        restores = session.restores
        try:
            try:
                await step(ownership)
            except (Fenced, SessionGone):
                if not self.must_restore(session):
                    raise
                await self._restore_one(session)
                restores = session.restores
                await step(ownership)
            if session.restores != restores:
                # Written again meanwhile, as it was before this step, and perhaps behind it.
                session.unsaved = True
                return False
        except GridUnavailable:
            session.unsaved = True
            raise
        except Fenced:
            self._metrics.add(catalogue.FENCED_WRITES)
            raise
        return True

    async def _restore_one(self, session: Session) -> None:
        (result,) = await self.restore([session])
        if result is Restored.FENCED:
            raise Fenced("the grid holds a newer owner of the session")
        if result is Restored.GONE:
            raise SessionGone(ErrorCode.SESSION_UNKNOWN)
