"""Packets sent and not yet acknowledged (seed: JBoss Messaging, packet replication and failover).

```text
ids:    … 40 │ 41  42  43  44 │ 45 …
acknowledged │   the buffer   │ next
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gateway.core.stream.runs import Outgoing, Run
from gateway.core.types import PacketId
from gateway.core.wire.errors import LocalProtocolError, RemoteProtocolError


class ResendBuffer:
    """Keeps numbered packets, contiguous by id, until the peer has acknowledged them.

    It holds the runs that all sessions share: a thousand sessions that wait for the acknowledgement of one update hold
    it once, and numbering or acknowledging a whole run costs the same as a single packet.

    Args:
        packets: most packets to keep.
        size: most bytes of bodies to keep. A single larger packet is still kept, or it could never be sent.
        next_id: the id that the next packet will get.

    Attributes:
        count: how many packets are kept.
        bytes: total length of the bodies kept.
        next: id of the next packet.
    """

    __slots__ = ("_kept", "_packets", "_size", "_skipped", "bytes", "count", "next")

    def __init__(self, *, packets: int, size: int, next_id: PacketId = PacketId(1)) -> None:
        self._packets = packets
        self._size = size
        self._kept: list[Run] = []
        self._skipped = 0
        """Packets of the first run that have been acknowledged already."""
        self.count = 0
        self.bytes = 0
        self.next = next_id

    @classmethod
    def holding(cls, kept: Iterable[Run], *, packets: int, size: int, next_id: PacketId) -> ResendBuffer:
        """Make a buffer that holds *kept*, the last packet of which has the id before *next_id*."""
        buffer = cls(packets=packets, size=size, next_id=next_id)
        buffer._kept.extend(kept)
        buffer.count = sum(run.count for run in buffer._kept)
        buffer.bytes = sum(run.size for run in buffer._kept)
        return buffer

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Outgoing]:
        for run in self.after(PacketId(0)):
            yield from run.packets

    @property
    def oldest(self) -> PacketId:
        """Id of the oldest packet that can be resent; ``next`` if there is none."""
        return PacketId(self.next - self.count)

    @property
    def full(self) -> bool:
        """Whether no further packet may be numbered before the peer acknowledges some."""
        return self.count >= self._packets or self.bytes >= self._size

    @property
    def room(self) -> tuple[int, int]:
        """Packets, and bytes after which no further one may begin, that may be numbered now."""
        return self._packets - self.count, self._size - self.bytes

    def bound(self, *, packets: int, size: int) -> None:
        """Change the bounds, as the peer's welcome says; what is kept already stays."""
        self._packets = packets
        self._size = size

    def number(self, run: Run, *, beyond: bool = False) -> PacketId | None:
        """Give the packets of a run their ids, and keep it. Nothing else gives ids.

        Flat, because it is done for every packet: as three methods it made a lone delivery an eighth dearer.

        Args:
            run: its packets.
            beyond: the last packet may reach beyond the bound of bytes; else every byte has to fit.

        Returns:
            The id of the first packet, the others follow; None if there is no room for all of them.
        """
        count, size = self.count + run.count, self.bytes + run.size
        if (count > self._packets or size > self._size) and not (beyond and self._fits(run)):
            return None
        first = self.next
        self._kept.append(run)
        self.count = count
        self.bytes = size
        self.next = first + run.count  # type: ignore[assignment]  # PacketId(…) would be a call
        return first

    number_untold = number
    """The same, also where a buffer of another kind tells somebody of what it numbers, because who calls it tells: of
    many sessions at once (``SharedFrame.is_told``), or of the outbox from which the run was taken (``append``)."""

    def append(self, run: Run) -> PacketId:
        """Number the packets of a run from the outbox, of which the last may reach beyond the bound of bytes.

        Returns:
            The id of the first.

        Raises:
            LocalProtocolError: there is no room for all of them.
        """
        first = self.number_untold(run, beyond=True)
        if first is None:
            raise LocalProtocolError("the resend buffer is full: nothing may be numbered until the peer acknowledges")
        return first

    def follow(self, run: Run) -> None:
        """Keep a run that was numbered elsewhere, where it was looked at whether there is room: this is a copy."""
        self._kept.append(run)
        self.count += run.count
        self.bytes += run.size
        self.next = self.next + run.count  # type: ignore[assignment]  # PacketId(…) would be a call

    def move_to(self, other: ResendBuffer) -> None:
        """Have *other*, of another kind, go on with all that is here; this one must not be used any more."""
        other._packets, other._size, other._kept, other._skipped = self._packets, self._size, self._kept, self._skipped
        other.count, other.bytes, other.next = self.count, self.bytes, self.next

    def forget(self) -> None:
        """Keep nothing of what was numbered; the numbers stay."""
        self._kept.clear()
        self.count = self.bytes = self._skipped = 0

    def restart(self) -> None:
        """Keep nothing, and begin to number anew."""
        self.forget()
        self.next = PacketId(1)

    def _fits(self, run: Run) -> bool:
        packets, size = self.room
        return run.fitting(packets=packets, size=size) == run.count

    def withhold(self, is_withdrawn: Callable[[str], bool], stand_in: Outgoing) -> None:
        """Put *stand_in* in the place of each update of some topics: the numbers stay, and what they stood for is gone.

        Args:
            is_withdrawn: tells of a topic whether it is one of them.
            stand_in: has no topic.
        """
        self._kept = [run.without(is_withdrawn, stand_in) or run for run in self._kept]
        self.bytes = sum(run.size for run in self._kept) - self._bytes_skipped()

    def acknowledge(self, received: PacketId) -> None:
        """Drop all packets up to *received*. An acknowledgement that is older than the last one changes nothing.

        Raises:
            RemoteProtocolError: the peer acknowledges a packet that was never sent.
        """
        if received >= self.next:
            raise RemoteProtocolError(
                f"packet {received} is acknowledged, but {self.next - 1} is the last that was sent"
            )
        acknowledged = received - self.oldest + 1
        if acknowledged <= 0:
            return
        if acknowledged == self.count:
            self._kept.clear()
            self.count = self.bytes = self._skipped = 0
            return
        self.count -= acknowledged
        acknowledged += self._skipped
        self.bytes += self._bytes_skipped()
        whole = 0
        for run in self._kept:
            if acknowledged < run.count:
                break
            acknowledged -= run.count
            self.bytes -= run.size
            whole += 1
        del self._kept[:whole]
        self._skipped = acknowledged
        self.bytes -= self._bytes_skipped()

    def _bytes_skipped(self) -> int:
        return self._kept[0].first_bytes(self._skipped) if self._skipped else 0

    def covers(self, received: PacketId) -> bool:
        """Tell whether a peer whose last packet was *received* can be sent everything after it."""
        return self.oldest - 1 <= received < self.next

    def runs(self) -> Iterator[Run]:
        """Yield what is kept as it is shared, with packets of the first run that have been acknowledged already."""
        return iter(self._kept)

    def after(self, received: PacketId) -> Iterator[Run]:
        """Yield the packets after *received*, in order; those that are gone are left out."""
        skipped = self._skipped + max(0, received + 1 - self.oldest)
        for run in self._kept:
            if skipped >= run.count:
                skipped -= run.count
            else:
                yield run.split(skipped)[1] if skipped else run
                skipped = 0
