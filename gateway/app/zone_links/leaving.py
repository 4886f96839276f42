"""Which events leave this cluster over a link, and as what: by routes, interest and policy, stamped by the grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gateway.app.context import Context
from gateway.app.security.authorisation import Authorisation
from gateway.app.zone_links.greeting import Target
from gateway.app.zone_links.judging import permissions_of
from gateway.app.zone_links.knowledge import Knowledge
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.core.policy.permissions import Permissions
from gateway.core.topics.selector_map import matching_any
from gateway.core.types import TopicPath
from gateway.core.zones.interest import HeardInterest
from gateway.core.zones.protocol import BATCH_BYTES, BATCH_EVENTS, Events, SentEvent
from gateway.core.zones.routes import Arrival, ClusterId, Path, Place, path_beyond, why_stopped
from gateway.core.zones.stamps import Origin, Stamp
from gateway.ports import Arrived, LeavingEvent, StreamPosition, TailBatch, TopicValue

EVENT_BYTES: Final = 120
"""Bytes of an event in a message besides topic and value, about."""


class Leaving:
    """Decides for one link.

    Args:
        context: of the node.
        authorisation: says what the other cluster may select.
        knowledge: of zones.
        target: where the link leads.
        heard: what the other cluster selects. Over a join nothing counts but what the join selects.
        cluster: that is there.
        place: where it is.
    """

    def __init__(
        self,
        context: Context,
        authorisation: Authorisation,
        knowledge: Knowledge,
        target: Target,
        heard: HeardInterest,
        *,
        cluster: ClusterId,
        place: Place,
    ) -> None:
        self._context = context
        self._authorisation = authorisation
        self._knowledge = knowledge
        self._target = target
        self._wants = heard.wants if target.selectors is None else matching_any(target.selectors)
        self._cluster = cluster
        self._place = place

    async def of_stream(self, batch: TailBatch) -> list[SentEvent]:
        """Find what of a batch leaves, in order.

        Raises:
            GridUnavailable: see ``gateway.ports``.
        """
        permissions = permissions_of(self._authorisation, self._cluster)
        wanted: list[tuple[TopicValue, Arrived | None]] = []
        own: list[LeavingEvent] = []
        for place, value in enumerate(batch.values):
            arrived = batch.arrived.get(place)
            if arrived is None and place in batch.arrived:
                continue  # written again after a loss; current values are exchanged then
            arrival, path = (Arrival.CLIENT, ()) if arrived is None else (arrived.arrival, arrived.path)
            if not self._wants(value.topic) or not self._may_leave(value.topic, arrival, path, permissions):
                continue
            wanted.append((value, arrived))
            if arrived is None:
                own.append(LeavingEvent(value.topic, value.version, value.event))
        if not wanted:
            return []
        marks = (
            await self._context.grid.origins.stamp(batch.partition, own, cluster=self._knowledge.cluster) if own else []
        )
        stamps = iter(marks)
        events = []
        for value, arrived in wanted:
            if arrived is None:
                mark = next(stamps)
                origin = Origin(self._knowledge.cluster, value.version)
                events.append(self._event(value, origin, (), None if mark is None else mark.stamp))
            else:
                events.append(self._event(value, arrived.origin, arrived.path, arrived.stamp))
        return events

    async def of_values(self, partition: int, values: Sequence[TopicValue], upto: StreamPosition) -> list[SentEvent]:
        """Find what of current values leaves; values that the stream brings behind *upto* are left to it.

        Raises:
            GridUnavailable: see ``gateway.ports``.
        """
        wanted = [each for each in values if self._wants(each.topic) and StreamPosition.of(each.event) <= upto]
        if not wanted:
            return []
        permissions = permissions_of(self._authorisation, self._cluster)
        marks = await self._context.grid.origins.stamp(
            partition,
            [LeavingEvent(each.topic, each.version, each.event) for each in wanted],
            cluster=self._knowledge.cluster,
        )
        events = []
        for value, mark in zip(wanted, marks, strict=True):
            # Of a value that was overtaken meanwhile the stream brings the later one.
            if mark is not None and self._may_leave(value.topic, mark.arrival, mark.path, permissions):
                events.append(self._event(value, mark.origin, mark.path, mark.stamp))
        return events

    def _event(self, value: TopicValue, origin: Origin, path: Path, stamp: Stamp | None) -> SentEvent:
        beyond = path_beyond(path, self._target.crossing, self._knowledge.here)
        return SentEvent(value.topic, value.value, origin, stamp, beyond)

    def _may_leave(self, topic: TopicPath, arrival: Arrival, path: Path, permissions: Permissions) -> bool:
        target = self._target
        stopped = why_stopped(topic, arrival, path, target.crossing, here=self._knowledge.here, there=self._place)
        reason = None if stopped is None else stopped.value
        if reason is None and target.most_hops and len(path) >= target.most_hops:
            reason = "hops"
        if reason is None and not permissions.may_receive(topic):
            reason = "policy"
        if reason is not None:
            self._context.metrics.add(catalogue.ZONE_STOPPED, label=reason)
        return reason is None


def messages_of(events: Sequence[SentEvent], *, current: bool = False) -> Iterator[Events]:
    """Put events into messages of a bounded size, in order."""
    part: list[SentEvent] = []
    size = 0
    for event in events:
        more = EVENT_BYTES + len(event.topic) + len(event.value)
        if part and (len(part) >= BATCH_EVENTS or size + more > BATCH_BYTES):
            yield Events(tuple(part), current)
            part, size = [], 0
        part.append(event)
        size += more
    if part:
        yield Events(tuple(part), current)
