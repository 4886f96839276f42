"""The upgrade of a connection to a WebSocket: its request is read and answered (the request: ``upgrade_request``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from socket import SHUT_WR
from ssl import SSLEOFError, SSLError
from typing import Final, Protocol

from gateway.adapters.tls_connection import NothingSaid, TlsConnection
from gateway.adapters.websocket.addresses import network_of
from gateway.adapters.websocket.read_scheduler import PacedReader, Share
from gateway.adapters.websocket.transport import Transport, unread
from gateway.adapters.websocket.upgrade_request import HEAD_BYTES, Refusal, Request, RequestReader, refusal_of
from gateway.catalogue.refusals import UpgradeRefusal as Why
from gateway.ports import Access, ConnectionRejected, CountedConnection

REQUEST_TIMEOUT: Final = 10.0
"""Seconds from the connection to the end of the request, however the bytes trickle in: a healthy client sends them at
once, and who waits costs memory."""

READS_AT_ONCE: Final = 4
"""Reads of one connection in one turn of the loop, so that nobody holds up the others; nearly always the second finds
nothing."""

LINGER_TIMEOUT: Final = 1.0
"""Seconds a client gets to read why it is refused: a socket that is closed with something unread in it throws away what
the other side has not read yet."""


class Acceptor(Protocol):
    """Decides about requests, and takes over what has become a WebSocket."""

    def count(self, upgrade: Upgrade) -> None:
        """Count a connection that is about to cost something, before it does.

        Raises:
            ConnectionRejected: its address has had enough.
        """

    def secured(self, upgrade: Upgrade) -> None:
        """Its TLS handshake is done."""

    def judge(self, upgrade: Upgrade, request: Request) -> bytes:
        """Look at a request; returns the answer that grants it.

        Raises:
            Refusal: it is not granted.
        """

    def admit(self, upgrade: Upgrade, request: Request) -> None:
        """Have ``upgrade.accept`` or ``upgrade.reject`` called, now or later, for a request that was found good."""

    def opened(self, upgrade: Upgrade, transport: Transport, request: Request) -> None:
        """Take over a connection that has been upgraded, with what waits for it: ``upgrade.reading``."""

    def refused(self, upgrade: Upgrade, reason: Why) -> None:
        """Nothing comes of its request. It may linger until its client has read why."""

    def left(self, upgrade: Upgrade) -> None:
        """Nothing more will come of it here."""


class Upgrade:
    """Reads one request and answers it; a ``Candidate`` while it waits to be accepted.

    Args:
        transport: just accepted, not blocking.
        peer: its address.
        acceptor: decides about the request.
        share: of the turns of the loop, in which its request is read.
        interface: by which it has come; see ``Access``.

    Attributes:
        peer: as given.
        reading: waits for the connection.
        address: of the client, as far as trusted proxies tell; set by the acceptor.
        counted: where the connection is counted; handed on with it.
        interface: as given.
        is_secure: whether TLS is spoken with it.
        access: how the client has reached the node; set by the acceptor.
    """

    __slots__ = (
        "_acceptor",
        "_granted",
        "_handshake",
        "_has_come",
        "_loop",
        "_reader",
        "_request",
        "_timer",
        "_transport",
        "access",
        "address",
        "counted",
        "interface",
        "is_secure",
        "peer",
        "reading",
    )

    def __init__(self, transport: Transport, peer: str, acceptor: Acceptor, share: Share, interface: str = "") -> None:
        self._transport = transport
        self._acceptor = acceptor
        self._reader: RequestReader | None = RequestReader()
        self._request: Request | None = None
        """Found good: it waits to be accepted."""
        self._granted = b""
        self._has_come = False
        """Counted for its handshake, which may take several reads."""
        self.interface = interface
        self.is_secure = isinstance(transport, TlsConnection)
        self.access = Access()
        self._handshake = transport.shake_hands if isinstance(transport, TlsConnection) else None
        """Of TLS, until it is done."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(REQUEST_TIMEOUT, self._on_late)
        self.peer = self.address = peer
        self.reading = PacedReader(share, transport.fileno(), network_of(peer), self._read)
        self.reading.start()
        self.counted: CountedConnection | None = None

    @property
    def makes_room(self) -> bool:
        """Whether it may go: it has had its turn, or has said nothing; or what it has said is the beginning of TLS.

        A recorded hello costs nothing to send, and there is nobody behind most of them.
        """
        has_had_its_turn = self._reader is None or self._reader.has_begun
        return has_had_its_turn or self.is_secure or not unread(self._transport.fileno())

    # --- Candidate ----------------------------------------------------------------------------------------------------

    def accept(self) -> None:
        """See ``Candidate``."""
        request, self._request = self._request, None
        # Nothing has been sent before, so a kernel that does not take the few bytes means that the client is gone.
        if request is not None and self._reply(self._granted):
            self._let_go()
            self._acceptor.opened(self, self._transport, request)
        else:
            self._acceptor.refused(self, Why.GONE)
            self.end()

    def reject(self, reason: ConnectionRejected) -> None:
        """See ``Candidate``."""
        self.refuse(refusal_of(reason))

    def end(self, reason: Why = Why.GONE) -> None:
        """Close the connection.

        Args:
            reason: why, unless it has been refused already.
        """
        if self._reader is not None or self._request is not None:
            self._acceptor.refused(self, reason)
            self._request = None
        self._let_go()
        self.reading.close()
        self._leave()
        self._transport.close()

    def _leave(self) -> None:
        counted, self.counted = self.counted, None
        if counted is not None:
            counted.leave()

    def _let_go(self) -> None:
        self._timer.cancel()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._acceptor.left(self)

    def _read(self) -> bool:
        """Read some, and tell whether there may be more.

        Until nothing is left, though one read would do for asyncio: uvloop tells of a break once, perhaps together with
        the first half of a request, and of nothing after it. Who reads only that waits for the timer.
        """
        try:
            if self._handshake is not None and not self._shake_hands(self._handshake):
                return False
        except NothingSaid:
            return True
        for _ in range(READS_AT_ONCE):
            try:
                data = self._take()
            except BlockingIOError:
                return False
            self._hand_on(data)
            if self._request is not None and not self._request.upgrades:
                self.reading.stop()  # the body of a call waits in the kernel until it is known whose it is
                return False
            if self._reader is None and self._request is None:
                if self.reading.read == self._read:
                    return self.reading.is_readable  # answered; what still comes is thrown away
                return self.reading.is_readable and self.reading.read()  # handed over
        return True

    def _hand_on(self, data: bytes) -> None:
        if not data:
            self.end()
        elif self._reader is not None:
            self._take_in(self._reader, data)
        elif self._request is not None:
            self._keep(self._request, data)

    def _take(self) -> bytes:
        """Take what has come; nothing after the end or a break."""
        try:
            return self._transport.recv(HEAD_BYTES)
        except BlockingIOError:
            raise
        except (SSLError, NothingSaid):  # which nobody has a reason for, before there is a request
            self.end(Why.TLS)
            raise BlockingIOError from None
        except OSError:
            return b""

    def _shake_hands(self, handshake: Callable[[], None]) -> bool:
        """Go on with the handshake of TLS; returns whether it is done."""
        try:
            if not self._has_come:
                self._has_come = True
                self._acceptor.count(self)
            handshake()
        except ConnectionRejected:
            # There is nothing yet that an answer could be sent over.
            self.end(Why.LIMIT)
        except BlockingIOError:
            pass
        except SSLEOFError:
            self.end()
        except SSLError:
            self.end(Why.TLS)
        except OSError:
            self.end()
        else:
            self._handshake = None
            self._acceptor.secured(self)
            return True
        return False

    def _take_in(self, reader: RequestReader, data: bytes) -> None:
        has_body = True
        try:
            request = reader.feed(data)
            if request is None:
                return
            has_body = request.method != b"HEAD"
            self._granted = self._acceptor.judge(self, request)
        except Refusal as refusal:
            self.refuse(refusal, has_body=has_body)
            return
        reader.close()
        self._reader = None
        self._timer.cancel()
        self._request = request
        self._acceptor.admit(self, request)

    def _keep(self, request: Request, data: bytes) -> None:
        """Keep what a client says before it has been accepted."""
        if len(request.rest) + len(data) > HEAD_BYTES:
            self.end()
            return
        self._request = request._replace(rest=request.rest + data)

    def _on_late(self) -> None:
        if self._reader is not None and self._reader.has_begun:
            self.refuse(
                Refusal(
                    Why.SLOW,
                    HTTPStatus.REQUEST_TIMEOUT,
                    f"a request must be complete in {REQUEST_TIMEOUT:g} seconds",
                )
            )
        else:
            self.end(Why.SILENT)  # it has asked nothing, so there is nothing to answer

    def refuse(self, refusal: Refusal, *, has_body: bool = True) -> None:
        """Answer why not, and end."""
        self._acceptor.refused(self, refusal.reason)
        self._request = None
        self._leave()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if not self._reply(refusal.response(has_body=has_body)) or not self._hang_up():
            self.end()
            return
        self._timer.cancel()
        self._timer = self._loop.call_later(LINGER_TIMEOUT, self.end)

    def _reply(self, answer: bytes) -> bool:
        try:
            return self._transport.send(answer) == len(answer)
        except OSError:
            return False

    def _hang_up(self) -> bool:
        """Say that nothing more will be sent."""
        try:
            self._transport.shutdown(SHUT_WR)
        except OSError:
            return False
        return True
