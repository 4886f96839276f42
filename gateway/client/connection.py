"""One connection: it carries messages between the machine and a transport until it ends, and says how it ended.

Two things run, and neither of them decides anything: a reader that hands in what comes, and a writer that is woken once
per turn of the event loop, however many requests were made in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.client.transport import Transport
from gateway.core.client.effects import Disconnect
from gateway.core.client.endings import Ending
from gateway.core.wire.codes import GOING_AWAY

READ_GRACE: Final = 0.5
"""Seconds in which the reader may still find the close code, after a write has failed."""


class Connection:
    """A connection that was made.

    Args:
        transport: where messages go and come from.
        receive: takes each message.
        lost: takes how the connection ended, once, if it did not end by ``close``.
        flush: hands out what is to be written.
        failed: takes the bug that ended the reader or the writer.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        receive: Callable[[str | bytes], None],
        lost: Callable[[Ending], None],
        flush: Callable[[], list[bytes]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._transport = transport
        self._receive = receive
        self._lost = lost
        self._flush = flush
        self._failed = failed
        self._over = False
        self._writing = False
        self._how = Disconnect(GOING_AWAY.code, "the client stops")
        self._last_messages: list[bytes] = []
        self._work = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._reader = loop.create_task(self._read(), name="gateway-client-read")
        self._writer = loop.create_task(self._write(), name="gateway-client-write")
        for task in (self._reader, self._writer):
            task.add_done_callback(self._finished)

    def wake(self) -> None:
        """Have what the machine wants to write written in this turn of the loop, or the next."""
        self._work.set()

    def leave(self, how: Disconnect) -> None:
        """Carry nothing any more; ``close`` comes next."""
        self._over = True
        self._how = how
        # With messages still to be written before it, the last messages would come out of order.
        self._last_messages = [] if self._writing else list(how.last_messages)
        self._writer.cancel()

    async def close(self) -> None:
        """Close the transport, in a bounded time, after ``leave``.

        The reader is left waiting until then: were it cancelled, aiohttp would drop the connection without waiting for
        the other side's close frame.
        """
        await asyncio.wait([self._writer])
        try:
            await self._transport.close(self._how.code, self._how.reason, self._last_messages)
        finally:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    async def _read(self) -> None:
        while True:
            message = await self._transport.receive()
            if self._over:
                # This side has ended the connection; what is dropped here is sent again on the next one.
                return
            if isinstance(message, Ending):
                self._end(message)
                return
            self._receive(message)

    async def _write(self) -> None:
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while not self._over and (messages := self._flush()):
                    self._writing = True
                    for message in messages:
                        await self._transport.send(message)
                    self._writing = False
        except ConnectionError as error:
            # The reader knows better why, if the other side said so before it went.
            await asyncio.sleep(READ_GRACE)
            self._end(Ending(message=f"the connection was lost: {error}"))

    def _end(self, ending: Ending) -> None:
        if not self._over:
            self._over = True
            self._lost(ending)

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
