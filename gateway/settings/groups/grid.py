"""The grid behind the cluster."""

# ruff: noqa: RUF009 - the calls in the defaults make dataclass fields

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.settings.declaration import optional, setting
from gateway.settings.kinds import Switch
from gateway.settings.places import GRID_PREFIX, File, GridUrl
from gateway.settings.quantities import Bytes, Rate, Seconds, Whole


@dataclass(frozen=True, kw_only=True)
class GridSettings:
    """The Redis behind the cluster, and how a node behaves towards it."""

    grid: str | None = optional(
        GridUrl(),
        "URL of the grid, which is Redis. The same on all nodes of a cluster.",
        absent="in memory: sessions end with the process",
        reason="A node can be tried without Redis; it warns of what that costs.",
        shown=False,
    )
    grid_prefix: str = setting(
        GRID_PREFIX,
        "gateway",
        "Prefix of every key in the grid, so that several clusters can share one Redis.",
        reason="Shows in Redis which keys are the gateway's.",
    )
    grid_timeout: float = setting(
        Seconds(0.05, 60),
        2.0,
        "How long one command may take before the grid counts as unreachable. Beside a shorter lease give a third of "
        "that, so that one slow answer does not cost it.",
        reason="Thousands of healthy round trips, and still a third of the lease, so that one slow answer costs "
        "no node its lease.",
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
        "How long the lease of a node lasts that no longer renews it. Then the lease has expired, and other nodes take "
        "over.",
        reason="Three renewals long, so that two may fail. Clients do not wait for it: a client that resumes is "
        "served at once.",
    )
    lease_renew: float = setting(
        Seconds(0.2, 100),
        2.0,
        "How often a node renews its lease and looks for nodes whose lease has expired.",
        reason="One command per node, not per session; a third of the lease.",
    )
    transient_wait: float = setting(
        Seconds(1, 86_400),
        60.0,
        "How long after a takeover what is transient of the failed node stays. Then it is removed, unless the node has "
        "started anew. The same on all nodes.",
        reason="A node that is started again within a minute finds all as it was; longer, it would be in the way of "
        "those who look at the cluster.",
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
        "How fast a node restores live sessions in a grid that lost them, and ends those again that had ended.",
        reason="Ten thousand sessions are safe again in 10 s, while Redis stays below a tenth of its capacity.",
    )
    stream_length: int = setting(
        Whole("entries", 100, 10_000_000),
        10_000,
        "Updates kept per topic partition (of 64), so that a node that was disconnected can continue where it was.",
        reason="A second or more at the highest rates; a node that was disconnected for longer reads all values again.",
    )
    stream_bytes: int = setting(
        Bytes(0, 64 * 1024**3),
        8 * 1024**2,
        "Approximate bytes of updates kept per topic partition (of 64). Above it the oldest are dropped, even if there "
        "are fewer than stream_length. 0 sets no limit.",
        reason="All partitions together keep 512 MiB, for which Redis needs up to 680 MiB: a third of the 2 GB that "
        "the shipped redis.conf gives it. Raise it with maxmemory.",
    )
    destinations: Path | None = optional(
        File(),
        "File that says of which topics history is kept, and how much: "
        "[Keep the history of topics](../how-to/keep-history.md). Applied to the whole cluster at the start of a node "
        "and on SIGHUP. The same on all nodes.",
        absent="what the grid holds is left as it is",
        reason="A history takes memory of Redis; only you know which topics are worth it.",
    )
    history_bytes: int = setting(
        Bytes(0, 64 * 1024**3),
        4 * 1024**2,
        "Bytes kept of the histories of all topics of a partition (of 64) together, and 64 for each event. Above it, "
        "each publish to a topic with history drops older events of that topic, whatever its destination says. 0 sets "
        "no limit. The same on all nodes.",
        reason="All partitions together keep 256 MiB, for which Redis needs up to 360 MiB. Whoever gives topics history"
        " adds as much to the 2 GB of the shipped redis.conf; by default none has it.",
    )
    topic_depth: int = setting(
        Whole("segments", 1, 16),
        1,
        "First segments of a topic's path that decide its partition. The same on all nodes, and for the life of the "
        "grid.",
        reason="Topics under one root stay in order among each other. Raise it if one root has most of the traffic.",
    )
