"""Non-blocking WebSocket connections by the thousand on one epoll loop, in one thread.

No event-loop library stands between the generator and its sockets: what it costs is printed with every result, and the
less it costs, the more of its core is left to Redis and HAProxy, which share it.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Final, Protocol

from benchmarks.storm import wire
from benchmarks.systems.base import SystemFailed

_READ_BYTES: Final = 262_144
"""Taken off a socket at once: a thousand updates of 100 bytes."""
_EVENTS: Final = 512
"""Sockets looked at between two questions whether the storm is over."""
_POLL_SECONDS: Final = 0.05
"""Longest time without a look at the deadline and at timers."""
_LINGER_RESET: Final = struct.pack("ii", 1, 0)
"""Close with RST, as a connection ends whose network has gone."""
_SHOWN_FAILURES: Final = 5


class StormFailed(SystemFailed):
    """The system under test did something wrong, or not in time; the message says what and how often."""


class Owner(Protocol):
    """Whoever talks over a connection."""

    def opened(self, connection: Connection) -> None:
        """The WebSocket is open."""

    def received(self, connection: Connection, payload: bytes) -> None:
        """A text message came."""

    def lost(self, connection: Connection, reason: str) -> None:
        """The connection is over, and it was not this side that ended it."""


class Loop:
    """Runs connections until a condition holds.

    Attributes:
        failures: what went wrong so far, in the order of its happening; any of them ends ``run``.
        bytes_in: bytes received on all connections, heads of responses included.
    """

    def __init__(self) -> None:
        """Begin without connections."""
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self.failures: list[str] = []
        self.bytes_in = 0

    def close(self) -> None:
        """Cut every connection and give the epoll descriptor back."""
        self.cut_all()
        self._epoll.close()

    def cut_all(self) -> None:
        """Cut every connection."""
        for connection in list(self._connections.values()):
            connection.cut()

    def fail(self, what: str) -> None:
        """Note that the system under test broke a rule."""
        self.failures.append(what)

    def connect(self, address: tuple[str, int], target: str, subprotocol: str | None, owner: Owner) -> Connection:
        """Begin to open a WebSocket; ``owner.opened`` tells when it is open.

        Args:
            address: host and port, the host as an IPv4 address.
            target: path and query.
            subprotocol: to offer, or None.
            owner: who talks over it.
        """
        peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = peer.connect_ex(address)
        if code not in {0, errno.EINPROGRESS}:
            peer.close()
            raise OSError(code, f"cannot connect to {address[0]}:{address[1]}")
        connection = Connection(self, peer, owner, wire.upgrade_request(*address, target, subprotocol))
        self._connections[peer.fileno()] = connection
        self._epoll.register(peer.fileno(), select.EPOLLOUT)
        return connection

    def run(
        self,
        until: Callable[[], bool],
        *,
        seconds: float,
        tick: Callable[[], None] | None = None,
        every: float = _POLL_SECONDS,
    ) -> None:
        """Serve the connections until a condition holds.

        Args:
            until: looked at after every batch of events.
            seconds: the deadline.
            tick: called after every batch of events, for what is due by time.
            every: seconds between two calls of *tick* at most.

        Raises:
            StormFailed: a check failed, or the deadline passed.
        """
        deadline = time.monotonic() + seconds
        while not until():
            if self.failures:
                raise StormFailed(self._failure_text())
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise StormFailed(f"not done within {seconds:g} s")
            self._turn(min(every, remaining))
            if tick is not None:
                tick()
        if self.failures:
            raise StormFailed(self._failure_text())

    def idle(self, seconds: float) -> None:
        """Serve the connections for some time.

        Raises:
            StormFailed: a check failed.
        """
        end = time.monotonic() + seconds
        self.run(lambda: time.monotonic() >= end, seconds=seconds + 2 * _POLL_SECONDS + 1)

    def _turn(self, seconds: float) -> None:
        for descriptor, events in self._epoll.poll(seconds, _EVENTS):
            connection = self._connections.get(descriptor)
            if connection is not None:
                connection.ready(events)

    def watch(self, descriptor: int, *, writing: bool) -> None:
        """Ask for room to write as well, or no longer."""
        self._epoll.modify(descriptor, select.EPOLLIN | select.EPOLLOUT if writing else select.EPOLLIN)

    def forget(self, descriptor: int) -> None:
        """The connection's socket is about to be closed."""
        if self._connections.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def _failure_text(self) -> str:
        shown = "; ".join(self.failures[:_SHOWN_FAILURES])
        return f"{len(self.failures)} checks failed: {shown}"


