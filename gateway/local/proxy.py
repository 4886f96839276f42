"""A TCP proxy that is bad on purpose: it stands between two parties and makes their network fail.

Between a client and HAProxy it cuts WebSockets; between a node and Redis it makes the grid unreachable. What passes is
bytes: the proxy knows no protocol, so a fault falls wherever it falls, also in the middle of a handshake.

```text
            near                            far
client ──────────────▶ [ delay · rate · stall · cut ] ──────────────▶ target      Way.UP
       ◀──────────────                                ◀──────────────             Way.DOWN
```

``Links`` is a fault proxy on every link of a stack, so that each of them can fail alone.

```text
clients ──▶ [entry] ──▶ HAProxy ──▶ [nodes: n1] ──▶ n1 ──▶ [grid: n1] ──▶ Redis
                                └─▶ [nodes: n2] ──▶ n2 ──▶ [grid: n2] ──▶
```

Health and agent checks of HAProxy do not pass here: they go to the admin ports of the nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Final, Self, TypeAlias

from gateway.local.ports import LOOPBACK, PortPlan, free_port

_CHUNK_BYTES: Final = 65_536
"""Most bytes moved at once."""
_QUEUED_CHUNKS: Final = 64
"""Chunks that may wait for their delay to pass; beyond, the sender feels back-pressure."""
_RATE_SLICE_SECONDS: Final = 0.05
"""Under a bandwidth limit bytes leave in slices worth this time, so that they trickle instead of burst."""
_BACKLOG: Final = 1024
"""Connections that may wait to be accepted: whole crowds arrive at once."""
_LOOKED_BACK_BYTES: Final = 4096
"""Of what has passed, looked at again for a pattern that began there: longer than what tests look for."""
_LINGER_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on with zero seconds: closing answers with RST and drops what is unsent."""


class Way(StrEnum):
    """A direction through the proxy."""

    UP = "up"
    """From the side that connected, to the target."""
    DOWN = "down"
    """From the target back."""


BOTH_WAYS: Final = (Way.UP, Way.DOWN)


@dataclass
class _Trap:
    """What stalls a direction in the moment in which a pattern comes by."""

    pattern: re.Pattern[bytes]
    sprung: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class _Weather:
    """What one direction suffers now; shared by all connections, so that a change takes effect at once."""

    delay: float = 0.0
    bytes_per_second: float | None = None
    cut_after: int | None = None
    trap: _Trap | None = None
    flowing: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.flowing.set()


_Weathers: TypeAlias = dict[Way, _Weather]
_Held: TypeAlias = asyncio.Queue[tuple[float, bytes]]
"""Chunks with the time at which they may go on; an empty chunk is the end of the stream."""


class _Cut(Exception):
    """The byte was reached at which the connection is to be cut."""


