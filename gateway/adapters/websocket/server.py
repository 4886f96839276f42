"""The client port: accepts connections, has their requests checked, then hands the WebSockets to the application."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from ssl import SSLContext
from typing import Any, Final

from gateway.adapters.listeners import listen
from gateway.adapters.tls_connection import TlsConnection
from gateway.adapters.websocket.addresses import ClientAddresses, Network
from gateway.adapters.websocket.call import HttpCall
from gateway.adapters.websocket.connection import SecureWebSocketConnection, WebSocketConnection
from gateway.adapters.websocket.pending_requests import PendingRequests
from gateway.adapters.websocket.read_scheduler import PacedReader, ReadScheduler, Share
from gateway.adapters.websocket.transport import Transport
from gateway.adapters.websocket.upgrade import Upgrade
from gateway.adapters.websocket.upgrade_request import (
    Refusal,
    Request,
    accept,
    accept_call,
    comes_back,
    forwarded_by_tls,
    is_call,
    refusal_of,
)
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.catalogue.log_event import LogEvent
from gateway.catalogue.refusals import FrameRule, UpgradeRefusal
from gateway.ports import Access, Admission, Calls, ConnectionRejected, CountedConnection, EventLog, Metrics

LISTEN_BACKLOG: Final = 4096
"""Connections the kernel may hold for the loop; it holds no more than ``net.core.somaxconn``. When it has no room for a
connection of a storm, the load balancer's attempt times out and goes to another node, and a session that could have
been reattached fails over."""

MOST_REQUESTS: Final = 4096
"""Connections at once whose request has not been read; for one more, one of them is closed: the oldest of the address
that has the most (``PendingRequests``). They must not take all descriptors of the process. Those of a storm that have
asked, and have yet to be read, stay: others wait in the kernel for them."""

READ_PAUSE: Final = 0.005
"""Seconds without accepting while there is no room, and all who might make it have asked something that is yet to be
read: some turns of the loop, in which it is. Others wait in the kernel meanwhile."""

ACCEPT_PAUSE: Final = 0.5
"""Seconds before accepting is tried again after the system had no descriptor left for a connection."""

TELL_AGAIN: Final = 10.0
"""Seconds between two log lines about the same trouble with connections, which somebody else may cause at will."""

LONGEST_ORIGIN: Final = 200
"""Characters of an origin in the log; those that browsers write have less."""

MASTER_HEADER: Final = "X-Gateway-Master"
"""Names the node that takes connections in the place of this one (protocol 15.5)."""

LISTENER: Final = ""
"""As whose accepting is served: nobody's address, so that it has its turn beside all of them."""

SHUTDOWN_TIMEOUT: Final = 1.0
"""Seconds that connections which were told to close get to do so when the server stops; a drain has come before. And
seconds that whoever serves them gets then to let itself be cancelled."""


@dataclass(frozen=True, slots=True)
class ClientInterface:
    """A place at which clients connect.

    Attributes:
        host: address to listen on.
        port: TCP port; 0 lets the system choose, see ``WebSocketServer.ports``.
        name: of the interface; empty for the only one of a node that names none.
        tls: tells how to speak TLS with the connection that has just come; None to speak none.
    """

    host: str
    port: int
    name: str = ""
    tls: Callable[[], SSLContext] | None = None


