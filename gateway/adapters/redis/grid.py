"""``RedisGrid``: the parts put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from gateway.adapters.redis.call_keys import RedisCallKeys
from gateway.adapters.redis.clock import GridClock
from gateway.adapters.redis.cluster import ClusterFinder
from gateway.adapters.redis.destinations import RedisDestinations
from gateway.adapters.redis.dialer import Dialer, Remap
from gateway.adapters.redis.durables import RedisDurables
from gateway.adapters.redis.exchanges import RedisExchanges
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.gauges import ServerGauges
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.history import LogWriter, RedisHistory
from gateway.adapters.redis.hooks import RedisHooks
from gateway.adapters.redis.journal import RedisJournal
from gateway.adapters.redis.keys import TAGS, Keys
from gateway.adapters.redis.nodes import RedisNodes
from gateway.adapters.redis.origins import RedisOrigins
from gateway.adapters.redis.presence import RedisPresence
from gateway.adapters.redis.queues import RedisQueues
from gateway.adapters.redis.revocations import RedisRevocations
from gateway.adapters.redis.sessions import RedisSessions
from gateway.adapters.redis.tail import LazyTail, RedisTail
from gateway.adapters.redis.topics import RedisTopics
from gateway.adapters.redis.topology import Finder, SentinelFinder, SingleFinder
from gateway.adapters.redis.transactions import RedisTransactions
from gateway.adapters.redis.write_gate import WriteGate, boot_clock
from gateway.adapters.redis.zones import RedisZones
from gateway.core.types import GridGeneration, NodeRef
from gateway.ports import DEFAULT_HISTORY_BYTES, EventLog, GridChange, GridState, Metrics
from gateway.settings.errors import Unfit
from gateway.settings.grid_url import GridKind, GridPlace, read_grid_url

DEFAULT_TIMEOUT = 2.0
"""Seconds for a step: some hundred times what a busy Redis needs, and well below the patience of a client."""

DEFAULT_STREAM_LENGTH = 10_000
"""Entries that each partition's stream keeps, about: ten seconds for a reader that was cut off from a partition with
1,000 publishes a second, and a few MB per partition with small values."""

DEFAULT_STREAM_BYTES = 8 * 1024**2
"""Bytes that each partition's stream keeps, about; the same default as the setting ``stream_bytes``."""

DEFAULT_JOURNAL_LENGTH = 10_000
"""Entries that each stream of the journal keeps; the same default as the setting ``journal_length``."""

SENTINELS_SHARE = 0.5
"""Of the time for a step, what a Sentinel has to answer: then there is time to believe those that did."""


