"""How long the admin port waits for who says nothing: aiohttp by itself waits for a first request for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.catalogue import metrics as catalogue
from gateway.ports import Metrics

REQUEST_SECONDS: Final = 10.0
"""From the connection to the end of the first request's head, and again from there to the end of its body, however the
bytes trickle in. Also what TLS may take. HAProxy, Prometheus and operators send theirs at once."""

MOST_CONNECTIONS: Final = 512
"""At a time; one more is closed at once. Far above what operators, Prometheus, HAProxy and consoles hold, and little
of what clients need in descriptors."""


class Patience:
    """Watches the connections of the admin port.

    Args:
        metrics: where it is counted who was not waited for.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._timers: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}
        self._open: set[asyncio.BaseTransport] = set()

    def begin(self, transport: asyncio.Transport) -> None:
        """A connection has begun."""
        self._open.add(transport)
        if len(self._open) > MOST_CONNECTIONS:
            self._give_up(transport, "crowded_out")
            return
        loop = asyncio.get_running_loop()
        self._timers[transport] = loop.call_later(REQUEST_SECONDS, self._give_up, transport, "silent")

    def end(self, transport: asyncio.BaseTransport) -> None:
        """A connection has ended."""
        self._open.discard(transport)
        self._heard(transport)

    def _heard(self, transport: asyncio.BaseTransport) -> None:
        if (timer := self._timers.pop(transport, None)) is not None:
            timer.cancel()

    def _give_up(self, transport: asyncio.Transport, reason: str) -> None:
        self._metrics.add(catalogue.ADMIN_CONNECTIONS_REFUSED, label=reason)
        transport.abort()

    @web.middleware
    async def wait(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Stop the time of the head, and read the body in time."""
        transport = request.transport
        if transport is not None:
            self._heard(transport)
        if request.can_read_body:
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    await request.read()
            except TimeoutError:
                if transport is not None:
                    self._give_up(transport, "slow")
                raise web.HTTPRequestTimeout from None
        return await handler(request)


class PatientSite(web.TCPSite):
    """A place to listen whose connections are watched.

    Attributes:
        patience: by whom; to be set before ``start``.
    """

    patience: Patience

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be used.
        """
        await web.BaseSite.start(self)
        server = self._runner.server
        assert server is not None, "the runner is set up before there is a site"  # noqa: S101 - as aiohttp does
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Watched(server, self.patience),
            self._host,
            self._port,
            ssl=self._ssl_context,
            ssl_handshake_timeout=None if self._ssl_context is None else REQUEST_SECONDS,
        )


class _Watched(asyncio.Protocol):
    """Passes everything on to aiohttp, and tells of beginning and end.

    Args:
        make: makes the protocol of aiohttp.
        patience: who is told.
    """

    def __init__(self, make: Callable[[], asyncio.BaseProtocol], patience: Patience) -> None:
        inner = cast("asyncio.Protocol", make())
        self._inner = inner
        self._patience = patience
        self._transport: asyncio.BaseTransport | None = None
        # Straight through: these are called for every piece that comes.
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._inner.connection_made(transport)
        self._patience.begin(cast("asyncio.Transport", transport))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._patience.end(self._transport)
        self._inner.connection_lost(exc)
