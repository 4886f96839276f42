"""Puts a node together: the only place that names concrete adapters."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Final

from gateway import __version__
from gateway.adapters.admin import (
    OPERATIONS,
    AdminApi,
    AdminServer,
    AdminTokens,
    Console,
    ConsoleAuthenticator,
    Guard,
    TokensFileError,
    built_in,
)
from gateway.adapters.logging import StructuredEventLog, capture_standard_library
from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.adapters.metrics import CountedEventLog, PrometheusMetrics
from gateway.adapters.policy import PolicyFileError, read_policy
from gateway.adapters.redis import RedisGrid
from gateway.adapters.service_manager import Systemd
from gateway.adapters.tls import CertificateError, FollowingContext, ServerTls, TlsPorts
from gateway.adapters.tokens import FollowedKeys
from gateway.adapters.tracing import TracingUnavailable, exporting_tracer
from gateway.adapters.websocket import WebSocketServer
from gateway.app.clock import Clock
from gateway.app.node import Node
from gateway.app.policy import DrainPolicy, NodePolicy, StormPolicy, UsagePolicy
from gateway.app.supervision import report
from gateway.app.tracing import NO_TRACER
from gateway.authenticators import Authentication, Surroundings
from gateway.catalogue import log_events as events
from gateway.catalogue.log_events import Level
from gateway.catalogue.metrics import LOG_LINES_LOST
from gateway.core.accounts import AccountLimits
from gateway.core.packets import Backoff, Limits
from gateway.core.session import SessionPolicy
from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.garbage import collect_seldom
from gateway.ports import EventLog, Grid, Metrics, ServiceManager
from gateway.ports.administration import SettingView
from gateway.settings import SETTINGS, AnonymousUsers, ConfigurationError, HostPort, Settings, ways_of
from lb.agent import AgentServer, AgentState

EXIT_FAILED: Final = 1
EXIT_CONFIGURATION: Final = 2
"""Exit codes, as of the command line: something failed; something has to be corrected first."""

INCARNATION_BYTES: Final = 6
"""48 random bits: a node that restarts a million times a year meets its own past once in many thousand years."""

HIGH_WATER_BYTES: Final = 64 * 1024
"""What a transport may hold back before its session is left waiting: enough for a whole bandwidth-delay product of
50 Mbit/s at 10 ms, and little enough that ten thousand stuck clients hold 640 MB at the very worst."""

BATCH_BYTES: Final = 64 * 1024
"""Largest message a node writes, unless a single packet is larger: small enough to be parsed without a pause."""

DRAIN_SETTLE: Final = 2.0
"""Seconds a session gets to have its last packets acknowledged before it is told to go: several slow round trips."""

RESTORE_GRACE_LEASES: Final = 3
"""Leases after a loss of writes for which an unknown session is asked to come again: by then every node has either
restored its sessions or lapsed."""

TOKEN_RENEWAL_SHARE: Final = 0.5
"""Share of a token's life after which a connected client is handed a new one: it survives one missed renewal."""


