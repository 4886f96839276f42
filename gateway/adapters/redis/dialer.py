"""Opens connections to the Redis processes of a grid, and talks over one in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeAlias

from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.adapters.redis.scripts import Command
from gateway.settings.grid_url import GridPlace
from gateway.settings.values import HostPort

RESP2: Final = 2
"""Replies are plain lists and bytes, which parse fastest: for all that needs no more."""

RESP3: Final = 3
"""Redis may say something unasked, between replies: which keys have changed."""

Remap: TypeAlias = Callable[[HostPort], HostPort]
"""Where the Redis that calls itself so is to be reached, where names inside differ from names outside."""


class Dialer:
    """Knows how to reach each Redis of a grid.

    Args:
        place: the grid's URL, read.
        name: by which Redis lists the connections, for people who look there; None for none.
        timeout: seconds a connection may take to open.
        remap: where an address is to be reached, if not there.

    Attributes:
        timeout: as given.

    Raises:
        ValueError: the URL cannot be read.
    """

    def __init__(self, place: GridPlace, *, name: str | None, timeout: float, remap: Remap | None = None) -> None:
        self._arguments: Mapping[str, Any] = parse_url(place.redis_url(*place.hosts[:1]))
        self._name = name
        self.timeout = timeout
        self._remap = remap or (lambda address: address)

    @classmethod
    def to_sentinels(cls, place: GridPlace, *, timeout: float, remap: Remap | None = None) -> Self:
        """Make one that knows how to reach the Sentinels of a grid, whose user and password are not those of Redis.

        It gives its connections no name: a Sentinel's user may need the right to ask for the master, and no other.
        """
        dialer = cls(place, name=None, timeout=timeout, remap=remap)
        arguments: dict[str, Any] = {
            "connection_class": SSLConnection if place.sentinel_tls else Connection,
            "username": place.sentinel_username,
            "password": place.sentinel_password,
        }
        if place.sentinel_tls:
            arguments |= {name: value for name, value in dialer._arguments.items() if name.startswith("ssl_")}
        dialer._arguments = arguments
        return dialer

    async def dial(self, address: HostPort | None = None, *, protocol: int = RESP2) -> AbstractConnection:
        """Open a connection: connected, authenticated, with its database selected.

        Args:
            address: of the Redis; None for the one that the URL names.
            protocol: ``RESP2`` or ``RESP3``.

        Raises:
            redis.RedisError, OSError, TimeoutError: it cannot be reached, or refuses us.
        """
        arguments: dict[str, Any] = dict(self._arguments)
        kind: type[AbstractConnection] = arguments.pop("connection_class", Connection)
        if address is not None:
            there = self._remap(address)
            arguments |= {"host": there.host, "port": there.port}
        # Of the pool that a redis-py client would have; each connection here has one owner instead.
        arguments.pop("max_connections", None)
        arguments |= {
            "client_name": self._name,
            "protocol": protocol,
            "decode_responses": False,
            # Time limits are kept by the owner of the connection, per pipeline or per blocking read.
            "socket_timeout": None,
            "socket_connect_timeout": self.timeout,
            "health_check_interval": 0,
            # redis-py's default repeats a command up to ten times when its answer is lost, and runs it again each time.
            "retry": Retry(NoBackoff(), 0),
        }
        connection = kind(**arguments)
        try:
            async with asyncio.timeout(self.timeout):
                await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await discard(connection)
            raise
        return connection


def why(error: BaseException) -> str:
    """Say what went wrong, also of errors that say nothing of themselves."""
    said = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return str(error) or said


def pack(commands: Iterable[Command]) -> bytes:
    """Encode commands for the wire."""
    return b"".join([pack_command(each) for each in commands])  # type: ignore[arg-type]  # its stub says one element


pack_one: Final[Callable[[Command], bytes]] = pack_command  # type: ignore[assignment]  # its stub says one element
"""Encodes one command for the wire."""


async def send(connection: AbstractConnection, packed: bytes) -> None:
    """Write, waiting while the transport pushes back.

    Raises:
        ConnectionError, redis.ConnectionError: the connection is broken.
    """
    writer = _writer(connection)
    # What is closed, redis-py would open unseen, to what may be another grid. What Redis has just closed, it takes for
    # open until it reads, and uvloop raises RuntimeError when that is written to.
    if not connection.is_connected or (writer is not None and writer.is_closing()):
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


def hear_changes(connection: AbstractConnection) -> None:
    """Have ``hear`` return what Redis says unasked over a RESP3 connection, which redis-py would otherwise drop."""

    async def keep(message: Any) -> Any:
        return message

    # redis-py has no public way to it but its own cache, which is for its own client.
    parser: Any = getattr(connection, "_parser")  # noqa: B009 - private
    parser.set_invalidation_push_handler(keep)


async def hear(connection: AbstractConnection) -> Any:
    """Read the next reply or, as a ``PushNotification``, what Redis says unasked; see ``receive``."""
    return await connection.read_response(disable_decoding=True, disconnect_on_error=False, push_request=True)


def abort(connection: AbstractConnection) -> None:
    """Drop a connection at once, and with it what is still in its buffer: the callers are told that it failed.

    Closing as redis-py does would send the rest, to a Redis that may answer again later.
    """
    writer = _writer(connection)
    if writer is not None:
        writer.transport.abort()


def _writer(connection: AbstractConnection) -> asyncio.StreamWriter | None:
    found: asyncio.StreamWriter | None = getattr(connection, "_writer", None)
    return found


async def discard(connection: AbstractConnection) -> None:
    """Drop a connection and what redis-py keeps for it."""
    abort(connection)
    await connection.disconnect(nowait=True)
