"""Queues as administrators see them and mend what failed; see ``administration`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from gateway.ports.administration_basics import Page

DEAD_PAGE: Final = 100
"""Dead letters of one page at most. The grid reads them whole, each up to the size of a packet."""

MENDED_MOST: Final = 1_000
"""Dead letters that one call puts back or drops: as many as one step of the grid settles."""


class QueueView(NamedTuple):
    """A queue.

    Attributes:
        queue: its path.
        ready: messages that wait for a consumer.
        delayed: those that wait for their time.
        held: those that consumers hold.
        dead: dead letters.
        bytes: of messages, dead letters aside.
        consumers: how many.
        oldest: when the oldest message that is ready was sent, in seconds since 1970; None if there is none.
        sent: messages that were put into it since it is there: two looks tell how many came and went meanwhile.
    """

    queue: str
    ready: int
    delayed: int
    held: int
    dead: int
    bytes: int
    consumers: int
    oldest: float | None
    sent: int


class DeadLetterView(NamedTuple):
    """A message that nobody is given any more.

    Attributes:
        id: of the message.
        reason: why: ``rejected``, ``deliveries``, ``expired`` or ``overflow``.
        deliveries: how often it was delivered and failed.
        sent: when, in seconds since 1970.
        since: when it became one, likewise.
        headers: JSON text of an object; empty for none.
        value: JSON text; None if it is too large to be shown.
        size: bytes of it.
    """

    id: int
    reason: str
    deliveries: int
    sent: float
    since: float
    headers: bytes
    value: bytes | None
    size: int


class QueueAdministration(Protocol):
    """Queues of the cluster, and their dead letters."""

    async def list(self, *, cursor: str | None, limit: int) -> Page[QueueView]:
        """List them, those of a partition together and in the order of their names.

        Raises:
            BadParameter: the cursor cannot be read.
            GridUnavailable: nobody knows.
        """

    async def find(self, queue: str) -> QueueView:
        """Tell how one is.

        Raises:
            BadParameter: it is no path.
            NotThere: nothing is in it, and nobody consumes.
            GridUnavailable: nobody knows.
        """

    async def dead(self, queue: str, *, cursor: str | None, limit: int) -> Page[DeadLetterView]:
        """List its dead letters, the oldest first; what is put back meanwhile may have later pages leave some out.

        Raises:
            BadParameter: it is no path, or the cursor cannot be read.
            NotThere: there is no such queue.
            GridUnavailable: nobody knows.
        """

    async def mend(self, queue: str, messages: Sequence[int], *, drop: bool) -> int:
        """Put dead letters back to their places in the queue, as if they had never failed; or drop them for good.

        Args:
            queue: which.
            messages: which of its dead letters, at most ``MENDED_MOST``; what is none is left alone.
            drop: forget them instead.

        Returns:
            How many there were.

        Raises:
            BadParameter: it is no path.
            NotThere: there is no such queue.
            GridUnavailable: it may have been done; asking again does no harm.
        """