class RedisGrid:
    """The grid on Redis 7.0 or newer; implements ``gateway.ports.Grid``.

    All commands of the node to one master share one connection and one order; its streams are read over a second one.

    Args:
        url: where the grid is, as ``gateway.settings.grid_url`` says; never logged, it may hold a password.
        prefix: what all keys begin with.
        node: the node this process is. Once it has taken a lease, writes for sessions and topics are refused here as
            soon as the lease may have expired (P3); other nodes may be named to the node directory, but have no gate.
        metrics: where the grid is measured.
        log: where its loss and return are told.
        stream_length: entries that each partition's stream keeps, about.
        stream_bytes: bytes that each partition's stream keeps, about; 0 for no limit.
        history_bytes: bytes that the histories of each partition keep together.
        journal_length: entries that each stream of the journal keeps.
        timeout: seconds for each step.
        topic_depth: leading path segments that decide a topic's partition; the same on all nodes of a cluster.
        clock: seconds, also counted while the process is suspended; for tests.
        remap: where a Redis that Sentinels or other nodes tell of is to be reached, if not there.

    Raises:
        ValueError: the URL or the prefix cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "gateway",
        node: NodeRef,
        metrics: Metrics,
        log: EventLog,
        stream_length: int = DEFAULT_STREAM_LENGTH,
        stream_bytes: int = DEFAULT_STREAM_BYTES,
        history_bytes: int = DEFAULT_HISTORY_BYTES,
        journal_length: int = DEFAULT_JOURNAL_LENGTH,
        timeout: float = DEFAULT_TIMEOUT,
        topic_depth: int = 1,
        clock: Callable[[], float] = boot_clock,
        remap: Remap | None = None,
    ) -> None:
        keys = Keys(prefix)
        write_gate = WriteGate(clock)
        try:
            place = read_grid_url(url)
        except Unfit as unfit:
            raise ValueError(f"the URL of the grid {unfit}") from None
        dialer = Dialer(place, name=f"gateway-{node.node}", timeout=timeout, remap=remap)
        foreign = ForeignData(metrics, log)
        self._connection = GridConnection(
            finder=_finder(place, dialer, timeout, remap),
            dialer=dialer,
            keys=keys,
            stream_length=stream_length,
            stream_bytes=stream_bytes,
            timeout=timeout,
            write_gate=write_gate,
            clock=GridClock(clock),
            foreign=foreign,
            metrics=metrics,
            log=log,
        )
        self._tail = RedisTail(
            dialer=dialer,
            grid=self._connection,
            keys=keys,
            timeout=timeout,
            foreign=foreign,
            metrics=metrics,
            log=log,
        )
        self._gauges = ServerGauges(self._connection, metrics)
        self._sessions = RedisSessions(self._connection, keys, write_gate, foreign)
        self._nodes = RedisNodes(
            node=node,
            grid=self._connection,
            keys=keys,
            write_gate=write_gate,
            tail=self._tail,
            foreign=foreign,
            metrics=metrics,
            log=log,
        )
        writer = LogWriter(self._connection, keys, history_bytes)
        self._topics = RedisTopics(grid=self._connection, keys=keys, foreign=foreign, depth=topic_depth, writer=writer)
        self._history = RedisHistory(
            grid=self._connection, keys=keys, writer=writer, foreign=foreign, depth=topic_depth
        )
        self._queues = RedisQueues(
            grid=self._connection, keys=keys, tail=self._tail, foreign=foreign, depth=topic_depth
        )
        self._exchanges = RedisExchanges(grid=self._connection, keys=keys, tail=self._tail, foreign=foreign)
        self._presence = RedisPresence(grid=self._connection, keys=keys, foreign=foreign, depth=topic_depth)
        self._durables = RedisDurables(grid=self._connection, keys=keys, foreign=foreign)
        self._transactions = RedisTransactions(
            grid=self._connection, keys=keys, writer=writer, foreign=foreign, depth=topic_depth
        )
        self._zones = RedisZones(grid=self._connection, keys=keys, tail=self._tail, foreign=foreign)
        self._origins = RedisOrigins(
            grid=self._connection, keys=keys, foreign=foreign, depth=topic_depth, writer=writer
        )
        self._link_tail = LazyTail(
            dialer=dialer,
            grid=self._connection,
            keys=keys,
            timeout=timeout,
            foreign=foreign,
            metrics=None,
            log=log,
        )
        self._revocations = RedisRevocations(grid=self._connection, keys=keys, tail=self._tail, foreign=foreign)
        self._destinations = RedisDestinations(grid=self._connection, keys=keys, tail=self._tail, foreign=foreign)
        self._call_keys = RedisCallKeys(self._connection, keys)
        self._hooks = RedisHooks(grid=self._connection, keys=keys, foreign=foreign)
        self._journal = RedisJournal(
            node=node, grid=self._connection, keys=keys, foreign=foreign, length=journal_length
        )

    @property
    def sessions(self) -> RedisSessions:
        """Sessions."""
        return self._sessions

    @property
    def nodes(self) -> RedisNodes:
        """Leases and takeovers."""
        return self._nodes

    @property
    def topics(self) -> RedisTopics:
        """Values of topics."""
        return self._topics

    @property
    def history(self) -> RedisHistory:
        """Histories of topics."""
        return self._history

    @property
    def tail(self) -> RedisTail:
        """Streams of topics."""
        return self._tail

    @property
    def exchanges(self) -> RedisExchanges:
        """Questions and answers."""
        return self._exchanges

    @property
    def queues(self) -> RedisQueues:
        """Queues."""
        return self._queues

    @property
    def presence(self) -> RedisPresence:
        """Members of trees."""
        return self._presence

    @property
    def durables(self) -> RedisDurables:
        """Durable subscriptions."""
        return self._durables

    @property
    def transactions(self) -> RedisTransactions:
        """Transactions."""
        return self._transactions

    @property
    def zones(self) -> RedisZones:
        """Zones, interest and links."""
        return self._zones

    @property
    def origins(self) -> RedisOrigins:
        """What crosses between clusters."""
        return self._origins

    @property
    def link_tail(self) -> LazyTail:
        """Streams of topics, for links."""
        return self._link_tail

    @property
    def revocations(self) -> RedisRevocations:
        """What is revoked."""
        return self._revocations

    @property
    def destinations(self) -> RedisDestinations:
        """What is said of paths."""
        return self._destinations

    @property
    def call_keys(self) -> RedisCallKeys:
        """Idempotency keys of calls."""
        return self._call_keys

    @property
    def journal(self) -> RedisJournal:
        """The session journal."""
        return self._journal

    @property
    def hooks(self) -> RedisHooks:
        """Hooks, which read the journal."""
        return self._hooks

    @property
    def state(self) -> GridState:
        """Whether commands are accepted now."""
        return self._connection.state

    @property
    def generation(self) -> GridGeneration:
        """The generation this connection has adopted; 0 before the first."""
        return self._connection.generation

    def lost_writes_ago(self) -> float | None:
        """Tell how many seconds ago the grid lost writes, as far as it knows; None if it never has."""
        return self._connection.lost_writes_ago()

    @property
    def complaints(self) -> Sequence[str]:
        """What is wrong with the grid though it may be up; see ``Grid.complaints``."""
        return self._connection.complaints

    def heard_of(self, grid_generation: GridGeneration) -> None:
        """Adopt nothing older than a generation that was in force; see ``Grid.heard_of``."""
        self._connection.heard_of(grid_generation)

    async def verify(self) -> None:
        """Ask now whether the adopted grid is still the grid; see ``Grid.verify``."""
        await self._connection.verify()

    async def start(self) -> None:
        """Connect and adopt the grid; see ``Grid.start``."""
        self._tail.start()
        self._gauges.start()
        await self._connection.start()

    def changes(self) -> AsyncIterator[GridChange]:
        """Yield each change of state after ``start``.

        A successful ``start`` is no change. After one that raised, the first change is UP.
        """
        return self._connection.changes()

    async def close(self) -> None:
        """Finish what was started and disconnect."""
        await self._gauges.close()
        await self._link_tail.close()
        await self._tail.close()
        await self._connection.close()


def _finder(place: GridPlace, dialer: Dialer, timeout: float, remap: Remap | None) -> Finder:
    match place.kind:
        case GridKind.SINGLE:
            return SingleFinder()
        case GridKind.SENTINEL:
            return SentinelFinder(
                place, dialer=Dialer.to_sentinels(place, timeout=timeout * SENTINELS_SHARE, remap=remap)
            )
        case GridKind.CLUSTER:
            return ClusterFinder(place.hosts, dialer=dialer, tags=TAGS)