class FaultProxy:
    """Listens on a port of the loopback and passes connections on to a target, as badly as it is told.

    Use as ``async with FaultProxy("127.0.0.1", 6379) as proxy``.

    Attributes:
        accepted: connections accepted so far.
        cuts: connections cut so far, by ``cut`` or ``cut_after``.
        passed: bytes passed on so far, by direction.
    """

    def __init__(self, host: str, port: int, *, listen_port: int = 0) -> None:
        """Describe a proxy; nothing listens yet.

        Args:
            host: of the target.
            port: of the target.
            listen_port: where to listen on the loopback; 0 for a free port.
        """
        self.accepted = 0
        self.cuts = 0
        self.passed = dict.fromkeys(BOTH_WAYS, 0)
        self._target = (host, port)
        self._port = listen_port
        self._weather: _Weathers = {way: _Weather() for way in BOTH_WAYS}
        self._listener: socket.socket | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port it listens on, once it was started; stays the same while it refuses."""
        return self._port

    @property
    def connections(self) -> int:
        """Connections open through it now."""
        return len(self._connections)

    async def start(self) -> None:
        """Start to listen.

        Raises:
            OSError: the port is taken.
        """
        self._port = self._port or free_port()
        # Not a server of asyncio: up to Python 3.11 it forgets a connection that it accepts while it is closed.
        self._listener = socket.create_server((LOOPBACK, self._port), backlog=_BACKLOG)
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._on_connection, self._listener)

    async def stop(self) -> None:
        """Stop listening and reset every connection; returns when all are gone."""
        self.refuse()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> int:
        """Reset every open connection, both halves, dropping what is under way.

        Returns:
            How many were open.
        """
        count = len(self._connections)
        for connection in tuple(self._connections):
            connection.reset()
        self.cuts += count
        return count

    def cut_after(self, count: int, way: Way) -> None:
        """Let *count* more bytes pass in one direction and cut the connection at the byte after them, once.

        With 0, the next byte is swallowed and its connection is cut: a request is executed and its reply lost, or the
        other way round. The count is taken over all connections.
        """
        self._weather[way].cut_after = count

    def stall(self, *ways: Way) -> None:
        """Pass nothing on, in the given directions or both, until ``flow``; connections stay open."""
        for way in ways or BOTH_WAYS:
            self._weather[way].flowing.clear()

    def stall_at(self, pattern: re.Pattern[bytes], way: Way) -> asyncio.Event:
        """Stall a direction in the moment in which what fits a pattern comes by, once.

        What came along with its end does not pass: a request of which the pattern is a part is caught on its way.

        Args:
            pattern: what fits it must come by on one connection, in at most 4096 bytes.
            way: which direction, of all connections.

        Returns:
            Set when it came by.
        """
        trap = self._weather[way].trap = _Trap(pattern)
        return trap.sprung

    def flow(self, *ways: Way) -> None:
        """End what ``stall`` or ``stall_at`` began, or waits to begin, in the given directions or both."""
        for way in ways or BOTH_WAYS:
            self._weather[way].trap = None
            self._weather[way].flowing.set()

    def half_close(self, *ways: Way) -> int:
        """End the stream of every open connection in the given directions, or both: FIN, and nothing after it.

        The other direction goes on, so that a party may believe for long in a connection that is of no use any more.

        Returns:
            How many were open.
        """
        for connection in tuple(self._connections):
            connection.half_close(ways or BOTH_WAYS)
        return len(self._connections)

    def heal(self) -> None:
        """End every stall, delay and limit in both directions. A proxy that refuses goes on to."""
        self.flow()
        self.delay(0)
        self.limit(None)

    def delay(self, seconds: float, *ways: Way) -> None:
        """Hold every byte back for *seconds*, in the given directions or both; order and bandwidth stay. 0 ends it."""
        for way in ways or BOTH_WAYS:
            self._weather[way].delay = seconds

    def limit(self, bytes_per_second: float | None, *ways: Way) -> None:
        """Limit the bandwidth of every connection, in the given directions or both; None ends it."""
        for way in ways or BOTH_WAYS:
            self._weather[way].bytes_per_second = bytes_per_second

    def refuse(self) -> None:
        """Refuse new connections, as a port does on which nobody listens; open ones stay. ``start`` ends it."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _on_connection(self, listener: socket.socket) -> None:
        try:
            peer, _ = listener.accept()
        except OSError:
            return  # whoever it was has thought better of it
        peer.setblocking(False)
        task = asyncio.create_task(self._serve(peer), name="fault-proxy-connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, peer: socket.socket) -> None:
        near = _Half(*await asyncio.open_connection(sock=peer))
        if self._listener is None:
            # Accepted just before the listener was closed, and unknown to ``cut``.
            near.reset()
            await near.close()
            return
        self.accepted += 1
        connection = _Connection(near, self._weather, self.passed)
        self._connections.add(connection)
        try:
            await connection.run(*self._target)
        except _Cut:
            self.cuts += 1
        finally:
            self._connections.remove(connection)


class _Half:
    """One socket of a connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def reset(self) -> None:
        """Close with RST, dropping what is unsent."""
        peer: socket.socket | None = self.writer.get_extra_info("socket")
        if peer is not None and peer.fileno() >= 0:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        self.writer.transport.abort()

    async def close(self) -> None:
        """Close and wait until the transport is gone."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class _Connection:
    """A near and a far half, and four tasks: per direction one that reads and one that writes what was held back."""

    def __init__(self, near: _Half, weather: _Weathers, passed: dict[Way, int]) -> None:
        self._near = near
        self._far: _Half | None = None
        self._weather = weather
        self._passed = passed
        self._tasks: list[asyncio.Task[None]] = []
        self._reset = False
        self._ended: set[Way] = set()

    async def run(self, host: str, port: int) -> None:
        """Connect to the target and move bytes both ways until both ends are done, or one of them or a fault resets.

        Raises:
            _Cut: the byte came at which the connection was to be cut; it is.
        """
        try:
            self._far = _Half(*await asyncio.open_connection(host, port))
            if not self._reset:
                await self._move(self._near, self._far)
        except (OSError, _Cut) as error:
            # The target refused, or one side was reset: the other side shall see the same.
            self._reset = True
            if isinstance(error, _Cut):
                raise
        finally:
            for half in filter(None, (self._near, self._far)):
                if self._reset:
                    half.reset()
                await half.close()

    def reset(self) -> None:
        """Reset both halves now."""
        self._reset = True
        for half in filter(None, (self._near, self._far)):
            half.reset()
        for task in self._tasks:
            task.cancel()

    def half_close(self, ways: Iterable[Way]) -> None:
        """Send FIN in the given directions now; what comes from there afterwards is dropped."""
        for way in ways:
            sink = self._far if way is Way.UP else self._near
            if sink is not None:
                # One that was reset in this moment has no end to send; whoever reads from it learns of that.
                with contextlib.suppress(OSError):
                    self._end(way, sink.writer)

    def _end(self, way: Way, sink: asyncio.StreamWriter) -> None:
        if way not in self._ended and not sink.is_closing():
            self._ended.add(way)
            sink.write_eof()

    async def _move(self, near: _Half, far: _Half) -> None:
        self._tasks = []
        for way, source, sink in ((Way.UP, near, far), (Way.DOWN, far, near)):
            held: _Held = asyncio.Queue(_QUEUED_CHUNKS)
            self._tasks.append(asyncio.create_task(self._read(way, source.reader, held)))
            self._tasks.append(asyncio.create_task(self._write(way, held, sink.writer)))
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in self._tasks:
                task.cancel()
            ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        errors = [end for end in ends if isinstance(end, Exception)]
        if errors:
            # A bug tells most, then a cut, then the resets that follow from it.
            raise min(errors, key=lambda error: isinstance(error, _Cut) + 2 * isinstance(error, OSError))

    async def _read(self, way: Way, source: asyncio.StreamReader, held: _Held) -> None:
        weather = self._weather[way]
        chunk, before = b"more", b""
        while chunk:
            await weather.flowing.wait()
            chunk = await source.read(_CHUNK_BYTES)
            if weather.trap is not None:
                seen = before + chunk
                if weather.trap.pattern.search(seen):
                    weather.flowing.clear()
                    weather.trap.sprung.set()
                    weather.trap = None
                before = seen[-_LOOKED_BACK_BYTES:]
            await held.put((asyncio.get_running_loop().time() + weather.delay, chunk))

    async def _write(self, way: Way, held: _Held, sink: asyncio.StreamWriter) -> None:
        weather = self._weather[way]
        loop = asyncio.get_running_loop()
        while True:
            due, chunk = await held.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            if not chunk:
                await weather.flowing.wait()
                self._end(way, sink)
                return
            while chunk:
                # A stall that began while the chunk was held back holds it too.
                await weather.flowing.wait()
                rate = weather.bytes_per_second
                piece = chunk if rate is None else chunk[: max(1, int(rate * _RATE_SLICE_SECONDS))]
                await self._pass(way, piece, sink)
                chunk = chunk[len(piece) :]
                if rate is not None:
                    await asyncio.sleep(len(piece) / rate)

    async def _pass(self, way: Way, piece: bytes, sink: asyncio.StreamWriter) -> None:
        if way in self._ended:
            return
        weather = self._weather[way]
        allowed = len(piece)
        if weather.cut_after is not None:
            allowed = min(allowed, weather.cut_after)
            weather.cut_after -= allowed
        sink.write(piece[:allowed])
        self._passed[way] += allowed
        await sink.drain()
        if allowed < len(piece):
            weather.cut_after = None
            raise _Cut


ENTRY: Final = "clients"
"""Name of the link between clients and HAProxy."""


class Links:
    """The proxies of one stack.

    Attributes:
        entry: between clients and HAProxy.
        nodes: between HAProxy and each node, by node.
        grid: between each node and Redis, by node; empty if the grid is not the stack's own.
    """

    def __init__(self, ports: PortPlan, *, grid: bool) -> None:
        """Describe the links; nothing listens yet.

        Args:
            ports: of the stack.
            grid: whether the nodes reach Redis through proxies as well.
        """
        self.entry = FaultProxy(LOOPBACK, ports.entry)
        self.nodes = {name: FaultProxy(LOOPBACK, each.listen) for name, each in ports.nodes.items()}
        self.grid = {name: FaultProxy(LOOPBACK, ports.grid) for name in ports.nodes} if grid else {}

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"ws://{LOOPBACK}:{self.entry.port}/v1/connect"

    def grid_url(self, node: str) -> str:
        """Where *node* reaches its Redis."""
        return f"redis://{LOOPBACK}:{self.grid[node].port}/0"

    def by_name(self) -> dict[str, FaultProxy]:
        """Return all proxies: ``clients``, ``n1`` (before the node) and ``n1-grid`` (behind it)."""
        return {
            ENTRY: self.entry,
            **self.nodes,
            **{f"{node}-grid": proxy for node, proxy in self.grid.items()},
        }

    async def start(self) -> None:
        """Begin to listen everywhere.

        Raises:
            OSError: a port is taken.
        """
        for proxy in self:
            await proxy.start()

    async def stop(self) -> None:
        """Stop listening and reset every connection."""
        await asyncio.gather(*(proxy.stop() for proxy in self))

    def __iter__(self) -> Iterator[FaultProxy]:
        return iter(self.by_name().values())
