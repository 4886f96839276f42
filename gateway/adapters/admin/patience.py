"""How long the admin port waits for the body of a request, and for whose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.adapters.admin.connection import REQUEST_SECONDS, AdminConnection
from gateway.catalogue.refusals import AdminRefusal


class Patience:
    """Stands between aiohttp and what it serves.

    Args:
        connection_of: tells over which connection a request came.
    """

    def __init__(self, connection_of: Callable[[web.BaseRequest], AdminConnection | None]) -> None:
        self._connection_of = connection_of

    @web.middleware
    async def wait(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Read the body in time, if it is that of a caller; a stranger's is wanted by nobody."""
        connection = self._connection_of(request)
        if connection is None:
            raise web.HTTPRequestTimeout  # it has ended meanwhile, and hears nothing
        connection.begin()
        if not connection.is_caller:
            response = await handler(request)
            if connection.ends_with_answer:
                response.force_close()
            return response
        if request.can_read_body:
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    await request.read()
            except TimeoutError:
                connection.refuse(AdminRefusal.SLOW)
                raise web.HTTPRequestTimeout from None
        response = await handler(request)
        if response.status in {401, 429}:
            # The token that gave this connection its place is one no more.
            response.force_close()
        return response
