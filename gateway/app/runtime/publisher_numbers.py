"""Numbers of publishes that are made in the name of a node, and not of a session.

The grid asks of every publish by which right it is made, and remembers it for a while, so that repeating it does no
harm. A node publishes under names of its own that no session can have; the grid holds no session of that name, so the
receipts go away by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.core.types import Epoch, NodeRef, RequestNumber, SessionId
from gateway.ports import Ownership


class PublisherNumbers:
    """Counts the publishes of one publisher that is no session.

    Args:
        name: of the publisher; ids of sessions are 22 letters, digits, dashes and underscores.
        me: the node that publishes.

    Attributes:
        ownership: by which right it publishes.
    """

    def __init__(self, name: str, me: NodeRef) -> None:
        self.ownership = Ownership(SessionId(name), me, Epoch(1))
        self._next = 1
        self._unanswered: set[int] = set()

    @contextmanager
    def take(self, count: int) -> Iterator[tuple[range, RequestNumber]]:
        """Give out the next numbers; when the block ends, nobody asks for these publishes again.

        Args:
            count: of them.

        Returns:
            The numbers, and the one up to which every publish before them has been answered.
        """
        first = self._next
        self._next += count
        numbers = range(first, self._next)
        settled = RequestNumber(min(self._unanswered, default=first) - 1)
        self._unanswered.update(numbers)
        try:
            yield numbers, settled
        finally:
            self._unanswered.difference_update(numbers)