class WebSocketServer:
    """Accepts clients.

    Args:
        interfaces: where; at least one.
        serve: serves a connection: the whole conversation, or its beginning if the connection is given a receiver.
        calls: executes requests of HTTP that are no WebSockets.
        admission: who may connect, and when, if so many come.
        accepting: whether new connections are wanted; if not they are answered 503, and HAProxy tries another node.
        elsewhere: the node that takes connections if this one does not and one certain other does; told in that answer.
        message_bytes: largest message accepted, in bytes.
        metrics: where it is counted who is refused, and why.
        log: where it is told what operators should know of.
        origins: exact values of the Origin header that are allowed; ``*`` for all. A request without one is no browser
            and is allowed.
        trusted_proxies: whose X-Forwarded-For is believed.
        most_requests: connections at once whose request is not there yet.
    """

    def __init__(
        self,
        interfaces: Sequence[ClientInterface],
        *,
        serve: Callable[[WebSocketConnection], Coroutine[Any, Any, None]],
        calls: Calls,
        admission: Admission,
        accepting: Callable[[], bool],
        elsewhere: Callable[[], str | None] = lambda: None,
        message_bytes: int,
        metrics: Metrics,
        log: EventLog,
        origins: Sequence[str] = (),
        trusted_proxies: Sequence[Network] = (),
        most_requests: int = MOST_REQUESTS,
    ) -> None:
        self._interfaces = tuple(interfaces)
        self._ports: dict[str, int] = {}
        self._serve = serve
        self._calls = calls
        self._admission = admission
        self._accepting = accepting
        self._elsewhere = elsewhere
        self._message_bytes = message_bytes
        self._metrics = metrics
        self._log = log
        self._accesses = {
            (each.name, is_secure): Access(each.name, is_secure)
            for each in self._interfaces
            for is_secure in (False, True)
        }
        """Made once: ten thousand clients come by the same few."""
        self._origins = frozenset(origins)
        self._addresses = ClientAddresses(trusted_proxies)
        self._scheduler: ReadScheduler | None = None
        self._listeners: dict[socket.socket, PacedReader] = {}
        self._told: dict[LogEvent, float] = {}
        self._requests = PendingRequests(most_requests, is_proxy=self._addresses.is_trusted)
        self._waiting: set[Upgrade] = set()
        self._connections: dict[WebSocketConnection, CountedConnection | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._emptied = asyncio.Event()
        # Bound once: methods bound for each connection would cost each 200 bytes.
        self._on_violated, self._on_slowed, self._on_ended = self._violated, self._slowed, self._ended

    @property
    def port(self) -> int:
        """The TCP port of the first interface."""
        return next(iter(self.ports.values()))

    @property
    def ports(self) -> Mapping[str, int]:
        """The TCP ports that are listened on, by the names of the interfaces."""
        return {each.name: self._ports.get(each.name, each.port) for each in self._interfaces}

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: an address cannot be bound; nothing is listened on then.
        """
        listeners: list[tuple[ClientInterface, socket.socket]] = []
        try:
            for interface in self._interfaces:
                found = await listen(interface.host, interface.port, backlog=LISTEN_BACKLOG)
                listeners += [(interface, listener) for listener in found]
        except OSError:
            for _, listener in listeners:
                listener.close()
            raise
        scheduler = self._scheduler = ReadScheduler(
            is_paced=self._admission.is_paced,
            deferred=lambda share: self._metrics.add(catalogue.READING_DEFERRED, label=share),
        )
        for interface, listener in listeners:
            self._ports[interface.name] = listener.getsockname()[1]
            reading = self._listeners[listener] = PacedReader(
                scheduler.unauthenticated,
                listener.fileno(),
                LISTENER,
                partial(self._accept, interface, listener, scheduler.unauthenticated),
            )
            reading.start()

    async def close(self) -> None:
        """Stop listening and drop what is still connected."""
        self._stop_listening()
        for upgrade in [*self._requests, *self._waiting]:
            upgrade.end(UpgradeRefusal.UNAVAILABLE)
        # Links that were told to close get a moment for it; others are not waited for.
        for connection in [each for each in self._connections if not each.is_closing]:
            connection.abort()
        if self._connections:
            self._emptied.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                    await self._emptied.wait()
        for connection in list(self._connections):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SHUTDOWN_TIMEOUT)
        if self._scheduler is not None:
            self._scheduler.close()

    # --- Connections --------------------------------------------------------------------------------------------------

    def _stop_listening(self) -> None:
        for listener, reading in self._listeners.items():
            reading.close()
            listener.close()
        self._listeners = {}

    def _accept(self, interface: ClientInterface, listener: socket.socket, share: Share) -> bool:
        """Accept some connections, and tell whether there may be more."""
        accepted, acceptable, started = 0, self._admission.acceptable(), share.clock()
        more, pause = True, 0.0
        try:
            while accepted < acceptable and share.has_time(started):
                leaves = None
                if self._requests.is_full and (leaves := self._requests.first_to_go()) is None:
                    pause = READ_PAUSE
                    break
                connection, peer = listener.accept()
                accepted += 1
                if leaves is not None:
                    leaves.end(UpgradeRefusal.CROWDED_OUT)
                self._welcome(interface, connection, peer[0], share)
        except BlockingIOError:
            more = False
        except ConnectionAbortedError:
            pass  # there may be more
        except OSError as error:
            # No descriptors or memory: with the listener readable all the time, the loop would spin.
            self._tell(events.CONNECTIONS_NOT_ACCEPTED, error=str(error))
            self._listeners[listener].rest(ACCEPT_PAUSE)
            return False
        if accepted:
            pause = max(pause, self._admission.pause(more=more))
        if pause:
            self._listeners[listener].rest(pause)
        return more

    def _welcome(self, interface: ClientInterface, connection: socket.socket, peer: str, share: Share) -> None:
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = connection if interface.tls is None else TlsConnection(connection, interface.tls())
            self._requests.add(Upgrade(transport, peer, self, share, interface.name))
        except OSError:
            # It has ended before it was looked at.
            connection.close()
            self._count(UpgradeRefusal.GONE)

    def _tell(self, event: LogEvent, **fields: str) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._told.get(event, now):
            self._told[event] = now + TELL_AGAIN
            self._log.emit(event, **fields)

    # --- Acceptor -----------------------------------------------------------------------------------------------------

    def count(self, upgrade: Upgrade) -> None:
        """See ``Acceptor``."""
        # Behind a proxy, the address is only known once there is a request.
        proxy = self._addresses.is_trusted(upgrade.peer)
        self._admission.shake_hands(upgrade.peer, proxy=proxy)
        if not proxy:
            upgrade.counted = self._admission.arrive(upgrade.peer)

    def secured(self, upgrade: Upgrade) -> None:
        """See ``Acceptor``."""
        self._requests.renew(upgrade)

    def judge(self, upgrade: Upgrade, request: Request) -> bytes:
        """See ``Acceptor``."""
        if not self._accepting():
            raise Refusal(
                UpgradeRefusal.UNAVAILABLE,
                HTTPStatus.SERVICE_UNAVAILABLE,
                "this node takes no new connections; try another",
                {"Retry-After": "1"} | ({} if (master := self._elsewhere()) is None else {MASTER_HEADER: master}),
            )
        # Whoever says so without being a trusted proxy is believed: who came over TLS is only told of less.
        is_secure = upgrade.is_secure or forwarded_by_tls(request)
        upgrade.access = self._accesses[upgrade.interface, is_secure]
        upgrade.address = self._addresses.client((upgrade.peer,), request.headers.get(b"x-forwarded-for"))
        try:
            if upgrade.counted is None:
                upgrade.counted = self._admission.arrive(upgrade.address)
        except ConnectionRejected as reason:
            raise refusal_of(reason) from None
        try:
            if is_call(request):
                accept_call(request, self._origins, is_secure=is_secure)
                return b""  # a call is answered when it has been executed
            return accept(request, self._origins)
        except Refusal as refusal:
            if refusal.reason is UpgradeRefusal.ORIGIN:
                # Untrusted text, which the log escapes and cuts.
                origin = request.headers.get(b"origin", b"").decode("latin-1")
                self._tell(events.ORIGIN_REFUSED, origin=origin[:LONGEST_ORIGIN], address=upgrade.address)
            raise

    def admit(self, upgrade: Upgrade, request: Request) -> None:
        """See ``Acceptor``."""
        # It has asked, so it is not one of those who say nothing.
        self._requests.discard(upgrade)
        self._waiting.add(upgrade)
        self._admission.admit(upgrade, address=upgrade.address, returning=comes_back(request))

    def opened(self, upgrade: Upgrade, transport: Transport, request: Request) -> None:
        """See ``Acceptor``."""
        if is_call(request):
            self._run(self._make_call(upgrade, transport, request).run(), "serve-call")
            return
        connection = self._make_connection(
            SecureWebSocketConnection if upgrade.is_secure else WebSocketConnection, transport, upgrade
        )
        self._connections[connection] = upgrade.counted
        connection.begin(request.rest)
        self._run(self._serve(connection), "serve-connection")

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _make_call(self, upgrade: Upgrade, transport: Transport, request: Request) -> HttpCall:
        return HttpCall(
            transport,
            upgrade.reading,
            request,
            upgrade.address,
            calls=self._calls,
            metrics=self._metrics,
            log=self._log,
            over=_nothing if upgrade.counted is None else upgrade.counted.leave,
        )

    def refused(self, upgrade: Upgrade, reason: UpgradeRefusal) -> None:
        """See ``Acceptor``."""
        self._count(reason)
        if upgrade in self._waiting:
            self._waiting.discard(upgrade)
            self._admission.withdraw(upgrade)  # who hangs up while it waits must not be accepted later
            self._requests.add(upgrade)

    def left(self, upgrade: Upgrade) -> None:
        """See ``Acceptor``."""
        self._requests.discard(upgrade)
        if upgrade in self._waiting:
            self._waiting.discard(upgrade)
            self._admission.withdraw(upgrade)

    def _make_connection(
        self, kind: type[WebSocketConnection], transport: Transport, upgrade: Upgrade
    ) -> WebSocketConnection:
        if self._scheduler is None:
            raise AssertionError("nobody is accepted before there is a scheduler")
        return kind(
            transport,
            upgrade.address,
            access=upgrade.access,
            reading=upgrade.reading,
            sessions=self._scheduler.sessions,
            message_bytes=self._message_bytes,
            violated=self._on_violated,
            slowed=self._on_slowed,
            over=self._on_ended,
        )

    def _count(self, reason: UpgradeRefusal) -> None:
        self._metrics.add(catalogue.UPGRADES_REFUSED, label=reason)

    def _slowed(self, has_session: bool) -> None:
        self._metrics.add(catalogue.READING_SLOWED, label="sessions" if has_session else "unauthenticated")

    def _violated(self, connection: WebSocketConnection, rule: FrameRule) -> None:
        self._metrics.add(catalogue.FRAME_VIOLATIONS, label=rule)
        if rule is FrameRule.FLOOD:
            self._tell(events.FLOOD_CLOSED, address=connection.address)
        if rule is FrameRule.TOO_BIG:
            self._metrics.add(catalogue.LIMITS_EXCEEDED, label="limit_message_bytes")

    def _ended(self, connection: WebSocketConnection) -> None:
        counted = self._connections.pop(connection, None)
        if counted is not None:
            counted.leave()
        if not self._connections:
            self._emptied.set()


def _nothing() -> None:
    """Nobody has counted the connection."""
