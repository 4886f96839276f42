"""Sessions in the grid. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from gateway.core.types import Attempt, Epoch, NodeRef, SessionId, TokenGeneration
from gateway.core.wire.codes import ErrorCode
from gateway.ports.identity import Identity
from gateway.ports.session_records import (
    ALL_SAVED,
    ClaimResult,
    Ended,
    LeftSizes,
    Ownership,
    Reclaimed,
    Restored,
    SavedUntil,
    SessionChanges,
    SessionEnd,
    SessionPage,
    SessionRecord,
    WillExecutor,
)


class SessionStore(Protocol):
    """Sessions in the grid. Each method is one atomic step per session.

    Order: steps that one node starts for one session happen in the order in which they were started. ``create`` and
    ``claim`` may be passed by later steps, as they let those of established sessions go first: whoever builds on one of
    them waits for its answer.

    A grid that lost data under its open connections, as by FLUSHALL, says nothing of sessions that it does not hold,
    and takes none in, before it is adopted as what it is: such a step raises ``GridUnavailable``, and the grid comes
    back with the next generation. So what is reported as gone has ended, or was lost before the generation in force.
    """

    async def create(self, record: SessionRecord) -> None:
        """Write a new session. Creating the same id again by the same owner and epoch has no further effect.

        Raises:
            Fenced: a session with this id exists and has another owner or epoch.
            GridUnavailable: see the module.
        """

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
        """Make *by* the owner, at once and whoever owned it (no waiting for failure detection).

        Refused as TOKEN_SUPERSEDED if *token_generation* is below ``confirmed``; as STALE_ATTEMPT if *attempt* is not
        above the stored one, unless it equals it and the owner is *by* already (the same claim asked again, which
        answers as it did then); as SESSION_EXPIRED if the window ended, though the reaper was not there yet. A
        generation above the stored one is proof that the grid was rolled back; counting goes on from it.

        Credentials are looked at in the same step, of a claim that is asked again too: who asks need not be who asked.
        Without *identity*, it is refused as CREDENTIALS_EXPIRED if those of the session ended at *now* (seconds since
        1970, by the claimant's clock) or before. With it, it is refused as UNAUTHENTICATED if the principal is another
        one; else its roles, properties, expiry and credential take the place of the stored ones, once for an attempt.

        Raises:
            GridUnavailable: see the module.
        """

    async def reclaim(
        self, held: Ownership, *, token_generation: TokenGeneration, attempt: Attempt, now: float = 0.0
    ) -> Reclaimed | ClaimResult:
        """Claim a session for the node that holds it, as ``claim`` does.

        Nearly every client that comes back is one of whose session nothing can have changed in the grid, as nobody but
        its owner changes it. Then only what the claim changes is told.

        Args:
            held: by which right the node holds it, which must know what came of all that it wrote by that right.
            token_generation: as for ``claim``.
            attempt: likewise.
            now: likewise.

        Returns:
            ``Reclaimed`` if it was the session's by that right until now; else what ``claim`` would.

        Raises:
            GridUnavailable: see the module.
        """

    async def why_not_claimable(
        self, session: SessionId, *, by: NodeRef, token_generation: TokenGeneration, attempt: Attempt
    ) -> ErrorCode | None:
        """Tell why ``claim`` would refuse now, whatever credentials were shown with it; None if it would not.

        Changes nothing, and promises nothing: whoever is told None has to claim all the same. The arguments are those
        of ``claim``. To be asked before something slow is done that a refusal would make useless.

        Raises:
            GridUnavailable: see the module.
        """

    async def change(self, ownership: Ownership, changes: SessionChanges) -> None:
        """Change parts of a session.

        Raises:
            Fenced: the stored owner or epoch differs from *ownership*.
            SessionGone: there is no such session.
            GridUnavailable: see the module.
        """

    async def confirm(self, proofs: Sequence[tuple[Ownership, TokenGeneration]]) -> list[bool]:
        """Refuse tokens that are older than those which clients have proved to hold (P8), for many sessions together.

        Args:
            proofs: of each session by which right it is written, and the generation that is proved.

        Returns:
            For each whether it was written; if not, ``change`` tells why.

        Raises:
            GridUnavailable: see the module.
        """

    async def disconnect(self, ownership: Ownership) -> None:
        """Start the window: not connected, deadline = now by the grid's clock + window.

        Raises:
            Fenced, SessionGone, GridUnavailable: as for ``change``.
        """

    async def pass_on(self, ownership: Ownership, *, to: NodeRef) -> None:
        """Make another node the owner of a session that has no client, while its window runs on (P12).

        The epoch rises by one; tokens and attempts stay as they are. Asking the same again has no further effect.

        Args:
            ownership: of the node that gives it up; its window has been started (``disconnect``).
            to: the next owner, who asks.

        Raises:
            Fenced: the stored owner or epoch differs from *ownership*, or it has a client.
            SessionGone, GridUnavailable: as for ``change``.
        """

    async def end(
        self,
        ownership: Ownership,
        *,
        reason: ErrorCode,
        removed: bool = False,
        execute: WillExecutor | None = None,
    ) -> None:
        """End a session and delete everything that belongs to it, its publish receipts included (P7).

        If it has left wills, *execute* is called with them when it is marked as ended, and nobody can go on with it any
        more, and before anything of it is deleted. If that fails, or the grid refuses a step of it, or this node dies,
        the session stays marked, and ``expire`` finishes it some seconds later, and executes its wills; so they are not
        forgotten, and whoever executes them sees to it that each is published once. Without *execute* they are not
        executed.

        Args:
            ownership: by which it is ended.
            reason: SESSION_CLOSED, SESSION_EXPIRED or REVOKED; later claims are refused with it for one window.
            removed: whether an administrator has asked for it, which counts for its wills.
            execute: executes wills.

        Raises:
            Fenced, GridUnavailable: as for ``change``. A session that is gone already is no error.
        """

    async def end_all(self, ends: Sequence[SessionEnd], *, execute: WillExecutor | None = None) -> list[bool]:
        """End many sessions together, each as ``end`` does; in the same few round trips as one.

        One of which the grid refuses a step, such as its wills, keeps none of the others from their end. It stays
        marked, which counts as ended here: ``expire`` finishes it.

        Args:
            ends: which, and why.
            execute: as of ``end``.

        Returns:
            For each whether it has ended; False where ``end`` would raise Fenced.

        Raises:
            GridUnavailable: some may have ended; asking again does no harm.
        """

    async def restore(self, records: Sequence[SessionRecord], *, recreate: bool) -> list[Restored]:
        """Write sessions that this node serves into a grid that may have lost or suspended them; one result per record.

        FENCED if the grid holds the session with a later attempt or a higher epoch, or with the same epoch and another
        owner: then the grid is right. GONE if the grid remembers that it was closed or expired, or does not hold it and
        *recreate* is False. Else the record is written over what is there: off the clock if it is connected, its window
        started if it is not.

        Args:
            records: what the sessions are.
            recreate: write sessions that the grid does not hold; only right after the grid lost writes, or a session
                that has ended meanwhile would rise again.

        Raises:
            GridUnavailable: some records may have been written; asking again does no harm.
        """

    async def expire(
        self,
        partition: int,
        *,
        limit: int,
        execute: WillExecutor | None = None,
        saved: SavedUntil = ALL_SAVED,
        patience: float = 0.0,
    ) -> list[Ended]:
        """End sessions of one session partition whose window is over, re-checked in the atomic step.

        Any number of nodes may call this at the same time: each ended session is in exactly one answer. One of which
        the grid refuses a step, such as its wills, waits alone: the others end.

        Args:
            partition: which of the session partitions.
            limit: most sessions to end in this call.
            execute: as of ``end``; also for sessions that another node has marked as ended and not finished.
            saved: sessions are spared whose window may have begun anew since then (``SavedUntil.spares``). What was
                true some time ago does no harm: it spares more.
            patience: seconds for which they are, from the end of the window or of the last outage, whichever is later.

        Raises:
            GridUnavailable: see the module.
        """

    async def find(self, session: SessionId) -> SessionRecord | None:
        """Read a session, for tests and administrators; None if there is none.

        Raises:
            GridUnavailable: see the module.
        """

    async def page(self, partition: int, *, after: SessionId | None, limit: int) -> SessionPage:
        """Read sessions of one session partition, in the order of their ids.

        A session that exists from the first page to the last is read exactly once; one that is opened, or ends,
        meanwhile may be read or not.

        Args:
            partition: which of the session partitions.
            after: the ``last`` of the page before; None for the first page.
            limit: most sessions to look at, at least 1.

        Raises:
            GridUnavailable: see the module.
        """

    async def left(self, partition: int, *, besides: Collection[NodeRef], start: int, limit: int) -> LeftSizes:
        """Tell what the disconnected sessions of one session partition take, but for those of some nodes.

        Sessions that come or go between two pages may be counted twice or not at all.

        Args:
            partition: which of the session partitions.
            besides: the nodes that count their own.
            start: the ``next`` of the page before; 0 for the first page.
            limit: most sessions to look at, at least 1.

        Raises:
            GridUnavailable: see the module.
        """

    async def owned(self, owner: NodeRef, partition: int) -> Sequence[SessionId]:
        """List the connected sessions of one node in one session partition, as the grid knows them.

        Args:
            owner: whose.
            partition: which of the session partitions.

        Raises:
            GridUnavailable: see the module.
        """

    async def owners(self, partition: int) -> Sequence[NodeRef]:
        """List the nodes that have connected sessions in one session partition, as the grid knows them.

        Args:
            partition: which of the session partitions.

        Raises:
            GridUnavailable: see the module.
        """

    async def prolong(
        self, expired: NodeRef, partition: int, *, after: SessionId | None, limit: int
    ) -> tuple[int, SessionId | None]:
        """Begin the windows of disconnected sessions of an expired node anew: they may have left later than is known.

        Only sessions that *expired* still owns are touched, as by ``orphan``, and no window becomes shorter. A session
        that is disconnected from the first page to the last is met once.

        Args:
            expired: the node that is gone, which the caller takes over.
            partition: which of the session partitions.
            after: where the page before has ended; None for the first page.
            limit: most sessions to look at, at least 1.

        Returns:
            How many windows have become longer, and the last id that was looked at; None for that if there is nothing
            after this page. Asked again because an answer was lost, it may make them longer by what has passed since.

        Raises:
            GridUnavailable: see the module.
        """

    async def orphan(self, expired: NodeRef, sessions: Sequence[SessionId]) -> list[Epoch | None]:
        """Put connected sessions of an expired node on the clock.

        Only sessions that *expired* still owns are touched: one claimed meanwhile is left alone, as are all of them if
        the node has come back.

        Args:
            expired: the node that is gone, which the caller takes over.
            sessions: of it, as ``owned`` has listed them.

        Returns:
            For each the epoch of the expired node's claim; None if it was left alone. Asked again for the same sessions
            because an answer was lost, it answers the same, and no window becomes longer.

        Raises:
            GridUnavailable: see the module.
        """
