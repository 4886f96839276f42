"""Opens connections to Redis and talks over one in turns; the only module that would change for Sentinel or Cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection, Connection, ConnectKwargs, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.adapters.redis.scripts import Command

_PROTOCOL: Final = 2
"""RESP2: replies are plain lists and bytes, which parse fastest; nothing here needs the richer types of RESP3."""


class Dialer:
    """Knows how to reach one Redis.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://`` as redis-py reads it; never logged, it may hold a password.
        name: by which Redis lists the connections, for people who look there.
        timeout: seconds a connection may take to open.

    Raises:
        ValueError: the URL cannot be read.
    """

    def __init__(self, url: str, *, name: str, timeout: float) -> None:
        self._arguments: ConnectKwargs = parse_url(url)
        self._name = name
        self._timeout = timeout

    async def dial(self) -> AbstractConnection:
        """Open a connection: connected, authenticated, with its database selected.

        Raises:
            redis.RedisError, OSError, TimeoutError: it cannot be reached, or refuses us.
        """
        arguments: dict[str, Any] = dict(self._arguments)
        kind: type[AbstractConnection] = arguments.pop("connection_class", Connection)
        # Of the pool that a redis-py client would have; each connection here has one owner instead.
        arguments.pop("max_connections", None)
        arguments |= {
            "client_name": self._name,
            "protocol": _PROTOCOL,
            "decode_responses": False,
            # Time limits are kept by the owner of the connection, per pipeline or per blocking read.
            "socket_timeout": None,
            "socket_connect_timeout": self._timeout,
            "health_check_interval": 0,
            # redis-py's default repeats a command up to ten times when its answer is lost, and runs it again each time.
            "retry": Retry(NoBackoff(), 0),
        }
        connection = kind(**arguments)
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await discard(connection)
            raise
        return connection


def pack(commands: Iterable[Command]) -> bytes:
    """Encode commands for the wire."""
    return b"".join([pack_command(each) for each in commands])  # type: ignore[arg-type]  # its stub says one element


async def send(connection: AbstractConnection, packed: bytes) -> None:
    """Write, waiting while the transport pushes back.

    Raises:
        ConnectionError, redis.ConnectionError: the connection is broken.
    """
    if not connection.is_connected:
        # redis-py would reconnect unseen, to what may be another grid.
        raise ConnectionError("the connection to Redis is closed")
    await connection.send_packed_command(packed, check_health=False)


async def receive(connection: AbstractConnection) -> Any:
    """Read one reply, however long it takes.

    Raises:
        redis.ResponseError: the reply is an error; the connection goes on.
        OSError, redis.ConnectionError: the connection is broken.
    """
    return await connection.read_response(disable_decoding=True, disconnect_on_error=False)


async def converse(connection: AbstractConnection, commands: Sequence[Command]) -> list[Any]:
    """Send commands as one pipeline and read all replies.

    Raises:
        redis.ResponseError: one of the replies is an error; the others are lost, so discard the connection.
        OSError, redis.ConnectionError: the connection is broken.
    """
    await send(connection, pack(commands))
    return [await receive(connection) for _ in commands]


def abort(connection: AbstractConnection) -> None:
    """Drop a connection at once, and with it what is still in its buffer: the callers are told that it failed.

    Closing as redis-py does would send the rest, to a Redis that may answer again later.
    """
    writer: asyncio.StreamWriter | None = getattr(connection, "_writer", None)
    if writer is not None:
        writer.transport.abort()


async def discard(connection: AbstractConnection) -> None:
    """Drop a connection and what redis-py keeps for it."""
    abort(connection)
    await connection.disconnect(nowait=True)
