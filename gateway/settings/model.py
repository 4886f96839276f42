"""Every setting of a node, declared once.

Each group is a class of its own, so that a component can ask for just the settings it needs; ``Settings`` is all of
them, flat. The reference page, the flags, the environment variables and the checks come from here
(``gateway.settings.declaration`` says how).
"""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from typing import Final

from gateway.settings.declaration import Setting, computed, declared_in, optional, setting
from gateway.settings.kinds import OneOf, Several, Switch, Word
from gateway.settings.limits import LimitSettings, SharedLimitSettings, StormSettings
from gateway.settings.places import Auth, File, GridUrl, Key, Listen, Net, Network, Origin
from gateway.settings.quantities import Rate, Seconds, Whole
from gateway.settings.tls import TlsSettings
from gateway.settings.values import AnonymousUsers, AuthChoice, HostPort, LogFormat, LogLevel, Secret, ways_of

_DAY: Final = 86400.0
_NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"


def _host_name() -> str:
    """The machine's short name, made fit to be a node's."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().partition(".")[0]).strip("-_")[:63]
    return name or "node"


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """What the node is called and where it listens."""

    node: str = computed(
        Word(_NAME_PATTERN, "up to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit"),
        _host_name,
        "Name of the node, unique in the cluster; clients send it back as their route hint, and HAProxy knows the "
        "server by it.",
        default_text="the machine's short host name",
        reason="Unique where every node has its own machine or container; several nodes on one machine must be named.",
    )
    listen: HostPort = setting(
        Listen(),
        HostPort("127.0.0.1", 8101),
        "Where clients connect.",
        reason="Loopback: nothing can be reached from outside before somebody decides so.",
    )
    admin: HostPort = setting(
        Listen(),
        HostPort("127.0.0.1", 9101),
        "Where /healthz, /readyz, /metrics and the admin API are served. Keep it away from clients: the first three "
        "have no authentication.",
        reason="Loopback, as for listen.",
    )
    admin_advertise: HostPort | None = optional(
        Listen(),
        "Where the other nodes reach the admin port, to ask for what only this node knows.",
        absent="the address of admin; the machine's name if that listens on all addresses",
        reason="Needed only where that address means nothing to other nodes.",
    )
    admin_hosts: tuple[str, ...] = setting(
        Several(
            Word(r"\*|[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})", "names of hosts"),
            "names",
        ),
        (),
        "Names by which the admin API may be asked for, besides addresses, localhost and the name of this machine; * "
        "is any.",
        reason="A page that has its own name resolve to this node must not get an answer (DNS rebinding).",
        absent="no others",
    )
    admin_tokens_file: Path | None = optional(
        File(),
        "File of administrators, one name:roles:hash a line, as gateway admin token create makes them. The same on all "
        "nodes.",
        absent="the admin API is off",
        reason="There is no safe default.",
    )
    agent: HostPort | None = optional(
        Listen(),
        "Where HAProxy's agent check is answered.",
        absent="no agent check",
        reason="Only HAProxy asks for it.",
    )
    dev: bool = setting(
        Switch(),
        False,
        "Development mode: where no token keys or no authentication are configured, a random key and anonymous "
        "principals take their place, loudly.",
        reason="Insecure shortcuts must be asked for.",
    )
    uvloop: bool = setting(
        Switch(),
        True,
        "Run on uvloop where it is installed.",
        reason="It writes to sockets with less work per message than the event loop of the standard library.",
    )


@dataclass(frozen=True, kw_only=True)
class GridSettings:
    """The Redis behind the cluster, and how a node behaves towards it."""

    grid: str | None = optional(
        GridUrl(),
        "Where the grid is; all nodes of a cluster name the same.",
        absent="in memory: sessions die with the process",
        reason="A node can be tried without Redis; it says loudly what that costs.",
        shown=False,
    )
    grid_prefix: str = setting(
        Word(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", "up to 64 letters, digits and any of _ . : -"),
        "gateway",
        "Begins the name of every key in the grid, so that several clusters can share one Redis.",
        reason="Tells whose keys they are when somebody looks into Redis.",
    )
    grid_timeout: float = setting(
        Seconds(0.05, 60),
        2.0,
        "How long one command may take before the grid counts as away.",
        reason="Thousands of healthy round trips, and still a third of the lease, so that one slow answer costs "
        "nobody the lease.",
    )
    replication: bool = setting(
        Switch(),
        True,
        "Write sessions to the grid. When off, the welcome says replicated: false, and a session survives only the "
        "loss of its socket, not of its node.",
        reason="Surviving nodes is what the gateway is for.",
    )
    lease: float = setting(
        Seconds(1, 300),
        6.0,
        "How long the grid remembers a node that no longer renews its lease; then the others take over.",
        reason="Three renewals long, so that two may fail. Clients do not wait for it: whoever comes back is served "
        "at once.",
    )
    lease_renew: float = setting(
        Seconds(0.2, 100),
        2.0,
        "How often a node renews its lease and looks for lapsed nodes.",
        reason="One command per node, not per session; a third of the lease.",
    )
    reap_interval: float = setting(
        Seconds(0.2, 300),
        5.0,
        "How often a node removes sessions whose window has ended.",
        reason="A session lives at most this much longer than its window; the cost is some commands per node.",
    )
    restore_rate: float = setting(
        Rate("sessions", 1),
        1000.0,
        "How fast a node writes its live sessions back into a grid that lost them.",
        reason="Ten thousand sessions are safe again in 10 s, while Redis stays below a tenth of what it can take.",
    )
    stream_length: int = setting(
        Whole("entries", 100, 10_000_000),
        10_000,
        "Updates kept per topic partition (of 64), so that a node that was away can go on where it was.",
        reason="A second or more at the highest rates; a node that was away for longer reads all values again.",
    )
    topic_depth: int = setting(
        Whole("segments", 1, 16),
        1,
        "First segments of a topic's path that decide its partition. The same on all nodes, and for the life of the "
        "grid.",
        reason="Topics under one root stay in order towards each other. Raise it if one root has most of the traffic.",
    )


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """Who may connect, and how sessions are proven. How to change keys: [Rotate keys](../how-to/rotate-keys.md)."""

    auth: AuthChoice | None = optional(
        Auth(),
        "How clients prove who they are; several ways are asked one after the other. How to choose and set up: "
        "[Authenticate](../how-to/authenticate.md).",
        absent="refuse to start, unless dev is on",
        reason="There is no safe default.",
    )
    credential_notice: float = setting(
        Seconds(0, 3600),
        60.0,
        "How long before their end a connected client is told that its credentials expire, so that it can show fresh "
        "ones without losing its connection.",
        reason="Long enough to fetch a new token, and to try several times; tokens live for five minutes or more.",
    )
    policy: Path | None = optional(
        File(),
        "File that says who may select, publish and do what: "
        "[Restrict who may do what](../how-to/restrict-who-may-do-what.md). Read again on SIGHUP.",
        absent="everybody may do everything with every topic that is not the system's, loudly",
        reason="What there is to protect, and from whom, only you know.",
    )
    token_keys: tuple[Secret, ...] = setting(
        Several(Key(), "keys"),
        (),
        "Keys of session tokens, newest last: the last one signs, all of them verify. The same on all nodes.",
        reason="There is no safe default.",
        secret=True,
        absent="refuse to start, unless dev is on",
    )
    token_keys_file: Path | None = optional(
        File(),
        "File with the keys of session tokens, one a line, newest last; empty lines and lines that begin with # are "
        "skipped. `gateway keys` makes and changes it; read again on SIGHUP.",
        absent="none",
        reason="Use it in place of token_keys where secrets are mounted as files.",
    )
    token_verify_keys: tuple[Secret, ...] = setting(
        Several(Key(), "keys"),
        (),
        "Keys that verify tokens and never sign: the next key while it is being rolled out.",
        reason="Needed only while keys are rotated.",
        secret=True,
        absent="none",
    )
    token_verify_keys_file: Path | None = optional(
        File(),
        "File with keys that verify tokens and do not sign, one a line; may be empty. A key that stands in "
        "token_keys_file too counts as one of those.",
        absent="none",
        reason="`gateway keys create` puts the next key here, so that all nodes know it before any signs with it.",
    )
    token_life: float = setting(
        Seconds(60, 30 * _DAY),
        _DAY,
        "How long a token can be used; connected clients get a new one at half of it.",
        reason="The longest time for which an old key must be kept when keys are rotated.",
    )
    token_leeway: float = setting(
        Seconds(0, 300),
        10.0,
        "How far apart the clocks of two nodes may be.",
        reason="Far more than clocks kept by NTP differ, and nothing compared with a token's life.",
    )
    limit_revocations: int = setting(
        Whole("revocations", 100, 10_000_000),
        100_000,
        "Sessions, principals and credentials that may be revoked at the same time in the whole cluster. The same on "
        "all nodes.",
        reason="Every node holds all of them in memory, some 0.5 KB each, and reads them before it serves anybody.",
    )
    origins: tuple[str, ...] = setting(
        Several(Origin(), "origins"),
        (),
        "Web origins whose pages may connect, compared exactly; * allows every page on the web, loudly.",
        reason="Clients that are not browsers send no origin and are not concerned; a page must be let in by name.",
        absent="no browser",
    )
    trusted_proxies: tuple[Network, ...] = setting(
        Several(Net(), "addresses or networks"),
        (),
        "Proxies whose X-Forwarded-For header is believed.",
        reason="Believing it from anybody would let clients choose their address.",
        absent="nobody is believed",
    )


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
        "The longest window that a client gets.",
        reason="A session that nobody comes back for costs memory on a node and in the grid until its window ends.",
    )
    handshake_timeout: float = setting(
        Seconds(0.1, 60),
        5.0,
        "How long a new connection may take to send its hello or resume.",
        reason="Slow mobile networks need a second or two; silent connections are not kept longer than this.",
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
        "Silence after which a connection is given up; the session stays.",
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
    backoff_initial: float = setting(
        Seconds(0.01, 60),
        0.25,
        "Advice to clients: the first reconnect waits a random time up to this.",
        reason="Spreads a node's clients over many ticks of the surviving nodes, unnoticed by people.",
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
        reason="A node that accepts and dies at once must not be hammered.",
    )


@dataclass(frozen=True, kw_only=True)
class DrainSettings:
    """How a node is stopped without ending a session (SIGTERM)."""

    drain_batch: int = setting(
        Whole("sessions", 1, 1_000_000),
        100,
        "Clients told at once to go to another node.",
        reason="With drain_interval: 500 a second, a hundredth of the claims that the grid can take.",
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
        "Time for all of it; then what is left is closed with a code that lets it resume elsewhere.",
        reason="Ten thousand sessions take 20 s. Give the process manager more than this before it kills.",
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What is written to standard output."""

    log_format: LogFormat = setting(
        OneOf(LogFormat),
        LogFormat.AUTO,
        "console for people, json for machines, auto for console on a terminal and JSON otherwise.",
        reason="Right in both places.",
    )
    log_level: LogLevel = setting(
        OneOf(LogLevel),
        LogLevel.INFO,
        "The least severe events that are written.",
        reason="Sessions that open, come back and end are told; single packets never are.",
    )


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """What a node tells of itself; how to have it shown: [Watch a cluster](../how-to/watch-with-prometheus.md)."""

    metrics_topics: tuple[str, ...] = setting(
        Several(Word(r"[A-Za-z0-9_.:$-]{1,63}", "up to 63 letters, digits and any of _ . : $ -"), "first segments"),
        (),
        "First segments of topics whose updates are counted apart; all others are counted together.",
        reason="Each is a series of every node. They are named here, and not taken from the traffic, because otherwise "
        "whoever may publish could make as many as he likes.",
        absent="updates are not counted by topic",
    )
    traces: bool = setting(
        Switch(),
        False,
        "Send OpenTelemetry spans of connects, resumes, claims and publishes. Needs the extra otel; where they go, and "
        "how many, is said by the OTEL_… variables of every OpenTelemetry program.",
        reason="Somebody has to be there to receive them.",
    )


