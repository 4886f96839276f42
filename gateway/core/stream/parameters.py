"""The bounds and times that a session machine works with: resend buffer, acknowledgements, pings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParameters:
    """The bounds and times a session machine works with; the welcome tells them to the client.

    Attributes:
        resend_packets: most unacknowledged packets; beyond, nothing is numbered until the peer acknowledges.
        resend_bytes: the same bound in bytes of bodies.
        message_bytes: largest message to write; a larger single packet is still written, alone.
        ack_packets: received packets after which an acknowledgement is sent alone (seed: packetAcknowledgeBufferSize).
        ack_delay: seconds after which one is sent alone, if no session packet has carried it before.
        ping_interval: seconds of silence after which the server pings.
        ping_timeout: seconds of silence after which the peer counts as lost.
    """

    resend_packets: int
    resend_bytes: int
    message_bytes: int
    ack_packets: int
    ack_delay: float
    ping_interval: float
    ping_timeout: float
