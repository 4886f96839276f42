"""The one rule of fencing: when the refusal of a write means that a session is lost (P1, P3, P4, P10).

Every write of a session carries an *ownership*: the session, this node, and the epoch of its claim. The grid refuses a
write whose ownership is not the stored one (``Fenced``), or whose session it does not hold (``SessionGone``). A refusal
alone does not mean that the session is lost for this node. The first line that holds decides:

| When the grid has refused, and here …  | it means                      | and what follows is                        |
|----------------------------------------|-------------------------------|--------------------------------------------|
| the session has another ownership now  | this very node has claimed it | ``Outdated``: begin again                  |
| the session is being ended             | the end got there first       | ``SessionLost``; who ends it tells of it   |
| the session has to be restored         | the grid is behind this node  | it is written again, then the write is     |
| nothing of this, and it is Fenced      | another node has it           | counted, the copy dropped: ``SessionLost`` |
| nothing of this, and it is SessionGone | it has ended                  | the copy dropped: ``SessionLost``          |

A session has to be restored if the grid may not hold it as it is here: a write of it had no answer (``unsaved``), or it
was stored in an earlier generation of the grid, or under a lease of this node that has expired since (``StoredUnder``).
If that is refused in turn, the grid is not behind, and the same lines decide without the third.

The epoch grows with each claim, also with one that is made without the grid. So a client that has come back always
means another ownership, and nobody needs to ask besides whether the client is there.

A write without an answer (``GridUnavailable``) may have been executed. The session is marked as unsaved, and
``GridRecovery`` writes it again when the grid is back.

A writer says what to write (``FencedStore``), and how it takes a failure:

* It awaits the write, if something depends on that: a request is repeated when the grid is back or when it was
  ``Outdated``, and given up with a session that is lost.
* ``attempt``: nobody waits for it, and whatever comes of it has been seen to. The answer tells what has.
* ``until_known``: it is asked again until the grid has answered.

The rule is for writes by an owner. What the cluster does with sessions of nodes that are dead, or whose windows are
over (``orphan``, ``expire``), shows no ownership, and the grid judges it alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias, TypeVar

from gateway.app.context import Context
from gateway.app.session.session import Session, StoredUnder
from gateway.catalogue import metrics as catalogue
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import GatewayError
from gateway.ports import Fenced, GridState, GridUnavailable, Ownership, Restored, SessionGone

T = TypeVar("T")

LOOK_AGAIN: Final = 0.1
"""Seconds between two looks whether the grid is back: short against the time a person notices."""

Refusal: TypeAlias = Fenced | SessionGone
"""How the grid refuses a write."""


class NotWritten(GatewayError):
    """The grid refused a write, and what follows from that has been seen to."""


class Outdated(NotWritten):
    """What was refused is not the session of now: this node has claimed it since, or must restore it. Begin again."""

    def __init__(self) -> None:
        super().__init__("the node has claimed the session anew since the write began, or has to restore it")


class SessionLost(NotWritten):
    """The session is not this node's any more. Its copy here has been dropped, or is by whoever ends it."""

    def __init__(self) -> None:
        super().__init__("the session is another node's, or has ended")


class Fate(Enum):
    """What became of a write that nobody waits for."""

    WRITTEN = "written"
    REFUSED = "refused"
    """It was of no use any more, and whatever follows from that has been done."""
    UNKNOWN = "unknown"
    """The grid has not answered; it will be written again when it is back."""


class WrittenAgain(NamedTuple):
    """What became of sessions that were written again.

    Attributes:
        written: how many the grid holds now as they were here.
        lost: how many were another node's, or had ended, and were dropped here.
    """

    written: int
    lost: int


