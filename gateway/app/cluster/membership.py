"""Keeps this node's lease, looks who else has one, and does what the living nodes share: reaping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from typing import Final

from gateway.app.cluster.grid_recovery import GridRecovery
from gateway.app.cluster.namesakes import Namesakes
from gateway.app.cluster.presence import Presence
from gateway.app.cluster.readiness import Readiness
from gateway.app.context import Context
from gateway.app.journal.session_events import SessionExpired
from gateway.app.journal.zone_events import MasterElected, MasterFound, MasterMissed
from gateway.app.operations.reports import Reports
from gateway.app.registry.sessions import Sessions
from gateway.app.runtime.partition_turns import each_in_turn
from gateway.catalogue import log_events as events
from gateway.catalogue import topology_metrics as catalogue
from gateway.core.topics.topics import SESSION_PARTITIONS, TOPIC_PARTITIONS
from gateway.core.types import GridGeneration, NodeRef, SessionId
from gateway.ports import ALL_SAVED, GridUnavailable, LeaseLost, LeaseTable, MasterWish

EXPIRE_BATCH: Final = 20
"""Sessions per step that the reaper ends: some milliseconds of the grid if each of them consumed from a queue. When a
node has died, thousands end together, and what others ask of the grid waits for one step, and not for all of them."""

UNDECLARED_LOOK: Final = 600.0
"""Seconds between two looks at the timers of queues while none is declared: what was sent before the last of them was
removed is there still, and is in no hurry."""

FIRE_TURNS: Final = 100
"""Turns in which the reaper does what is due in queues before it looks after sessions again. In each turn the grid does
so much in a queue as one step takes, some hundred timers; what is left is done the next time."""

SPARED_LEASES: Final = 10
"""Leases for which a session is spared whose window may have begun anew, from its end or from the end of an outage:
twice as long as a hung node keeps the right to a takeover. By then its node has told, or was taken over."""


class Membership:
    """Keeps this node's lease, and reaps sessions whose window is over.

    What it and the takeovers write of sessions (``expire``, ``orphan``) shows no ownership and does not go through
    ``FencedStore``: the grid alone judges whose they are.

    Args:
        context: of the node.
        sessions: the sessions held here.
        grid_recovery: verifies them after the lease was lost.
        presence: reports the node with each renewal, and hears what others report.
        namesakes: other living nodes that have the name of this one.
        readiness: tells what this node wants of the role of the master.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        grid_recovery: GridRecovery,
        presence: Presence,
        *,
        namesakes: Namesakes,
        readiness: Readiness,
    ) -> None:
        self._me = context.me
        self._cluster = context.cluster
        self._renew_now = asyncio.Event()
        context.metrics.watch(catalogue.MASTER, lambda: float(self._cluster.is_master))
        context.metrics.watch(catalogue.MASTER_KNOWN, lambda: float(self._cluster.master is not None))
        self._grid = context.grid
        self._parameters = context.parameters
        self._clock = context.clock
        self._background = context.background
        self._reconnect_advice = context.reconnect_advice
        self._log = context.log
        self._announce = context.announce
        self._destinations = context.destinations
        self._queues_looked_at = context.clock.monotonic()
        self._sessions = sessions
        self._grid_recovery = grid_recovery
        self._presence = presence
        self._namesakes = namesakes
        self._readiness = readiness
        self._saved = ALL_SAVED
        self._heard_at = -inf
        self._searched = GridGeneration(0)
        self._watchers = sessions.delivery.watchers
        self._reports: Reports | None = None
        self._on_table: list[Callable[[LeaseTable], None]] = []
        self._on_master: Callable[[], None] = lambda: None

    def renew_soon(self) -> None:
        """Renew without waiting for the time: what this node wants of the role of the master has changed."""
        self._renew_now.set()

    def found_expired(self, *nodes: NodeRef) -> None:
        """The grid has just said that the leases of *nodes* have expired: if the master is one, the role is free."""
        master = self._cluster.master
        if master is not None and master.node in nodes:
            self.renew_soon()

    def report_by(self, reports: Reports) -> None:
        """Tell whoever watches of the nodes that are gone."""
        self._reports = reports

    def tell_of_table(self, on_table: Callable[[LeaseTable], None]) -> None:
        """Have *on_table* called whenever this node has looked who is there."""
        self._on_table.append(on_table)

    def tell_of_master(self, on_master: Callable[[], None]) -> None:
        """Have *on_master* called whenever this node has found another master than before."""
        self._on_master = on_master

    async def join(self) -> None:
        """Take the first lease.

        Raises:
            GridUnavailable: the grid is unreachable.
        """
        await self._grid_recovery.lease.take()

    async def keep_lease(self) -> None:
        """Renew for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._parameters.renew * (0.9 + 0.2 * self._clock.random())):
                    await self._renew_now.wait()
            self._renew_now.clear()
            try:
                await self._renew()
                await self._presence.tell()
                await self._presence.hear()
                await self._namesakes.look(self._cluster.table)
                await self._grant_lost_leases()
                # A single write may have failed while the grid never counted as unreachable. Nobody waits for it here,
                # because to write many sessions again takes longer than a lease lasts.
                self._background.once(self._grid_recovery.catch_up(), "catch-up")
            except (GridUnavailable, LeaseLost):
                continue

    async def _renew(self) -> None:
        watch = 0.0 if self._reports is None else self._reports.watch
        table = await self._keep(watch, self._readiness.master_wish())
        before, self._cluster.table = self._cluster.master, table
        if before != table.master:
            self._on_master()
            kind = MasterElected if self._cluster.is_master else MasterMissed if table.master is None else MasterFound
            self._announce(kind(table.master, before))
        for tell in self._on_table:
            tell(table)
        self._watchers.told(watched=table.watched)

    async def _keep(self, watch: float = 0.0, wish: MasterWish = MasterWish.KEEP) -> LeaseTable:
        asked = self._clock.monotonic()
        kept = await self._grid_recovery.lease.keep(watch=watch, wish=wish)
        if kept.expired:
            self._background.once(self._grid_recovery.verify(), "verify-sessions")
        self._saved, self._heard_at = kept.table.saved, asked
        return kept.table

    async def _hear_what_is_saved(self) -> None:
        """Make sure that this node has heard of the last outage, and who has a lease; mostly it has, as it renews."""
        if self._clock.monotonic() - self._heard_at > self._parameters.lease:
            await self._keep()

    async def _grant_lost_leases(self) -> None:
        """Give a lease to nodes that own connected sessions and have none; once in each generation (P7, P11).

        A master that is promoted without its tail may have lost the last lease of a node that died, while other masters
        hold its sessions: as connected sessions of a node that nobody misses, they would stay for ever.
        """
        grid_generation = self._grid.generation
        if self._searched == grid_generation:
            return
        owners_in = self._grid.sessions.owners
        owners = set().union(*await asyncio.gather(*map(owners_in, range(SESSION_PARTITIONS))))
        unknown = sorted(owners.difference(self._cluster.alive, self._cluster.table.expired))
        if unknown:
            granted = await self._grid.nodes.grant(unknown, lease=self._parameters.lease)
            if granted:
                self._log.emit(events.NODES_WITHOUT_LEASE, nodes=", ".join(map(str, granted)))
        self._searched = grid_generation

    async def is_in_doubt(self, session: SessionId) -> bool:
        """Tell whether nobody knows yet if the window of a session is over, though the grid says so.

        It is there still, and its owner has yet to say that nothing has happened to it since, or to be taken over; or
        this node is too young to be sure of the time.

        Raises:
            GridUnavailable: the grid is unreachable.
        """
        with suppress(LeaseLost):
            await self._hear_what_is_saved()
        record = await self._grid.sessions.find(session)
        if record is None:
            return False
        return self._grid.nodes.time_in_doubt() or (record.owner != self._me and record.owner in self._saved.nodes)

    async def reap(self) -> None:
        """End sessions whose window is over, and do what is due in queues, for ever.

        The living nodes share the partitions among them.
        """
        while True:
            await asyncio.sleep(self._clock.about(self._parameters.reap))
            if self._grid_recovery.is_recovering():
                # What looks expired in a grid that was rolled back may be a living session that its node has yet to
                # restore.
                continue
            try:
                await self._hear_what_is_saved()
                await self._end_sessions(self._cluster.share(SESSION_PARTITIONS))
                if self._may_have_queues():
                    await self._fire_queues(self._cluster.share(TOPIC_PARTITIONS))
            except (GridUnavailable, LeaseLost):
                continue

    async def _end_sessions(self, partitions: Sequence[int]) -> None:
        """End the sessions whose windows are over."""
        await self._in_steps(self._end_some, partitions, more_from=EXPIRE_BATCH, turns=count())

    async def _fire_queues(self, partitions: Sequence[int]) -> None:
        """Do what is due in queues."""
        await self._in_steps(self._grid.queues.fire, partitions, more_from=1, turns=range(FIRE_TURNS))

    async def _in_steps(
        self,
        step: Callable[[int], Awaitable[int]],
        partitions: Sequence[int],
        *,
        more_from: int,
        turns: Iterable[object],
    ) -> None:
        """Take a step in one partition after the other, so that others get their turns in between.

        Args:
            step: does some of what is due in a partition; returns how much.
            partitions: which.
            more_from: how much of it means that there may be more, so that the next turn is for it, too.
            turns: as many as there may be.
        """
        for _ in turns:
            if not partitions:
                return
            taken = await each_in_turn(self._grid, partitions, partial(self._take_step, step))
            partitions = [partition for partition, done in taken if done >= more_from]

    async def _take_step(self, step: Callable[[int], Awaitable[int]], partition: int) -> int:
        if self._grid_recovery.is_recovering():
            return 0
        began = self._clock.monotonic()
        done = await step(partition)
        if done:
            # As long a pause as the step took: others have half of the grid at least.
            await asyncio.sleep(self._clock.monotonic() - began)
        return done

    async def _end_some(self, partition: int) -> int:
        """End sessions of a partition in one step; returns how many."""
        batch = await self._grid.sessions.expire(
            partition,
            limit=EXPIRE_BATCH,
            execute=self._sessions.execute_wills,
            saved=self._saved,
            patience=SPARED_LEASES * self._parameters.lease,
        )
        for ended in batch:
            self._announce(SessionExpired(ended.session, ended.epoch, principal=ended.principal or None))
        return len(batch)

    def _may_have_queues(self) -> bool:
        """Tell whether to look for what is due in queues now: idle clusters without queues ask the grid for nothing.

        A queue that is not declared any more has its messages still, so it is looked at, but seldom.
        """
        now = self._clock.monotonic()
        if not self._destinations.has_queues and now - self._queues_looked_at < UNDECLARED_LOOK:
            return False
        self._queues_looked_at = now
        return True

    async def hear_claims(self) -> None:
        """Drop sessions that other nodes say they have claimed from this one, for ever."""
        async for claim in self._grid.nodes.claimed_elsewhere(self._me):
            self._sessions.claimed_elsewhere(claim)
