"""Which part of the traffic is whose: updates counted by the first segment of their topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from gateway.catalogue.metrics import TOPIC_UPDATES
from gateway.core.types import TopicPath
from gateway.ports import Metrics, TopicValue

OTHER: Final = "other"
"""Stands for all first segments that nobody has named."""


class RootCounts:
    """Counts updates by first segments that the operator has named; what clients make up can become no label.

    Args:
        metrics: where they are counted.
        roots: the first segments to count apart.
    """

    def __init__(self, metrics: Metrics, roots: Iterable[str]) -> None:
        self._metrics = metrics
        self._roots = frozenset(roots)
        for root in (*self._roots, OTHER):
            metrics.add(TOPIC_UPDATES, 0, label=root)

    def count(self, values: Iterable[TopicValue]) -> None:
        """Count a batch: one addition for each first segment that is in it."""
        roots = self._roots
        for root, count in Counter(_root(value.topic) for value in values).items():
            self._metrics.add(TOPIC_UPDATES, count, label=root if root in roots else OTHER)


def _root(topic: TopicPath) -> str:
    return topic.partition("/")[0]
