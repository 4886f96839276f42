"""The in-memory grid as one node sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from gateway.adapters.memory.durable_store import MemoryDurableStore
from gateway.adapters.memory.exchange_store import MemoryExchangeStore
from gateway.adapters.memory.grid_connection import GridConnection
from gateway.adapters.memory.hook_store import MemoryHookStore
from gateway.adapters.memory.presence_store import MemoryPresenceStore
from gateway.adapters.memory.queue_store import MemoryQueueStore
from gateway.adapters.memory.server import MemoryGridServer
from gateway.adapters.memory.session_store import MemorySessionStore
from gateway.adapters.memory.stores import (
    MemoryCallKeyStore,
    MemoryDestinationStore,
    MemoryHistoryStore,
    MemoryJournal,
    MemoryNodeDirectory,
    MemoryRevocationStore,
    MemoryTopicStore,
    MemoryTopicTail,
)
from gateway.adapters.memory.transaction_store import MemoryTransactionStore
from gateway.adapters.memory.zone_store import MemoryOriginStore, MemoryZoneStore
from gateway.core.types import GridGeneration, NodeRef
from gateway.ports import GridChange, GridState

DEFAULT_TIMEOUT: Final = 2.0
"""Seconds a call waits for a stalled server before it raises ``GridUnavailable``."""


class MemoryGrid:
    """``Grid`` in memory: one connection of one node to a ``MemoryGridServer``.

    For development (``gateway serve --dev`` without a grid), where sessions die with the process, and for tests.

    Args:
        server: the shared state; two grids over one server are two nodes of one cluster.
        node: whose connection it is.
        timeout: longest time a call waits, in seconds of the event loop.
    """

    def __init__(self, server: MemoryGridServer, *, node: NodeRef, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._connection = GridConnection(server, node, timeout)
        self._sessions = MemorySessionStore(self._connection)
        self._nodes = MemoryNodeDirectory(self._connection)
        self._topics = MemoryTopicStore(self._connection)
        self._history = MemoryHistoryStore(self._connection)
        self._tail = MemoryTopicTail(self._connection)
        self._queues = MemoryQueueStore(self._connection)
        self._exchanges = MemoryExchangeStore(self._connection)
        self._presence = MemoryPresenceStore(self._connection)
        self._durables = MemoryDurableStore(self._connection)
        self._transactions = MemoryTransactionStore(self._connection)
        self._revocations = MemoryRevocationStore(self._connection)
        self._destinations = MemoryDestinationStore(self._connection)
        self._zones = MemoryZoneStore(self._connection)
        self._origins = MemoryOriginStore(self._connection)
        self._link_tail = MemoryTopicTail(self._connection)
        self._call_keys = MemoryCallKeyStore(self._connection)
        self._journal = MemoryJournal(self._connection, node)
        self._hooks = MemoryHookStore(self._connection)

    @property
    def sessions(self) -> MemorySessionStore:
        """See the port."""
        return self._sessions

    @property
    def nodes(self) -> MemoryNodeDirectory:
        """See the port."""
        return self._nodes

    @property
    def topics(self) -> MemoryTopicStore:
        """See the port."""
        return self._topics

    @property
    def history(self) -> MemoryHistoryStore:
        """See the port."""
        return self._history

    @property
    def tail(self) -> MemoryTopicTail:
        """See the port."""
        return self._tail

    @property
    def queues(self) -> MemoryQueueStore:
        """See the port."""
        return self._queues

    @property
    def exchanges(self) -> MemoryExchangeStore:
        """See the port."""
        return self._exchanges

    @property
    def presence(self) -> MemoryPresenceStore:
        """See the port."""
        return self._presence

    @property
    def durables(self) -> MemoryDurableStore:
        """See the port."""
        return self._durables

    @property
    def transactions(self) -> MemoryTransactionStore:
        """See the port."""
        return self._transactions

    @property
    def revocations(self) -> MemoryRevocationStore:
        """See the port."""
        return self._revocations

    @property
    def destinations(self) -> MemoryDestinationStore:
        """See the port."""
        return self._destinations

    @property
    def zones(self) -> MemoryZoneStore:
        """See the port."""
        return self._zones

    @property
    def origins(self) -> MemoryOriginStore:
        """See the port."""
        return self._origins

    @property
    def link_tail(self) -> MemoryTopicTail:
        """See the port."""
        return self._link_tail

    @property
    def call_keys(self) -> MemoryCallKeyStore:
        """See the port."""
        return self._call_keys

    @property
    def journal(self) -> MemoryJournal:
        """See the port."""
        return self._journal

    @property
    def hooks(self) -> MemoryHookStore:
        """See the port."""
        return self._hooks

    @property
    def state(self) -> GridState:
        """See the port."""
        return self._connection.state

    @property
    def generation(self) -> GridGeneration:
        """See the port."""
        return self._connection.generation

    def lost_writes_ago(self) -> float | None:
        """See the port."""
        return self._connection.server.lost_writes_ago()

    @property
    def complaints(self) -> Sequence[str]:
        """See the port; an in-memory grid has none."""
        return ()

    def heard_of(self, grid_generation: GridGeneration) -> None:
        """See the port."""
        self._connection.heard_of(grid_generation)

    async def verify(self) -> None:
        """See the port."""
        await self._connection.run(lambda _data, _now: None)

    async def start(self) -> None:
        """See the port."""
        self._connection.start()

    def changes(self) -> AsyncIterator[GridChange]:
        """See the port. The iterator ends when the grid is closed."""
        return self._connection.changes

    async def close(self) -> None:
        """See the port; afterwards every call raises ``GridUnavailable``."""
        await self._connection.close()

    def cut(self) -> None:
        """Break this connection only, until ``mend``: the node is cut off from a grid that others can reach."""
        self._connection.cut()

    def mend(self) -> None:
        """End ``cut``."""
        self._connection.mend()
