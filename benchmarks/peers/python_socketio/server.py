"""python-socketio on aiohttp and uvloop with its Redis manager, as a peer of the gateway.

A client joins the room of a topic and gets its updates; a publisher's value goes to all sockets of that room on all
servers, through Redis pub/sub. ``benchmarks/peers/README.md`` explains the settings. It is started as::

    python server.py PORT REDIS_URL
"""

from __future__ import annotations

import sys
from typing import Any, Final

import orjson
import socketio  # type: ignore[import-untyped]  # it has no type information
import uvloop
from aiohttp import web

HOST: Final = "127.0.0.1"

LISTEN_BACKLOG: Final = 4096
"""Thousands of clients come at once after a failure; aiohttp's default is 128."""


class FastJson:
    """orjson in the shape of the standard library's module, which python-socketio takes in its place."""

    JSONDecodeError = orjson.JSONDecodeError

    @staticmethod
    def dumps(value: object, **_: object) -> str:
        """Write it without spaces; the library's wishes about separators ask for just that."""
        return orjson.dumps(value).decode()

    @staticmethod
    def loads(text: str | bytes, **_: object) -> Any:
        """Read it."""
        return orjson.loads(text)


def make_application(redis_url: str) -> web.Application:
    """Build the server with the events that the load generator uses.

    Args:
        redis_url: where all servers of the cluster meet.
    """
    server = socketio.AsyncServer(
        async_mode="aiohttp",
        client_manager=socketio.AsyncRedisManager(redis_url),
        transports=["websocket"],
        # Events of one client are handled in order and without a task for each.
        async_handlers=False,
        http_compression=False,
        json=FastJson,
    )

    async def subscribe(session_id: str, topic: str) -> None:
        await server.enter_room(session_id, topic)

    # The acknowledgement leaves when Redis has taken the message to pass it on (PUBLISH); nothing is stored.
    async def publish(_session_id: str, topic: str, value: str) -> None:
        await server.emit("update", value, to=topic)

    server.on("subscribe", subscribe)
    server.on("publish", publish)
    application = web.Application()
    server.attach(application)
    return application


def main() -> None:
    """Serve until terminated."""
    port, redis_url = sys.argv[1:]
    web.run_app(
        make_application(redis_url),
        host=HOST,
        port=int(port),
        backlog=LISTEN_BACKLOG,
        access_log=None,
        print=None,
        loop=uvloop.new_event_loop(),
    )


if __name__ == "__main__":
    main()
