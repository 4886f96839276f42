"""What the frames of one connection cost a node, and how much of that it may cause (P20, ADR 0047).

Packets are limited by their rate (``rate_packets``), and what a client publishes by its bytes. But a client may send
frames that are no packets: pings, pongs, fragments, single bytes. What those cost is charged by constants, in seconds
of CPU, and not measured while it is done, so that nobody is charged for a pause of the machine, and every node decides
alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.core.rates import TokenBucket

FRAME_COST: Final = 1.8e-6
"""Seconds for a frame that is no message by itself: parsed, and a ping answered. Measured by ``python -m
benchmarks.micro.costs``, least of five rounds on a machine of two cores: 1.2 to 2.1 µs for the dearest kind. A message
in one frame is charged as a packet, by ``rate_packets``."""

BYTE_COST: Final = 4e-9
"""Seconds for a byte: taken from the kernel (over TLS deciphered), unmasked, looked at as UTF-8, put together. Measured
as above: 2.8 to 4.1 ns without TLS."""

READ_COST: Final = 10e-6
"""Seconds for a read that completes no message: the loop's event and two system calls. As above: 9.8 to 11 µs."""

RECORD_COST: Final = 2e-6
"""Seconds for a record of TLS beside others in one read. An estimate."""

SILENT_BYTE_COST: Final = 0.6e-6
"""Seconds for a byte that came over TLS and said nothing: a change of keys takes 27 of them and 13 µs of OpenSSL. On
the high side for all else that says nothing, which honest clients do not send."""

CHARGED_FROM: Final = 0.001
"""Seconds of work that are charged at once: rarely enough that it costs nothing, and that a pause is worth a timer."""


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """How much work a connection may cause.

    Attributes:
        rate: seconds of CPU a second; above, it is read more slowly.
        burst: seconds of CPU at once, after it was quiet.
        idle_rate: seconds of CPU a second that it may cause without saying anything that means something.
        idle_burst: seconds of CPU that it may cause beyond that; then it is closed.
    """

    rate: float
    burst: float
    idle_rate: float
    idle_burst: float


SESSION: Final = WorkLimits(rate=0.02, burst=0.05, idle_rate=0.001, idle_burst=0.1)
"""Of a connection with a session: a fiftieth of a core, which is 11,000 pings or 5 MB a second, five times the frames
that ``rate_packets`` allows. Without a message, 550 pings a second for ever, and 55,000 more."""

STRANGER: Final = WorkLimits(rate=0.01, burst=0.01, idle_rate=0.001, idle_burst=0.01)
"""Of one without: half of that, and a tenth, which is 5,500 pings. It has one packet to send, of at most
``limit_message_bytes``; in the segments of a slow network the largest takes a fourteenth of it."""


class WorkBudget:
    """What one connection has left.

    Args:
        limits: see there.

    Attributes:
        is_exhausted: whether it has caused more than is borne without a message.
    """

    __slots__ = ("_bucket", "_idle", "is_exhausted")

    def __init__(self, limits: WorkLimits) -> None:
        self._bucket = TokenBucket(limits.rate, limits.burst)
        self._idle = TokenBucket(limits.idle_rate, limits.idle_burst)
        self.is_exhausted = False

    def charge(self, now: float, work: float) -> float:
        """Charge work that was done.

        Args:
            now: seconds, of a clock that does not go back.
            work: seconds of CPU.

        Returns:
            Seconds for which nothing more should be read; 0 if the connection keeps to its rate.
        """
        self.is_exhausted = self._idle.charge(now, work) > 0
        return self._bucket.charge(now, work)

    def note_message(self) -> None:
        """Something has come that means something."""
        self._idle.fill()
        self.is_exhausted = False
