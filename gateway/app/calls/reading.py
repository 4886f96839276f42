"""Reading by calls: the value of a topic, and what was published to topics before."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import unquote_to_bytes

from gateway.app.calls.callers import Caller, unavailable
from gateway.app.calls.problems import refused
from gateway.app.context import Context
from gateway.app.delivery.history_pages import HistoryPages
from gateway.app.delivery.presence_watch import PresenceWatch
from gateway.app.delivery.value_pages import NotReadYet, ValuePage, ValuePages
from gateway.app.requests.history import HISTORIES_PER_PACKET
from gateway.app.requests.subscribe import TOPICS_PER_PACKET
from gateway.app.requests.turns import STEPS_PER_PACKET
from gateway.app.security.authorisation import Authorisation
from gateway.catalogue import call_metrics as call_catalogue
from gateway.catalogue import history_metrics as catalogue
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import parse_topic, shown
from gateway.core.topics.work import Work
from gateway.core.types import TopicPath
from gateway.core.wire.codec.calls import (
    read_history_query,
    read_values_query,
    write_history,
    write_value,
    write_values,
)
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.ports import CallAnswer, CallRefused, GridUnavailable


class CallReading:
    """Reads what calls ask for.

    What was published before the call is in its answer, whichever node was asked.

    Args:
        context: of the node.
        authorisation: judges what is asked for.
        pages: where history is found.
        values: where the values of many topics are.
        presence: has told who has subscribed to trees.
    """

    def __init__(
        self,
        context: Context,
        authorisation: Authorisation,
        pages: HistoryPages,
        values: ValuePages,
        presence: PresenceWatch,
    ) -> None:
        self._presence = presence
        self._values = values
        self._topics = context.grid.topics
        self._limits = context.limits
        self._metrics = context.metrics
        self._authorisation = authorisation
        self._pages = pages
        self._most_at_once = context.parameters.pages.at_once

    async def value(self, caller: Caller, escaped: str) -> CallAnswer:
        """Read the value of a topic.

        Args:
            caller: who asks.
            escaped: path of the topic, as the URL has it.

        Raises:
            CallRefused: it has none, or may not be read, or nobody can tell.
        """
        try:
            topic = parse_topic(_unescaped(escaped))
            self._authorisation.check_read(caller, topic)
        except RequestRefused as error:
            raise refused(error) from None
        try:
            await self._presence.watch(self._presence.partitions((parse_selector(topic),)))
            (value,) = await self._topics.read([topic])
        except GridUnavailable:
            raise unavailable("the grid is unreachable; try again") from None
        if value is None or not value.value:
            raise CallRefused(HTTPStatus.NOT_FOUND, "no_such_topic", f"{shown(topic)} has no value")
        return CallAnswer(HTTPStatus.OK, write_value(topic, value.version, value.event, value.value))

    async def values(self, caller: Caller, query: str) -> CallAnswer:
        """Read a part of the current values of all topics that selectors match.

        Args:
            caller: who asks.
            query: which, where to go on, and how many.

        Raises:
            CallRefused: not all of them may be read, or nobody can tell now.
        """
        judging = Work()
        page = ValuePage()
        permissions = caller.permissions
        try:
            asked = read_values_query(query)
            after = None if asked.cursor is None else _cursor(asked.cursor)
            selectors = list(dict.fromkeys(map(parse_selector, asked.selectors)))
            for selector in selectors:
                self._authorisation.check_select(caller, selector, judging)
            self._check_places(caller)
            async with self._values.place():
                await self._values.find(selectors, after, asked.limit, page, may_be_named=permissions.may_receive)
        except RequestRefused as error:
            raise refused(error) from None
        except GridUnavailable:
            raise unavailable("the grid is unreachable; try again") from None
        except NotReadYet:
            raise unavailable("the values are still being read from the grid; try again", ErrorCode.TRY_LATER) from None
        finally:
            self._limits.charge_work(caller, judging.taken // STEPS_PER_PACKET + page.work // TOPICS_PER_PACKET)
        self._metrics.add(call_catalogue.VALUES_READ, len(page.values))
        found = [(each.topic, each.version, each.event, each.value) for each in page.values]
        return CallAnswer(HTTPStatus.OK, write_values(found, page.cursor))

    def _check_places(self, caller: Caller) -> None:
        """Let no call wait for its turn: it is answered at once, and comes again."""
        if self._values.is_full:
            self._limits.exceeded("limit_node_pages", caller.principal)
            raise unavailable(
                f"limit_node_pages: this node reads {self._most_at_once} pages of values, as many as it may at once; "
                "try again",
                ErrorCode.TRY_LATER,
            )

    async def history(self, caller: Caller, escaped: str, query: str) -> CallAnswer:
        """Read a part of the history of topics, as a session does (protocol 6.6).

        Args:
            caller: who asks.
            escaped: a selector, as the URL has it.
            query: where to begin, and how much to read.

        Raises:
            CallRefused: it may not be read, or nobody can tell.
        """
        judging = Work()
        effort = 0
        try:
            selector = parse_selector(_unescaped(escaped))
            asked = read_history_query(query)
            self._authorisation.check_select(caller, selector, judging)
            page = await self._pages.find(selector, asked.after, earliest=asked.earliest, limit=asked.limit)
            effort = page.work // HISTORIES_PER_PACKET
        except RequestRefused as error:
            raise refused(error) from None
        except GridUnavailable:
            raise unavailable("the grid is unreachable; try again") from None
        finally:
            self._limits.charge_work(caller, judging.taken // STEPS_PER_PACKET + effort)
        self._metrics.add(catalogue.HISTORY_EVENTS, len(page.found))
        if page.missing is not None:
            self._metrics.add(catalogue.HISTORY_GAPS)
        events = [(event.topic, event.version, event.event, event.value, snapshot) for event, snapshot in page.found]
        content = write_history(events, page.positions, complete=page.complete, missing=page.missing)
        return CallAnswer(HTTPStatus.OK, content)


def _cursor(text: str) -> TopicPath:
    try:
        return parse_topic(text)
    except RequestRefused:
        raise RequestRefused("'cursor' is none that an answer had; begin again without one") from None


def _unescaped(escaped: str) -> str:
    try:
        return unquote_to_bytes(escaped).decode()
    except UnicodeDecodeError:
        raise CallRefused(HTTPStatus.BAD_REQUEST, "bad_topic", "the path is not UTF-8") from None