class Fencing:
    """Takes steps by the rule, if sessions are replicated at all.

    Args:
        context: of the node.

    Attributes:
        replicated: whether sessions are written to the grid; if not, every write succeeds and does nothing.
    """

    def __init__(self, context: Context) -> None:
        self._grid = context.grid
        self._metrics = context.metrics
        self._expired_leases = 0
        self._back: asyncio.Future[None] | None = None
        """Done by the next look that finds the grid available. Whoever waits for that shares one timer, because at the
        end of an outage each of ten thousand sessions may have a request that waits."""
        self._waiting = 0
        self._drop: Callable[[Session, Refusal], None] = lambda _session, _refusal: None
        self.replicated = context.parameters.replicated

    def drop_by(self, drop: Callable[[Session, Refusal], None]) -> None:
        """Have *drop* drop the copies of lost sessions, given what the grid said; one may be dropped already."""
        self._drop = drop

    # --- The grid, as it is now ---------------------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether promises that need the grid can be made now."""
        return self._grid.state is GridState.UP

    async def until_available(self) -> None:
        """Wait until the grid is back, but at least one look: a step that failed must not be repeated at full speed."""
        if self._back is None:
            self._back = asyncio.get_running_loop().create_future()
            self._look_later()
        self._waiting += 1
        try:
            await asyncio.shield(self._back)
        finally:
            self._waiting -= 1

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_AGAIN, self._look)

    def _look(self) -> None:
        back = self._back
        if back is not None and (not self._waiting or self.available):
            self._back = None
            back.set_result(None)
        else:
            self._look_later()

    async def until_known(self, step: Callable[[], Awaitable[T]]) -> T:
        """Take a step again and again until the grid has answered; it must be one that can be asked again."""
        while True:
            try:
                return await step()
            except GridUnavailable:
                await self.until_available()

    async def until_taken(self, is_wanted: Callable[[], bool], step: Callable[[], Awaitable[T]]) -> T | None:
        """Take a step of a session that nobody waits for, again and again until it is taken.

        Args:
            is_wanted: asked before each attempt.
            step: may raise what ``fencing`` raises; it must be one that can be asked again.

        Returns:
            What came of it; None if it is not wanted any more, or the session is lost.
        """
        while is_wanted():
            try:
                return await step()
            except GridUnavailable:
                await self.until_available()
            except Outdated:
                continue
            except SessionLost:
                break
        return None

    async def attempt(self, write: Callable[[], Awaitable[object]]) -> Fate:
        """Have something written that nobody waits for."""
        try:
            await write()
        except GridUnavailable:
            return Fate.UNKNOWN
        except NotWritten:
            return Fate.REFUSED
        return Fate.WRITTEN

    def lease_expired(self) -> None:
        """Note that this node's lease has expired: every session may be another node's, or on the clock (P3, P7).

        So may what has been written since then and under no other lease: see ``NodeLease``.
        """
        self._expired_leases += 1

    @property
    def writes_under(self) -> StoredUnder:
        """What a session is stored under that is written from now on; to be read before the grid is asked."""
        return StoredUnder(self._grid.generation, self._expired_leases)

    # --- The rule -----------------------------------------------------------------------------------------------------

    def must_restore(self, session: Session) -> bool:
        """Tell whether the grid may not hold the session as it is here."""
        if not self.replicated:
            return False
        return (
            session.unsaved
            or session.stored_generation < self._grid.generation
            or session.expired_leases < self._expired_leases
        )

    def is_outdated(self, session: Session, ownership: Ownership) -> bool:
        """Tell whether a refusal of what was written by *ownership* says nothing about the session of now."""
        return session.ownership != ownership or self._is_behind(session)

    def lost(self, session: Session, ownership: Ownership, refusal: Refusal) -> NotWritten:
        """Judge a refusal that does not come from a grid that is behind; drops the copy here, if that follows.

        Returns:
            What to raise.
        """
        if session.ownership != ownership:
            return Outdated()
        if not session.ending:
            self._lose(session, refusal)
        return SessionLost()

    def _is_behind(self, session: Session) -> bool:
        return not session.ending and self.must_restore(session)

    def _lose(self, session: Session, refusal: Refusal) -> None:
        if isinstance(refusal, Fenced):
            self._metrics.add(catalogue.FENCED_WRITES)
        self._drop(session, refusal)

    async def _write(self, session: Session, step: Callable[[Ownership], Awaitable[object]]) -> bool:
        """Take a step by the rule.

        Returns:
            Whether the grid holds now what was written; if not, the session was written again meanwhile.

        Raises:
            Outdated, SessionLost: as the module says.
            GridUnavailable: it may have been written.
        """
        if not self.replicated:
            return True
        ownership, restores = session.ownership, session.restores
        try:
            while True:
                try:
                    await step(ownership)
                    break
                except (Fenced, SessionGone) as refusal:
                    if session.ownership != ownership or not self._is_behind(session):
                        raise self.lost(session, ownership, refusal) from None
                await self._restore_one(session)
                restores = session.restores
        except GridUnavailable:
            session.unsaved = True
            raise
        except asyncio.CancelledError:
            session.written = None  # whoever is cancelled does not learn whether it was written
            raise
        if session.restores != restores:
            # Written again meanwhile, as it was before this step, and perhaps behind it.
            session.unsaved = True
            return False
        return True

    async def _restore_one(self, session: Session) -> None:
        """Write a session again; the rule decides if that is refused."""
        ownership = session.ownership
        (result,) = await self.restore([session])
        if result is not Restored.WRITTEN:
            raise self.lost(session, ownership, _refusal(result))

    # --- Restored -----------------------------------------------------------------------------------------------------

    async def write_again(self, sessions: Sequence[Session]) -> WrittenAgain:
        """Write sessions again as they are here, and drop those that turn out to be lost.

        Raises:
            GridUnavailable: to be tried again.
        """
        ownerships = [session.ownership for session in sessions]
        results = await self.restore(sessions)
        lost = 0
        for session, ownership, result in zip(sessions, ownerships, results, strict=True):
            if result is not Restored.WRITTEN and not session.dropped:
                self.lost(session, ownership, _refusal(result))
                lost += session.dropped
        return WrittenAgain(results.count(Restored.WRITTEN), lost)

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
        may_be_lost = [each.stored_generation < stored_under.grid_generation for each in sessions]
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
                        if not session.connected and session.epoch == record.epoch:
                            # Who resumes it just now may be refused yet: the grid does not know that it is away.
                            session.on_clock = not record.connected
                        if recreate and session.present is not None:
                            # Its trees may have lost it, too; ``PresenceKeeper`` sees to that.
                            session.present = dict.fromkeys(session.present, b"")
                        # What has changed while the grid was asked is not what was written.
                        session.unsaved = session.unsaved and session.record() != record
        return results


def _refusal(result: Restored) -> Refusal:
    """Tell what it means that a session which was written again was not taken."""
    if result is Restored.FENCED:
        return Fenced("the grid holds a newer owner of the session")
    return SessionGone(ErrorCode.SESSION_UNKNOWN)
