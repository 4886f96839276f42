"""How administrators see sessions: one by itself, and all of them page by page, which bounds what a page may cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gateway.app.administration.cursors import Place, from_cursor, to_cursor
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.session.session import Session
from gateway.core.topics.topics import SESSION_PARTITIONS, session_partition
from gateway.core.types import SessionId
from gateway.ports import SessionPage, SessionRecord
from gateway.ports.administration import LiveSession, NotThere, Page, SessionView


def in_list(record: SessionRecord) -> SessionView:
    """Show a session in a list."""
    return SessionView(
        session=record.id,
        principal=record.principal,
        node=record.owner.node,
        incarnation=record.owner.incarnation,
        connected=record.connected,
        properties=record.properties,
        window=record.window,
        epoch=record.epoch,
    )


def alone(record: SessionRecord, *, live: LiveSession | None = None, note: str | None = None) -> SessionView:
    """Show a session by itself, with everything."""
    return replace(in_list(record), selections=record.selections, live=live, note=note)


def live(session: Session) -> LiveSession:
    """Show what is in this node's memory of a session."""
    machine = session.machine
    return LiveSession(
        address=None if session.connection is None else session.connection.address,
        link=machine.state.value,
        received=machine.received,
        numbered=machine.last_numbered,
        resend_packets=machine.unacknowledged,
        resend_bytes=machine.resend_bytes,
        waiting_packets=machine.waiting,
        waiting_bytes=machine.waiting_bytes,
        requests=len(session.lane),
        moving=session.moving,
        throttled=session.paused,
    )


def nobody_knows(session: SessionId) -> NotThere:
    """Make the refusal of a session that is nowhere."""
    return NotThere("session", f"there is no session {session[:64]!r}: it was closed, its window ended, or never was")


STEP: Final = 100
"""Sessions read in one step of the grid: about a millisecond of its time, and of the node's."""

EXAMINED: Final = 2_000
"""Sessions looked at for one page: some 20 steps. A filter that few sessions meet yields short pages, each in time."""

PARTITIONS_AT_ONCE: Final = 8
"""Partitions that are read at the same time, as most are small: so a page takes a few round trips, not 64."""


class SessionListing:
    """Lists sessions in the order of their partitions and ids: those of the grid, or without replication this node's.

    Args:
        context: of the node.
        store: tells whether sessions are in the grid.
        sessions: the sessions held here.
    """

    def __init__(self, context: Context, store: FencedStore, sessions: Sessions) -> None:
        self._grid = context.grid
        self._replicated = store.replicated
        self._sessions = sessions

    async def page(
        self, wanted: Callable[[SessionRecord], bool], *, cursor: str | None, limit: int
    ) -> Page[SessionView]:
        """Read one page of the sessions that are *wanted*.

        Raises:
            BadParameter: the cursor cannot be read.
            GridUnavailable: the grid is unreachable.
        """
        place = from_cursor(cursor, partitions=SESSION_PARTITIONS)
        found: list[SessionView] = []
        examined = 0
        while True:
            pages = await self._read(place)
            for partition, page in pages:
                for record in page.sessions:
                    examined += 1
                    if not wanted(record):
                        continue
                    if len(found) == limit:
                        # Begin the next page right after the last one that found room in this.
                        return Page(found, to_cursor(self._after(found[-1].session)))
                    found.append(in_list(record))
                place = Place(partition, after=page.last) if page.last is not None else Place(partition + 1)
                if page.last is not None:
                    break  # what was read of later partitions is read again, when it is their turn
            if place.partition >= SESSION_PARTITIONS:
                return Page(found, None)
            if examined >= EXAMINED or len(found) == limit:
                return Page(found, to_cursor(place))

    @staticmethod
    def _after(session: SessionId) -> Place:
        return Place(session_partition(session), after=session)

    async def _read(self, place: Place) -> list[tuple[int, SessionPage]]:
        numbers = range(place.partition, min(place.partition + PARTITIONS_AT_ONCE, SESSION_PARTITIONS))
        after = None if place.after is None else SessionId(place.after)
        if not self._replicated:
            await asyncio.sleep(0)
            return self._own(numbers, place.partition, after)
        pages = await asyncio.gather(
            *(
                self._grid.sessions.page(number, after=after if number == place.partition else None, limit=STEP)
                for number in numbers
            )
        )
        return list(zip(numbers, pages, strict=True))

    def _own(self, numbers: range, first: int, after: SessionId | None) -> list[tuple[int, SessionPage]]:
        """Do for this node's memory what ``SessionStore.page`` does for the grid."""
        held: dict[int, list[SessionId]] = {number: [] for number in numbers}
        for session in self._sessions:
            number = session_partition(session.id)
            if number in held and (number != first or after is None or session.id > after):
                held[number].append(session.id)
        pages = []
        for number, ids in held.items():
            chosen = sorted(ids)[:STEP]
            records = [session.record() for session in map(self._sessions.get, chosen) if session is not None]
            pages.append((number, SessionPage(records, chosen[-1] if len(chosen) == STEP else None)))
        return pages
