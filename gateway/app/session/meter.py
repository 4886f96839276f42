"""What the packets of one connection are charged to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from gateway.core.pacing.rates import TokenBucket
from gateway.core.wire.codec import Salvaged
from gateway.core.wire.packets import (
    Packet,
    Publish,
    SessionPacket,
)
from gateway.core.wire.queue_packets import (
    Send,
)

CHARGED_TOGETHER: Final = 8 * 1024
"""Bytes of acknowledgements that are charged in one go: those of a client that only listens, for some minutes. They are
the most frequent messages, and a charge for each would cost as much as to read it."""

Charge: TypeAlias = Callable[[float, float], float]
"""Charges an amount at a time; returns the seconds to pause."""


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

    __slots__ = ("_all_bytes", "_bytes", "_charge_bytes", "_packets", "packets", "publishes", "read", "tell_at")

    def __init__(
        self,
        packets: Sequence[tuple[TokenBucket, str]],
        publish_bytes: Sequence[tuple[TokenBucket, str]],
        all_bytes: Sequence[tuple[TokenBucket, str]] = (),
    ) -> None:
        self._packets = packets
        self._bytes = publish_bytes
        self._all_bytes = all_bytes
        self._charge_bytes = _charging(all_bytes)
        self.read = 0
        self.packets = _charging(packets)
        self.publishes = bool(publish_bytes)
        self.tell_at = float("-inf")

    def charge(self, now: float, packets: Sequence[Packet]) -> float:
        """Charge the packets of one message, with what they publish.

        Args:
            now: seconds.
            packets: of the message; it costs one packet also if it holds none, as it was read all the same.

        Returns:
            Seconds for which no further ones should be read.
        """
        count = len(packets) or 1
        if isinstance(packets, Salvaged):  # what takes long to read is charged for the time that it takes (P20)
            count += packets.effort
        pause = self.packets(now, count)
        if self.publishes:
            size = 0
            for packet in packets:
                if isinstance(packet, SessionPacket) and isinstance(packet.body, Publish | Send):
                    size += len(packet.body.value)
            if size:
                pause = max(pause, *[bucket.charge(now, size) for bucket, _ in self._bytes])
        return max(pause, self.charge_read(now))

    def charge_read(self, now: float) -> float:
        """Charge the bytes that have been read since they were last charged; see ``charge``."""
        read, self.read = self.read, 0
        return self._charge_bytes(now, read)

    def charge_work(self, now: float, effort: float) -> float:
        """Charge what packets that were charged already have turned out to cost besides.

        Args:
            now: seconds.
            effort: packets that could have been served in that time.

        Returns:
            Seconds for which nothing like it should be done.
        """
        return self.packets(now, effort)

    def charge_call(self, now: float, packets: float, size: int, published: int) -> None:
        """Charge a call by HTTP; see ``owed``.

        Args:
            now: seconds.
            packets: as so many it counts.
            size: bytes that were read.
            published: bytes of values in them.
        """
        self.packets(now, packets)
        self._charge_bytes(now, size)
        for bucket, _ in self._bytes:
            bucket.charge(now, published)

    def owed(self, now: float) -> float:
        """Tell after how many seconds nothing is owed any more; 0 if nothing is."""
        return max((bucket.owed(now) for bucket, _ in (*self._packets, *self._bytes, *self._all_bytes)), default=0.0)

    def exceeded(self, now: float) -> str:
        """Name the limit for which the pause is longest."""
        return max((*self._packets, *self._bytes, *self._all_bytes), key=lambda each: each[0].charge(now, 0))[1]


def _charging(buckets: Sequence[tuple[TokenBucket, str]]) -> Charge:
    """Make what charges all *buckets* at once; nearly always there is one, and it is asked for every message."""
    if not buckets:
        return _charge_nobody
    charges = [bucket.charge for bucket, _ in buckets]
    if len(charges) == 1:
        return charges[0]
    return lambda now, amount: max([charge(now, amount) for charge in charges])


def _charge_nobody(_now: float, _amount: float) -> float:
    """Charge nothing: nothing is limited."""
    return 0.0
