"""Serves the page, and the client that it uses, from an origin of its own; keeps what the pages send and ask for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

from gateway.local.ports import LOOPBACK, free_port
from tests.clients.driver import CLIENT

_PAGE: Final = Path(__file__).parent / "page"
_ELSEWHERE: Final = "<!doctype html><title>Elsewhere</title><link rel=icon href=data:,><p>Elsewhere."
_TAIL_BYTES: Final = 1 << 20
"""Largest rest of a record that is taken; browsers take 64 KiB along."""


class Site:
    """A web server on the loopback, which is no part of the gateway. Use as ``async with Site(…) as site``.

    Attributes:
        asked: of every request its URL and where it came from, as servers and proxies would log them.
    """

    def __init__(self, configuration: Callable[[str], Mapping[str, object]], tail: Callable[[Any], object]) -> None:
        """Describe a server; nothing listens yet.

        Args:
            configuration: tells for the name of a tab what its page shall do.
            tail: takes the rest of the record of a page that went away.
        """
        self.asked: list[str] = []
        self._configuration = configuration
        self._tail = tail
        self._port = free_port()
        application = web.Application(middlewares=[self._note], client_max_size=_TAIL_BYTES)
        application.router.add_get("/tab/{tab}", self._serve_page)
        application.router.add_get("/config/{tab}", self._serve_configuration)
        application.router.add_post("/tail", self._take_tail)
        application.router.add_get("/away", self._serve_nothing)
        application.router.add_static("/page", _PAGE)
        application.router.add_static("/client", CLIENT / "src")
        self._runner = web.AppRunner(application, access_log=None)

    @property
    def origin(self) -> str:
        """The web origin of its pages."""
        return f"http://{LOOPBACK}:{self._port}"

    def url(self, tab: str) -> str:
        """Where the page of a tab is."""
        return f"{self.origin}/tab/{tab}"

    @property
    def away(self) -> str:
        """Where a page without a session is."""
        return f"{self.origin}/away"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self._port).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _note(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        self.asked.append(f"{request.path_qs} from {request.headers.get('Referer', 'nowhere')}")
        response: web.StreamResponse = await handler(request)
        return response

    async def _serve_page(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(_PAGE / "index.html")

    async def _serve_configuration(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self._configuration(request.match_info["tab"]))

    async def _take_tail(self, request: web.Request) -> web.StreamResponse:
        self._tail(json.loads(await request.text()))
        return web.Response(status=204)

    async def _serve_nothing(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text=_ELSEWHERE, content_type="text/html")
