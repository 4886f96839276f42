"""Which pages, besides a node's own, may ask its admin port: the consoles of the other nodes of the cluster.

A console whose node has died goes on at another one. For a browser that is another origin, so that the page's policy
has to name it when the page is loaded, and the other node has to say that this page may read its answers (CORS).
Whoever asks needs a token all the same: a browser adds none by itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.ports import GridUnavailable

FRESH_SECONDS: Final = 5.0
"""How long a list of nodes serves: whoever asks, with a token or without, causes no more reads of the grid."""

MOST: Final = 256
"""Origins that are remembered, the newest. That of a dead node is wanted for as long as a page of it is open."""

ALLOWED: Final = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": "authorization, content-type, idempotency-key",
    "Access-Control-Max-Age": "600",
}
"""Of answers to pages of other nodes: what the console sends."""

_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
"""What may stand in a header: names and addresses come from other nodes' settings."""


class ConsoleOrigins:
    """The origins of the consoles of all nodes.

    Args:
        addresses: reads where the admin ports of all nodes are, as URLs; raises ``GridUnavailable``.
        now: seconds of a clock that does not go back.
    """

    def __init__(
        self, addresses: Callable[[], Awaitable[Iterable[str | None]]], *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._addresses = addresses
        self._now = now
        self._read_at = float("-inf")
        self._known: dict[str, None] = {}

    async def all(self) -> list[str]:
        """List them, the newest last; what was known before, if the grid is unreachable."""
        now = self._now()
        if now - self._read_at >= FRESH_SECONDS:
            # Before it is read: who comes meanwhile is served with what is known.
            self._read_at = now
            try:
                found = await self._addresses()
            except GridUnavailable:
                found = ()
            for address in found:
                origin = origin_of(address or "")
                if origin is not None:
                    self._known.pop(origin, None)
                    self._known[origin] = None
            while len(self._known) > MOST:
                del self._known[next(iter(self._known))]
        return list(self._known)

    async def knows(self, origin: str) -> bool:
        """Tell whether a page of this origin is a console of one of the nodes."""
        return origin in await self.all()

    async def sources(self) -> str:
        """Write them as a page's policy wants them: for requests and WebSockets."""
        return " ".join(f"{origin} {origin.replace('http', 'ws', 1)}" for origin in await self.all())

    @web.middleware
    async def allow(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let consoles of other nodes read the answers of the admin API, refusals included."""
        response = await handler(request)
        origin = request.headers.get("Origin")
        if origin is not None and request.path.startswith("/v1/") and not response.prepared:
            response.headers.add("Vary", "Origin")
            if await self.knows(origin):
                response.headers.update({"Access-Control-Allow-Origin": origin, **ALLOWED})
        return response


def origin_of(address: str) -> str | None:
    """Return the web origin of a URL as browsers write it; None if it has none that may stand in a header."""
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        return None
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    origin = f"{parts.scheme}://{host}" + ("" if port in {None, usual} else f":{port}")
    return origin if _ORIGIN.fullmatch(origin) else None
