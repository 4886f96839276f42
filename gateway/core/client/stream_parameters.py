"""The numbers that a client's session machine works with, made from a welcome (protocol 4.3, 5.3)."""

from __future__ import annotations

from typing import Final

from gateway.core.stream.machine import StreamParameters
from gateway.core.wire.packets import Welcome

ACK_PACKETS: Final = 256
"""Packets received after which an acknowledgement is sent alone: a node spends as much on one as on some deliveries."""

ACK_SHARE: Final = 4
"""... and at the latest after this part of the node's resend buffer, so that the node never waits for it."""

ACK_DELAY: Final = 0.5
"""Seconds after which an acknowledgement is sent alone. At 50 updates a second one in 25 is then answered, which costs
the node a tenth of its time and not a quarter; a quarter of the time in which a draining node expects it."""


def parameters_of(welcome: Welcome, ack_packets: int | None = None) -> StreamParameters:
    """Make the parameters that a welcome asks for.

    Args:
        welcome: from the node.
        ack_packets: packets received after which the application wants an acknowledgement to be sent; None for
            ``ACK_PACKETS``. The node's bound counts all the same.
    """
    limits = welcome.limits
    return StreamParameters(
        resend_packets=limits.resend_packets,
        resend_bytes=limits.resend_bytes,
        message_bytes=limits.message_bytes,
        ack_packets=max(1, min(ack_packets or ACK_PACKETS, limits.resend_packets // ACK_SHARE)),
        ack_delay=ACK_DELAY,
        ping_interval=welcome.ping_interval,
        ping_timeout=welcome.ping_timeout,
    )
