"""One connection: it carries messages between the machine and a transport until it ends, and says how it ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.core.client.effects import Disconnect
from gateway.core.client.endings import Ending
from loadtests.greenlets import limited, sleep, spawn
from loadtests.shell.transport import Transport

CLOSE_TIMEOUT: Final = 1.0
"""Seconds to wait until a node answers a close frame, before the connection is dropped by force."""

READ_GRACE: Final = 0.5
"""Seconds in which the reader may still find the close code, after a write has failed."""


class Connection:
    """A connection that was made.

    Args:
        transport: where messages go and come from.
        receive: takes each message.
        lost: takes how the connection ended, once, if it did not end by ``close``.
        flush: hands out what is to be written.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        receive: Callable[[bytes], None],
        lost: Callable[[Ending], None],
        flush: Callable[[], list[bytes]],
    ) -> None:
        self._transport = transport
        self._receive = receive
        self._lost = lost
        self._flush = flush
        self._over = False
        self._woken = False
        """Whether there is a writer."""
        self._writing = False
        """Whether it has taken messages that it has not handed to the transport yet."""
        self._reader = spawn(self._read)

    def wake(self) -> None:
        """Have what the machine wants to write written in the next turn of the loop."""
        if not self._woken and not self._over:
            self._woken = True
            spawn(self._write)

    def cut(self) -> None:
        """Lose the connection, as a failing network does."""
        self._transport.cut()

    def close(self, how: Disconnect) -> None:
        """Carry nothing any more, and drop the connection in a bounded time, for which nobody waits."""
        self._over = True
        # With messages still to be written before it, the last messages would come out of order.
        spawn(self._part, how, () if self._writing else how.last_messages)

    def _part(self, how: Disconnect, last_messages: tuple[bytes, ...]) -> None:
        with suppress(TimeoutError, ConnectionError), limited(CLOSE_TIMEOUT):
            for message in last_messages:
                self._transport.send(message)
            self._transport.say_close(how.code, how.reason)
            self._reader.join()
        self._transport.cut()

    def _read(self) -> None:
        while not isinstance(message := self._transport.receive(), Ending):
            # What this side drops after it has ended the connection is sent again on the next one.
            if not self._over:
                self._receive(message)
        self._end(message)

    def _write(self) -> None:
        try:
            while not self._over and (messages := self._flush()):
                self._writing = True
                for message in messages:
                    self._transport.send(message)
                self._writing = False
        except ConnectionError as error:
            # The reader knows better why, if the other side said so before it went.
            sleep(READ_GRACE)
            self._end(Ending(message=f"the connection was lost: {error}"))
            return
        except Exception as bug:
            self._end(Ending(message=f"a bug of the load generator: {bug!r}"))
            raise
        self._woken = False

    def _end(self, ending: Ending) -> None:
        if not self._over:
            self._over = True
            self._lost(ending)
