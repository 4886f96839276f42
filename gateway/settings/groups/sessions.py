"""How sessions live, and how they are moved before a node stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.settings.declaration import setting
from gateway.settings.quantities import Seconds, Whole

_DAY: Final = 86400.0


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """How long sessions live without a connection, and how a dead connection is noticed."""

    window_default: float = setting(
        Seconds(1, 7 * _DAY),
        60.0,
        "How long a session survives without a connection if the client does not ask for another window.",
        reason="Covers a tunnel, a lift, a restart of the browser and a rolling restart of the cluster.",
    )
    window_maximum: float = setting(
        Seconds(1, 7 * _DAY),
        3600.0,
        "The longest window that a client can get.",
        reason="A session that is never resumed costs memory on a node and in the grid until its window ends.",
    )
    handshake_timeout: float = setting(
        Seconds(0.1, 60),
        5.0,
        "How long a new connection may take to send its hello or resume.",
        reason="Slow mobile networks need a second or two; silent connections are not kept longer than this.",
    )
    question_timeout_maximum: float = setting(
        Seconds(1, 600),
        600.0,
        "The longest time that a client may let a question wait for its answer; requests for longer ones are refused.",
        reason="As long as the protocol allows; what takes longer is work for a queue. Lower it where clients that ask "
        "for long answers keep too many questions open.",
    )
    ping_interval: float = setting(
        Seconds(0.2, 3600),
        20.0,
        "Silence after which a connection is pinged.",
        reason="Proxies and mobile networks forget idle connections, the strictest after 30 s.",
    )
    ping_timeout: float = setting(
        Seconds(0.5, 7200),
        45.0,
        "Silence after which a connection is closed; the session stays.",
        reason="Two pings may be lost before a third would be due.",
    )
    ack_packets: int = setting(
        Whole("packets", 1, 100_000),
        64,
        "Packets received after which an acknowledgement is sent alone, if none was carried by another packet.",
        reason="A sixteenth of limit_resend_packets: the peer's buffer never fills for lack of acknowledgements.",
    )
    ack_delay: float = setting(
        Seconds(0.001, 1),
        0.25,
        "The longest time for which a received packet stays unacknowledged.",
        reason="Most acknowledgements find a packet to travel with in this time; a quiet session frees its buffers "
        "soon.",
    )
    replay_events: int = setting(
        Whole("updates", 0, 1_000_000),
        5_000,
        "Updates that a node looks at for one client that fails over, to send it all that it missed. Beyond, it sends "
        "current values.",
        reason="Twelve seconds of 400 updates a second, and half of what the grid keeps of a partition "
        "(stream_length). A client that was away for longer is better served by current values.",
    )
    backoff_initial: float = setting(
        Seconds(0.01, 60),
        0.25,
        "Advice to clients: a random time up to this passes before the first reconnect.",
        reason="Spreads the clients of a node over many turns of the surviving nodes; people do not notice it.",
    )
    backoff_maximum: float = setting(
        Seconds(0.1, 600),
        10.0,
        "Advice to clients: the bound doubles at each failure up to this.",
        reason="Ten attempts within the default window, even if every wait is the longest.",
    )
    backoff_stable: float = setting(
        Seconds(0, 600),
        10.0,
        "Advice to clients: how long a connection must last before the bound falls back to backoff_initial.",
        reason="A node that accepts and dies at once must not be flooded with reconnects.",
    )


@dataclass(frozen=True, kw_only=True)
class DrainSettings:
    """How a node is stopped without ending a session (SIGTERM)."""

    drain_batch: int = setting(
        Whole("sessions", 1, 1_000_000),
        100,
        "Clients asked at the same time to move to another node.",
        reason="With drain_interval: 500 a second, a hundredth of the claims that the grid can serve.",
    )
    drain_interval: float = setting(
        Seconds(0.001, 60),
        0.2,
        "Time between two batches.",
        reason="See drain_batch.",
    )
    drain_jitter: float = setting(
        Seconds(0, 60),
        1.0,
        "Clients of a batch move at a random time within this.",
        reason="Spreads batches so that the other nodes see an even stream.",
    )
    drain_timeout: float = setting(
        Seconds(0, 3600),
        30.0,
        "Time for the whole drain. Connections that are left then are closed with a code that lets them resume "
        "elsewhere.",
        reason="Ten thousand sessions take 20 s. Give the process manager more time than this before it kills the "
        "node.",
    )