def policy_of(settings: Settings, *, shared_grid: bool) -> NodePolicy:
    """Turn settings into the numbers the application works with.

    Args:
        settings: checked already.
        shared_grid: whether the grid outlives the node; if not, clients are told that their sessions do not either.
    """
    return NodePolicy(
        replicated=settings.replication and shared_grid,
        window=settings.window_default,
        max_window=settings.window_maximum,
        handshake_timeout=settings.handshake_timeout,
        session=SessionPolicy(
            resend_packets=settings.limit_resend_packets,
            resend_bytes=settings.limit_resend_bytes,
            message_bytes=BATCH_BYTES,
            ack_packets=settings.ack_packets,
            ack_delay=settings.ack_delay,
            ping_interval=settings.ping_interval,
            ping_timeout=settings.ping_timeout,
        ),
        limits=Limits(
            message_bytes=settings.limit_message_bytes,
            value_bytes=settings.limit_value_bytes,
            requests=settings.limit_requests,
            selections=settings.limit_selections,
            resend_packets=settings.limit_resend_packets,
            resend_bytes=settings.limit_resend_bytes,
        ),
        outbox_packets=settings.limit_outbox_packets,
        outbox_bytes=settings.limit_outbox_bytes,
        high_water=HIGH_WATER_BYTES,
        packet_rate=settings.rate_packets,
        packet_burst=settings.rate_burst,
        token_life=settings.token_life + settings.token_leeway,
        usage=UsagePolicy(
            address=AccountLimits(
                connections=settings.limit_address_connections,
                handshakes=settings.rate_address_handshakes,
                packets=settings.rate_address_packets,
                publish_bytes=settings.rate_address_publish_bytes,
            ),
            principal=AccountLimits(
                connections=settings.limit_principal_sessions,
                handshakes=settings.rate_principal_handshakes,
                packets=settings.rate_principal_packets,
                publish_bytes=settings.rate_principal_publish_bytes,
                selections=settings.limit_principal_selections,
                topics=settings.rate_principal_topics,
            ),
            node=AccountLimits(
                connections=settings.limit_connections,
                packets=settings.rate_node_packets,
                publish_bytes=settings.rate_node_publish_bytes,
                selections=settings.limit_node_selections,
            ),
            exempt=settings.limit_exempt,
        ),
        partition_topics=settings.limit_partition_topics,
        storms=StormPolicy(
            admission_rate=settings.admission_rate,
            admission_wait=settings.admission_wait,
            claim_rate=settings.claim_rate,
            claims_at_once=settings.claims_at_once,
        ),
        token_renewal=settings.token_life * TOKEN_RENEWAL_SHARE,
        revocations=settings.limit_revocations,
        credential_notice=settings.credential_notice,
        counted_roots=settings.metrics_topics,
        topic_depth=settings.topic_depth,
        lease=settings.lease,
        renew=settings.lease_renew,
        reap=settings.reap_interval,
        restore_rate=settings.restore_rate,
        restore_grace=settings.lease * RESTORE_GRACE_LEASES,
        backoff=Backoff(
            initial=settings.backoff_initial, maximum=settings.backoff_maximum, stable_after=settings.backoff_stable
        ),
        drain=DrainPolicy(
            batch=settings.drain_batch,
            interval=settings.drain_interval,
            jitter=settings.drain_jitter,
            settle=DRAIN_SETTLE,
            timeout=settings.drain_timeout,
        ),
    )


