"""The grid as a whole: one connection, its state, and its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gateway.core.types import GridGeneration
from gateway.ports.call_keys import CallKeyStore
from gateway.ports.destinations import DestinationStore
from gateway.ports.durables import DurableStore
from gateway.ports.exchanges import ExchangeStore
from gateway.ports.history import HistoryStore
from gateway.ports.hooks import HookStore
from gateway.ports.journal import JournalStore
from gateway.ports.nodes import NodeDirectory
from gateway.ports.origins import OriginStore
from gateway.ports.presence import PresenceStore
from gateway.ports.queues import QueueStore
from gateway.ports.revocations import RevocationStore
from gateway.ports.sessions import SessionStore
from gateway.ports.topics import TopicStore, TopicTail
from gateway.ports.transactions import TransactionStore
from gateway.ports.zones import ZoneStore


class GridState(StrEnum):
    """Whether the grid can be relied upon."""

    UP = "up"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class GridChange:
    """The grid became unreachable or came back.

    Attributes:
        state: which.
        grid_generation: the generation in force.
        lost_writes: True if it came back as something that may have forgotten writes: restarted, promoted, emptied.
    """

    state: GridState
    grid_generation: GridGeneration
    lost_writes: bool = False


class Grid(Protocol):
    """A connection of one node to the grid.

    All parts share one command stream, ordered for each partition; across partitions only what is awaited is ordered.
    """

    @property
    def sessions(self) -> SessionStore:
        """Sessions."""

    @property
    def nodes(self) -> NodeDirectory:
        """Leases and takeovers."""

    @property
    def topics(self) -> TopicStore:
        """Values of topics."""

    @property
    def history(self) -> HistoryStore:
        """Histories of topics."""

    @property
    def tail(self) -> TopicTail:
        """Streams of topics."""

    @property
    def queues(self) -> QueueStore:
        """Queues."""

    @property
    def exchanges(self) -> ExchangeStore:
        """Questions and answers."""

    @property
    def presence(self) -> PresenceStore:
        """Members of trees."""

    @property
    def durables(self) -> DurableStore:
        """Durable subscriptions."""

    @property
    def transactions(self) -> TransactionStore:
        """Transactions of sessions."""

    @property
    def revocations(self) -> RevocationStore:
        """What is revoked."""

    @property
    def destinations(self) -> DestinationStore:
        """What is said of paths."""

    @property
    def zones(self) -> ZoneStore:
        """Zones, interest and links."""

    @property
    def origins(self) -> OriginStore:
        """What crosses between clusters."""

    @property
    def link_tail(self) -> TopicTail:
        """Streams of topics again, for links alone: they need not be where ``tail`` is."""

    @property
    def call_keys(self) -> CallKeyStore:
        """Idempotency keys of calls."""

    @property
    def journal(self) -> JournalStore:
        """The session journal."""

    @property
    def hooks(self) -> HookStore:
        """Hooks, which read the journal."""

    @property
    def state(self) -> GridState:
        """Whether commands are accepted now."""

    @property
    def generation(self) -> GridGeneration:
        """The generation this connection has adopted."""

    def lost_writes_ago(self) -> float | None:
        """Tell how many seconds ago the grid lost writes, as far as it knows itself; None if it never has.

        Unlike ``GridChange.lost_writes`` it is also known to a node that has begun since.
        """

    @property
    def complaints(self) -> Sequence[str]:
        """What is wrong with the grid, though it may be up: sentences for people, empty if all is well."""

    def heard_of(self, grid_generation: GridGeneration) -> None:
        """Somebody has proved that *grid_generation* was in force.

        If this connection has adopted only an older one, it goes away and adopts again: *grid_generation*, or a later
        one.
        """

    async def verify(self) -> None:
        """Ask now whether the adopted grid is still the grid, which is otherwise noticed by and by.

        If other servers are the grid by now, or sessions that it held may be lost, this connection goes away and adopts
        again, as if it had noticed that by itself. Where nobody is within reach who could tell of other servers, the
        grid that answers is the grid.

        Raises:
            GridUnavailable: it is not, or nobody answers.
        """

    async def start(self) -> None:
        """Connect and adopt the grid: a grid with another run id than the stored one gets the next generation.

        The first call begins the background work that reaches the grid and stays with it, until ``close``; every
        further one begins nothing, and tells no more than whether the grid is there.

        Raises:
            GridUnavailable: it cannot be reached now; nobody needs to call again, as the work to reach it goes on.
        """

    def changes(self) -> AsyncIterator[GridChange]:
        """Yield each change of state after ``start``, for one listener; none is lost.

        ``UP`` comes only after the new generation has been adopted; commands are refused until then.
        """

    async def close(self) -> None:
        """Finish what was started and disconnect."""
