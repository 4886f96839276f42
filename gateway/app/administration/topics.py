"""The topics of the cluster, as an administrator sees and sets them; implements ``TopicAdministration``."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from gateway.app.administration.cursors import Place, from_cursor, to_cursor
from gateway.app.administration.listing import EXAMINED, SessionListing
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.parameters import REMOVAL_GRACE
from gateway.catalogue import metrics as catalogue
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import Selector, matches, parse_selector, partitions
from gateway.core.topics.topics import SYSTEM_SIGN, TOPIC_PARTITIONS, parse_topic, topic_partition
from gateway.core.topics.versions import place_of
from gateway.core.types import Epoch, EventId, RequestNumber, SessionId, TopicPath
from gateway.core.wire.errors import RequestRefused
from gateway.ports import (
    GridRefused,
    GridUnavailable,
    HistoryQuestion,
    Ownership,
    PublishCommand,
    Published,
    SessionRecord,
    TopicPage,
    TopicValue,
)
from gateway.ports.administration import (
    BadParameter,
    Forbidden,
    HistoryView,
    NotThere,
    Page,
    SessionView,
    TopicView,
    TopicWritten,
)

STEP: Final = 200
"""Topics read in one step of the grid: less than a millisecond of its time."""

PAGE_BYTES: Final = 1024 * 1024
"""Bytes of values after which a page ends, so that large ones do not stop the node or the caller."""

WRITER: Final = "$admin-"
"""Begins the names by which the grid remembers what administrators have published; no session has such an id."""


class ClusterTopics:
    """Topics, read from the grid and written to it.

    Args:
        context: of the node.
        store: tells whether sessions are in the grid.
        sessions: the sessions held here.
    """

    def __init__(self, context: Context, store: FencedStore, sessions: Sessions) -> None:
        self._me = context.me
        self._topics = context.grid.topics
        self._history = context.grid.history
        self._destinations = context.destinations
        self._depth = context.parameters.topic_depth
        self._largest = context.parameters.limits.value_bytes
        self._keep = context.parameters.max_window + REMOVAL_GRACE
        self._metrics = context.metrics
        self._presence = sessions.delivery.watchers.presence
        self._listing = SessionListing(context, store, sessions)

    # --- Seeing -------------------------------------------------------------------------------------------------------

    async def list(self, *, selector: str, cursor: str | None, limit: int, values: bool) -> Page[TopicView]:
        """See ``TopicAdministration.list``."""
        chosen = _selector(selector)
        place = from_cursor(cursor, partitions=TOPIC_PARTITIONS)
        await self._presence.watch(self._presence.partitions((chosen,)))
        if chosen.literal:
            (single,) = await self._topics.read([TopicPath(chosen.text)])
            there = single is not None and single.value and cursor is None
            return Page([_view(single, values=values)] if single is not None and there else [], None)
        found: list[TopicView] = []
        examined = size = 0
        async for at, page in self._steps(chosen, place):
            last = at.after
            for value in sorted(page.values, key=lambda each: each.topic):
                before = at.after is not None and value.topic <= at.after
                if before or not value.value or not matches(chosen, value.topic):
                    continue
                if len(found) == limit or size > PAGE_BYTES:
                    # The next page looks at the same step again, from the last topic on that found room in this one.
                    return Page(found, to_cursor(replace(at, after=last)))
                found.append(_view(value, values=values))
                size += len(value.value) if values else 0
                last = value.topic
            examined += len(page.values)
            if examined >= EXAMINED and page.step is not None:
                return Page(found, to_cursor(Place(at.partition, step=page.step)))
        return Page(found, None)

    async def _steps(self, chosen: Selector, place: Place) -> AsyncIterator[tuple[Place, TopicPage]]:
        """Read the partitions that a selector reaches, step by step from *place* on."""
        for number in sorted(partitions(chosen, self._depth)):
            if number < place.partition:
                continue
            at = place if number == place.partition else Place(number)
            while True:
                try:
                    page = await self._topics.scan(number, step=at.step, count=STEP)
                except ValueError:
                    raise BadParameter("cursor", "this is no cursor of this list; begin again without one") from None
                yield at, page
                if page.step is None:
                    break
                at = Place(number, step=page.step)

    async def find(self, topic: str) -> TopicView:
        """See ``TopicAdministration.find``."""
        path = _topic(topic)
        await self._presence.watch(self._presence.partitions((parse_selector(path),)))
        (value,) = await self._topics.read([path])
        if value is None or not value.value:
            raise _no_value()
        return _view(value, values=True)

    async def history(self, topic: str, *, after: str | None, limit: int) -> HistoryView:
        """See ``TopicAdministration.history``."""
        path = _topic(topic)
        if self._destinations.history(path) is None:
            raise NotThere("topic", "the topic has no history: no destination says that its events are kept")
        number = topic_partition(path, self._depth)
        place = None if after is None else _event(after, number)
        items: list[TopicView] = []
        size, gap = 0, False
        while True:
            question = HistoryQuestion(path, place, min(limit - len(items) + 1, STEP))
            (page,) = await self._history.read(number, [question])
            gap = gap or page.has_gap
            for event in page.events:
                if len(items) == limit or size > PAGE_BYTES:
                    return HistoryView(items, gap, items[-1].event)
                items.append(_view(event, values=True))
                size += len(event.value)
            if page.is_last:
                return HistoryView(items, gap, None)
            place = page.events[-1].event

    async def subscribers(self, topic: str, *, cursor: str | None, limit: int) -> Page[SessionView]:
        """See ``TopicAdministration.subscribers``."""
        path = _topic(topic)

        def selects(record: SessionRecord) -> bool:
            return Selections.from_wire(record.selections).selects(path)

        return await self._listing.page(selects, cursor=cursor, limit=limit)

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def set(self, topic: str, value: bytes, *, key: str) -> TopicWritten:
        """See ``TopicAdministration.set``."""
        path = _free_topic(topic)
        if len(value) > self._largest:
            raise BadParameter(
                "value", f"the value has {len(value)} bytes of JSON; limit_value_bytes is {self._largest}"
            )
        # A session that only the receipt knows: the grid executes its one request once, and forgets it an hour later.
        writer = SessionId(WRITER + hashlib.blake2b(f"{key}\0{path}".encode(), digest_size=16).hexdigest())
        command = PublishCommand(
            *(Ownership(writer, self._me, Epoch(1)), RequestNumber(1), RequestNumber(0), path, value),
            stored=False,
            history=self._destinations.history(path),
            ttl=self._destinations.ttl(path),
        )
        (published,) = await self._topics.publish([command])
        if isinstance(published, GridRefused):
            raise published
        if not isinstance(published, Published):
            raise GridUnavailable("the grid refused the publish")
        self._metrics.add(catalogue.PUBLISHES, label="duplicate" if published.duplicate else "published")
        return TopicWritten(path, published.version, published.event, published.duplicate)

    async def delete(self, topic: str) -> TopicWritten:
        """See ``TopicAdministration.delete``."""
        path = _free_topic(topic)
        # As long as any session may be away that had the value.
        removed = await self._topics.remove(path, keep=self._keep, history=self._destinations.history(path))
        if removed is None:
            raise _no_value()
        return TopicWritten(path, removed.version, removed.event, removed.duplicate)


def _topic(text: str) -> TopicPath:
    try:
        return parse_topic(text)
    except RequestRefused as refused:
        raise BadParameter("topic", str(refused)) from None


def _event(text: str, partition: int) -> EventId:
    """Read an event of a partition."""
    try:
        place_of(EventId(text))
    except ValueError:
        pass
    else:
        if text.partition("-")[0] == str(partition):
            return EventId(text)
    raise BadParameter("after", f"this is no event of the topic; they begin with {partition}-")


def _free_topic(text: str) -> TopicPath:
    path = _topic(text)
    if path.startswith(SYSTEM_SIGN):
        raise Forbidden(f"topics that begin with {SYSTEM_SIGN} are the gateway's own and cannot be written")
    return path


def _selector(text: str) -> Selector:
    try:
        return parse_selector(text)
    except RequestRefused as refused:
        raise BadParameter("selector", str(refused)) from None


def _no_value() -> NotThere:
    return NotThere("topic", "the topic has no value: nothing was published to it, or it was deleted")


def _view(value: TopicValue, *, values: bool) -> TopicView:
    return TopicView(
        value.topic, value.version, value.event, len(value.value), value.value if values else None, value.ends
    )
