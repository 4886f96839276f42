"""What nodes clean up and look at in the grid, and share: what is too old, what nobody goes on with, how queues are."""

from __future__ import annotations

from collections.abc import Callable

from gateway.app.cluster.durable_sweeper import DurableSweeper
from gateway.app.cluster.history_sweeper import HistorySweeper
from gateway.app.cluster.left_sessions import LeftSessions
from gateway.app.cluster.presence_keeper import PresenceKeeper
from gateway.app.cluster.queue_sweeper import QueueSweeper
from gateway.app.cluster.queue_watch import QueueWatch
from gateway.app.cluster.transaction_reaper import TransactionReaper
from gateway.app.cluster.value_endings import ValueEndings
from gateway.app.context import Context
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.sessions import Sessions


class Sweepers:
    """All sweepers of a node.

    Args:
        context: of the node.
        sessions: the sessions held here.
        store: writes them.
        destinations_loaded: tells whether it is known what paths are.
        recovering: tells whether sessions are being written again, after the grid has lost some.

    Attributes:
        histories: cuts what histories keep for too long.
        durables: removes durable subscriptions that nobody has used for their life.
        values: ends values whose time is over.
        presence: keeps trees with presence in step with the sessions.
        queues: takes sessions out of queues that have ended.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        store: FencedStore,
        *,
        destinations_loaded: Callable[[], bool],
        recovering: Callable[[], bool],
    ) -> None:
        def is_all_known() -> bool:
            # Where it is not known which topics have history, an end would be missing in one.
            return destinations_loaded() and not recovering()

        self._background = context.background
        self._stored = context.limits.stored
        self.histories = HistorySweeper(context, loaded=destinations_loaded)
        self.durables = DurableSweeper(context)
        self._transactions = TransactionReaper(context, may_reap=lambda: not recovering())
        self.queues = QueueSweeper(context, may_sweep=is_all_known)
        self._queue_watch = QueueWatch(context)
        self._left_sessions = LeftSessions(context)
        self.values = ValueEndings(context, may_end=is_all_known)
        self.presence = PresenceKeeper(context, sessions, store, may_tell=is_all_known)

    def start(self) -> None:
        """Begin, once the node has joined its cluster; they run until its background work ends."""
        self._background.forever(self.histories.run, "history-sweeper")
        self._background.forever(self.durables.run, "durable-sweeper")
        self._background.forever(self._transactions.run, "transaction-reaper")
        self._background.forever(self.queues.run, "queue-sweeper")
        self._background.forever(self._queue_watch.run, "queue-watch")
        self._background.forever(self.values.run, "value-endings")
        self._background.forever(self.presence.run, "presence-keeper")
        if self._stored.counts:
            self._background.forever(self._left_sessions.run, "left-sessions")
