"""A WebSocket client for tests that wait for every answer: its calls block, and one thread alone reads and writes.

The ``websockets`` library has a blocking client of its own. It reads in a second thread while the first one writes, and
OpenSSL allows one thread at a time in one connection, of which Python 3.11 takes no care. With TLS 1.3 the session
tickets of the server come just when the request is written, and OpenSSL takes them in as a part of the handshake. Once
in 200 connections on a busy machine the request was lost then: ``sendall`` returned, the kernel had sent nothing, and
HAProxy answered 408 when its time for a request was over. With TLS 1.2, or in one thread, none was lost in thousands.
"""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.http11 import Response

from tests.support.times import PATIENCE, scaled

CLOSE_SECONDS = 1.0
"""For the other side's answer to a close; who is dead does not answer."""


class BlockingWebSocket:
    """One connection; a context manager that closes it.

    Its event loop runs within the calls only: between two of them nothing is received, and no ping is sent or answered.

    Args:
        url: ``ws:`` or ``wss:``, of an IP address, so that no thread is needed to find that.
        options: those of ``websockets.asyncio.client.connect``.

    Raises:
        InvalidStatus: the upgrade was refused.
        InvalidHandshake: what answered was no WebSocket.
        OSError: nobody could be reached, or TLS failed, or the time was over.
    """

    def __init__(self, url: str, **options: Any) -> None:
        # With a factory it leaves alone what the thread has for its event loop.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        try:
            self._connection = self._runner.run(_connect(url, options))
        except BaseException:
            self._runner.close()
            raise

    @property
    def response(self) -> Response:
        """What the upgrade was answered with."""
        response = self._connection.response
        assert response is not None
        return response

    @property
    def tls(self) -> ssl.SSLObject:
        """What was agreed upon; only of a ``wss:`` URL."""
        tls = self._connection.transport.get_extra_info("ssl_object")
        assert isinstance(tls, ssl.SSLObject)
        return tls

    def send(self, text: str) -> None:
        """Send one message.

        Raises:
            ConnectionClosed: the connection has ended.
        """
        self._runner.run(self._connection.send(text))

    def receive(self, seconds: float = PATIENCE) -> str:
        """Wait for the next message.

        Args:
            seconds: how long at most; scaled here.

        Raises:
            ConnectionClosed: the connection has ended.
            TimeoutError: nothing came.
        """
        message = self._runner.run(asyncio.wait_for(self._connection.recv(), scaled(seconds)))
        assert isinstance(message, str)
        return message

    def close(self) -> None:
        """Close it; harmless if that was done already."""
        try:
            self._runner.run(self._connection.close())
        finally:
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _connect(url: str, options: dict[str, Any]) -> ClientConnection:
    return await connect(
        url,
        proxy=None,
        compression=None,
        ping_interval=None,
        open_timeout=scaled(PATIENCE),
        close_timeout=scaled(CLOSE_SECONDS),
        **options,
    )
