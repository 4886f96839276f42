"""What of the events that come over a link may be taken; the sender's word counts for nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.app.context import Context
from gateway.app.security.authorisation import Authorisation
from gateway.app.zone_links.greeting import Source, principal_of
from gateway.app.zone_links.knowledge import Knowledge
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.core.policy.permissions import Permissions
from gateway.core.topics.selectors import matches
from gateway.core.zones.protocol import SentEvent
from gateway.core.zones.routes import ClusterId, Stopped, why_refused
from gateway.core.zones.values import normal_value
from gateway.core.zones.work import json_work
from gateway.ports import ForwardedEvent

ROLE: Final = "zone"
"""Role of every link with another cluster, for policies."""

LATEST: Final = 24 * 3600 * 1000
"""Milliseconds by which the stamp of a value may be ahead of this node's clock. Clocks that differ by more are wrong;
and a value with a stamp of the far future would be the newest one for so long."""


MOST_SHORTER: Final = 2
"""How many times as long as the longest value what came may be: gateways send values in their normal form; what others
send may have blanks and be shorter in it. What is longer is not parsed (P20)."""


def permissions_of(authorisation: Authorisation, cluster: ClusterId) -> Permissions:
    """Tell what a link with a cluster may select and publish here, by the policy of this moment."""
    return authorisation.permissions_for(principal_of(cluster), frozenset({ROLE}), {})


class Judge:
    """Judges what one source sends.

    Args:
        context: of the node.
        authorisation: says what a link may publish.
        knowledge: of zones.
        source: who sends.

    Attributes:
        source: as given.
    """

    def __init__(self, context: Context, authorisation: Authorisation, knowledge: Knowledge, source: Source) -> None:
        self._context = context
        self._authorisation = authorisation
        self._knowledge = knowledge
        self.source = source

    def judge(self, events: Iterable[SentEvent], *, current: bool) -> list[ForwardedEvent]:
        """Return those that may be taken, as the grid takes them; the others are counted."""
        permissions = permissions_of(self._authorisation, self.source.cluster)
        latest = int(self._context.clock.wall() * 1000) + LATEST
        taken = []
        for event in events:
            reason = self._why_not(event, permissions, latest)
            value = None if reason is not None else self._value(event.value)
            if value is None:
                self._context.metrics.add(catalogue.ZONE_STOPPED, label=reason or "invalid")
                continue
            taken.append(self._forwarded(event, value, current=current))
        return taken

    def work(self, events: Iterable[SentEvent]) -> float:
        """Tell how long it takes to parse their values, at worst, in seconds."""
        return sum(json_work(each.value) for each in events if not self._is_too_long(each.value))

    def _is_too_long(self, text: bytes) -> bool:
        return len(text) > MOST_SHORTER * self._context.parameters.limits.value_bytes

    def _value(self, text: bytes) -> bytes | None:
        """Bring a value into its normal form; None if there may be no such value."""
        if self._is_too_long(text):
            return None
        value = normal_value(text)
        return None if value is None or len(value) > self._context.parameters.limits.value_bytes else value

    def _why_not(self, event: SentEvent, permissions: Permissions, latest: int) -> str | None:
        source, here = self.source, self._knowledge.here
        stopped = why_refused(event.topic, event.path, here=here)
        if stopped is None and event.origin.cluster == self._knowledge.cluster:
            stopped = Stopped.LOOP
        if stopped is None and source.most_hops and len(event.path) > source.most_hops:
            stopped = Stopped.HOPS
        if stopped is not None:
            return stopped.value
        if source.selectors is not None and not any(matches(each, event.topic) for each in source.selectors):
            return "policy"
        if not permissions.publishes_all and not permissions.may_publish(event.topic):
            return "policy"
        if event.stamp is not None and event.stamp.time > latest:
            return "stamp"
        return None

    def _forwarded(self, event: SentEvent, value: bytes, *, current: bool) -> ForwardedEvent:
        parameters, destinations = self._context.parameters, self._context.destinations
        return ForwardedEvent(
            link=self.source.link,
            term=self.source.term,
            topic=event.topic,
            value=value,
            origin=event.origin,
            stamp=event.stamp,
            arrival=self.source.crossing.arrival,
            path=event.path,
            repeated=current,
            history=destinations.history(event.topic) if destinations.has_history else None,
            most_topics=parameters.partition_topics,
            most_bytes=parameters.partition_bytes,
        )
