"""A gateway node: all use cases put together, without a word about what is outside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from gateway.app.administration import (
    ClusterDestinations,
    ClusterDurables,
    ClusterHooks,
    ClusterNodes,
    ClusterQueues,
    ClusterRevocations,
    ClusterSessions,
    ClusterTopics,
    ClusterZones,
)
from gateway.app.admission.connection_limiter import ConnectionLimiter
from gateway.app.admission.handshake_limiter import HandshakeLimiter
from gateway.app.admission.limits import Limits
from gateway.app.admission.memory import Memory
from gateway.app.admission.reconnect_advice import ReconnectAdvice
from gateway.app.calls import NodeCalls
from gateway.app.cluster.cluster_list import ClusterList
from gateway.app.cluster.departure import Departure
from gateway.app.cluster.drain import Drain
from gateway.app.cluster.followers import Followers
from gateway.app.cluster.grid_recovery import GridRecovery
from gateway.app.cluster.handoff.giver import SessionGiver
from gateway.app.cluster.handoff.offers import SessionOffers
from gateway.app.cluster.handoff.taker import SessionTaker
from gateway.app.cluster.last_wills import WillExecution
from gateway.app.cluster.membership import Membership
from gateway.app.cluster.mirror.gate import OutputGate
from gateway.app.cluster.mirror.holder import MirrorHolder
from gateway.app.cluster.mirror.source import MirrorSource
from gateway.app.cluster.namesakes import Namesakes
from gateway.app.cluster.node_links import NodeLinks
from gateway.app.cluster.planned_stop import PlannedStop
from gateway.app.cluster.presence import Presence
from gateway.app.cluster.readiness import Readiness
from gateway.app.cluster.session_mover import SessionMover
from gateway.app.cluster.sweepers import Sweepers
from gateway.app.cluster.takeover.stages import ReportStage, SessionStage, TakeoverStages
from gateway.app.cluster.takeover.suspicion import SuspicionWatch
from gateway.app.cluster.takeover.takeovers import Takeovers
from gateway.app.connections.server import Connections
from gateway.app.context import Context
from gateway.app.destinations.destinations import Destinations
from gateway.app.hooks import Hooks
from gateway.app.journal import Announcer, Journal, JournalOptions
from gateway.app.journal.node_events import NodeStarted, NodeStopped
from gateway.app.operations.activity import Activity
from gateway.app.operations.gauges import watch_sessions
from gateway.app.operations.minutes import measure
from gateway.app.operations.reports import Reports
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.registry.reconnect_adviser import ReconnectAdviser
from gateway.app.registry.sessions import Sessions
from gateway.app.requests.dispatch import Requests
from gateway.app.runtime.background import Background
from gateway.app.runtime.clock import Clock
from gateway.app.runtime.cluster_view import ClusterView
from gateway.app.runtime.lifecycle import Lifecycle
from gateway.app.runtime.parameters import OFF, NodeParameters
from gateway.app.security.authentication import Authentication
from gateway.app.security.authorisation import Authorisation
from gateway.app.security.enforcement import Enforcement
from gateway.app.security.revocations import Revocations
from gateway.app.security.verifications import Verifications
from gateway.app.session.session import Session
from gateway.app.zone_links.linked_clusters import LinkedClusters
from gateway.app.zones.zones import Zones
from gateway.catalogue import metrics as catalogue
from gateway.core.destinations.table import DestinationTable
from gateway.core.policy.permissions import Policy
from gateway.core.policy.system_roles import is_of_system
from gateway.core.types import NodeId, NodeRef
from gateway.core.wire.codes import MirrorMode
from gateway.ports import (
    NO_TRACER,
    Authenticator,
    Connection,
    Directory,
    EventLog,
    Grid,
    GridUnavailable,
    HookSender,
    Metrics,
    PeerLinks,
    ProcessMemory,
    TokenSigner,
    Tracer,
)
from gateway.ports.administration import Administration
from gateway.ports.zone_links import ZoneLinks

LAG_SAMPLE: Final = 0.5
"""Seconds between two measurements of the event loop's lag."""

JOIN_RETRY: Final = 0.2
"""Seconds between two attempts to take the first lease while the grid is not there yet: an attempt asks a grid that is
away nothing."""


