"""Reading current values without a subscription. A part of ``Session``."""

from __future__ import annotations

from gateway.client.arguments import text_of
from gateway.client.supervisor import Supervisor
from gateway.core.client.errors import InvalidSelector, InvalidTopic
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.client.types import CurrentValue, ValuesPage
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import parse_topic
from gateway.core.wire.value_packets import ReadValues, ValuesPart


class ValueCalls:
    """The methods of a session that read values."""

    _supervisor: Supervisor

    async def values(
        self,
        selector: str,
        after: str | None = None,
        limit: int | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> ValuesPage:
        """Read the current values of topics without subscribing, page by page, in the order of their paths.

        All that was published before the call is in what it returns, whichever node serves the session. A topic that is
        there from the first page to the last is in exactly one of them.

        Args:
            selector: which topics, as of ``subscribe``.
            after: the ``next`` of the page before, which holds at every node and in every session; None for the first
                page.
            limit: most values, from 1 on; a page may have fewer. None for as many as a page may have.
            timeout: seconds; None for the session's default.

        Raises:
            InvalidSelector, Forbidden: as for ``subscribe``.
            InvalidTopic: ``after`` is no ``next``.
            ValueError: ``limit`` is not above 0.
            RequestRefused: the page cannot be had; or the node is of a release that cannot be asked for values.
            RequestTimedOut, SessionEnded: as for every call.
        """
        checked = parse_selector(text_of("selector", selector, InvalidSelector)).text
        if after is not None:
            after = parse_topic(text_of("after", after, InvalidTopic))
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; a page has 1 value at least")
        reply = await self._supervisor.request(ReadValues(UNNUMBERED, checked, after, limit), timeout)
        part = ValuesPart() if reply.values is None else reply.values
        items = tuple([CurrentValue(each.topic, each.value, each.version, each.event) for each in part.items])
        return ValuesPage(items, part.next)
