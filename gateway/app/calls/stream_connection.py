"""What a stream's session is written to: packets of the protocol come in, server-sent events go out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gateway.app.runtime.clock import Clock
from gateway.app.session.stream_session import StreamSession
from gateway.core.wire.codec.event_stream import StreamWriter
from gateway.ports import Access, Connection, EventSink, Receiver


class StreamConnection:
    """Writes one stream; a ``Connection`` of a client that never says anything.

    Args:
        sink: where the text goes.
        writer: writes it.
        session: whose packets they are; what is written counts as received.
        clock: time.
        failed: told of a bug met in writing.
    """

    __slots__ = ("_clock", "_failed", "_over", "_session", "_sink", "_writer", "access")

    def __init__(
        self,
        sink: EventSink,
        writer: StreamWriter,
        session: StreamSession,
        clock: Clock,
        failed: Callable[[Exception], None],
    ) -> None:
        self._sink = sink
        self._writer = writer
        self._session = session
        self._clock = clock
        self._failed = failed
        self._over = asyncio.Event()
        self.access = Access()

    # --- What is written ----------------------------------------------------------------------------------------------

    def write(self, message: bytes) -> None:
        """See ``Connection``."""
        try:
            text, last = self._writer.take(message)
            self._sink.send(text)
            if last:
                self._session.machine.receive_ack(last, self._clock.monotonic())
        except Exception as bug:  # noqa: BLE001 - others are written to in the same go
            # Later, as whoever writes is in the middle of it.
            asyncio.get_running_loop().call_soon(self._failed, bug)

    @classmethod
    def write_all(cls, connections: Sequence[Connection], messages: Sequence[bytes]) -> None:
        """See ``Connection``; those of other kinds are written to together."""
        kinds: set[type[Connection]] = set(map(type, connections))
        for kind in kinds:
            pairs = [pair for pair in zip(connections, messages, strict=True) if type(pair[0]) is kind]
            if kind is cls:
                for connection, message in pairs:
                    connection.write(message)
            else:
                kind.write_all([connection for connection, _ in pairs], [message for _, message in pairs])

    def send(self, text: bytes) -> None:
        """Write an event of the stream's own."""
        self._sink.send(text)

    def backlog(self) -> int:
        """See ``Connection``."""
        return self._sink.backlog()

    def finish(self) -> None:
        """End it when everything is written."""
        self._over.set()
        self._sink.finish()

    def abort(self) -> None:
        """End it now."""
        self._over.set()
        self._sink.abort()

    # --- A connection on which nothing is said ------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """See ``Connection``."""
        return self._sink.address

    @property
    def close_code(self) -> int | None:
        """See ``Connection``; streams have none."""
        return None

    @property
    def is_closing(self) -> bool:
        """See ``Connection``."""
        return self._over.is_set() or self._sink.is_over

    async def receive(self) -> bytes | None:
        """See ``Connection``: nothing comes, and then it is over."""
        await self._over.wait()
        return None

    def listen(self, receiver: Receiver) -> None:
        """See ``Connection``: nothing comes, and ``EventSource.ended`` tells of the end."""

    def pause(self) -> None:
        """See ``Connection``: nothing is read."""

    def resume(self) -> None:
        """See ``Connection``: nothing is read."""

    def close(self, code: int, reason: str) -> None:  # noqa: ARG002 - of WebSockets
        """See ``Connection``."""
        self.finish()
