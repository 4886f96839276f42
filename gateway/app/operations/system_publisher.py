"""Publishes in the name of the node itself, for which there is no session (topics below ``$gateway``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.app.context import Context
from gateway.app.runtime.publisher_numbers import PublisherNumbers
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import GridUnavailable, PublishCommand, Published

NAME_PREFIX: Final = "$node-"
"""Begins the name of the publisher."""


class SystemPublisher:
    """One run of one node as a publisher.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._store = context.grid.topics
        # The incarnation is in it: another run counts its requests from 1 again.
        self._numbers = PublisherNumbers(f"{NAME_PREFIX}{context.me}", context.me)

    async def publish(self, values: Sequence[tuple[TopicPath, bytes]]) -> list[Published]:
        """Set the values of topics, in order, in one step of the grid where that is possible.

        Args:
            values: topics, and their new values as compact JSON text.

        Raises:
            GridUnavailable: some may have been set. They are not set later: what a node tells of itself is out of date
                by then.
        """
        with self._numbers.take(len(values)) as (numbers, settled):
            results = await self._store.publish(
                [
                    PublishCommand(self._numbers.ownership, RequestNumber(number), settled, topic, value, stored=False)
                    for number, (topic, value) in zip(numbers, values, strict=True)
                ]
            )
        published = [each for each in results if isinstance(each, Published)]
        if len(published) < len(results):
            raise GridUnavailable("the grid takes this node's own publishes for those of an earlier one")
        return published
