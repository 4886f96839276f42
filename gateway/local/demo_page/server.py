"""Serves the page and the JavaScript client, and tells the page which processes the stack has.

It only reads: what is to be killed is killed by the one who reads the command. A button that kills would have to be
kept from all other pages that the browser shows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gateway.local.ports import DEFAULT_BASE, LOOPBACK, PortPlan
from gateway.local.run_folder import StackState, StateUnreadable

_PAGE: Final = Path(__file__).parent / "page"
_CLIENT: Final = Path(__file__).parents[2] / "adapters" / "admin" / "page" / "client"
"""The JavaScript client, as the package has it for the console."""
_HIDDEN: Final = frozenset({"demo-page", "prometheus"})
"""Parts that are of no interest: to kill them shows nothing."""
_HOSTS: Final = (LOOPBACK, "localhost", "[::1]")


def application(folder: Path, ports: PortPlan) -> web.Application:
    """Make the web application of the page.

    Args:
        folder: the run folder of the stack.
        ports: of the stack.
    """
    handlers = _Handlers(folder, ports)
    made = web.Application(middlewares=[_only_by_name_of_this_machine(ports.demo_page), _with_policy(ports.entry)])
    made.router.add_get("/", handlers.page)
    made.router.add_get("/stack.json", handlers.stack)
    made.router.add_static("/page", _PAGE)
    made.router.add_static("/client", _CLIENT, follow_symlinks=True)
    return made


class _Handlers:
    def __init__(self, folder: Path, ports: PortPlan) -> None:
        self._folder = folder
        self._ports = ports

    async def page(self, _: web.Request) -> web.StreamResponse:
        """Answer with the page."""
        return web.FileResponse(_PAGE / "index.html")

    async def stack(self, _: web.Request) -> web.StreamResponse:
        """Tell where clients connect, which processes there are, and what starts them again."""
        try:
            state = StackState.read(self._folder)
        except StateUnreadable:
            state = None
        processes = {} if state is None else state.processes
        make = "make up" if self._ports.base == DEFAULT_BASE else f"make up PORT_BASE={self._ports.base}"
        told = {
            "clients": f"ws://{LOOPBACK}:{self._ports.entry}/v1/connect",
            "start": make if len(self._ports.nodes) == _USUAL_NODES else f"{make} NODES={len(self._ports.nodes)}",
            "processes": [
                {"name": name, "pid": identity.pid, "alive": identity.alive(), "node": name in self._ports.nodes}
                for name, identity in sorted(processes.items())
                if name not in _HIDDEN
            ],
        }
        return web.json_response(told, dumps=json.dumps, headers={"Cache-Control": "no-store"})


_USUAL_NODES: Final = 3
"""What ``make up`` starts if it is not told."""


def _only_by_name_of_this_machine(port: int) -> Middleware:
    """Refuse requests by another name: a page from elsewhere may have had its own name lead here (DNS rebinding)."""
    names = frozenset(f"{host}:{port}" for host in _HOSTS)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.host not in names:
            raise web.HTTPMisdirectedRequest(text=f"ask for this page as http://{LOOPBACK}:{port}/\n")
        return await handler(request)

    return check


def _with_policy(entry: int) -> Middleware:
    """Say that pages load and reach nothing but what belongs to the stack."""
    policy = f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self' ws://{LOOPBACK}:{entry}"

    @web.middleware
    async def add(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers.setdefault("Cache-Control", "no-cache")
        return response

    return add