class Gateway:
    """A node with its servers. Two of them in one process do not know of each other.

    Args:
        settings: checked already.
        log: where events go; by default where the settings say.
        memory: the shared state of in-memory grids, for several nodes in one process; used if no grid is configured.

    Attributes:
        me: the node's name and incarnation.
        node: the application.
        metrics: its numbers.

    Raises:
        ConfigurationError: a file that the settings name cannot be used.
    """

    def __init__(
        self, settings: Settings, *, log: EventLog | None = None, memory: MemoryGridServer | None = None
    ) -> None:
        self._settings = settings
        self.me = NodeRef(NodeId(settings.node), Incarnation(secrets.token_hex(INCARNATION_BYTES)))
        self.metrics = PrometheusMetrics()
        log = log or _log(settings)
        if isinstance(log, StructuredEventLog):
            self.metrics.watch(LOG_LINES_LOST, lambda: log.dropped_lines)
        self.log: EventLog = CountedEventLog(log, self.metrics)
        self._tracer = exporting_tracer(settings.node) if settings.traces else None
        if settings.auth is None:
            raise AssertionError("the settings are checked before: without authentication no node starts")
        self._authentication = Authentication(settings.auth, Surroundings(dev=settings.dev, log=self.log))
        self._keys = FollowedKeys(settings, self.log)
        self._tls = TlsPorts(_tls(settings), metrics=self.metrics, log=self.log)
        clients_tls, admin_tls = self._tls.get("clients"), self._tls.get("admin")
        self._admin_tokens = None if settings.admin_tokens_file is None else AdminTokens(settings.admin_tokens_file)
        self.node = Node(
            me=self.me,
            policy=policy_of(settings, shared_grid=settings.grid is not None or memory is not None),
            grid=_grid(settings, self.me, self.metrics, self.log, memory),
            authenticator=self._authentication.authenticator,
            signer=self._keys.signer,
            clock=Clock(),
            metrics=self.metrics,
            log=self.log,
            directory=self._authentication.directory,
            authorisation_policy=None if settings.policy is None else read_policy(settings.policy),
            tracer=self._tracer or NO_TRACER,
        )
        self._policy_reader = asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()
        self._clients = WebSocketServer(
            settings.listen.host,
            settings.listen.port,
            serve=self.node.serve,
            admission=self.node.door,
            accepting=lambda: not self.node.draining,
            message_bytes=settings.limit_message_bytes,
            metrics=self.metrics,
            tls=None if clients_tls is None else clients_tls.context,
            origins=settings.origins,
            trusted_proxies=settings.trusted_proxies,
        )
        guard = Guard(self._admin_tokens, self._granted_to, hosts=_admin_names(settings))
        administrators = ConsoleAuthenticator(self._admin_tokens, self._granted_to)
        self._admin = AdminServer(
            settings.admin.host,
            settings.admin.port,
            ready=self.node.not_ready,
            metrics_text=self.metrics.render,
            tls=None if admin_tls is None else FollowingContext(admin_tls),
            log=self.log,
            api=AdminApi(
                replace(self.node.administration, configuration=_configuration(settings)),
                OPERATIONS,
                guard=guard,
                version=__version__,
                metrics=self.metrics,
                log=self.log,
                tls=lambda: _tls_to_nodes(settings),
            ),
            console=Console(
                serve=lambda link: self.node.serve_console(link, administrators),
                check=guard.check_host,
                accepting=lambda: not self.node.draining,
                message_bytes=settings.limit_message_bytes,
            ),
            value_bytes=settings.limit_value_bytes,
        )
        self._agent = (
            None
            if settings.agent is None
            else AgentServer(
                settings.agent.host,
                settings.agent.port,
                lambda: AgentState.NOT_READY if self.node.not_ready() else AgentState.READY,
            )
        )

    @property
    def port(self) -> int:
        """The client port."""
        return self._clients.port

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
        await self._authentication.start()
        if self._settings.policy is None:
            anybody = AnonymousUsers() in ways_of(self._settings.auth)
            self.log.emit(events.POLICY_ABSENT, principals="anybody at all" if anybody else "all who authenticate")
        await self.node.start()
        await self._clients.start()
        await self._admin.start()
        if self._agent is not None:
            await self._agent.start()
        self.node.presence.announce(
            listen=str(HostPort(self._settings.listen.host, self.port)),
            admin=_reachable(self._settings, self.admin_port),
            version=__version__,
        )
        self.log.emit(
            events.NODE_STARTED,
            node=self.me.node,
            incarnation=self.me.incarnation,
            listen=f"{self._settings.listen.host}:{self.port}",
            admin=f"{self._settings.admin.host}:{self.admin_port}",
        )

    def status(self) -> str:
        """Tell people in one line how the node is."""
        reasons = self.node.not_ready()
        return f"{len(self.node.sessions)} sessions; {'not ready: ' + ', '.join(reasons) if reasons else 'ready'}"

    async def drain(self) -> None:
        """Move all clients to other nodes (P12)."""
        await self.node.drain()

    async def close(self) -> None:
        """Stop everything."""
        for reload in self._reloads:
            reload.cancel()
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
        self._tls.reload()
        self._keys.reload()
        self._authentication.reload()
        self.node.review()
        if self._admin_tokens is not None:
            try:
                count = self._admin_tokens.reload()
            except TokensFileError as error:
                self.log.emit(events.ADMINS_KEPT, error=str(error))
            else:
                self.log.emit(events.ADMINS_RELOADED, tokens=count)
        if self._settings.policy is not None:
            task = asyncio.create_task(self._reload_policy(self._settings.policy), name="reload-policy")
            self._reloads.add(task)
            task.add_done_callback(self._reloads.discard)

    def _granted_to(self, roles: frozenset[str]) -> frozenset[str]:
        """Tell what administrators may do: roles that the policy defines as it says, others as they are built in."""
        policy = self.node.authorisation.policy
        return policy.admin_actions(roles) | built_in(roles - policy.roles.keys())

    async def _reload_policy(self, file: Path) -> None:
        """Read the policy again, in a thread: a long one takes longer than clients should wait."""
        async with self._policy_reader:  # the file that is read last is the one in force at the end
            try:
                policy = await asyncio.to_thread(read_policy, file)
            except PolicyFileError as error:
                self.log.emit(events.POLICY_KEPT, error=str(error))
            else:
                self.node.authorisation.reload(policy)


def _log(settings: Settings) -> StructuredEventLog:
    return StructuredEventLog(
        node=settings.node, format=settings.log_format.value, level=Level[settings.log_level.name]
    )


def _tls(settings: Settings) -> dict[str, ServerTls]:
    files = {
        "clients": (settings.tls_certificate, settings.tls_key, settings.tls_client_ca),
        "admin": (settings.admin_tls_certificate, settings.admin_tls_key, settings.admin_tls_client_ca),
    }
    return {
        port: ServerTls(certificate, key=key, client_ca=authority)
        for port, (certificate, key, authority) in files.items()
        if certificate is not None
    }


