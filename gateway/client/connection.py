"""One attached connection: it carries what the session machine has to say until it ends, and then says how it ended.

Three things run, and none of them decides anything about the session: a reader that feeds the machine, a writer that is
woken once per turn of the event loop, however many requests were submitted in it, and a timer for the machine's next
deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from gateway.client.transport import Transport
from gateway.core.client.endings import Ending
from gateway.core.stream.machine import Received, SessionMachine
from gateway.core.wire.codec import decode_from_server
from gateway.core.wire.codes import GOING_AWAY, PING_TIMEOUT, Reconnect
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import Error, Packet

WRITE_ROOM: Final = 256 * 1024
"""Bytes numbered and handed to the transport at a time; it takes them before more is numbered."""

DEFAULT_CLOSE_CODE: Final = GOING_AWAY.code
"""How a connection is closed for which there is no better code: one that does not end the session."""

READ_GRACE: Final = 0.5
"""Seconds in which the reader may still find the close code, after a write has failed."""


class Connection:
    """A connection that a welcome has been received on.

    Args:
        transport: where packets go and come from.
        machine: the session's, in the state ATTACHED.
        handle: takes what the machine hands on, in order; must not raise but for a bug.
        clock: seconds of a monotonic clock, the event loop's.
        early: packets that came together with the welcome.
    """

    def __init__(
        self,
        transport: Transport,
        machine: SessionMachine,
        handle: Callable[[Received], None],
        clock: Callable[[], float],
        early: list[Packet],
    ) -> None:
        self._transport = transport
        self._farewell: list[bytes] = []
        self._machine = machine
        self._handle = handle
        self._clock = clock
        self._early = early
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Ending] = self._loop.create_future()
        self._work = asyncio.Event()
        self._writing = False
        self._reader: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def serve(self) -> Ending:
        """Carry packets until the connection ends; ``close`` comes after it, whatever happened."""
        try:
            self._take_in(self._early)
            self.wake()
            self._reader = self._loop.create_task(self._read(), name="gateway-client-read")
            self._reader.add_done_callback(self._finished)
            self.spawn(self._write(), name="gateway-client-write")
            return await self._over
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self, ending: Ending) -> None:
        """Close the transport, in a bounded time; after ``serve`` has returned.

        The reader is left waiting until then: were it cancelled, aiohttp would drop the connection without waiting for
        the other side's close frame.
        """
        code = DEFAULT_CLOSE_CODE if ending.code is None else ending.code
        try:
            await self._transport.close(code, ending.message, self._farewell)
        finally:
            if self._reader is not None:
                self._reader.cancel()
                await asyncio.wait([self._reader])

    def wake(self) -> None:
        """Have what the machine wants to write written in this turn of the loop, or the next."""
        self._work.set()

    def end(self, ending: Ending) -> None:
        """End the connection from this side; the first ending counts."""
        if not self._over.done():
            if not self._writing:
                # With messages still to be written before it, a farewell would come out of order.
                self._farewell = self._machine.flush(WRITE_ROOM)
            self._over.set_result(ending)

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run something for as long as the connection lasts. Should it fail, the connection fails with it."""
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    # --- Reading ----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            message = await self._transport.receive()
            if self._over.done():
                # This side has ended the connection; what is dropped here is sent again on the next one.
                return
            if isinstance(message, Ending):
                self._over.set_result(message)
                return
            try:
                packets = decode_from_server(message)
            except RemoteProtocolError as violation:
                self._violated(violation)
                return
            self._take_in(packets)

    def _take_in(self, packets: list[Packet]) -> None:
        for received in self._machine.receive(packets, self._clock()):
            if isinstance(received, RemoteProtocolError):
                self._violated(received)
                continue
            try:
                self._handle(received)
            except RemoteProtocolError as violation:
                self._violated(violation)
                return
        self._watch()
        if self._machine.has_output:
            self.wake()

    def _violated(self, violation: RemoteProtocolError) -> None:
        self._machine.send_link(Error(violation.code, str(violation)))
        # What resuming mends is no violation that counts: a skipped packet is asked for again.
        counts = violation.close.reconnect is Reconnect.NEVER
        self.end(Ending(message=str(violation), code=violation.close.code, violation=counts))

    # --- Writing ----------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while messages := self._machine.flush(WRITE_ROOM):
                    self._writing = True
                    for message in messages:
                        await self._transport.send(message)
                    self._writing = False
        except ConnectionError as error:
            # The reader knows better why, if the other side said so before it went.
            await asyncio.sleep(READ_GRACE)
            self.end(Ending(message=f"the connection was lost: {error}"))

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
                message = f"the node was silent for {silence:g} s"
                self.end(Ending(message=message, code=PING_TIMEOUT.code, hung=True))
                return
            self.wake()
            deadline = self._machine.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            # Deadlines mostly move into the future; a timer that fires early is cheaper than a new one per message.
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - a bug here must end the session and not be lost in the loop
            self._fail(error)
