"""Read current values without a subscription, page by page (protocol 6.7). Nothing of it is kept for the session.

A page is put together as for a call (``ValuePages``). A call that has to wait for the node's copies is answered and
comes again; a session waits, as its requests take effect in order.
"""

from __future__ import annotations

from typing import Final

from gateway.app.context import Context
from gateway.app.delivery.value_pages import NotReadYet, ValuePage, ValuePages
from gateway.app.requests.subscribe import TOPICS_PER_PACKET
from gateway.app.requests.turns import SELECTOR_COST, STEPS_PER_PACKET, Turns, rest
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.session import Session
from gateway.catalogue import call_metrics as catalogue
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.topics.topics import parse_topic
from gateway.core.topics.work import Work
from gateway.core.types import TopicPath
from gateway.core.wire import codec
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Reply
from gateway.core.wire.value_packets import ReadValues

ATTEMPTS: Final = 10
"""Times that a page is tried while the node reads its copies; each takes a second at most, and goes on where the last
one was."""

RETRY_AFTER: Final = 1.0
"""Seconds after which a client asks again whose page was not had by then."""


class ValuesReading:
    """Reads values for sessions.

    Args:
        context: of the node.
        pages: where values are found.
        authorisation: judges what is asked for: who may select a topic may read its value.
        turns: bounds what is done in one turn of the loop.
    """

    def __init__(self, context: Context, pages: ValuePages, authorisation: Authorisation, turns: Turns) -> None:
        self._clock = context.clock
        self._limits = context.limits
        self._metrics = context.metrics
        self._pages = pages
        self._authorisation = authorisation
        self._turns = turns

    async def read(self, session: Session, request: ReadValues) -> None:
        """Execute a request, and answer it.

        Raises:
            RequestRefused: the selector or the place is none, or not all of the topics may be selected.
            GridUnavailable: asking again does no harm.
        """
        selector = parse_selector(request.selector)
        after = None if request.after is None else _place(request.after)
        for _ in range(ATTEMPTS):
            if session.dropped:
                return
            page = await self._attempt(session, selector, after, request.limit)
            if page is not None:
                await self._answer(session, request, page)
                return
        # Nothing was done, and nothing is counted by the number: whoever asks again may do so under a new one.
        why = "the values are still being read from the grid; ask again"
        session.reply(Reply(request=request.request, error=ErrorCode.TRY_LATER, message=why, retry_after=RETRY_AFTER))

    async def _attempt(
        self, session: Session, selector: Selector, after: TopicPath | None, limit: int | None
    ) -> ValuePage | None:
        """Read a page, by what the session may select at this moment; None if it has to be tried again."""
        await rest(session, self._clock)
        judging = Work()
        page = ValuePage()
        permissions = session.permissions
        try:
            await self._turns.turn(SELECTOR_COST * len(selector.text), session.principal)
            self._authorisation.check_select(session, selector, judging)
            if self._pages.is_full:
                self._limits.exceeded("limit_node_pages", session.principal)
            async with self._pages.place():
                await self._pages.find([selector], after, limit, page, may_be_named=permissions.may_receive)
        except NotReadYet:
            return None
        finally:
            effort = judging.taken // STEPS_PER_PACKET + page.work // TOPICS_PER_PACKET
            self._limits.charge_work(session, effort)
        # What was withdrawn meanwhile is not told any more.
        return page if session.permissions is permissions else None

    async def _answer(self, session: Session, request: ReadValues, page: ValuePage) -> None:
        await self._turns.turn(page.size, session.principal)
        self._metrics.add(catalogue.VALUES_READ, len(page.values))
        found = [(each.topic, each.version, each.event, each.value) for each in page.values]
        body = codec.encode_values(request.request, found, page.cursor)
        session.reply_run([body], request.request, request.request)


def _place(text: str) -> TopicPath:
    try:
        return parse_topic(text)
    except RequestRefused:
        raise RequestRefused("'after' is no 'next' that a reply had; begin again without it") from None
