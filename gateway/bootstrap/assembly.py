"""A node with its servers, put together of concrete adapters."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gateway import __version__
from gateway.adapters.admin import (
    OPERATIONS,
    AdminApi,
    AdminServer,
    AdminTokens,
    Console,
    ConsoleAuthenticator,
    ConsoleOrigins,
    Guard,
    built_in,
)
from gateway.adapters.hook_sender import HttpHookSender
from gateway.adapters.logging import StructuredEventLog
from gateway.adapters.memory import MemoryGridServer
from gateway.adapters.metrics import CountedEventLog, PrometheusMetrics
from gateway.adapters.policy import read_policy
from gateway.adapters.process_memory import LinuxMemory
from gateway.adapters.tls import TlsPorts
from gateway.adapters.tokens import FollowedKeys
from gateway.adapters.tracing import exporting_tracer
from gateway.adapters.websocket import ClientInterface, WebSocketServer
from gateway.app.node import Node
from gateway.app.runtime.clock import Clock
from gateway.app.security.verifications import Verifications
from gateway.authenticators import Authentication, Surroundings
from gateway.bootstrap.bound_ports import bound
from gateway.bootstrap.descriptors import FEW, UNLIMITED, Descriptors
from gateway.bootstrap.files import (
    check_admin_authorities,
    check_traces,
    journal_of,
    link_tls,
    server_tls,
    tls_to_nodes,
    zone_tls,
)
from gateway.bootstrap.parameters import parameters_of
from gateway.bootstrap.parts import (
    admin_names,
    advertised_admin,
    effective_configuration,
    event_log,
    grid_of,
    links_of,
    zone_links_of,
)
from gateway.bootstrap.reload import FileReloader
from gateway.catalogue import log_events as events
from gateway.catalogue import policy_log_events
from gateway.catalogue.metrics import LOG_LINES_LOST
from gateway.core.pacing.failures import Failures
from gateway.core.pacing.verification_ranks import VerificationRates
from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.ports import NO_TRACER, EventLog
from gateway.settings import SETTINGS, AnonymousUsers, HostPort, Settings, advertised_urls, client_interfaces, ways_of
from gateway.settings.exposure import in_clear_text
from gateway.settings.hooks import reader_of
from lb.agent import AgentServer, AgentState

INCARNATION_BYTES: Final = 6
"""48 random bits: a node that restarts a million times a year meets its own past once in many thousand years."""


class Gateway:
    """A node with its servers. Two of them in one process do not know of each other.

    Args:
        settings: checked already.
        log: where events go; by default where the settings say.
        memory: the shared state of in-memory grids, for several nodes in one process; used if no grid is configured.
        descriptors: what the process may open, if it is this node's alone; it bounds the number of connections.

    Attributes:
        me: the node's name and incarnation.
        node: the application.
        metrics: its numbers.

    Raises:
        ConfigurationError: a file that the settings name cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        log: EventLog | None = None,
        memory: MemoryGridServer | None = None,
        descriptors: Descriptors = UNLIMITED,
    ) -> None:
        self._settings = settings
        self._descriptors = descriptors
        self.me = NodeRef(NodeId(settings.node), Incarnation(secrets.token_hex(INCARNATION_BYTES)))
        self.metrics = PrometheusMetrics()
        log = log or event_log(settings)
        if isinstance(log, StructuredEventLog):
            self.metrics.watch(LOG_LINES_LOST, lambda: log.dropped_lines)
        self.log: EventLog = CountedEventLog(log, self.metrics)
        check_traces(settings)
        self._tracer = exporting_tracer(settings.node) if settings.traces else None
        if settings.auth is None:
            raise AssertionError("the settings are checked before: without authentication no node starts")
        clock = Clock()
        verifications = Verifications(
            clock=clock,
            metrics=self.metrics,
            log=self.log,
            rates=VerificationRates(
                address=settings.rate_address_verifications, principal=settings.rate_principal_verifications
            ),
        )
        self._authentication = Authentication(
            settings.auth, Surroundings(dev=settings.dev, log=self.log, verifications=verifications)
        )
        self._keys = FollowedKeys(settings, self.log)
        self._tls = TlsPorts(
            server_tls(settings),
            links=link_tls(settings),
            zones=zone_tls(settings),
            metrics=self.metrics,
            log=self.log,
        )
        check_admin_authorities(settings)
        self._zone_links = zone_links_of(settings, self._tls.zones, metrics=self.metrics)
        self._links = links_of(
            settings, self.me, self._tls.links, started=clock.wall(), metrics=self.metrics, log=self.log
        )
        clients_tls, admin_tls = self._tls.get("clients"), self._tls.get("admin")
        self._admin_tokens = None if settings.admin_tokens_file is None else AdminTokens(settings.admin_tokens_file)
        # What roles may do is a matter of the policy, which the node has.
        failures = Failures()
        administrators = ConsoleAuthenticator(self._admin_tokens, self._granted_to, failures)
        self.node = Node(
            me=self.me,
            parameters=parameters_of(
                settings,
                shared_grid=settings.grid is not None or memory is not None,
                descriptors=descriptors,
            ),
            grid=grid_of(settings, self.me, self.metrics, self.log, memory),
            authenticator=self._authentication.authenticator,
            verifications=verifications,
            signer=self._keys.signer,
            clock=clock,
            metrics=self.metrics,
            log=self.log,
            directory=self._authentication.directory,
            administrators=administrators,
            authorisation_policy=None if settings.policy is None else read_policy(settings.policy),
            tracer=self._tracer or NO_TRACER,
            journal=journal_of(settings),
            process_memory=LinuxMemory(settings.memory_limit),
            links=self._links,
            zone_links=self._zone_links,
            hook_sender=HttpHookSender(),
        )
        self._reloading = FileReloader(
            self.node,
            authentication=self._authentication,
            keys=self._keys,
            tls=self._tls,
            admin_tokens=self._admin_tokens,
            policy=settings.policy,
            destinations=settings.destinations,
            hooks=reader_of(settings),
            log=self.log,
        )
        self._clients = WebSocketServer(
            [
                ClientInterface(
                    each.listen.host,
                    each.listen.port,
                    each.name,
                    clients_tls.context if clients_tls and each.speaks_tls(settings.tls_certificate) else None,
                )
                for each in client_interfaces(settings)
            ],
            serve=self.node.serve,
            calls=self.node.calls,
            admission=self.node.connection_limiter,
            accepting=lambda: self.node.accepts_clients,
            elsewhere=lambda: self.node.serving_elsewhere,
            message_bytes=settings.limit_message_bytes,
            metrics=self.metrics,
            log=self.log,
            origins=settings.origins,
            trusted_proxies=settings.trusted_proxies,
            most_requests=descriptors.requests,
        )
        guard = Guard(self._admin_tokens, self._granted_to, hosts=admin_names(settings), failures=failures)
        self._admin = AdminServer(
            settings.admin.host,
            settings.admin.port,
            ready=self.node.readiness.reasons,
            warnings=self.node.readiness.warnings,
            metrics_text=self.metrics.render,
            metrics=self.metrics,
            tls=None if admin_tls is None else admin_tls.context,
            knows=guard.knows,
            log=self.log,
            api=AdminApi(
                replace(self.node.administration, configuration=effective_configuration(settings)),
                OPERATIONS,
                guard=guard,
                version=__version__,
                metrics=self.metrics,
                log=self.log,
                tls=lambda: tls_to_nodes(settings),
            ),
            console=Console(
                serve=lambda connection: self.node.serve_console(connection, administrators),
                check=guard.check_host,
                accepting=lambda: not self.node.lifecycle.stopping,
                message_bytes=settings.limit_message_bytes,
                origins=ConsoleOrigins(self._admin_addresses),
            ),
            value_bytes=settings.limit_value_bytes,
        )
        self._agent = (
            None
            if settings.agent is None
            else AgentServer(
                settings.agent.host,
                settings.agent.port,
                lambda: AgentState.READY if self._takes_clients() else AgentState.NOT_READY,
            )
        )

    async def _admin_addresses(self) -> list[str | None]:
        return [each.admin for each in await self.node.administration.nodes.list()]

    @property
    def port(self) -> int:
        """The client port; the first one, if there are several."""
        return self._clients.port

    @property
    def ports(self) -> Mapping[str, int]:
        """The client ports by the names of their interfaces; that of a node that names none by the empty one."""
        return self._clients.ports

    @property
    def admin_port(self) -> int:
        """The admin port."""
        return self._admin.port

    async def start(self) -> None:
        """Listen and begin to work. The grid need not be there yet; ``/readyz`` tells when it is.

        Raises:
            OSError: a port cannot be bound, or certificates cannot be read.
        """
        for shortcut in self._settings.shortcuts():
            self.log.emit(events.DEVELOPMENT_MODE, shortcut=shortcut)
        for exposed in in_clear_text(self._settings):
            self.log.emit(events.CLEAR_TEXT, exposed=exposed)
        self._tell_descriptors()
        self._reloading.tell_undefined_roles()
        await self._authentication.start()
        if self._settings.policy is None:
            anybody = AnonymousUsers() in ways_of(self._settings.auth)
            self.log.emit(
                policy_log_events.POLICY_ABSENT, principals="anybody at all" if anybody else "all who authenticate"
            )
        if self._links is not None:
            with bound("link", self._settings):
                await self._links.start()
        await self.node.start()
        if self._zone_links is not None and self.node.linked_clusters is not None:
            with bound("zone_listen", self._settings):
                await self._zone_links.start(self.node.linked_clusters.serve)
        self._reloading.apply_destinations()
        with bound("interface" if client_interfaces(self._settings)[0].name else "listen", self._settings):
            await self._clients.start()
        with bound("admin", self._settings):
            await self._admin.start()
        if self._agent is not None:
            with bound("agent", self._settings):
                await self._agent.start()
        self.node.presence.announce(
            listen=self._listen,
            admin=advertised_admin(self._settings, self.admin_port),
            version=__version__,
            urls=advertised_urls(self._settings),
        )
        self.log.emit(
            events.NODE_STARTED,
            node=self.me.node,
            incarnation=self.me.incarnation,
            listen=self._listen,
            admin=f"{self._settings.admin.host}:{self.admin_port}",
        )

    @property
    def _listen(self) -> str:
        """Where clients connect, for people."""
        ports = self.ports
        places = (HostPort(each.listen.host, ports[each.name]) for each in client_interfaces(self._settings))
        return ", ".join(map(str, places))

    def status(self) -> str:
        """Tell people in one line how the node is."""
        reasons = self.node.readiness.reasons()
        return f"{len(self.node.sessions)} sessions; {'not ready: ' + ', '.join(reasons) if reasons else 'ready'}"

    async def drain(self) -> None:
        """Move all clients to other nodes (P12)."""
        await self.node.drain()

    async def close(self) -> None:
        """Stop everything."""
        self._reloading.close()
        await self.node.close()
        await self._clients.close()
        await self._admin.close()
        if self._agent is not None:
            await self._agent.close()
        await self._authentication.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)
        self.log.emit(events.NODE_STOPPED, node=self.me.node)

    def reload(self) -> None:
        """Read again what can change while the node runs: people, keys, certificates; what is bad changes nothing."""
        self._reloading.reload()

    def _tell_descriptors(self) -> None:
        configured = self._settings.limit_connections
        connections = self._descriptors.connections(configured)
        is_meant = configured != SETTINGS["limit_connections"].default
        if self._descriptors.most is not None and connections < (configured if is_meant else FEW):
            self.log.emit(
                events.DESCRIPTORS_SHORT,
                descriptors=self._descriptors.most,
                configured=configured,
                connections=connections,
                address_connections=self._descriptors.address_connections(
                    self._settings.limit_address_connections, of=configured
                ),
            )

    def _takes_clients(self) -> bool:
        return self.node.accepts_clients and not self.node.readiness.reasons()

    def _granted_to(self, roles: frozenset[str]) -> frozenset[str]:
        """Tell what administrators may do: roles that the policy defines as it says, others as they are built in."""
        policy = self.node.authorisation.policy
        return policy.admin_actions(roles) | built_in(roles - policy.roles.keys())