class Connection:
    """One WebSocket of the generator.

    Attributes:
        refused: how the server answered the upgrade, if it refused it.
    """

    __slots__ = ("_in", "_loop", "_out", "_owner", "_peer", "_state", "refused")

    _CONNECTING, _UPGRADING, _OPEN, _CLOSED = range(4)

    def __init__(self, loop: Loop, peer: socket.socket, owner: Owner, request: bytes) -> None:
        """Take a socket that connects; *request* is sent as soon as it has."""
        self._loop = loop
        self._peer = peer
        self._owner = owner
        self._out = request
        self._in = bytearray()
        self._state = Connection._CONNECTING
        self.refused: wire.UpgradeRefused | None = None

    def send(self, payload: bytes) -> None:
        """Send one text message; what the socket does not take waits for it."""
        self._write(wire.frame(payload))

    def cut(self) -> None:
        """Reset the connection without a word; the owner is not told."""
        if self._state != Connection._CLOSED:
            self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
            self._end()

    def ready(self, events: int) -> None:
        """Do what the kernel says is possible."""
        try:
            if events & select.EPOLLOUT or self._state == Connection._CONNECTING:
                self._flush()
            if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                self._read()
        except wire.UpgradeRefused as error:
            self.refused = error
            self._lose(str(error))
        except (OSError, wire.WireError) as error:
            self._lose(f"{type(error).__name__}: {error}")

    def _flush(self) -> None:
        if self._state == Connection._CONNECTING:
            code = self._peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "cannot connect")
            self._state = Connection._UPGRADING
        waiting, self._out = self._out, b""
        sent = self._peer.send(waiting) if waiting else 0
        self._out = waiting[sent:]
        self._loop.watch(self._peer.fileno(), writing=bool(self._out))

    def _write(self, data: bytes) -> None:
        if self._state == Connection._CLOSED:
            return
        if self._out:
            self._out += data
            return
        try:
            sent = self._peer.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lose(f"{type(error).__name__}: {error}")
            return
        if sent < len(data):
            self._out = data[sent:]
            self._loop.watch(self._peer.fileno(), writing=True)

    def _read(self) -> None:
        try:
            data = self._peer.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._lose("the server closed the connection")
            return
        self._loop.bytes_in += len(data)
        self._in += data
        if self._state == Connection._UPGRADING:
            if not wire.read_upgrade(self._in):
                return
            self._state = Connection._OPEN
            self._owner.opened(self)
        if self._in:
            self._take_frames()

    def _take_frames(self) -> None:
        for opcode, payload in wire.read_frames(self._in):
            if self._state == Connection._CLOSED:
                return
            if opcode == wire.Opcode.TEXT:
                self._owner.received(self, payload)
            elif opcode == wire.Opcode.PING:
                self._write(wire.frame(payload, wire.Opcode.PONG))
            elif opcode == wire.Opcode.CLOSE:
                self._lose(f"closed with {int.from_bytes(payload[:2], 'big')} {payload[2:].decode(errors='replace')}")

    def _lose(self, reason: str) -> None:
        if self._state != Connection._CLOSED:
            self._end()
            self._owner.lost(self, reason)

    def _end(self) -> None:
        self._state = Connection._CLOSED
        self._loop.forget(self._peer.fileno())
        self._peer.close()
