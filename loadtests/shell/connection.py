"""One attached connection: it carries what the session machine has to say until it ends, and then says how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.client.transport import AttemptFailed
from gateway.core.client.endings import Ending
from gateway.core.stream.machine import Received, SessionMachine
from gateway.core.wire.codec import decode_from_server, encode_link
from gateway.core.wire.codes import GOING_AWAY, PING_TIMEOUT, Reconnect
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Error, Hello, Packet, Resume, Welcome
from loadtests.greenlets import Greenlet, Outcome, later, limited, sleep, spawn
from loadtests.shell.transport import Transport

WRITE_ROOM: Final = 256 * 1024
"""Bytes numbered and handed to the transport at a time; it takes them before more is numbered."""

DEFAULT_CLOSE_CODE: Final = GOING_AWAY.code
"""How a connection is closed for which there is no better code: one that does not end the session."""

CLOSE_TIMEOUT: Final = 1.0
"""Seconds to wait until a node answers a close frame, before the connection is dropped by force."""

READ_GRACE: Final = 0.5
"""Seconds in which the reader may still find the close code, after a write has failed."""


class Connection:
    """A connection that a welcome has been received on.

    Args:
        transport: where packets go and come from.
        machine: the session's, in the state ATTACHED.
        handle: takes what the machine hands on, in order, with the time at which it came.
        clock: seconds of a monotonic clock.
        early: packets that came together with the welcome.

    Attributes:
        violation: what the node did that the protocol does not allow, or None.
    """

    def __init__(
        self,
        transport: Transport,
        machine: SessionMachine,
        handle: Callable[[Received, float], None],
        clock: Callable[[], float],
        early: list[Packet],
    ) -> None:
        self._transport = transport
        self._machine = machine
        self._handle = handle
        self._clock = clock
        self._early = early
        self.violation: str | None = None
        self._over: Outcome[Ending] = Outcome()
        self._writing = False
        self._timer: Greenlet | None = None
        self._timer_at = 0.0
        self._reader: Greenlet | None = None

    def serve(self) -> Ending:
        """Carry packets until the connection ends."""
        self._take_in(self._early)
        self.wake()
        self._reader = spawn(self._read)
        try:
            return self._over.get()
        except BaseException:
            # Whoever waited here was killed: the session is given up.
            self._transport.cut()
            raise
        finally:
            if self._timer is not None:
                self._timer.kill()

    def wake(self) -> None:
        """Have what the machine wants to write written in the next turn of the loop."""
        if not self._writing and not self._over.done():
            self._writing = True
            spawn(self._write)

    def cut(self) -> None:
        """Lose the connection, as a failing network does."""
        self._transport.cut()

    def end(self, ending: Ending) -> None:
        """End the connection from this side; the first ending counts."""
        if self._over.done():
            return
        # With messages still to be written before it, a farewell would come out of order.
        farewell = [] if self._writing else self._machine.flush(WRITE_ROOM)
        self._over.set_result(ending)
        spawn(part, self._transport, farewell, ending)

    # --- Reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            message = self._transport.receive()
            if isinstance(message, Ending):
                self._over.set_result(message)
                return
            if self._over.done():
                # This side has ended the connection; what is dropped here is sent again on the next one.
                continue
            try:
                packets = decode_from_server(message)
            except RemoteProtocolError as violation:
                self._violated(violation)
                continue
            try:
                self._take_in(packets)
            except Exception as bug:
                self._fail(bug)
                raise

    def _fail(self, bug: Exception) -> None:
        """Have a bug of this side end the session, and not only the greenlet that met it."""
        self._over.set_exception(bug)
        self._transport.cut()

    def _take_in(self, packets: list[Packet]) -> None:
        now = self._clock()
        for received in self._machine.receive(packets, now):
            if isinstance(received, RemoteProtocolError):
                self._violated(received)
            else:
                self._handle(received, now)
        self._watch()
        if self._machine.has_output:
            self.wake()

    def _violated(self, violation: RemoteProtocolError) -> None:
        self.violation = str(violation)
        self._machine.send_link(Error(violation.code, str(violation)))
        # What resuming mends is no violation that counts for the reconnect plan: a skipped packet is asked for again.
        counts = violation.close.reconnect is Reconnect.NEVER
        self.end(Ending(message=str(violation), code=violation.close.code, violation=counts))

    # --- Writing ----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            while not self._over.done() and (messages := self._machine.flush(WRITE_ROOM)):
                for message in messages:
                    self._transport.send(message)
            self._writing = False
        except ConnectionError as error:
            # The reader knows better why, if the other side said so before it went.
            sleep(READ_GRACE)
            self._over.set_result(Ending(message=f"the connection was lost: {error}"))
            self._transport.cut()
        except Exception as bug:
            self._fail(bug)
            raise

    # --- Time -------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Do what is due, and have the timer fire when the next thing is."""
        if self._over.done():
            return
        now = self._clock()
        deadline = self._machine.next_deadline()
        while deadline is not None and deadline <= now:
            if self._machine.tick(now):
                silence = self._machine.policy.ping_timeout
                self.end(Ending(message=f"the node was silent for {silence:g} s", code=PING_TIMEOUT.code, hung=True))
                return
            self.wake()
            deadline = self._machine.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            # Deadlines mostly move into the future; a timer that fires early is cheaper than a new one per message.
            if self._timer_at <= deadline:
                return
            self._timer.kill()
        self._timer_at = deadline
        self._timer = later(deadline - now, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        try:
            self._watch()
        except Exception as bug:
            self._fail(bug)
            raise


def part(transport: Transport, farewell: list[bytes], ending: Ending) -> None:
    """Say good-bye and drop the connection in a bounded time; in a greenlet of its own, as the next attempt is urgent.

    Args:
        transport: somebody still receives on it.
        farewell: messages to write before.
        ending: tells the close code and the reason.
    """
    code = DEFAULT_CLOSE_CODE if ending.code is None else ending.code
    try:
        with limited(CLOSE_TIMEOUT):
            for message in farewell:
                transport.send(message)
            transport.say_close(code, ending.message)
            sleep(CLOSE_TIMEOUT)
    except (TimeoutError, ConnectionError):
        pass
    finally:
        transport.cut()


def shake_hands(transport: Transport, first: Hello | Resume, *, seconds: float) -> tuple[Welcome, list[Packet]]:
    """Send the first packet and wait for the welcome (protocol section 4).

    Args:
        transport: a fresh connection; the caller drops it if this fails.
        first: what to send.
        seconds: time for all of it.

    Returns:
        The welcome, and the packets that came in the same message after it.

    Raises:
        AttemptFailed: there was none. If the node told why in an error packet, the ending says so.
    """
    refusal: Error | None = None
    try:
        with limited(seconds):
            transport.send(encode_link(first))
            while True:
                message = transport.receive()
                if isinstance(message, Ending):
                    raise AttemptFailed(message if refusal is None else _refused(refusal, message.code))
                packets = decode_from_server(message)
                for index, packet in enumerate(packets):
                    if isinstance(packet, Welcome):
                        return packet, packets[index + 1 :]
                    if not isinstance(packet, Error):
                        raise RemoteProtocolError(f"the node began with {type(packet).__name__} and not with a welcome")
                    # Its close code comes next and says when to try again.
                    refusal = packet
    except TimeoutError:
        if refusal is not None:
            raise AttemptFailed(_refused(refusal, None)) from None
        raise AttemptFailed(Ending(message=f"no welcome came within {seconds:g} s", hung=True)) from None
    except RemoteProtocolError as error:
        raise AttemptFailed(Ending(message=str(error), code=error.close.code, violation=True)) from None
    except ConnectionError as error:
        raise AttemptFailed(Ending(message=f"the connection was lost during the handshake: {error}")) from None


def _refused(refusal: Error, code: int | None) -> Ending:
    return Ending(
        message=f"the node refused: {refusal.message} ({refusal.code.value})",
        code=code,
        error=refusal.code,
        retry_after=refusal.retry_after,
    )
