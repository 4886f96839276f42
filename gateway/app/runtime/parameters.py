"""The numbers a node works with, as the application needs them; ``bootstrap`` makes them of settings.

Who may do what is no matter of them: that is the policy, see ``gateway.core.policy``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from gateway.core.pacing.accounts import AccountLimits
from gateway.core.stream.machine import StreamParameters
from gateway.core.wire.codes import ClusterMode, MirrorMode
from gateway.core.wire.packets import Backoff, Limits
from gateway.ports.zone_links import ZoneLinkLimits

REMOVAL_GRACE: Final = 3600.0
"""Seconds for which a removal is remembered beyond the longest window: some sessions end late, if a node
is unreachable."""

OFF: Final = "off"
"""In the place of a backup's name: none."""

AUTO: Final = "auto"
"""In the place of a backup's name: it is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainParameters:
    """How a planned stop moves its clients (P12).

    Attributes:
        batch: sessions told to go away together.
        interval: seconds between two batches.
        jitter: seconds over which the clients of a batch spread their moves.
        settle: seconds to wait for a session's outstanding replies and acknowledgements before its go-away.
        timeout: seconds after which clients that have not left are closed.
    """

    batch: int
    interval: float
    jitter: float
    settle: float
    timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageParameters:
    """What those who use a node may use of it together.

    Attributes:
        address: connections and traffic from one network address.
        principal: sessions and traffic of one principal.
        node: of everybody together.
        exempt: networks whose addresses are not limited.
        exempt_handshakes: of TLS, a second, from each such address or proxy; 0 for no limit.
    """

    address: AccountLimits
    principal: AccountLimits
    node: AccountLimits
    exempt: tuple[IPv4Network | IPv6Network, ...]
    exempt_handshakes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeParameters:
    """What questions may take besides what a session is told in its welcome (protocol 18).

    Attributes:
        questions: without an answer, of all sessions of a node; 0 for no limit.
        longest: seconds that a question may wait for its answer.
        partition_questions: that one topic partition of the grid holds at most; 0 for no limit.
        partition_bytes: of them and of their answers; likewise.
    """

    questions: int
    longest: float
    partition_questions: int
    partition_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParameters:
    """What calls and sessions may read of current values.

    Attributes:
        values: of a page.
        bytes: of paths and values above which a page is ended.
        at_once: pages that a node reads at the same time; 0 for no limit.
    """

    values: int
    bytes: int
    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StormParameters:
    """How many clients that come back together are met.

    Attributes:
        admission_rate: clients per second that a node admits while it has updates to deliver; 0 for no limit.
        admission_wait: seconds that a client waits at most to be admitted.
        claim_rate: sessions per second that all nodes together ask of the grid; 0 for no limit.
        claims_at_once: handshakes that a node works on together; 0 for no limit.
    """

    admission_rate: float
    admission_wait: float
    claim_rate: float
    claims_at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorParameters:
    """Which node keeps copies of this node's sessions, and what this one keeps for others.

    Attributes:
        backup: name of the node; ``AUTO`` to choose one, ``OFF`` for none.
        mode: what output waits for, of sessions whose roles ask for nothing more.
        patience: seconds for which output waits for a backup that is silent.
        failure_domain: what this node fails with; empty if it is not said.
        copies_bytes: that the copies of one other node may take here; 0 for no bound.
    """

    backup: str = OFF
    mode: MirrorMode = MirrorMode.ASYNC
    patience: float = 0.5
    failure_domain: str = ""
    copies_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverParameters:
    """How nodes find out that others have failed, and what they do then (P17).

    Attributes:
        heartbeat: seconds after which every node says something over its links.
        suspect_after: heartbeats without a sign of life after which a node is suspected.
        confirm: seconds between two looks at the lease of a suspect.
        transient_wait: seconds after a takeover in which what is transient of the failed node stays.
    """

    heartbeat: float = 0.5
    suspect_after: int = 3
    confirm: float = 0.5
    transient_wait: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneParameters:
    """Links with other clusters (P18).

    Attributes:
        shares: links over which this cluster sends to each other one.
        limits: what a link may cost.
    """

    shares: int = 1
    limits: ZoneLinkLimits = field(default_factory=ZoneLinkLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParameters:
    """Everything about a node that is a matter of configuration.

    Attributes:
        replicated: sessions are written to the grid; without, only rung 1 exists (Diffusion: it must be configured).
        window: seconds a session survives without a connection, if the client does not ask for another time.
        max_window: longest window a client gets, in seconds.
        handshake_timeout: seconds in which a connection must bring its hello or resume.
        session: numbers of the session machines.
        limits: what one session may use.
        request_bytes: bytes of requests that a session may have unanswered; 0 for no limit.
        node_request_bytes: bytes of requests that all sessions may have unanswered; 0 for no limit.
        outbox_packets: packets that may wait, not yet numbered, before the client counts as too slow.
        outbox_bytes: the same bound in bytes.
        high_water: bytes a transport may hold back before nothing more is numbered for its session.
        packet_rate: packets per second that one connection may send for long; 0 for no limit.
        packet_burst: packets that it may send at once.
        new_topic_packets: packets as which a publish counts that creates its topic, at least 1.
        byte_rate: bytes of messages per second that one connection may send for long; 0 for no limit.
        byte_burst: bytes that it may send at once.
        token_life: seconds after which no token is accepted any more, whatever the clock of the node that made it.
        usage: what addresses, principals and all together may use.
        partition_topics: topics that one topic partition holds at most; 0 for no limit.
        partition_bytes: bytes of values that one topic partition holds at most; 0 for no limit.
        exchanges: what questions may take.
        pages: what calls may read of current values.
        storms: how many clients that come back together are met.
        token_renewal: seconds after which a connected client is handed a token with a new life.
        revocations: most that may be in force.
        credential_notice: seconds before their end at which a client is told that its credentials expire.
        counted_roots: first segments of topics whose updates are counted apart, for the metrics; usually none.
        topic_depth: leading path segments that decide a topic's partition; the same on all nodes of a cluster.
        replay_events: updates that are looked at for one client that fails over, to send it all that it missed.
        lease: seconds a node's lease lasts.
        renew: seconds between renewals.
        reap: seconds between two looks for sessions whose window is over.
        restore_rate: sessions per second written back into a grid that lost them, and as many ended there again.
        restore_grace: seconds after such a loss in which an unknown session is asked to come again later, not refused;
            likewise after the first token of a later generation of the grid than this node has adopted.
        backoff: advice to clients.
        drain: how a planned stop goes.
        mirror: who keeps copies of whose sessions.
        takeover: how nodes take over from others.
        cluster_mode: which nodes serve clients.
        zones: links with other clusters.
        cluster_name: of the cluster, for people; empty if it has none.
    """

    replicated: bool
    window: float
    max_window: float
    handshake_timeout: float
    session: StreamParameters
    limits: Limits
    request_bytes: int
    node_request_bytes: int
    outbox_packets: int
    outbox_bytes: int
    high_water: int
    packet_rate: float
    packet_burst: int
    new_topic_packets: int
    byte_rate: float
    byte_burst: int
    token_life: float
    usage: UsageParameters
    partition_topics: int
    partition_bytes: int
    exchanges: ExchangeParameters
    pages: PageParameters
    storms: StormParameters
    token_renewal: float
    revocations: int
    credential_notice: float
    counted_roots: tuple[str, ...] = ()
    topic_depth: int
    replay_events: int
    lease: float
    renew: float
    reap: float
    restore_rate: float
    restore_grace: float
    backoff: Backoff
    drain: DrainParameters
    mirror: MirrorParameters = MirrorParameters()
    takeover: TakeoverParameters = TakeoverParameters()
    cluster_mode: ClusterMode = ClusterMode.ACTIVE
    zones: ZoneParameters = ZoneParameters()
    cluster_name: str = ""
