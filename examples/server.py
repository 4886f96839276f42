"""Serves the pages of the examples, and the JavaScript client that they use, to browsers on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

LOOPBACK: Final = "127.0.0.1"

_HERE: Final = Path(__file__).parent
_CLIENT: Final = _HERE.parent / "clients" / "javascript" / "src"

PAGES: Final = {"chat": _HERE / "chat", "board": _HERE / "board" / "dist", "devices": _HERE / "devices" / "page"}
"""Folders by the name under which they are served; the files in them can be had, and nothing else."""

_NOT_BUILT: Final = """\
The page has to be built first, as its JSX is no language of browsers:

  cd examples/board && npm ci && npm run build
"""


def application(gateway: Sequence[str], port: int) -> web.Application:
    """Make the web application.

    Args:
        gateway: URLs of the gateway, which pages try in turn.
        port: on which it will be served.
    """
    made = web.Application(middlewares=[_by_names_of_this_machine(port), _with_policy(gateway)])

    async def where(_: web.Request) -> web.Response:
        return web.json_response({"gateway": list(gateway)}, headers={"Cache-Control": "no-store"})

    made.router.add_get("/", _index)
    made.router.add_get("/gateway.json", where)
    made.router.add_get("/{page}/", _page)
    made.router.add_get("/{page}/{file}", _page)
    made.router.add_static("/client", _CLIENT)
    return made


async def _index(_: web.Request) -> web.Response:
    items = "".join(f'<li><a href="/{name}/">{name}</a></li>' for name in PAGES)
    page = f'<!doctype html><html lang="en"><title>Examples</title><h1>Examples</h1><ul>{items}</ul></html>'
    return web.Response(text=page, content_type="text/html")


async def _page(request: web.Request) -> web.StreamResponse:
    folder = PAGES.get(request.match_info["page"])
    if folder is None:
        raise web.HTTPNotFound(text="There is no such example.\n")
    files = {each.name: each for each in folder.iterdir()} if folder.is_dir() else {}
    if "index.html" not in files:
        raise web.HTTPNotFound(text=_NOT_BUILT)
    file = files.get(request.match_info.get("file", "index.html"))
    if file is None:
        raise web.HTTPNotFound
    return web.FileResponse(file)


def _by_names_of_this_machine(port: int) -> Middleware:
    """Refuse requests by another name: a page from elsewhere may have had its own name lead here (DNS rebinding)."""
    names = frozenset(f"{host}:{port}" for host in (LOOPBACK, "localhost"))

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.host not in names:
            raise web.HTTPMisdirectedRequest(text=f"Ask for this page as http://{LOOPBACK}:{port}/\n")
        return await handler(request)

    return check


def _with_policy(gateway: Sequence[str]) -> Middleware:
    """Let pages load what is theirs, and connect to the gateway and nowhere else."""
    sources = " ".join(f"{parts.scheme}://{parts.netloc}" for parts in map(urlsplit, gateway))
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"connect-src 'self' {sources}"
    )

    @web.middleware
    async def add(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers.setdefault("Cache-Control", "no-cache")
        return response

    return add
