"""The least that an aiohttp WebSocket server on uvloop can do: what the gateway's own cost is measured against.

It speaks the dialect of the nchan peer, so that the same load generator drives it::

    GET  /sub?id=TOPIC   WebSocket upgrade; then one text message per value of the topic
    GET  /echo           WebSocket upgrade; then each text message comes back: the reference for handshakes
    POST /pub?id=TOPIC   the body is the value; answered when it was written to every subscriber

Started as ``python server.py PORT``. It checks nothing, keeps nothing and numbers nothing.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Final

import uvloop
from aiohttp import web

HOST: Final = "127.0.0.1"

LISTEN_BACKLOG: Final = 4096
"""Thousands of clients come at once in the storm cases; aiohttp's default is 128."""


class Subscribers:
    """The sockets of each topic."""

    def __init__(self) -> None:
        self._of_topic: defaultdict[str, set[web.WebSocketResponse]] = defaultdict(set)

    async def subscribe(self, request: web.Request) -> web.WebSocketResponse:
        """Upgrade, and keep the socket until its client leaves."""
        # aiohttp's default of compressing costs eight times the memory; the gateway leaves it off too.
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        sockets = self._of_topic[request.query["id"]]
        sockets.add(socket)
        try:
            async for _ in socket:
                pass
        finally:
            sockets.discard(socket)
        return socket

    async def publish(self, request: web.Request) -> web.Response:
        """Write the value once to each socket of its topic."""
        value = await request.text()
        # A copy: a subscriber may leave while another's buffer is full.
        for socket in tuple(self._of_topic[request.query["id"]]):
            if not socket.closed:
                await socket.send_str(value)
        return web.Response(status=202)


async def echo(request: web.Request) -> web.WebSocketResponse:
    """Upgrade, and send back what comes."""
    socket = web.WebSocketResponse(compress=False)
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data)
    return socket


def main() -> None:
    """Serve until terminated."""
    subscribers = Subscribers()
    application = web.Application()
    application.router.add_get("/sub", subscribers.subscribe)
    application.router.add_get("/echo", echo)
    application.router.add_post("/pub", subscribers.publish)
    web.run_app(
        application,
        host=HOST,
        port=int(sys.argv[1]),
        backlog=LISTEN_BACKLOG,
        access_log=None,
        print=None,
        loop=uvloop.new_event_loop(),
    )


if __name__ == "__main__":
    main()