class Node:
    """One gateway node.

    Args:
        me: its name and incarnation.
        parameters: its numbers.
        grid: its connection to the grid.
        authenticator: decides who clients are.
        verifications: when its slow work is done, and for whom; told who failed.
        signer: session tokens.
        clock: time and chance.
        metrics: where numbers go.
        log: where events go.
        authorisation_policy: who may do what; None for everything but the system's topics.
        tracer: where spans go.
        directory: of all principals, if there is one.
        administrators: of those who may have consoles.
        journal: how the session journal is written; None to write none.
        process_memory: tells how much memory is left; None if nobody can.
        links: to the other nodes, listening; None to have none.
        zone_links: the port for links with other clusters; None to have none.
        hook_sender: posts events to the receivers of hooks; None to have none.

    Attributes:
        me: as given.
        lifecycle: how far its life has come.
        cluster: the other nodes, as it last saw them.
        sessions: the sessions held here.
        authorisation: what they may do.
        taker: asks other nodes for sessions that come here.
        connections: the connections that are open.
        calls: executes what back ends ask for by HTTP.
        connection_limiter: decides who may connect.
        revocations: who is refused, and how to refuse more.
        enforcement: ends the sessions of those who are.
        destinations: what paths are, and how to say it.
        zones: what it knows of zones, and tells the others.
        sweepers: clean up in the grid.
        readiness: whether new sessions should come.
        presence: what it tells the others of itself.
        links: to the other nodes; None if it has none.
        linked_clusters: its links with other clusters; None if it has none.
        hooks: who gets events by HTTP; None if nobody does.
        mirror: keeps a backup of it; None if it is to have none.
        holder: the copies that it keeps for others; None if it has no links.
    """

    def __init__(
        self,
        *,
        me: NodeRef,
        parameters: NodeParameters,
        grid: Grid,
        authenticator: Authenticator,
        verifications: Verifications,
        signer: TokenSigner,
        clock: Clock,
        metrics: Metrics,
        log: EventLog,
        authorisation_policy: Policy | None = None,
        tracer: Tracer = NO_TRACER,
        directory: Directory | None = None,
        administrators: Directory | None = None,
        journal: JournalOptions | None = None,
        process_memory: ProcessMemory | None = None,
        links: PeerLinks | None = None,
        zone_links: ZoneLinks | None = None,
        hook_sender: HookSender | None = None,
    ) -> None:
        activity = Activity(log, wall=clock.wall)
        limits = Limits(parameters, clock=clock, metrics=metrics, log=activity)
        log = activity
        self._background = Background(log)
        taken_down = Journal(me, journal, grid=grid, clock=clock, metrics=metrics, log=log)
        self.lifecycle, self.cluster = Lifecycle(), ClusterView(me)
        context = Context(
            me=me,
            lifecycle=self.lifecycle,
            cluster=self.cluster,
            parameters=parameters,
            clock=clock,
            grid=grid,
            background=self._background,
            metrics=metrics,
            log=log,
            tracer=tracer,
            limits=limits,
            memory=Memory(process_memory, limits=limits, clock=clock, metrics=metrics, log=log),
            destinations=DestinationTable(),
            announce=Announcer(metrics=metrics, log=log, journal=taken_down),
            journal=taken_down,
            reconnect_advice=ReconnectAdvice(
                parameters,
                sessions=lambda: len(self.sessions),
                nodes=lambda: len(self.cluster.alive),
                clock=clock,
                metrics=metrics,
            ),
        )
        self._context = context
        self.me = me
        self._store = FencedStore(context)
        self.sessions = Sessions(context, self._store, signer)
        context.memory.shed = self.sessions.absences.shed
        self._grid_recovery = GridRecovery(context, self.sessions, self._store)
        self.enforcement = Enforcement(context, self.sessions, self._store, directory, administrators)
        self.revocations = Revocations(context, self.enforcement)
        self.destinations = Destinations(context)
        self._cluster_list = ClusterList(context, self.sessions)
        namesakes = Namesakes(context)
        self.readiness = Readiness(
            context,
            store=self._store,
            revocations=self.revocations,
            destinations=self.destinations,
            namesakes=namesakes,
        )
        self.presence = Presence(
            context,
            self.sessions,
            readiness=self.readiness,
            links=links,
            suspects=self.suspects,
            cluster_list=self._cluster_list,
        )
        self._membership = Membership(
            context, self.sessions, self._grid_recovery, self.presence, namesakes=namesakes, readiness=self.readiness
        )
        self.links = None if links is None else NodeLinks(context, links)
        if self.links is not None:
            self._membership.tell_of_table(self.links.look_soon)
            # The grid gets the id of the cluster back before a node that is new can give it another one.
            self._grid_recovery.tell_of_loss(self.links.look_soon)
        self.holder = None if self.links is None else MirrorHolder(context, self.links)
        giver, offers = self._make_handoff(context)
        self.sweepers = Sweepers(
            context,
            self.sessions,
            self._store,
            destinations_loaded=lambda: self.destinations.loaded,
            recovering=self._grid_recovery.is_recovering,
        )
        self.authorisation = Authorisation(
            context,
            store=self._store,
            sessions=self.sessions,
            policy=authorisation_policy,
            directory=directory,
        )
        self._store.execute_wills = WillExecution(context, self.authorisation, lambda: self.destinations.loaded).execute
        self.mirror = self._make_mirror(context)
        authentication = Authentication(context, authenticator, verifications, self.revocations, self.enforcement)
        requests = Requests(
            context,
            store=self._store,
            sessions=self.sessions,
            authorisation=self.authorisation,
            authentication=authentication,
        )
        self.calls = NodeCalls(
            context, authentication, self.authorisation, self.revocations, requests, sessions=self.sessions
        )
        self._handshake_limiter = HandshakeLimiter(
            parameters.storms,
            nodes=lambda: len(self.cluster.alive),
            limits=context.limits,
            clock=clock,
            metrics=metrics,
        )
        self.connection_limiter = ConnectionLimiter(
            context.limits,
            parameters.storms,
            busy=self.sessions.flusher.is_live,
            longest=parameters.backoff.maximum,
            clock=clock,
            metrics=metrics,
        )
        self.taker = SessionTaker(context, self.links, self.sessions, self._store, self.holder)
        self._moves = SessionMover(context, self.sessions, giver)
        self._followers = Followers(
            context,
            self.sessions,
            moves=self._moves,
            cluster_list=self._cluster_list,
            links=self.links,
        )
        self.connections = Connections(
            context,
            store=self._store,
            sessions=self.sessions,
            requests=requests,
            authentication=authentication,
            signer=signer,
            authorisation=self.authorisation,
            revocations=self.revocations,
            enforcement=self.enforcement,
            grid_recovery=self._grid_recovery,
            membership=self._membership,
            handshake_limiter=self._handshake_limiter,
            taker=self.taker,
            links=self.links,
            mirror=self.mirror,
            cluster_list=self._cluster_list,
            followers=self._followers,
        )
        self._reports = Reports(
            context,
            self.sessions,
            activity,
            not_ready=self.readiness.reasons,
            connections=lambda: len(self.connections),
            backup=None if self.mirror is None else self.mirror.state,
            suspects=self.suspects,
            takeovers=self.takeovers,
        )
        self._membership.report_by(self._reports)
        self.zones = Zones(context, self.sessions)
        requests.durables.on_open = self.zones.interest.durables.hold
        self.linked_clusters, self.hooks = self._link_clusters(context, zone_links), self._make_hooks(hook_sender)
        self._takeovers, self._suspicion = self._make_takeovers(context)
        self._planned_stop = self._make_planned_stop(context, offers)
        self.administration = self._make_administration(context)
        watch_sessions(context, self.sessions)

    def _make_hooks(self, sender: HookSender | None) -> Hooks | None:
        """Make what posts events to receivers."""
        return None if sender is None else Hooks(self._context, sender)

    def _make_handoff(self, context: Context) -> tuple[SessionGiver | None, SessionOffers | None]:
        """Make what gives sessions to other nodes, when they ask and before they do; nothing without links to them."""
        if self.links is None or self.holder is None:
            return None, None
        giver = SessionGiver(context, self.links, self.sessions, self.holder)
        return giver, SessionOffers(context, self.links, self.sessions, giver)

    def _make_mirror(self, context: Context) -> MirrorSource | None:
        """Make what keeps a backup; output waits for it where the settings or the roles of a session ask for that."""
        parameters, authorisation, order = context.parameters, self.authorisation, list(MirrorMode)
        least = parameters.mirror.mode
        if self.links is None or parameters.mirror.backup == OFF or not parameters.replicated:
            return None
        mirror = MirrorSource(context, self.links, self.sessions)
        mirror.guard(
            OutputGate(
                context,
                mirror,
                mode_of=lambda session: max(least, authorisation.mirror_mode(session), key=order.index),
                is_needed=lambda: least is not MirrorMode.ASYNC or authorisation.asks_for_mirrors,
                notify=lambda session, notice: self.sessions.delivery.notify((session,), notice),
            )
        )
        return mirror

    def _link_clusters(self, context: Context, links: ZoneLinks | None) -> LinkedClusters | None:
        """Make what has links with other clusters, and have others told of them; None without a port for them."""
        if links is None:
            return None
        linked = LinkedClusters(context, links, self.authorisation, self.zones.knowledge)
        self.presence.zone_place = linked.place
        self.presence.zone_links = linked.reports
        return linked

    def _make_takeovers(self, context: Context) -> tuple[Takeovers, SuspicionWatch | None]:
        """Make what takes over from failed nodes: here is the list of all that is taken over, and cleaned up later.

        And what suspects nodes that are not heard any more; None without links, over which they would be heard.
        """
        stages = TakeoverStages(
            at_once=(SessionStage(context),),
            transient=(ReportStage(self._reports),),
        )
        takeovers = Takeovers(context, stages, self._reports.mark_expired)
        self._membership.tell_of_table(takeovers.look)
        if self.links is None:
            return takeovers, None
        on_failed = (takeovers.found_expired, self._membership.found_expired)
        suspicion = SuspicionWatch(context, self.links, on_change=self.presence.tell_soon, on_failed=on_failed)
        self._membership.tell_of_table(suspicion.follow)
        return takeovers, suspicion

    def _make_planned_stop(self, context: Context, offers: SessionOffers | None) -> PlannedStop:
        """Make what drains this node before it is stopped, and what makes sure that it may leave."""
        return PlannedStop(
            context,
            drain=Drain(
                context,
                self.sessions,
                self._store,
                moves=self._moves,
                offers=offers,
                arriving=lambda: self.connections.handshakes,
            ),
            moves=self._moves,
            departure=Departure(context, self.clients, self._grid_recovery),
            arriving=lambda: self.connections.handshakes,
            end_streams=self.calls.streams.drain,
            tell_soon=self._tell_of_drain,
        )

    def _make_administration(self, context: Context) -> Administration:
        """Make what administrators ask for, and have done."""
        return Administration(
            node=self.me.node,
            nodes=ClusterNodes(
                context,
                presence=self.presence,
                begin_drain=self._planned_stop.begin,
                undrain=self._planned_stop.undo,
                link_state=None if self.links is None else self.links.state,
            ),
            sessions=ClusterSessions(context, self._store, self.sessions, self._moves),
            topics=ClusterTopics(context, self._store, self.sessions),
            destinations=ClusterDestinations(context, self.destinations),
            zones=ClusterZones(context, self.zones.knowledge, self.linked_clusters),
            hooks=ClusterHooks(context.grid.hooks),
            durables=ClusterDurables(context.grid.durables, context.grid.queues),
            queues=ClusterQueues(context.grid.queues),
            revocations=ClusterRevocations(self.revocations),
        )

    def takeovers(self) -> Sequence[dict[str, object]]:
        """Tell what this node does at the moment for nodes that have failed."""
        return self._takeovers.told()

    def suspects(self) -> Sequence[NodeRef]:
        """List the nodes that this one does not hear any more, and that hold a lease."""
        return () if self._suspicion is None else self._suspicion.suspects

    async def start(self) -> None:
        """Begin to work; does not wait for the grid, ``readiness`` tells when it is there."""
        self._membership.tell_of_master(self._followers.master_changed)
        # The listeners must be there before the grid says its first word.
        self._background.forever(self._grid_recovery.watch, "grid-changes")
        self._background.forever(self.sessions.delivery.run, "grid-tail")
        self._background.forever(self.sessions.delivery.removals.run, "removal-sweeper")
        self._background.forever(self._membership.hear_claims, "claimed-elsewhere")
        self._background.forever(self.revocations.follow, "revocations")
        self._background.forever(self.revocations.forget, "forget-revocations")
        self._background.forever(self.destinations.follow, "destinations")
        self.zones.start()
        self._background.forever(self.connections.consumers.run, "consumers")
        self._background.forever(self.connections.exchanges.run, "exchanges")
        self._background.forever(ReconnectAdviser(self._context, self.sessions).run, "advise-clients")
        self._background.forever(self._measure_lag, "event-loop-lag")
        self._background.forever(self._reports.run, "reports")
        self._background.forever(self.sessions.stale_sessions.run, "stale_sessions")
        self._background.forever(self.sessions.absences.run, "absences")
        self._background.forever(self.sessions.connected_buffers.run, "connected-buffers")
        self._background.once(self._context.memory.run(), "memory")
        if self.links is not None:
            self._background.forever(self.links.take, "links")
        if self.linked_clusters is not None:
            self.linked_clusters.start()
        journal = self._context.journal
        if journal.writer is not None:
            self._background.forever(journal.writer.run, "journal")
            self._background.forever(self._measure_traffic, "traffic")
        self._background.once(self._join(), "join")

    async def _join(self) -> None:
        with suppress(GridUnavailable):  # from here on the grid is looked for until the node ends
            await self._context.grid.start()
        while True:
            try:
                await self._membership.join()
                break
            except GridUnavailable:
                await asyncio.sleep(JOIN_RETRY)
        self.lifecycle.joined = True
        self._context.announce(NodeStarted())
        self.presence.tell_soon()  # ready, as it was not when it joined
        self._background.forever(self._membership.keep_lease, "lease")
        if self.links is not None:
            self._background.forever(self.links.follow, "follow-nodes")
        if self._suspicion is not None:
            self._background.forever(self._suspicion.run, "suspicion")
        if self.mirror is not None:
            self._background.forever(self.mirror.run, "mirror")
        if self.hooks is not None:
            self._background.forever(self.hooks.run, "hooks")
        self._background.forever(self._takeovers.run, "takeovers")
        self._background.forever(self._membership.reap, "reaper")
        self._background.forever(self._followers.run, "followers")
        self.sweepers.start()

    def review(self) -> None:
        """The directories have changed: end the sessions of those who are not in them, and judge the others again."""
        self.enforcement.review()
        self.authorisation.review()

    @property
    def accepts_clients(self) -> bool:
        """Whether new connections of clients are wanted."""
        return not self.lifecycle.draining and not self._followers.stands_by

    @property
    def serving_elsewhere(self) -> NodeId | None:
        """The master, if clients are to be served by it alone, and it is another node."""
        return self._followers.name_elsewhere

    async def serve(self, connection: Connection) -> None:
        """Serve one client connection until it is over."""
        await self.connections.serve(connection)

    async def serve_console(self, connection: Connection, administrators: Authenticator) -> None:
        """Serve a connection of the admin port, for sessions of the administrators that *administrators* knows."""
        await self.connections.serve(connection, administrators)

    async def drain(self) -> None:
        """Move all clients to other nodes, to be stopped then; see ``PlannedStop.run``."""
        await self._planned_stop.run()

    def begin_drain(self) -> None:
        """Begin to move all clients to other nodes; see ``PlannedStop.begin``."""
        self._planned_stop.begin()

    async def undrain(self) -> None:
        """Take new sessions again; see ``PlannedStop.undo``."""
        await self._planned_stop.undo()

    def _tell_of_drain(self) -> None:
        self._membership.renew_soon()
        self.presence.tell_soon()

    async def close(self) -> None:
        """Stop everything and give the lease back; after ``drain``, or hard."""
        may_leave = await self._planned_stop.close()
        held = len(self.clients())
        if self.mirror is not None:
            self.mirror.close()
        if self.holder is not None:
            self.holder.close()
        self._moves.close()
        self.connection_limiter.close()
        self._handshake_limiter.close()
        self.connections.close()
        self.sessions.close()
        if self.linked_clusters is not None:
            await self.linked_clusters.close()
        if self.hooks is not None:
            await self.hooks.close()
        await self._background.close()
        if self.links is not None:
            await self.links.links.close()
        self.sessions.delivery.replays.close()
        await self.sessions.delivery.replicas.close()
        self._context.announce(NodeStopped(held))
        await self._context.journal.close()
        if may_leave:
            await self._reports.leave()
            with suppress(GridUnavailable):  # then the lease expires by itself
                await self._context.grid.nodes.leave(self.me)
        await self._context.grid.close()

    def clients(self) -> list[Session]:
        """List the sessions that are not consoles of administrators."""
        return [session for session in self.sessions if not is_of_system(session.roles)]

    # --- Numbers ------------------------------------------------------------------------------------------------------

    async def _measure_lag(self) -> None:
        while True:
            before = self._context.clock.monotonic()
            await asyncio.sleep(LAG_SAMPLE)
            lag = self.presence.lag = max(0.0, self._context.clock.monotonic() - before - LAG_SAMPLE)
            self._context.metrics.observe(catalogue.EVENT_LOOP_LAG_SECONDS, lag)

    async def _measure_traffic(self) -> None:
        await measure(
            self._context,
            connections=lambda: len(self.connections) - (self.sessions.connected() - _connected(self.clients())),
            sessions=lambda: len(self.clients()),
        )


def _connected(sessions: Iterable[Session]) -> int:
    return sum(session.connected for session in sessions)
