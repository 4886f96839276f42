"""Accepts the connections of the admin port, so that no crowd keeps out who asks for the node's health."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections import Counter
from collections.abc import Callable
from ssl import SSLContext
from typing import Final

from aiohttp import web

from gateway.adapters.admin.connection import AdminConnection
from gateway.adapters.admin.connection_state import Shared
from gateway.adapters.admin.pacing import CALLERS_SHARE, Pacer, ServiceClass
from gateway.adapters.admin.places import Places
from gateway.adapters.admin.public_pages import PublicPages
from gateway.adapters.listeners import listen
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.catalogue.refusals import AdminRefusal
from gateway.ports import EventLog, Metrics

BACKLOG: Final = 4096
"""Connections that the kernel may hold while others are accepted; it holds no more than ``net.core.somaxconn``. Beside
a crowd that wants pages some 5,000 are accepted in a second, so the last of them waits for less than the second that
HAProxy gives a health check. Whoever finds no room here is only tried again by its kernel after a second."""

ACCEPTED_AT_ONCE: Final = 16
"""Connections accepted in one go: less than a millisecond of work. Then whatever else unauthenticated clients want has
its turn, if it has had less of the time."""

ACCEPT_PAUSE: Final = 0.05
"""Seconds before accepting is tried again after the system had no descriptor left for a connection."""

TELL_SECONDS: Final = 60.0
"""At most this often the log tells that unauthenticated clients crowd the port."""

_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})


class AdminListener:
    """Listens, accepts, and ends whom there is no place for.

    Args:
        host: name or address to listen on.
        port: 0 takes a free one; see ``port``.
        make: makes aiohttp's protocol for one connection.
        pages: those that are answered ahead of aiohttp.
        knows: whether the value of an Authorization header is that of an administrator.
        body_bytes: largest body of a request.
        tls: tells how to speak TLS with a connection that begins now; None to speak none.
        metrics: where it is counted who is refused.
        log: where a crowd is told of.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        make: Callable[[], asyncio.BaseProtocol],
        pages: PublicPages,
        knows: Callable[[str], bool],
        body_bytes: int,
        tls: Callable[[], SSLContext] | None,
        metrics: Metrics,
        log: EventLog,
    ) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._log = log
        self._listeners: list[socket.socket] = []
        self._watched: set[socket.socket] = set()
        self._told_at: float | None = None
        self.places: Places[AdminConnection] = Places()
        self.pacer = Pacer()
        self.callers_pacer = Pacer(CALLERS_SHARE)
        self._shared = Shared(
            places=self.places,
            pacer=self.pacer,
            callers=self.callers_pacer,
            pages=pages,
            make=make,
            knows=knows,
            refused=self._refused,
            body_bytes=body_bytes,
            tls=tls,
        )
        metrics.watch(catalogue.ADMIN_CONNECTIONS, lambda: self.places.unauthenticated, label="unauthenticated")
        metrics.watch(catalogue.ADMIN_CONNECTIONS, lambda: self.places.callers, label="callers")

    @property
    def port(self) -> int:
        """The port in use: the real one after ``start``, also where 0 was asked for."""
        return self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be used.
        """
        self._listeners = await listen(self._host, self._port, backlog=BACKLOG)
        self._port = int(self._listeners[0].getsockname()[1])
        for listener in self._listeners:
            self._watch(listener)

    def stop(self) -> None:
        """Accept no more; those that were accepted stay."""
        for listener in self._listeners:
            self._unwatch(listener)
            listener.close()
        self._listeners = []

    def close(self) -> None:
        """Accept no more, and end everybody."""
        self.stop()
        self.pacer.close()
        self.callers_pacer.close()
        for each in self.places:
            each.abort()

    def connection_of(self, request: web.BaseRequest) -> AdminConnection | None:
        """Tell over which connection a request came; None if it has ended."""
        transport = request.transport
        return None if transport is None else self._shared.transports.get(transport)

    # --- Accepting ----------------------------------------------------------------------------------------------------

    def take_turn(self) -> int:
        """See ``Paced``: accept some; as long as there are more, go on in a turn of its own."""
        return sum(map(self._accept, self._listeners))

    def _watch(self, listener: socket.socket) -> None:
        if listener in self._listeners and listener not in self._watched:
            self._watched.add(listener)
            asyncio.get_running_loop().add_reader(listener.fileno(), self._acceptable, listener)

    def _unwatch(self, listener: socket.socket) -> None:
        if listener in self._watched:
            self._watched.discard(listener)
            asyncio.get_running_loop().remove_reader(listener.fileno())

    def _acceptable(self, listener: socket.socket) -> None:
        if not self.pacer.is_free():
            # They wait in the kernel, each in its turn.
            self._unwatch(listener)
        self.pacer.ask(self, ServiceClass.ACCEPT)

    def _accept(self, listener: socket.socket) -> int:
        accepted = 0
        try:
            while accepted < ACCEPTED_AT_ONCE:
                connection, peer = listener.accept()
                accepted += 1
                self._begin(connection, str(peer[0]))
        except (BlockingIOError, ConnectionAbortedError):
            self._watch(listener)  # there are no more, or the loop tells of them
        except OSError as error:
            self._cannot_accept(listener, error)
        else:
            # There may be more. To wait until the loop tells of them would be one portion in each turn of the loop,
            # however much of the turn is left, while others go on with what they have sent together.
            self._unwatch(listener)
            self.pacer.queue(self, ServiceClass.ACCEPT)
        return accepted

    def _begin(self, accepted: socket.socket, address: str) -> None:
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            accepted.close()  # it has ended before it was looked at
            return
        connection = AdminConnection(accepted, address, self._shared)
        leaves = self.places.enter(connection)
        if leaves is not None:
            leaves.refuse(AdminRefusal.CROWDED_OUT)
        connection.start()

    def _cannot_accept(self, listener: socket.socket, error: OSError) -> None:
        # With the listener readable all the time, the loop would spin.
        self._unwatch(listener)
        loop = asyncio.get_running_loop()
        loop.call_later(ACCEPT_PAUSE, self._watch, listener)
        idle = self.places.longest_idle if error.errno in _NO_DESCRIPTOR else None
        if idle is not None:
            idle.refuse(AdminRefusal.CROWDED_OUT)  # its descriptor is there for the next one
        else:
            loop.call_exception_handler({"message": "no connection can be accepted", "exception": error})

    # --- Refusing -----------------------------------------------------------------------------------------------------

    def _refused(self, _connection: AdminConnection, reason: AdminRefusal) -> None:
        self._metrics.add(catalogue.ADMIN_CONNECTIONS_REFUSED, label=reason.value)
        if reason is not AdminRefusal.CROWDED_OUT:
            return
        now = time.monotonic()
        if self._told_at is None or now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            held = Counter(each.address for each in self.places if not each.is_caller)
            address, most = held.most_common(1)[0] if held else ("", 0)
            self._log.emit(events.ADMIN_PORT_CROWDED, connections=held.total(), address=address, most=most)
