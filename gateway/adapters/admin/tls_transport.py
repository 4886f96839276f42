"""A transport over TLS for a connection of the admin port. It reads in turns, and in bounded pieces (P20, ADR 0047).

asyncio's transport hands OpenSSL up to 256 KiB at a time, whenever something has come. An unauthenticated client fills
them with records that say nothing, such as changes of keys, and holds up the loop for some 0.13 s. Here a pacer says
when something is read, what reading took is charged to it, and what says nothing is charged to the connection besides.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from ssl import SSLContext
from time import monotonic
from typing import Any, Final

from gateway.adapters.admin.pacing import Pacer, ServiceClass
from gateway.adapters.tls_connection import GATHERED_BYTES, RECORD_BYTES, NothingSaid, TlsConnection
from gateway.adapters.work_budget import KNOWN_WORK, UNAUTHENTICATED_WORK, WorkBudget

CALLER_WORK: Final = KNOWN_WORK
"""What records of whoever has shown a valid token may cost beyond what they say, as of a session at the client port. Of
an unauthenticated client, ``UNAUTHENTICATED_WORK``: 16 KiB without a request, after the 16 KiB that may be a record on
its way."""

WRITE_BYTES: Final = GATHERED_BYTES
"""Bytes that are enciphered for one connection in a turn of the loop: 0.1 ms."""

HIGH_WATER_BYTES: Final = 64 * 1024
"""Unsent bytes above which the protocol is told to write no more, until it sets limits of its own; as in asyncio."""

THROWN_BYTES: Final = 64 * 1024
"""Bytes that are read at once of a connection that is closed, and thrown away as they are."""

LINGER_BYTES: Final = 4 * THROWN_BYTES
"""So many of them are borne. Then the connection is cut off, though the peer may lose the end of its answer by that."""


class _Phase(Enum):
    SHAKING = auto()
    """Hands are being shaken; the protocol knows nothing of it yet."""
    OPEN = auto()
    FLUSHING = auto()
    """It is closed; what was written before goes out."""
    LINGERING = auto()
    """TLS has ended; the end of the peer is waited for, so that it does not lose what it has not read yet."""
    OVER = auto()


class TlsTransport(asyncio.Transport):
    """Speaks TLS over an accepted socket, once ``take_turn`` was called for the first time.

    The protocol is told of its connection when hands are shaken, and of its end in any case.

    Args:
        accepted: not blocking; taken over.
        context: says how to speak TLS.
        protocol: told of what comes.
        pacer: says when something is read.
        flooded: called when records have cost too much without a request; it should abort.
        closing_seconds: for what is left to be sent when it is closed, and for the end of the peer.
    """

    def __init__(
        self,
        accepted: socket.socket,
        context: SSLContext,
        protocol: asyncio.Protocol,
        *,
        pacer: Pacer,
        flooded: Callable[[], None],
        closing_seconds: float,
    ) -> None:
        super().__init__({"socket": accepted, "sslcontext": context, **_names(accepted)})
        self._socket = accepted
        self._tls = TlsConnection(accepted, context)
        self._protocol: asyncio.BaseProtocol = protocol
        self._pacer = pacer
        self._flooded = flooded
        self._closing_seconds = closing_seconds
        self._loop = asyncio.get_running_loop()
        self._phase = _Phase.SHAKING
        self._limits = UNAUTHENTICATED_WORK
        self._budget: WorkBudget | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Of the pause for which the connection owes, or of its end."""
        self._is_watched = False
        self._is_drained = False
        """Whether the descriptor tells when there is something to read: nothing is left of what has come."""
        self._has_read = False
        self._is_paused = False
        self._has_ended = False
        self._thrown = 0
        self._unsent = bytearray()
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._is_stuck = False

    # --- Reading ------------------------------------------------------------------------------------------------------

    def take_turn(self) -> int:
        """See ``Paced``: go on with the handshake, or read once."""
        if self._phase is _Phase.SHAKING:
            self._shake_hands()
        elif self._may_read():
            self._read()
        return 1

    def promote(self, pacer: Pacer) -> None:
        """Read from now on as of whoever has shown a valid token.

        Args:
            pacer: says when, from now on.
        """
        self._pacer.forget(self)
        self._pacer = pacer
        self._limits, self._budget = CALLER_WORK, None
        self._go_on()

    def note_request(self) -> None:
        """A request has come: what came before it may have said nothing."""
        if self._budget is not None:
            self._budget.note_message()

    def pause_reading(self) -> None:
        """See ``asyncio.ReadTransport``."""
        self._is_paused = True
        self._unwatch()

    def resume_reading(self) -> None:
        """See ``asyncio.ReadTransport``. The protocol is told of nothing before this call has returned."""
        self._is_paused = False
        self._go_on()

    def is_reading(self) -> bool:
        """See ``asyncio.ReadTransport``."""
        return self._phase is _Phase.OPEN and not self._is_paused

    def _shake_hands(self) -> None:
        try:
            self._tls.shake_hands()
        except BlockingIOError:
            self._is_drained = True
            self._watch()
        except NothingSaid:
            self._end(ConnectionAbortedError("the handshake is longer than any"))
        except OSError as error:
            self._end(error)
        else:
            self._phase = _Phase.OPEN
            # What has come behind the handshake is with OpenSSL, and the descriptor tells nothing of it.
            self._is_drained = False
            self._protocol.connection_made(self)
            self._go_on()

    def _read(self) -> None:
        self._has_read = True
        data: bytes | None = None
        try:
            data = self._tls.recv(RECORD_BYTES)
        except BlockingIOError:
            self._is_drained = True
        except NothingSaid:
            pass
        except OSError as error:
            self._end(error)
            return
        if data:
            self._told().data_received(data)
        elif data is not None:
            self._has_ended = True
            if not self._told().eof_received():
                self.close()
        self._settle()
        self._go_on()

    def _told(self) -> asyncio.Protocol:
        assert isinstance(self._protocol, asyncio.Protocol)  # noqa: S101 - buffered protocols are not used here
        return self._protocol

    def _settle(self) -> None:
        """Charge what records have cost beyond what they said."""
        work, self._tls.work = self._tls.work, 0.0
        if not work or self._phase is not _Phase.OPEN:
            return
        if self._budget is None:
            self._budget = WorkBudget(self._limits)
        pause = self._budget.charge(monotonic(), work)
        if self._budget.is_exhausted:
            self._flooded()
        elif pause > 0:
            self._timer = self._loop.call_later(pause, self._rested)

    def _rested(self) -> None:
        self._timer = None
        self._go_on()

    def _may_read(self) -> bool:
        is_open = self._phase is _Phase.OPEN and not self._has_ended
        return is_open and not self._is_paused and self._timer is None

    def _go_on(self) -> None:
        """Have the next turn to read, or be told when there is something to read; never at once."""
        if self._phase is not _Phase.OPEN:
            return
        if self._may_read() and self._is_drained:
            self._watch()
            return
        self._unwatch()
        if self._may_read():
            self._pacer.queue(self, self._service)

    @property
    def _service(self) -> ServiceClass:
        if self._phase is _Phase.SHAKING:
            return ServiceClass.HANDSHAKE
        return ServiceClass.READ if self._has_read else ServiceClass.FIRST_READ

    def _readable(self) -> None:
        self._is_drained = False
        if not self._pacer.is_free():
            self._unwatch()  # the loop would spin until the turn comes
        self._pacer.ask(self, self._service)

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._loop.add_reader(self._socket.fileno(), self._readable)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._socket.fileno())

    # --- Writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See ``asyncio.WriteTransport``; what is written after the end goes nowhere."""
        if self._phase is not _Phase.OPEN or not data:
            return
        if self._unsent:
            self._unsent += data
        else:
            view = memoryview(data)
            sent = self._send(view[:WRITE_BYTES])
            if sent is None or sent == len(view):
                return
            self._unsent += view[sent:]
            self._loop.add_writer(self._socket.fileno(), self._writable)
        self._check_high_water()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See ``asyncio.WriteTransport``.

        Raises:
            ValueError: *low* is above *high*, or below 0.
        """
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not 0 <= low <= high:
            raise ValueError(f"high ({high}) must be no less than low ({low}), and that no less than 0")
        self._high, self._low = high, low
        self._check_high_water()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """See ``asyncio.WriteTransport``: low and high."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """See ``asyncio.WriteTransport``; what the kernel has not taken, in bytes of content."""
        return len(self._unsent)

    def can_write_eof(self) -> bool:
        """See ``asyncio.WriteTransport``."""
        return False

    def _send(self, data: bytes | memoryview) -> int | None:
        """Send some; returns how much was taken, None if the connection is broken."""
        try:
            return self._tls.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._end(error)
            return None

    def _writable(self) -> None:
        sent = self._send(bytes(self._unsent[:WRITE_BYTES]))
        if sent is None:
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())
            if self._phase is _Phase.FLUSHING:
                self._end_tls()
        if self._is_stuck and len(self._unsent) <= self._low:
            self._is_stuck = False
            self._protocol.resume_writing()

    def _check_high_water(self) -> None:
        if not self._is_stuck and len(self._unsent) > self._high:
            self._is_stuck = True
            self._protocol.pause_writing()

    # --- The end ------------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """See ``asyncio.BaseTransport``."""
        return self._phase not in {_Phase.SHAKING, _Phase.OPEN}

    def close(self) -> None:
        """See ``asyncio.BaseTransport``: what was written is sent before."""
        if self._phase is _Phase.SHAKING:
            self._end(None)
        elif self._phase is _Phase.OPEN:
            self._phase = _Phase.FLUSHING
            self._stop_reading()
            self._timer = self._loop.call_later(self._closing_seconds, self._end, None)
            if not self._unsent:
                self._end_tls()

    def abort(self) -> None:
        """See ``asyncio.WriteTransport``."""
        self._end(None)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See ``asyncio.BaseTransport``."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See ``asyncio.BaseTransport``."""
        self._protocol = protocol

    def _stop_reading(self) -> None:
        self._unwatch()
        self._pacer.forget(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_tls(self) -> None:
        self._phase = _Phase.LINGERING
        try:
            self._tls.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._end(error)
            return
        if self._has_ended:
            self._end(None)
        else:
            self._is_watched = True
            self._loop.add_reader(self._socket.fileno(), self._throw_away)

    def _throw_away(self) -> None:
        thrown = b""
        with suppress(OSError):
            try:
                thrown = self._socket.recv(THROWN_BYTES)
            except BlockingIOError:
                return
        self._thrown += len(thrown)
        if not thrown or self._thrown > LINGER_BYTES:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._phase is _Phase.OVER:
            return
        self._phase = _Phase.OVER
        self._stop_reading()
        if self._unsent:
            self._loop.remove_writer(self._socket.fileno())
            self._unsent.clear()
        self._tls.close()
        self._loop.call_soon(self._protocol.connection_lost, error)


def _names(accepted: socket.socket) -> dict[str, Any]:
    """Tell the addresses of both ends, unless the peer has gone."""
    with suppress(OSError):
        return {"sockname": accepted.getsockname(), "peername": accepted.getpeername()}
    return {}
