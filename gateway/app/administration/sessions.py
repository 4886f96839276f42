"""The sessions of the cluster, as an administrator sees and steers them; implements ``SessionAdministration``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from gateway.app.administration.listing import SessionListing, alone, live, nobody_knows
from gateway.app.administration.nodes import admin_of, newest
from gateway.app.cluster.session_mover import SessionMover
from gateway.app.context import Context
from gateway.app.journal.session_events import SessionClosed
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import EndResult, Sessions
from gateway.app.session.session import Session
from gateway.core.policy import filters
from gateway.core.types import Epoch, NodeId, SessionId
from gateway.core.wire.codes import SESSION_CLOSED, ErrorCode
from gateway.core.wire.packets import Notice, NoticeCode
from gateway.ports import GridUnavailable, NodeEntry, Ownership, SessionRecord
from gateway.ports.administration import (
    BadParameter,
    CloseResult,
    Conflict,
    HeldElsewhere,
    Page,
    QueuedNotice,
    SessionView,
)

_NOT_SERVED: Final = "the grid holds it for this node, which does not serve it at the moment"
_END_PENDING: Final = "it was closed here while the grid was unreachable, and is being ended in the grid"


class ClusterSessions:
    """Sessions: listed from the grid, steered by the node that holds them.

    Args:
        context: of the node.
        store: where sessions are ended, and whether they are in the grid at all.
        sessions: the sessions held here.
        moves: moves them.
    """

    def __init__(self, context: Context, store: FencedStore, sessions: Sessions, moves: SessionMover) -> None:
        self._me = context.me
        self._announce = context.announce
        self._background = context.background
        self._grid = context.grid
        self._store = store
        self._sessions = sessions
        self._moves = moves
        self._listing = SessionListing(context, store, sessions)

    # --- Seeing -------------------------------------------------------------------------------------------------------

    async def list(self, *, filter_text: str | None, cursor: str | None, limit: int) -> Page[SessionView]:
        """See ``SessionAdministration.list``."""
        if filter_text is None:
            return await self._listing.page(lambda _record: True, cursor=cursor, limit=limit)
        try:
            wanted = filters.parse(filter_text)
        except filters.InvalidFilter as error:
            raise BadParameter("filter", str(error)) from None
        return await self._listing.page(lambda record: wanted.holds(filtered(record)), cursor=cursor, limit=limit)

    async def find(self, session: SessionId) -> SessionView:
        """See ``SessionAdministration.find``."""
        held = await self._held(session)
        if isinstance(held, SessionRecord):
            pending = self._sessions.is_end_pending(session)
            return alone(held, note=_END_PENDING if pending else _NOT_SERVED)
        return alone(held.record(), live=live(held))

    async def in_grid(self, session: SessionId, *, note: str) -> SessionView:
        """See ``SessionAdministration.in_grid``."""
        return alone(await self._stored(session), note=note)

    # --- Steering -----------------------------------------------------------------------------------------------------

    async def close(self, session: SessionId) -> CloseResult:
        """See ``SessionAdministration.close``."""
        try:
            held = await self._held(session)
        except GridUnavailable:
            if self._sessions.is_end_pending(session):
                return CloseResult.PENDING
            raise
        if isinstance(held, SessionRecord):
            if self._sessions.is_end_pending(session):
                return CloseResult.PENDING
            await self._end(held)
            return CloseResult.ENDED
        match await self._sessions.end(held, ErrorCode.SESSION_CLOSED, SESSION_CLOSED, removed=True):
            case EndResult.CONFIRMED:
                return CloseResult.ENDED
            case EndResult.PENDING:
                return CloseResult.PENDING
            case EndResult.ELSEWHERE:
                raise Conflict("another node has claimed the session; ask again")

    async def close_in_grid(self, session: SessionId) -> None:
        """See ``SessionAdministration.close_in_grid``."""
        await self._end(await self._stored(session))

    async def move(self, session: SessionId, to: str | None) -> str:
        """See ``SessionAdministration.move``."""
        held = await self._held(session)
        if isinstance(held, SessionRecord) or not held.connected:
            raise Conflict("the session has no client at the moment; it goes where its client goes")
        if not self._store.replicated:
            raise Conflict("sessions are not replicated here: at another node this one would be unknown")
        target = self._target(await self._grid.nodes.entries(), to)
        if not held.moving and self._moves.target(held) is None:
            self._moves.send(held, target, reason=f"an administrator moves the session to {target}")
            return target
        under_way = self._moves.target(held)
        if under_way is None:
            raise Conflict(f"{self._me.node} drains, and has begun to move the session; it goes to any other node")
        if to not in {None, under_way}:
            raise Conflict(f"the session is being moved to {under_way} already; look where it is, and ask again then")
        return under_way

    async def notify(self, session: SessionId, message: str) -> QueuedNotice:
        """See ``SessionAdministration.notify``."""
        held = await self._held(session)
        if isinstance(held, SessionRecord):
            raise Conflict("no node holds the session at the moment; send the notice when its client is back")
        self._sessions.delivery.notify([held], Notice(NoticeCode.ADMINISTRATOR, message))
        return QueuedNotice(self._me.node, held.connected)

    # --- Where a session is -------------------------------------------------------------------------------------------

    async def _held(self, session: SessionId) -> Session | SessionRecord:
        """Return the session if it is here; its record if the grid holds it for this node, which lost it.

        Raises:
            NotThere: nobody knows it.
            HeldElsewhere: it is another node's.
        """
        held = self._sessions.get(session)
        if held is not None and not await self._store.is_taken(held):
            return held
        record = await self._stored(session)
        if record.owner == self._me:
            return self._sessions.get(session) or record
        raise HeldElsewhere(record.owner, await admin_of(self._grid.nodes, record.owner))

    async def _stored(self, session: SessionId) -> SessionRecord:
        record = await self._grid.sessions.find(session) if self._store.replicated else None
        if record is None:
            raise nobody_knows(session)
        return record

    async def _end(self, record: SessionRecord) -> None:
        """End a session in the name of its owner, and have that one drop its copy, should it still live."""
        ownership = Ownership(record.id, record.owner, record.epoch)
        if not await self._store.end(ownership, ErrorCode.SESSION_CLOSED, removed=True):
            raise Conflict("another node has claimed the session just now; ask again")
        reason = ErrorCode.SESSION_CLOSED
        self._announce(SessionClosed(record.id, record.epoch, reason, record.roles, record.principal))
        # The message of a claim: a session with a lower epoch than that is not the node's any more.
        claim = Ownership(record.id, record.owner, Epoch(record.epoch + 1))
        try:
            await self._grid.nodes.tell_claimed(record.owner, claim)
        except GridUnavailable:
            # The session has ended all the same; its owner must hear of it, so that it closes the client.
            again = partial(self._grid.nodes.tell_claimed, record.owner, claim)
            self._background.once(self._store.until_known(again), "tell-owner-of-end")

    def _target(self, entries: Sequence[NodeEntry], to: str | None) -> NodeId:
        if to is None:
            fit = [entry for entry in entries if _takes_sessions(entry) and entry.node.node != self._me.node]
            if not fit:
                raise Conflict("no other node takes sessions at the moment")
            return min(fit, key=_load).node.node
        chosen = newest(entries, NodeId(to))
        if chosen.node.node == self._me.node:
            raise Conflict(f"the session is at {self._me.node} already")
        if not _takes_sessions(chosen):
            raise Conflict(f"{chosen.node.node} does not take sessions at the moment")
        return chosen.node.node


def filtered(record: SessionRecord) -> Mapping[str, str]:
    """Return what filters can ask of a session; the server's names cannot be set by users."""
    return {**record.properties, **{name: read(record) for name, read in SERVER_PROPERTIES.items()}}


SERVER_PROPERTIES: Final[Mapping[str, Callable[[SessionRecord], str]]] = {
    "$session": lambda record: record.id,
    "$principal": lambda record: record.principal,
    "$node": lambda record: record.owner.node,
    "$connected": lambda record: "true" if record.connected else "false",
}
"""What filters can ask of a session besides its own properties."""


def _takes_sessions(entry: NodeEntry) -> bool:
    return entry.alive and entry.report is not None and not entry.report.reasons


def _load(entry: NodeEntry) -> tuple[int, NodeId]:
    return (0 if entry.report is None else entry.report.connected, entry.node.node)
