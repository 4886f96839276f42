"""One connection of the admin port, from its acceptance on, ahead of aiohttp.

An unauthenticated client, which has shown no valid token, is served one request at a time, and read no further
meanwhile. Health and metrics are answered here; everything else is given to aiohttp. A connection over which a valid
token comes is aiohttp's alone from then on.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import Final, cast

from gateway.adapters.admin.accepted_socket import AcceptedSocket
from gateway.adapters.admin.aiohttp_side import AiohttpSide
from gateway.adapters.admin.connection_state import Shared, State
from gateway.adapters.admin.pacing import ServiceClass
from gateway.adapters.admin.public_pages import Page
from gateway.adapters.admin.request_head import (
    HEAD_BYTES,
    HEAD_END,
    BadHead,
    HeadTooLong,
    RequestBuffer,
    RequestHead,
    path_of,
    read_head,
)
from gateway.adapters.admin.tls_transport import TlsTransport
from gateway.catalogue.refusals import AdminRefusal

REQUEST_SECONDS: Final = 10.0
"""From the connection to the end of the first request's head, TLS included, and from a later request's first byte to
the end of its head, however the bytes trickle in. HAProxy, Prometheus and operators send theirs at once."""

ANSWER_SECONDS: Final = 10.0
"""From there until an unauthenticated client has taken the whole answer, and sent the body that is not wanted of it."""

KEEP_ALIVE_SECONDS: Final = 5.0
"""How long an unauthenticated client may be idle between two requests. HAProxy uses a connection once; Prometheus asks
every 15 s by default and connects again by itself; a browser has the parts of a page by then."""

UPGRADE_SECONDS: Final = 30.0
"""From the opening of a WebSocket until it has a session. The application waits for the first packet for less."""

UPGRADED_BYTES: Final = 32 * 1024
"""What may come over a WebSocket until it has a session. A token and the packet around it take less than 2 KiB."""

SLICE_BYTES: Final = 1024
"""Of that, so much is taken in at once: some 170 of the smallest frames, each of which may have to be answered."""

CLOSE_SECONDS: Final = 2.0
"""How long a connection that is closed may take for it: the last bytes of an answer, and the end of TLS."""


HEALTH_PATHS: Final = (b"/healthz", b"/readyz")
"""What load balancers ask for, over a connection of its own each time."""

HEALTH_LINES: Final = tuple(b"GET %b HTTP/1." % path for path in HEALTH_PATHS)
"""How they begin."""


class AdminConnection(asyncio.Protocol):
    """One connection. ``start`` begins.

    Args:
        accepted: the socket, not blocking; taken over.
        address: of the peer.
        shared: with all others.
    """

    def __init__(self, accepted: socket.socket, address: str, shared: Shared[AdminConnection]) -> None:
        self.address = address
        self._socket = AcceptedSocket(accepted)
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._state = State.SILENT
        self._opening: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._secure: TlsTransport | None = None
        self._inner = AiohttpSide(shared.make)
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = RequestBuffer()
        self._asked: tuple[RequestHead, bytes] | None = None
        self._turn_for: ServiceClass | None = None
        self._is_written = False
        self._is_kept_alive = False
        self._reading = True
        self._stuck = False
        self._finished = False

    @property
    def is_caller(self) -> bool:
        """Whether a valid token has come over it."""
        return self._state is State.CALLER

    def start(self) -> None:
        """Look at what has come with it, which with a load balancer is a health check; or wait for its first byte."""
        self._wait(REQUEST_SECONDS, AdminRefusal.SILENT)
        self._first_byte()
        if self._state is State.SILENT:
            self._socket.watch(self._first_byte)

    def refuse(self, reason: AdminRefusal) -> None:
        """Refuse it: end it now, and have that counted."""
        if self._state is not State.OVER:
            self._shared.refused(self, reason)
            self.abort()

    def abort(self) -> None:
        """End it now."""
        self._state = State.OVER
        self._leave()
        if self._transport is not None:
            self._transport.abort()
        elif self._secure is not None:
            self._secure.abort()
        elif self._opening is not None:
            self._opening.cancel()
        else:
            self._socket.close()

    def promote(self) -> None:
        """A valid token has come over it: a place apart, if there is one, and no more deadlines but aiohttp's."""
        if self._state in {State.OVER, State.CLOSING}:
            return
        self._make_caller()
        if self._secure is not None:
            self._secure.promote(self._shared.callers)
        self._state = State.CALLER
        self._stop_waiting()
        self._resume()
        rest = self._buffer.take_all()
        if rest:
            self._inner.data_received(rest)

    # --- Called by aiohttp's side -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A request is given to a handler."""
        if self._state is State.CALLER:
            self._shared.places.begin(self)
            if self._secure is not None:
                self._secure.note_request()

    @property
    def ends_with_answer(self) -> bool:
        """Whether no other request may follow: what comes is not looked at here any more."""
        return self._state in {State.BODY, State.UPGRADED}

    def answered(self, *, may_go_on: bool) -> None:
        """The handler's answer was written.

        Args:
            may_go_on: whether another request may follow.
        """
        match self._state:
            case State.CALLER:
                self._shared.places.rest(self)
            case State.ANSWERING if may_go_on:
                self._finish()
            case State.ANSWERING | State.UPGRADED:
                # aiohttp closes it. A body's rest it takes before, in the time that is left.
                self._state = State.CLOSING
                self._wait(ANSWER_SECONDS, AdminRefusal.SLOW)

    # --- Beginning ----------------------------------------------------------------------------------------------------

    def _first_byte(self) -> None:
        try:
            seen = self._socket.look()
        except OSError:
            self.abort()
            return
        if seen is None:
            return
        self._socket.unwatch()
        self._state = State.OPENING
        if self._shared.tls is not None:
            self._shared.pacer.ask(self, ServiceClass.OPEN_TLS)
        elif seen.startswith(HEALTH_LINES) and seen.endswith(HEAD_END):
            self._state = State.PROBED
            self._shared.pacer.ask(self, ServiceClass.HEALTH)
        elif self._holds_token(seen):
            # Callers wait for no unauthenticated client, and from now on make room for none.
            self._make_caller()
            self.take_turn()
        elif HEAD_END in seen:
            # Nothing is opened for a request whose turn does not come: in a crowd, most make room for others before.
            self._turn_for = self._class_of(path_of(seen))
            self._shared.pacer.ask(self, self._turn_for)
        else:
            self._shared.pacer.ask(self, ServiceClass.OPEN)

    def _holds_token(self, seen: bytes) -> bool:
        """Tell whether a request with a valid token has come in one piece."""
        if b"uthorization" not in seen:
            return False
        begun, known = self._shared.pacer.now(), False
        with suppress(BadHead):
            known = self._is_callers(read_head(seen[: seen.find(HEAD_END) + len(HEAD_END)]))
        if not known:
            self._shared.pacer.charge(ServiceClass.READ, begun)
        return known

    def _is_callers(self, head: RequestHead) -> bool:
        return len(head.authorization) == 1 and self._shared.knows(head.authorization[0].decode("latin-1"))

    def _make_caller(self) -> None:
        """Take a place apart, if there is one."""
        leaves = self._shared.places.promote(self)
        if leaves is not None:
            leaves.refuse(AdminRefusal.CROWDED_OUT)

    def _answer_probe(self) -> None:
        """Answer a health check that came in one piece, by the socket alone; whatever is special about it, do not."""
        data, page = b"", None
        with suppress(BadHead, OSError):
            data = self._socket.look() or b""
            head = read_head(data)
            if not head.authorization and data.count(HEAD_END) == 1:
                page = self._page(head)
        if page is None:
            self._state = State.OPENING
            self._shared.pacer.queue(self, ServiceClass.OPEN)
            return
        self._socket.answer(len(data), page.response(keep_alive=False))
        self.abort()

    def _take_opening_turn(self) -> None:
        if self._shared.tls is not None:
            self._secure = self._socket.secure(
                self,
                self._shared.tls(),
                pacer=self._shared.pacer,
                flooded=lambda: self.refuse(AdminRefusal.TOO_MUCH),
                closing_seconds=ANSWER_SECONDS,
            )
            self._secure.take_turn()
            return
        if self._turn_for is not None:
            self._shared.pacer.charge(ServiceClass.OPEN, self._shared.pacer.now())
        self._opening = self._loop.create_task(self._open(), name="open-admin-connection")
        self._opening.add_done_callback(self._opened)

    async def _open(self) -> None:
        try:
            await self._socket.open(self)
        except OSError:
            # It is gone.
            if self._transport is None:
                self.abort()

    def _opened(self, _task: asyncio.Task[None]) -> None:
        self._opening = None
        if self._transport is None:
            self._socket.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast("asyncio.Transport", transport)
        if self._state is State.OVER:
            self._transport.abort()
            return
        # Whoever has not taken all of an answer is to be noticed.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._shared.transports[transport] = self
        self._state = State.READING

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._state = State.OVER
        self._leave()
        if self._transport is not None:
            self._shared.transports.pop(self._transport, None)
            self._transport = None
        self._inner.connection_lost(exc)

    # --- Reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        match self._state:
            case State.CALLER:
                self._inner.data_received(data)
            case State.BODY:
                self._pass_body(data)
            case State.READING:
                self._buffer.add(data)
                self._read_on(in_turn=False)
            case State.ASKED | State.ANSWERING | State.UPGRADED:
                self._buffer.add(data)
                self._hold()
                self._pause()
                if self._state is State.UPGRADED:
                    self._shared.pacer.queue(self, ServiceClass.READ)

    def eof_received(self) -> bool:
        """See ``asyncio.Protocol``; who says nothing more may still be told the answer."""
        if self._state is State.CALLER or self._state is State.UPGRADED:
            return self._inner.eof_received()
        self._finished = True
        return self._state in {State.ASKED, State.ANSWERING, State.BODY}

    def _read_on(self, *, in_turn: bool) -> None:
        """Look at what has come. If no request is there yet, read more: at once, or in a turn of its own."""
        begun, is_further = self._shared.pacer.now(), in_turn and self._is_kept_alive
        found = self._look()
        is_charged = in_turn or self._secure is not None  # over TLS, things are read in turns
        if not is_charged:
            self._shared.pacer.charge(ServiceClass.READ, begun)
        if found is not None:
            had_turn, self._turn_for = self._turn_for is not None, None
            service = self._take_request(*found)
            if service is None:
                return
            if is_further:
                self._answer()
            elif had_turn:
                begun = self._shared.pacer.now()
                self._answer()
                self._shared.pacer.charge(service, begun)
            else:
                self._shared.pacer.ask(self, service)
        elif self._state is State.READING:
            if is_charged or self._shared.pacer.is_free():
                self._resume()
            else:
                self._pause()
                self._shared.pacer.queue(self, ServiceClass.READ)

    def _look(self) -> tuple[RequestHead, bytes] | None:
        """See whether the head of a request is there."""
        try:
            data = self._buffer.take_head()
        except HeadTooLong:
            self._pause()
            self._shared.refused(self, AdminRefusal.TOO_MUCH)
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._complain(status, f"the head of a request has at most {HEAD_BYTES} bytes")
            return None
        if data is None:
            if self._buffer:
                if self._is_kept_alive:
                    self._is_kept_alive = False
                    self._wait(REQUEST_SECONDS, AdminRefusal.SILENT)
                self._hold()
            return None
        self._pause()
        try:
            return read_head(data), data
        except BadHead:
            self._complain(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
            return None

    def _take_request(self, head: RequestHead, data: bytes) -> ServiceClass | None:
        """Tell what a request wants of the unauthenticated clients' time; None if a caller's, served at once."""
        self._shared.places.begin(self)
        if self._secure is not None:
            self._secure.note_request()
        self._wait(ANSWER_SECONDS, AdminRefusal.SLOW)
        if self._is_callers(head):
            self._open_inner()
            self._inner.data_received(data)
            self.promote()
            return None
        self._asked = (head, data)
        self._state = State.ASKED
        self._hold(len(data))
        return self._class_of(head.path)

    def _class_of(self, path: bytes) -> ServiceClass:
        return self._shared.pages.pages.get(path, (ServiceClass.OTHER, None))[0]

    # --- Turns --------------------------------------------------------------------------------------------------------

    def take_turn(self) -> int:
        """See ``Paced``."""
        match self._state:
            case State.PROBED:
                self._answer_probe()
            case State.OPENING:
                self._take_opening_turn()
            case State.READING:
                self._read_on(in_turn=True)
            case State.ASKED:
                self._answer()
            case State.UPGRADED:
                self._pass_slice()
        return 1

    def _answer(self) -> None:
        asked, self._asked = self._asked, None
        transport = self._transport
        if asked is None or transport is None:
            return
        head, data = asked
        page = self._page(head)
        if page is None:
            self._give_to_aiohttp(head, data)
            return
        self._state = State.ANSWERING
        # A health check is answered once for each connection, so that of many the newest can be answered first.
        keep_alive = head.keeps_alive and not self._finished and head.path not in HEALTH_PATHS
        answer = page.response(with_body=head.method != b"HEAD", keep_alive=keep_alive, said_so=head.version != "1.1")
        self._hold(len(answer))
        transport.write(answer)
        if keep_alive:
            self._finish()
        else:
            self._close()

    def _page(self, head: RequestHead) -> Page | None:
        """Make the answer, if it is made here; what goes wrong with it is told and logged by the other way."""
        _, make = self._shared.pages.pages.get(head.path, (ServiceClass.OTHER, None))
        if make is None or head.method not in {b"GET", b"HEAD"} or head.has_body:
            return None
        try:
            return make()
        except Exception:  # noqa: BLE001 - see above
            return None

    def _give_to_aiohttp(self, head: RequestHead, data: bytes) -> None:
        self._open_inner()
        self._hold()
        self._inner.passed = 0
        if head.upgrade:
            self._state = State.UPGRADED
            self._wait(UPGRADE_SECONDS, AdminRefusal.SLOW)
            self._resume()
        elif head.has_body:
            self._state = State.BODY
            self._resume()
        else:
            self._state = State.ANSWERING
        self._inner.data_received(data)
        if self._state is State.BODY:
            rest = self._buffer.take_all()
            self._hold()
            self._pass_body(rest)

    def _pass_body(self, data: bytes) -> None:
        if not self._inner.take(data, most=self._shared.body_bytes):
            self.refuse(AdminRefusal.TOO_MUCH)

    def _pass_slice(self) -> None:
        data = self._buffer.take(SLICE_BYTES)
        self._hold()
        if not self._inner.take(data, most=UPGRADED_BYTES):
            self.refuse(AdminRefusal.TOO_MUCH)
            return
        if self._buffer:
            self._shared.pacer.queue(self, ServiceClass.READ)
        else:
            self._resume()

    def _open_inner(self) -> None:
        self._inner.open(cast("asyncio.Transport", self._transport), is_stuck=self._stuck)

    def _complain(self, status: HTTPStatus, what: str) -> None:
        """Refuse what is no request."""
        if self._transport is not None:
            page = Page(status, "text/plain; charset=utf-8", f"{what}\n".encode())
            self._transport.write(page.response(keep_alive=False))
            self._close()

    # --- Ends of answers ----------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._stuck = True
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._stuck = False
        self._inner.resume_writing()
        if self._is_written:
            self._is_written = False
            self._finish()

    def _finish(self) -> None:
        """The answer is written; go on when it was taken."""
        if self._stuck:
            self._is_written = True
            return
        if self._finished:
            self._close()
            return
        self._state = State.READING
        self._shared.places.rest(self)
        self._hold()
        self._is_kept_alive = True
        self._wait(KEEP_ALIVE_SECONDS, None)
        if self._buffer:
            # Not at once: who has sent many requests together has one answered at a time, after those of others.
            self._pause()
            self._shared.pacer.queue(self, ServiceClass.FURTHER)
        else:
            self._resume()

    def _close(self) -> None:
        self._state = State.CLOSING
        self._shared.places.rest(self)
        self._wait(CLOSE_SECONDS if not self._stuck else ANSWER_SECONDS, AdminRefusal.SLOW if self._stuck else None)
        if self._transport is not None:
            self._transport.close()

    def _leave(self) -> None:
        self._stop_waiting()
        self._shared.pacer.forget(self)
        self._shared.places.leave(self)
        self._buffer.take_all()
        self._asked = None

    # --- Details ------------------------------------------------------------------------------------------------------

    def _hold(self, more: int = 0) -> None:
        """Account for what is kept of this connection; see ``Places.hold``."""
        for each in self._shared.places.hold(self, len(self._buffer) + more):
            each.refuse(AdminRefusal.CROWDED_OUT)

    def _wait(self, seconds: float, reason: AdminRefusal | None) -> None:
        """Allow so much time from now on; without a reason the end of it is nothing to be counted."""
        self._stop_waiting()
        self._timer = self._loop.call_later(seconds, self._too_late, reason)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self, reason: AdminRefusal | None) -> None:
        self._timer = None
        if reason is not None:
            self.refuse(reason)
        elif self._state is State.CLOSING:
            self.abort()
        else:
            self._close()

    def _pause(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = True
            with suppress(RuntimeError):
                self._transport.resume_reading()
