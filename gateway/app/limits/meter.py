"""What the packets of one connection are charged to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.core.codec import Salvaged
from gateway.core.packets import Packet, Publish, SessionPacket
from gateway.core.rates import TokenBucket

CHARGED_TOGETHER: Final = 8 * 1024
"""Bytes of acknowledgements that are charged in one go: those of a client that only listens, for some minutes. They are
the most frequent messages, and a charge for each would cost as much as to read it."""


class Meter:
    """What the packets of one connection are charged to.

    Args:
        packets: what packets are charged to, and the settings by their names.
        publish_bytes: what the bytes of published values are charged to.
        all_bytes: what all bytes are charged to.

    Attributes:
        packets: charges so many packets at a time; returns the seconds to pause.
        publishes: whether published bytes are charged, too.
        read: bytes that have been read and not been charged yet; added to by whoever reads.
        tell_at: when the client may be told again that it is slowed down.
    """

    __slots__ = ("_all_bytes", "_bytes", "_packets", "packets", "publishes", "read", "tell_at")

    def __init__(
        self,
        packets: Sequence[tuple[TokenBucket, str]],
        publish_bytes: Sequence[tuple[TokenBucket, str]],
        all_bytes: Sequence[tuple[TokenBucket, str]] = (),
    ) -> None:
        self._packets = packets
        self._bytes = publish_bytes
        self._all_bytes = all_bytes
        self.read = 0
        self.packets: Callable[[float, float], float] = (
            packets[0][0].charge if len(packets) == 1 else self._charge_packets
        )
        self.publishes = bool(publish_bytes)
        self.tell_at = float("-inf")

    def charge(self, now: float, packets: Sequence[Packet]) -> float:
        """Charge packets that have come, with what they publish.

        Returns:
            Seconds for which no further ones should be read.
        """
        # What takes long to read is charged for the time that it takes (P20).
        effort = packets.effort if isinstance(packets, Salvaged) else 0
        pause = self.packets(now, len(packets) + effort)
        if self.publishes:
            size = 0
            for packet in packets:
                if isinstance(packet, SessionPacket) and isinstance(packet.body, Publish):
                    size += len(packet.body.value)
            if size:
                pause = max(pause, *[bucket.charge(now, size) for bucket, _ in self._bytes])
        return max(pause, self.charge_read(now))

    def charge_read(self, now: float) -> float:
        """Charge the bytes that have been read since they were last charged; see ``charge``."""
        read, self.read = self.read, 0
        return max([bucket.charge(now, read) for bucket, _ in self._all_bytes], default=0.0)

    def charge_work(self, now: float, effort: float) -> float:
        """Charge what packets that were charged already have turned out to cost besides.

        Args:
            now: seconds.
            effort: packets that could have been served in that time.

        Returns:
            Seconds for which nothing like it should be done.
        """
        return self.packets(now, effort)

    def exceeded(self, now: float) -> str:
        """Name the limit for which the pause is longest."""
        return max((*self._packets, *self._bytes, *self._all_bytes), key=lambda each: each[0].charge(now, 0))[1]

    def _charge_packets(self, now: float, count: float) -> float:
        return max([bucket.charge(now, count) for bucket, _ in self._packets], default=0.0)
