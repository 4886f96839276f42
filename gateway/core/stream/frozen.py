"""What a session machine is made from and what it can be turned into: values only (see ``session``)."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.stream.runs import Run
from gateway.core.stream.transitions import Role, State
from gateway.core.types import PacketId, TokenGeneration


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPolicy:
    """The numbers a session machine works with; the welcome tells them to the client.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSession:
    """A session machine as a value, buffers included (JBoss Messaging: what a backup node holds).

    ``SessionMachine.thaw`` turns it into a machine that behaves exactly like the one it was taken from.
    """

    role: Role
    policy: SessionPolicy
    state: State
    next: PacketId
    kept: tuple[Run, ...]
    sent: PacketId
    received: PacketId
    acknowledged: PacketId
    waiting: tuple[Run, ...]
    folded: bool
    conflated: int
    discarded: int
    duplicates: int
    heard: float
    ack_due: float | None
    ping_pending: bool
    ack_owed: bool
    pong_owed: bool
    links: tuple[bytes, ...]
    generation: TokenGeneration | None
    proven: bool
