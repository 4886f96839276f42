"""Makes and unmakes the connections of one session: one at a time is made, and any number are being closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp

from gateway.client.options import Options
from gateway.client.transport import Transport, open_websocket
from gateway.core.client.effects import Connect
from gateway.core.client.endings import CannotConnect, Ending
from gateway.core.client.urls import describe_url

log = logging.getLogger("gateway.client")


class Connector:
    """The connections of one session, from the outside.

    Args:
        options: TLS and headers.
        http: whose connections to use; closed by ``release``.
    """

    def __init__(self, options: Options, http: aiohttp.ClientSession) -> None:
        self._options = options
        self._http = http
        self._opening: asyncio.Task[None] | None = None
        self._partings: set[asyncio.Task[None]] = set()
        self._hurried = False

    def open(self, where: Connect, opened: Callable[[Transport], None], failed: Callable[[Ending], None]) -> None:
        """Make a connection; one of *opened* and *failed* is called, unless ``stop`` comes first."""
        work = self._open(where, opened, failed)
        self._opening = asyncio.get_running_loop().create_task(work, name="gateway-client-connect")

    async def _open(
        self, where: Connect, opened: Callable[[Transport], None], failed: Callable[[Ending], None]
    ) -> None:
        options = self._options
        try:
            transport = await open_websocket(
                self._http, where.url, seconds=where.seconds, ssl=options.ssl, headers=options.headers
            )
        except CannotConnect as failure:
            failed(failure.ending)
        except Exception as error:
            # Whatever it is, somebody waits for the outcome of the attempt.
            log.exception("opening a connection failed by a bug of this client")
            failed(Ending(message=f"{describe_url(where.url)} cannot be reached: {error!r}"))
        else:
            opened(transport)

    def stop(self) -> None:
        """Make no connection any more."""
        if self._opening is not None:
            self._opening.cancel()

    def part(self, closing: Coroutine[Any, Any, None]) -> None:
        """Close a connection without waiting for it: the other side may be dead, and the next attempt is urgent."""
        task = asyncio.get_running_loop().create_task(closing, name="gateway-client-part")
        self._partings.add(task)
        task.add_done_callback(self._parted)
        if self._hurried:
            task.cancel()

    def _parted(self, task: asyncio.Task[None]) -> None:
        self._partings.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("closing a connection failed by a bug of this client", exc_info=error)

    def hurry(self) -> None:
        """Drop connections that are being closed, now and from now on: nobody waits for the other side any more."""
        self._hurried = True
        for task in self._partings:
            task.cancel()

    async def release(self) -> None:
        """Wait until the connections are closed, which takes a bounded time, and release everything."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._partings:
            await asyncio.wait(self._partings)
        await self._http.close()
