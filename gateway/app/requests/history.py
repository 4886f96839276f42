"""Read history: what was published behind a place (protocol 6.6). Nothing of it is kept for the session."""

from __future__ import annotations

from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.history_pages import HistoryPages, Page
from gateway.app.requests.turns import SELECTOR_COST, STEPS_PER_PACKET, Turns
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.session import Session
from gateway.catalogue import history_metrics as catalogue
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.topics.work import Work
from gateway.core.wire import codec
from gateway.core.wire.packets import ReadHistory

HISTORIES_PER_PACKET: Final = 4
"""Histories that are asked in the time that a packet takes to be read and executed: a command of Redis each."""


class HistoryReading:
    """Reads history for sessions.

    Args:
        context: of the node.
        pages: where it is found.
        authorisation: judges what is asked for: who may select a topic may read its history.
        turns: bounds what is done in one turn of the loop.
    """

    def __init__(self, context: Context, pages: HistoryPages, authorisation: Authorisation, turns: Turns) -> None:
        self._limits = context.limits
        self._metrics = context.metrics
        self._pages = pages
        self._authorisation = authorisation
        self._turns = turns

    async def read(self, session: Session, request: ReadHistory) -> None:
        """Execute a request, and answer it.

        Raises:
            RequestRefused: the selector is none, or is not allowed.
            GridUnavailable: asking again does no harm.
        """
        selector = parse_selector(request.selector)
        while True:
            permissions = session.permissions
            page = await self._find(session, selector, request)
            await self._turns.turn(page.size, session.principal)
            if session.dropped:
                return
            # What was withdrawn meanwhile is not told any more; who may do other things by now is judged again.
            if session.permissions is permissions:
                break
        self._metrics.add(catalogue.HISTORY_EVENTS, len(page.events))
        if page.missing is not None:
            self._metrics.add(catalogue.HISTORY_GAPS)
        body = codec.encode_history(
            request.request, page.events, page.positions, complete=page.complete, missing=page.missing
        )
        session.reply_run([body], request.request, request.request)

    async def _find(self, session: Session, selector: Selector, request: ReadHistory) -> Page:
        """Find what is asked for, by what the session may select at this moment."""
        judging = Work()
        effort = 0
        try:
            await self._turns.turn(SELECTOR_COST * len(selector.text), session.principal)
            self._authorisation.check_select(session, selector, judging)
            page = await self._pages.find(selector, request.after, earliest=request.earliest, limit=request.limit)
            effort = page.work // HISTORIES_PER_PACKET
        finally:
            self._limits.charge_work(session, judging.taken // STEPS_PER_PACKET + effort)
        return page