def _grid(settings: Settings, me: NodeRef, metrics: Metrics, log: EventLog, memory: MemoryGridServer | None) -> Grid:
    if settings.grid is None:
        server = memory or MemoryGridServer(
            now=time.monotonic, stream_length=settings.stream_length, topic_depth=settings.topic_depth
        )
        return MemoryGrid(server, node=me)
    return RedisGrid(
        settings.grid,
        prefix=settings.grid_prefix,
        node=me,
        metrics=metrics,
        log=log,
        stream_length=settings.stream_length,
        timeout=settings.grid_timeout,
        topic_depth=settings.topic_depth,
    )


def _configuration(settings: Settings) -> tuple[SettingView, ...]:
    """What the node runs with, for administrators; secrets are masked."""
    views = []
    for each in SETTINGS.values():
        value = getattr(settings, each.name)
        views.append(
            SettingView(
                name=each.name,
                group=each.group,
                value=each.show(value),
                changed=value != each.default,
                meaning=each.declared.meaning,
            )
        )
    return tuple(views)


def _admin_names(settings: Settings) -> tuple[str, ...]:
    """Names by which the admin port may be asked for."""
    given = () if settings.admin_advertise is None else (settings.admin_advertise.host,)
    return (*settings.admin_hosts, settings.admin.host, *given, socket.gethostname())


def _reachable(settings: Settings, port: int) -> str:
    """Where other nodes reach the admin port."""
    everywhere = settings.admin.host in {"0.0.0.0", "::"}  # noqa: S104 - it is asked for, not bound
    listening = HostPort(socket.gethostname() if everywhere else settings.admin.host, port)
    scheme = "http" if settings.admin_tls_certificate is None else "https"
    return f"{scheme}://{settings.admin_advertise or listening}"


def _tls_to_nodes(settings: Settings) -> SSLContext:
    """How to speak TLS with other nodes' admin ports; read anew each time, as certificates are renewed."""
    context = create_default_context(cafile=settings.admin_tls_ca)
    if settings.admin_tls_certificate is not None:
        context.load_cert_chain(settings.admin_tls_certificate, settings.admin_tls_key)
    return context


async def _serve(settings: Settings) -> int:
    log = _log(settings)
    manager = Systemd(os.environ)
    restore = capture_standard_library(log)
    try:
        gateway = Gateway(settings, log=log)
        await gateway.start()
        collect_seldom()
    except (
        ConfigurationError,
        PolicyFileError,
        TokensFileError,
        CertificateError,
        TracingUnavailable,
    ) as error:
        return _complain(error, exit_code=EXIT_CONFIGURATION)
    except OSError as error:
        return _complain(error, exit_code=EXIT_FAILED)
    else:
        await _until_stopped(gateway, manager)
        return 0
    finally:
        restore()
        log.close()


def _complain(error: Exception, *, exit_code: int) -> int:
    for line in str(error).splitlines():
        print(f"gateway: error: {line}", file=sys.stderr)  # noqa: T201 - whoever starts a node looks here, not into a log
    return exit_code


async def _until_stopped(gateway: Gateway, manager: ServiceManager) -> None:
    """Serve until the first signal to stop, then drain until that is done or the second signal comes.

    Args:
        gateway: has been started.
        manager: is told how it fares.
    """
    loop = asyncio.get_running_loop()
    stop, now = asyncio.Event(), asyncio.Event()

    def on_stop() -> None:
        (now if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_stop)

    def on_reload() -> None:
        manager.reloading()
        gateway.reload()
        manager.ready()

    loop.add_signal_handler(signal.SIGHUP, on_reload)
    manager.ready()
    reports = asyncio.create_task(report(manager, gateway.status), name="service-manager")
    await stop.wait()
    manager.stopping()
    drain = asyncio.create_task(gateway.drain())
    impatience = asyncio.create_task(now.wait())
    try:
        await asyncio.wait([drain, impatience], return_when=asyncio.FIRST_COMPLETED)
        for task in (drain, impatience):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    finally:
        # Also when the drain met a bug: clients are told, and what was started for the grid is finished.
        await gateway.close()
        reports.cancel()


def run(settings: Settings) -> int:
    """Run a node until SIGTERM or Ctrl-C, which drain it; a second one stops it at once.

    Returns:
        The exit code of the process.
    """
    if settings.uvloop:
        with suppress(ImportError):
            import uvloop  # noqa: PLC0415 - optional, and only wanted here

            return uvloop.run(_serve(settings))
    return asyncio.run(_serve(settings))
