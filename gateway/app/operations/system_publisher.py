"""Publishes in the name of the node itself, for which there is no session (topics below ``$gateway``).

The grid asks of every publish by which right it is made, and remembers it for a while, so that repeating it does no
harm. A node publishes under a name of its own that no session can have; the grid holds no session of that name, so the
receipts go away by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.app.context import Context
from gateway.core.types import Epoch, RequestNumber, SessionId, TopicPath
from gateway.ports import GridUnavailable, Ownership, PublishCommand, Published

NAME_PREFIX: Final = "$node-"
"""Begins the name; ids of sessions are 22 letters, digits, dashes and underscores."""


class SystemPublisher:
    """One run of one node as a publisher.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._store = context.grid.topics
        # The incarnation is in it: another run counts its requests from 1 again.
        self._ownership = Ownership(SessionId(f"{NAME_PREFIX}{context.me}"), context.me, Epoch(1))
        self._next = 1
        self._unanswered: set[int] = set()

    async def publish(self, values: Sequence[tuple[TopicPath, bytes]]) -> list[Published]:
        """Set the values of topics, in order, in one step of the grid where that is possible.

        Args:
            values: topics, and their new values as compact JSON text.

        Raises:
            GridUnavailable: some may have been set. They are not set later: what a node tells of itself is out of date
                by then.
        """
        first = self._next
        self._next += len(values)
        numbers = range(first, self._next)
        settled = RequestNumber(min(self._unanswered, default=first) - 1)
        self._unanswered.update(numbers)
        try:
            results = await self._store.publish(
                [
                    PublishCommand(self._ownership, RequestNumber(number), settled, topic, value, stored=False)
                    for number, (topic, value) in zip(numbers, values, strict=True)
                ]
            )
        finally:
            self._unanswered.difference_update(numbers)
        published = [each for each in results if isinstance(each, Published)]
        if len(published) < len(results):
            raise GridUnavailable("the grid takes this node's own publishes for those of an earlier one")
        return published
