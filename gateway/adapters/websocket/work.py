"""What the frames of one connection cost a node, and how much of that it may cause (P20, ADR 0047).

Packets are limited by their rate (``rate_packets``), and what a client publishes by its bytes. But a client may send
frames that are no packets: pings, pongs, fragments, single bytes. What those cost is charged by constants, in seconds
of CPU, and not measured while it is done, so that nobody is charged for a pause of the machine, and every node decides
alike.
"""

from __future__ import annotations

from typing import Final

from gateway.adapters.work_budget import KNOWN_WORK, UNAUTHENTICATED_WORK

FRAME_COST: Final = 1.8e-6
"""Seconds for a frame that is no message by itself: parsed, and a ping answered. Measured by ``python -m
benchmarks.micro.costs``, least of five rounds on a machine of two cores: 1.2 to 2.1 µs for the dearest kind. A message
in one frame is charged as a packet, by ``rate_packets``."""

BYTE_COST: Final = 4e-9
"""Seconds for a byte: taken from the kernel (over TLS deciphered), unmasked, looked at as UTF-8, put together. Measured
as above: 2.8 to 4.1 ns without TLS."""

READ_COST: Final = 10e-6
"""Seconds for a read that completes no message: the loop's event and two system calls. As above: 9.8 to 11 µs."""

CHARGED_FROM: Final = 0.001
"""Seconds of work that are charged at once: rarely enough that it costs nothing, and that a pause is worth a timer."""


SESSION: Final = KNOWN_WORK
"""Of a connection with a session: a fiftieth of a core, which is 11,000 pings or 5 MB a second, five times the frames
that ``rate_packets`` allows. Without a message, 550 pings a second for ever, and 55,000 more."""

UNAUTHENTICATED: Final = UNAUTHENTICATED_WORK
"""Of one without: half of that, and a tenth, which is 5,500 pings. It has one packet to send, of at most
``limit_message_bytes``; in the segments of a slow network the largest takes a fourteenth of it."""
