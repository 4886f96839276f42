"""What one end of a zone link has sent and the other has not acknowledged, and up to where nothing is missing there.

A stream is read from its cursor. Entries that do not cross move the cursor, too, but not past what is still under way:
whoever goes on from a cursor must not leave anything out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gateway.core.zones.protocol import ZoneProtocolError
from gateway.core.zones.stamps import StreamPlace

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""Bytes under way on a link: what 100 MB/s carry in the 40 ms of a round trip across an ocean's shelf."""

WINDOW_EVENTS: Final = 10_000
"""Events under way on a link, likewise."""


@dataclass(slots=True)
class _Sent:
    """One message under way.

    Attributes:
        size: bytes.
        events: in it.
        reached: by partition, up to where its stream has been sent once this message is acknowledged.
    """

    size: int
    events: int
    reached: dict[int, StreamPlace] = field(default_factory=dict)


class SendWindow:
    """The messages under way on one link.

    Args:
        size: bytes that may be under way.
        events: events that may be.
    """

    def __init__(self, *, size: int = WINDOW_BYTES, events: int = WINDOW_EVENTS) -> None:
        self._most_bytes = size
        self._most_events = events
        self._sent: deque[_Sent] = deque()
        self._last: dict[int, _Sent] = {}
        self._acknowledged = 0
        self._bytes = 0
        self._events = 0

    @property
    def events(self) -> int:
        """Events under way."""
        return self._events

    @property
    def bytes(self) -> int:
        """Bytes under way."""
        return self._bytes

    @property
    def has_room(self) -> bool:
        """Whether another message may be sent; one that is larger than the window is sent alone."""
        return self._bytes < self._most_bytes and self._events < self._most_events

    def is_under_way(self, partition: int) -> bool:
        """Whether something of a partition is not acknowledged."""
        return partition in self._last

    def sent(self, size: int, events: int, partition: int) -> None:
        """A message with events of a partition is sent."""
        message = _Sent(size, events)
        self._sent.append(message)
        self._last[partition] = message
        self._bytes += size
        self._events += events

    def reached(self, partition: int, place: StreamPlace) -> StreamPlace | None:
        """All of a partition's stream up to a place has been sent, or does not cross.

        Returns:
            The place, if nothing of the partition is under way; else it comes from ``acknowledged``.
        """
        message = self._last.get(partition)
        if message is None:
            return place
        message.reached[partition] = place
        return None

    def acknowledged(self, messages: int) -> dict[int, StreamPlace]:
        """The other end has so many messages since the link came up.

        Returns:
            By partition, up to where nothing is missing there.

        Raises:
            ZoneProtocolError: more than were sent, or fewer than it said before.
        """
        count = messages - self._acknowledged
        if not 0 <= count <= len(self._sent):
            raise ZoneProtocolError(
                f"{messages} messages are acknowledged, after {self._acknowledged}, and "
                f"{self._acknowledged + len(self._sent)} were sent"
            )
        reached: dict[int, StreamPlace] = {}
        for _ in range(count):
            message = self._sent.popleft()
            self._bytes -= message.size
            self._events -= message.events
            reached.update(message.reached)
            for partition in [each for each, last in self._last.items() if last is message]:
                del self._last[partition]
        self._acknowledged = messages
        return reached
