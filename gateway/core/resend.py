"""Packets sent and not yet acknowledged (seed: JBoss Messaging, packet replication and failover).

```text
ids:    … 40 │ 41  42  43  44 │ 45 …
acknowledged │   the buffer   │ next
```
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from gateway.core.errors import LocalProtocolError, RemoteProtocolError
from gateway.core.outbox import Outgoing
from gateway.core.types import PacketId


class ResendBuffer:
    """Keeps numbered packets, contiguous by id, until the peer has acknowledged them.

    The bodies are references to bytes that all sessions share: a thousand sessions that wait for the acknowledgement of
    one update hold it once.

    Args:
        packets: most packets to keep.
        size: most bytes of bodies to keep. A single larger packet is still kept, or it could never be sent.
        next_id: the id that the next packet will get.

    Attributes:
        bytes: total length of the bodies kept.
        next: id of the next packet.
    """

    __slots__ = ("_kept", "_packets", "_size", "bytes", "next")

    def __init__(self, *, packets: int, size: int, next_id: PacketId = PacketId(1)) -> None:
        self._packets = packets
        self._size = size
        self._kept: deque[Outgoing] = deque()
        self.bytes = 0
        self.next = next_id

    @classmethod
    def holding(cls, kept: Iterable[Outgoing], *, packets: int, size: int, next_id: PacketId) -> ResendBuffer:
        """Make a buffer that holds *kept*, the last of which has the id before *next_id*."""
        buffer = cls(packets=packets, size=size, next_id=next_id)
        buffer._kept.extend(kept)
        buffer.bytes = sum(len(outgoing.body) for outgoing in buffer._kept)
        return buffer

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter(self._kept)

    @property
    def oldest(self) -> PacketId:
        """Id of the oldest packet that can be resent; ``next`` if there is none."""
        return PacketId(self.next - len(self._kept))

    @property
    def full(self) -> bool:
        """Whether no further packet may be numbered before the peer acknowledges some."""
        return len(self._kept) >= self._packets or self.bytes >= self._size

    def bound(self, *, packets: int, size: int) -> None:
        """Change the bounds, as the peer's welcome says; what is kept already stays."""
        self._packets = packets
        self._size = size

    def append(self, outgoing: Outgoing) -> PacketId:
        """Number a packet and keep it.

        Returns:
            Its id.

        Raises:
            LocalProtocolError: the buffer is full.
        """
        if self.full:
            raise LocalProtocolError("the resend buffer is full: nothing may be numbered until the peer acknowledges")
        self._kept.append(outgoing)
        self.bytes += len(outgoing.body)
        number = self.next
        self.next = PacketId(number + 1)
        return number

    def acknowledge(self, received: PacketId) -> None:
        """Drop all packets up to *received*. An acknowledgement that is older than the last one changes nothing.

        Raises:
            RemoteProtocolError: the peer acknowledges a packet that was never sent.
        """
        if received >= self.next:
            raise RemoteProtocolError(
                f"packet {received} is acknowledged, but {self.next - 1} is the last that was sent"
            )
        for _ in range(received - self.oldest + 1):
            self.bytes -= len(self._kept.popleft().body)

    def covers(self, received: PacketId) -> bool:
        """Tell whether a peer whose last packet was *received* can be sent everything after it."""
        return self.oldest - 1 <= received < self.next

    def after(self, received: PacketId) -> Iterator[tuple[PacketId, Outgoing]]:
        """Yield the packets after *received*, with their ids, in order."""
        first = max(received + 1, self.oldest)
        for offset, outgoing in enumerate(islice(self._kept, first - self.oldest, None)):
            yield PacketId(first + offset), outgoing