@dataclass(frozen=True, kw_only=True)
class Settings(
    MetricsSettings,
    LogSettings,
    DrainSettings,
    StormSettings,
    SharedLimitSettings,
    LimitSettings,
    SessionSettings,
    TlsSettings,
    AccessSettings,
    GridSettings,
    NodeSettings,
):  # fields come in reverse order of the bases, so in the order of this file
    """All settings of a node. Made by ``gateway.settings.load``; tests may construct it and give just what matters."""

    def shortcuts(self) -> tuple[str, ...]:
        """Tell what of this configuration is not fit for production, one sentence each, to be said loudly."""
        return tuple(self._shortcuts())

    def _shortcuts(self) -> Iterator[str]:
        if self.grid is None:
            yield "the grid is in memory: sessions and values die with this process (give --grid)"
        if isinstance(self.auth, AnonymousUsers):
            yield "authentication is anonymous: anybody can be any principal (give --auth static:FILE)"
        if AnonymousUsers() in ways_of(self.auth) and self.policy is None:
            yield "there is no policy either: anybody can read and overwrite every topic (give --policy FILE)"
        if self.dev and self.token_keys_are_random:
            yield "the token key is random: a restart of this node invalidates every token (set GATEWAY_TOKEN_KEYS)"
        if "*" in self.origins:
            yield "origins is *: every page on the web may connect from a visitor's browser (name the origins)"

    token_keys_are_random: bool = False
    """True if development mode made up the token key. Set by ``load``, not by users."""


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that belong together.

    Attributes:
        title: for people.
        introduction: one sentence about them.
        settings: in the order in which they are declared.
    """

    title: str
    introduction: str
    settings: tuple[Setting, ...]


def _group(declaring: type, title: str) -> Group:
    return Group(title, getdoc(declaring) or "", declared_in(declaring, title))


GROUPS: Final[tuple[Group, ...]] = (
    _group(NodeSettings, "Node"),
    _group(GridSettings, "Grid"),
    _group(AccessSettings, "Access"),
    _group(TlsSettings, "TLS"),
    _group(SessionSettings, "Sessions and connections"),
    _group(LimitSettings, "Limits"),
    _group(SharedLimitSettings, "Shared limits"),
    _group(StormSettings, "Storms"),
    _group(DrainSettings, "Drain"),
    _group(LogSettings, "Log"),
    _group(MetricsSettings, "Metrics and traces"),
)
"""All settings, in the order of the reference page."""

SETTINGS: Final[dict[str, Setting]] = {each.name: each for group in GROUPS for each in group.settings}
"""All settings by name."""
