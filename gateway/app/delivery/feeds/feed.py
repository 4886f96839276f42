"""What a session can take from when there is room: the port between ``Feeds`` and the kinds of feeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from gateway.app.delivery.partition import Partition
from gateway.core.stream.runs import Run
from gateway.core.types import RequestNumber, TopicPath

PORTION_PACKETS: Final = 250
"""Packets that a session takes at once: one or two milliseconds of the loop, and what a message holds."""

PORTION_BYTES: Final = 64 * 1024
"""Bytes of bodies from which on a portion is full: what a transport takes before it counts as full."""


class Feed(Protocol):
    """Something that a session is to be sent, in portions: it is asked for the next one when the last one has gone out.

    A feed holds a place in what it reads from, and none of what it will hand out.
    """

    @property
    def is_done(self) -> bool:
        """Whether nothing more will come."""

    @property
    def subscribe(self) -> tuple[RequestNumber, str] | None:
        """The subscribe that it answers, by its request and its selector; None if it answers none."""

    @property
    def numbers(self) -> frozenset[int]:
        """The topic partitions of what it hands out."""

    def pull(self, until: float, *, packets: int, size: int) -> Sequence[Run]:
        """Hand out the next portion; goes on by one step at least, and does not wait.

        Args:
            until: when to stop, on the monotonic clock, though there is more.
            packets: most packets to hand out, at least 1.
            size: bytes of bodies; none is handed out that would begin when they are used up.

        Returns:
            The portion; nothing if nothing was found in that time.
        """

    def owes(self, partition: Partition, topic: TopicPath) -> bool:
        """Tell whether the feed will hand out the current value of a topic, so that no update of it may come before."""
