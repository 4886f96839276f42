"""Bodies that wait for their packet id (design section 9, promise P9).

```text
            push                         pop
updates  ─────────▶  first in, first out  ─────────▶  numbered, resend buffer, socket
                         │ conflate()  ▲
                         ▼             │ empty
                     newest per topic ─┘
```

While the transport takes what it is given, nothing is ever left out. Once it pushes back, what waits is folded to the
newest body per topic, and stays folded until the outbox has been emptied, so that memory is bounded by the number of
topics and not by the rate of updates. Bodies without a topic (replies, notices) are never left out.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import NamedTuple


class Outgoing(NamedTuple):
    """The body of a session packet; one object is shared by all sessions it goes to.

    Attributes:
        topic: for an update, the topic whose newer update may take its place; None for anything that must arrive.
        body: encoded, without its number (see ``codec.number``).
    """

    topic: str | None
    body: bytes


class Outbox:
    """What one session still has to be sent, in order; bounded in packets and bytes by its owner.

    Attributes:
        bytes: total length of the waiting bodies.
        conflated: updates left out since ``conflated`` was last set to 0.
    """

    __slots__ = ("_allowance_bytes", "_allowance_packets", "_folded", "_queue", "_unique", "bytes", "conflated")

    def __init__(self) -> None:
        self._queue: deque[Outgoing] = deque()
        self._folded: OrderedDict[str | int, Outgoing] = OrderedDict()
        self._unique = 0
        self._allowance_packets = 0
        self._allowance_bytes = 0
        self.bytes = 0
        self.conflated = 0

    def __len__(self) -> int:
        return len(self._queue) + len(self._folded)

    def __iter__(self) -> Iterator[Outgoing]:
        yield from self._folded.values()
        yield from self._queue

    @property
    def is_folded(self) -> bool:
        """Whether a newer update takes the place of a waiting one of its topic."""
        return bool(self._folded)

    def push(self, outgoing: Outgoing) -> None:
        """Add *outgoing* at the end, or in the place of an older update of its topic."""
        if self._folded:
            self._fold(outgoing)
        else:
            self._queue.append(outgoing)
            self.bytes += len(outgoing.body)

    def allow(self, outgoing: Outgoing) -> None:
        """Push a snapshot: it does not count against the bounds until the outbox has been emptied.

        A selection may match more topics than the bound. Were its snapshot counted, the session would be closed as slow
        for having subscribed, again and again at every failover.
        """
        before, bytes_before = len(self), self.bytes
        self.push(outgoing)
        self._allowance_packets += len(self) - before
        self._allowance_bytes += max(0, self.bytes - bytes_before)

    @property
    def allowance(self) -> tuple[int, int]:
        """Packets and bytes by which the bounds are raised for the snapshots that wait."""
        return self._allowance_packets, self._allowance_bytes

    @allowance.setter
    def allowance(self, allowance: tuple[int, int]) -> None:
        self._allowance_packets, self._allowance_bytes = allowance

    def exceeds(self, *, packets: int, size: int) -> bool:
        """Tell whether more than *packets* packets or *size* bytes wait, snapshots not counted."""
        return len(self) > packets + self._allowance_packets or self.bytes > size + self._allowance_bytes

    def pop(self) -> Outgoing:
        """Take the first one out.

        Raises:
            IndexError: the outbox is empty.
        """
        if self._folded:
            _, outgoing = self._folded.popitem(last=False)
        else:
            outgoing = self._queue.popleft()
        self.bytes -= len(outgoing.body)
        if (self._allowance_packets or self._allowance_bytes) and not self:
            self._allowance_packets = self._allowance_bytes = 0
        return outgoing

    def conflate(self) -> None:
        """Fold what waits to the newest update per topic, from now until the outbox is empty."""
        queue, self._queue = self._queue, deque()
        for outgoing in queue:
            self.bytes -= len(outgoing.body)
            self._fold(outgoing)

    def clear(self) -> int:
        """Forget everything.

        Returns:
            How many bodies were dropped.
        """
        dropped = len(self)
        self._queue.clear()
        self._folded.clear()
        self.bytes = self._allowance_packets = self._allowance_bytes = 0
        return dropped

    def _fold(self, outgoing: Outgoing) -> None:
        key: str | int
        if outgoing.topic is None:
            self._unique += 1
            key = self._unique
        else:
            key = outgoing.topic
            if replaced := self._folded.get(key):
                self.bytes -= len(replaced.body)
                self.conflated += 1
        self._folded[key] = outgoing
        self.bytes += len(outgoing.body)
