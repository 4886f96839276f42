"""Puts events back into histories that the grid had before it lost writes, as far as this node has seen them (P10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.app.context import Context
from gateway.catalogue import history_metrics as catalogue
from gateway.core.topics.versions import place_of
from gateway.core.types import TopicPath
from gateway.ports import TopicValue

EVENTS_AT_ONCE: Final = 100
"""Events that one step puts back: a millisecond of Redis."""


class HistoryRestorer:
    """Restores histories from what streams brought last.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._history = context.grid.history
        self._destinations = context.destinations
        self._metrics = context.metrics

    async def restore(self, brought: Sequence[TopicValue]) -> None:
        """Put back what is missing; the grid takes only what is newer than all that a history has.

        Args:
            brought: by the stream of one partition, before the grid lost writes.

        Raises:
            GridUnavailable: asking again does no harm.
        """
        if not self._destinations.has_history:
            return
        by_topic: dict[TopicPath, list[TopicValue]] = {}
        for each in brought:
            if self._destinations.history(each.topic) is not None:
                by_topic.setdefault(each.topic, []).append(each)
        for topic, events in by_topic.items():
            # Values that were restored before stand behind later ones, with the events that they had.
            events.sort(key=lambda each: place_of(each.event))
            for start in range(0, len(events), EVENTS_AT_ONCE):
                limits = self._destinations.history(topic)
                if limits is None:
                    break
                written = await self._history.restore(topic, events[start : start + EVENTS_AT_ONCE], limits)
                self._metrics.add(catalogue.HISTORY_RESTORED, written)
