"""Zone links of one process, for tests: ``ZoneLinks`` whose network is cut, slow or deaf when it is told to.

```python
network = MemoryZoneNetwork()
a, b = (MemoryZoneLinks(network, name) for name in ("a", "b"))
network.stall("a", "b")  # what a says does not arrive; what b says does
```
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gateway.core.pacing.rates import TokenBucket
from gateway.ports.zone_links import NoZoneLink, Serve, ZoneLinkBroken, ZoneLinkLimits

PORT: Final = 8400
"""That all have in their URLs; nobody listens on it."""

OVERHEAD: Final = 4
"""Bytes that a message counts beside its own, as in the real adapter."""

BURST_SECONDS: Final = 0.2
"""As in the real adapter."""

STRANGERS: Final = 32
"""Connections at one port that nobody trusts yet; for one more, the oldest is hung up. As in the real adapter."""

ACCEPT_RATE: Final = 50.0
ACCEPT_BURST: Final = 50.0
"""Connections that a port accepts in a second, and at once. As in the real adapter."""

_CLOSED: Final = "the other end closed the connection"

_Way: TypeAlias = tuple[str, str]
"""From whom to whom."""


@dataclass(slots=True)
class _Faults:
    """What one way suffers; it stays when connections come and go.

    Attributes:
        delay: seconds for which everything is held back.
        is_stalled: whether nothing arrives.
        drop_after: messages that still arrive before the connection breaks; None for no end.
    """

    delay: float = 0.0
    is_stalled: bool = False
    drop_after: int | None = None


@dataclass(slots=True)
class _Pipe:
    """One way of a connection.

    Attributes:
        way: from whom to whom.
        messages: that are under way, each with the time at which it is there.
        bytes: of them.
        changed: set when something has come, or can come.
        room: set while more may be sent.
    """

    way: _Way
    messages: deque[tuple[float, bytes]] = field(default_factory=deque)
    bytes: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryZoneNetwork:
    """What lies between clusters.

    Attributes:
        bytes: that were sent, by way: from whom to whom.
        dialled: how often a port was dialled, whether it could be reached or not.
    """

    def __init__(self) -> None:
        self.bytes: dict[_Way, int] = {}
        self.dialled = 0
        self._ports: dict[str, MemoryZoneLinks] = {}
        self._cut: set[frozenset[str]] = set()
        self._faults: dict[_Way, _Faults] = {}
        self._silent: set[str] = set()
        self._is_down = False
        self._ends: dict[MemoryZoneConnection, None] = {}

    # --- Faults -------------------------------------------------------------------------------------------------------

    def cut(self, one: str, other: str) -> None:
        """Break all connections of two ports, and let there be none until ``mend``."""
        self._cut.add(frozenset((one, other)))
        self.break_all(one, other)

    def mend(self, one: str, other: str) -> None:
        """End ``cut``, ``stall``, ``delay`` and ``drop_after`` between two ports."""
        self._cut.discard(frozenset((one, other)))
        for way in ((one, other), (other, one)):
            self._faults.pop(way, None)
        for end in tuple(self._ends):
            end.look()

    def break_all(self, one: str, other: str) -> None:
        """Break all connections of two ports; they may connect again at once."""
        for end in self._between(one, other):
            end.lose("the network broke it")

    def go_down(self) -> None:
        """Break all connections of all ports, and let there be none until ``come_back``."""
        self._is_down = True
        for end in tuple(self._ends):
            end.lose("the network broke it")

    def come_back(self) -> None:
        """End ``go_down``."""
        self._is_down = False

    def delay(self, seconds: float, sender: str, receiver: str) -> None:
        """Hold everything back that *sender* says to *receiver*; order stays."""
        self.faults(sender, receiver).delay = seconds

    def stall(self, sender: str, receiver: str) -> None:
        """Let nothing arrive that *sender* says to *receiver*, until ``mend``."""
        self.faults(sender, receiver).is_stalled = True

    def drop_after(self, messages: int, sender: str, receiver: str) -> None:
        """Break the connection when *sender* says the message after so many, which does not arrive; once."""
        self.faults(sender, receiver).drop_after = messages

    def silence(self, name: str) -> None:
        """Let nothing arrive that a port says, nor anything at it: its process is suspended, or dead and unnoticed."""
        self._silent.add(name)

    def wake(self, name: str) -> None:
        """End ``silence``."""
        self._silent.discard(name)
        for end in tuple(self._ends):
            end.look()

    def is_stalled(self, way: _Way) -> bool:
        """Tell whether nothing arrives on a way."""
        return self.faults(*way).is_stalled or not self._silent.isdisjoint(way)

    def faults(self, sender: str, receiver: str) -> _Faults:
        """Return what a way suffers."""
        return self._faults.setdefault((sender, receiver), _Faults())

    # --- For ports ----------------------------------------------------------------------------------------------------

    def enter(self, port: MemoryZoneLinks) -> None:
        """A port listens."""
        self._ports[port.name] = port

    def leave(self, port: MemoryZoneLinks) -> None:
        """It does so no more, and its connections are gone."""
        self._ports.pop(port.name, None)
        for end in tuple(self._ends):
            if port.name in end.ways:
                end.lose("the port is closed")

    def port(self, name: str, dialer: str) -> MemoryZoneLinks:
        """Find a port that can be reached.

        Raises:
            NoZoneLink: nobody listens there, or the network is cut.
        """
        port = self._ports.get(name)
        if (
            port is None
            or self._is_down
            or frozenset((name, dialer)) in self._cut
            or not self._silent.isdisjoint((name, dialer))
        ):
            raise NoZoneLink(f"wss://{name}:{PORT}: nobody answers")
        return port

    def opened(self, end: MemoryZoneConnection) -> None:
        """A connection has begun."""
        self._ends[end] = None

    def ended(self, end: MemoryZoneConnection) -> None:
        """A connection has ended."""
        self._ends.pop(end, None)

    def _between(self, one: str, other: str) -> Iterator[MemoryZoneConnection]:
        yield from [end for end in self._ends if {one, other} == set(end.ways)]


class MemoryZoneConnection:
    """``ZoneConnection`` within a process.

    Args:
        network: that carries it.
        ways: name of this end, and of the other one.
        incoming: what comes.
        outgoing: what goes.
        fingerprints: of this end, and of the other one.
        limits: of links.
        trusted: called when it is trusted.
    """

    def __init__(
        self,
        network: MemoryZoneNetwork,
        ways: _Way,
        *,
        incoming: _Pipe,
        outgoing: _Pipe,
        fingerprints: tuple[str, str],
        limits: ZoneLinkLimits,
        trusted: Callable[[], None],
    ) -> None:
        self.ways = ways
        self.address = ways[1]
        self.own_fingerprint, self.fingerprint = fingerprints
        self.bytes_in = self.bytes_out = 0
        self.other: MemoryZoneConnection | None = None
        self._network = network
        self._incoming = incoming
        self._outgoing = outgoing
        self._limits = limits
        self._trusted = trusted
        self._most = limits.greeting
        self._why = ""
        self._unheard: bool | None = None
        """Whether the other end has ended gently; None if it has not ended."""
        self._waiting_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._bytes = TokenBucket(limits.byte_rate, max(limits.byte_rate * BURST_SECONDS, limits.greeting))
        self._messages = TokenBucket(limits.message_rate, max(1.0, limits.message_rate * BURST_SECONDS))
        network.opened(self)

    @property
    def silence(self) -> float:
        """See ``ZoneConnection.silence``."""
        return 0.0 if self._waiting_since is None else self._loop.time() - self._waiting_since

    def trust(self) -> None:
        """See ``ZoneConnection.trust``."""
        self._most = self._limits.message
        self._trusted()

    async def send(self, message: bytes) -> None:
        """See ``ZoneConnection.send``."""
        pipe = self._outgoing
        self._check()
        faults = self._network.faults(*self.ways)
        if faults.drop_after is not None:
            faults.drop_after -= 1
            if faults.drop_after < 0:
                faults.drop_after = None
                self.lose("the network dropped it")
                self._check()
        size = OVERHEAD + len(message)
        self.bytes_out += size
        self._network.bytes[self.ways] = self._network.bytes.get(self.ways, 0) + size
        pipe.messages.append((self._loop.time() + faults.delay, message))
        pipe.bytes += size
        pipe.changed.set()
        await asyncio.sleep(0)
        while pipe.bytes > self._limits.queue:
            pipe.room.clear()
            await pipe.room.wait()
            self._check()

    async def receive(self) -> bytes:
        """See ``ZoneConnection.receive``."""
        pipe = self._incoming
        self._waiting_since = self._loop.time()
        try:
            while (wait := self._next_in()) != 0.0:
                self._check()
                pipe.changed.clear()
                try:
                    async with asyncio.timeout(wait):
                        await pipe.changed.wait()
                except TimeoutError:
                    pass
        finally:
            self._waiting_since = None
        _, message = pipe.messages.popleft()
        size = OVERHEAD + len(message)
        pipe.bytes -= size
        pipe.room.set()
        if len(message) > self._most:
            self.lose("too long a message")
            raise ZoneLinkBroken(f"a message of {len(message)} bytes is announced, and {self._most} are the most")
        self.bytes_in += size
        now = self._loop.time()
        await asyncio.sleep(max(self._bytes.charge(now, size), self._messages.charge(now)))
        return message

    async def close(self, last: bytes = b"") -> None:
        """See ``ZoneConnection.close``."""
        if last and not self._why and self._outgoing.bytes <= self._limits.queue:
            await self.send(last)
        self.lose("this end closed the connection", gently=True)

    def abort(self) -> None:
        """See ``ZoneConnection.abort``."""
        self.lose("this end closed the connection")

    def look(self) -> None:
        """Something about the network has changed."""
        if self._unheard is not None and not self._network.is_stalled(self._incoming.way):
            self.over(_CLOSED, gently=self._unheard)
        self._incoming.changed.set()

    def lose(self, why: str, *, gently: bool = False) -> None:
        """End it, on both ends; *gently* what was sent before arrives still.

        The other end learns of it when something arrives there again.
        """
        self.over(why, gently=gently)
        if self.other is not None:
            self.other.is_left(gently=gently)

    def is_left(self, *, gently: bool) -> None:
        """The other end has ended."""
        self._unheard = gently
        self.look()

    def over(self, why: str, *, gently: bool) -> None:
        """End this end of it; no effect on one that has ended."""
        if self._why:
            return
        self._why = why
        self._network.ended(self)
        if not gently:
            self._incoming.messages.clear()
        self._incoming.changed.set()
        self._outgoing.room.set()

    def _next_in(self) -> float | None:
        """Tell in how many seconds the next message is there; None if that cannot be told."""
        pipe = self._incoming
        if not pipe.messages or self._network.is_stalled(pipe.way):
            return None
        return max(0.0, pipe.messages[0][0] - self._loop.time())

    def _check(self) -> None:
        if self._why:
            raise ZoneLinkBroken(self._why)


class MemoryZoneLinks:
    """``ZoneLinks`` within a process.

    Args:
        network: that carries them.
        name: of the port, which is the host in its URL.
        fingerprint: of its certificate; by default one made of the name.
        limits: of links.
    """

    def __init__(
        self,
        network: MemoryZoneNetwork,
        name: str,
        *,
        fingerprint: str = "",
        limits: ZoneLinkLimits = ZoneLinkLimits(),  # noqa: B008 - it does not change
    ) -> None:
        self.name = name
        self.fingerprint = fingerprint or hashlib.sha256(name.encode()).hexdigest()
        self._network = network
        self._limits = limits
        self._serve: Serve | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[MemoryZoneConnection, None] = {}
        self._rate = TokenBucket(ACCEPT_RATE, ACCEPT_BURST)

    @property
    def url(self) -> str:
        """See ``ZoneLinks.url``."""
        return f"wss://{self.name}:{PORT}"

    async def start(self, serve: Serve) -> None:
        """See ``ZoneLinks.start``."""
        self._serve = serve
        self._network.enter(self)

    async def dial(self, url: str, *, within: float) -> MemoryZoneConnection:
        """See ``ZoneLinks.dial``."""
        host = url.removeprefix("wss://").partition(":")[0]
        if not url.startswith("wss://") or not host:
            raise NoZoneLink(f"{url} is no place of a zone link")
        self._network.dialled += 1
        wait = self._network.port(host, self.name).wait()
        await asyncio.sleep(min(wait, within))
        if wait > within:
            raise NoZoneLink(f"{url}: nobody accepts the connection")
        other = self._network.port(host, self.name)
        there, back = _Pipe((self.name, host)), _Pipe((host, self.name))
        prints = (self.fingerprint, other.fingerprint)
        end = MemoryZoneConnection(
            self._network,
            (self.name, host),
            incoming=back,
            outgoing=there,
            fingerprints=prints,
            limits=self._limits,
            trusted=lambda: None,
        )
        end.other = other.accept(self.name, there, back, prints)
        end.other.other = end
        return end

    def wait(self) -> float:
        """Tell in how many seconds it will accept the next connection."""
        return self._rate.charge(asyncio.get_running_loop().time())

    def accept(self, dialer: str, incoming: _Pipe, outgoing: _Pipe, prints: tuple[str, str]) -> MemoryZoneConnection:
        """Take a connection."""
        end = MemoryZoneConnection(
            self._network,
            (self.name, dialer),
            incoming=incoming,
            outgoing=outgoing,
            fingerprints=(prints[1], prints[0]),
            limits=self._limits,
            trusted=lambda: self._strangers.pop(end, None),
        )
        while len(self._strangers) >= STRANGERS:
            oldest = next(iter(self._strangers))
            self._strangers.pop(oldest)
            oldest.abort()
        self._strangers[end] = None
        task = asyncio.get_running_loop().create_task(self._served(end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return end

    async def close(self) -> None:
        """See ``ZoneLinks.close``."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._network.leave(self)

    async def _served(self, end: MemoryZoneConnection) -> None:
        try:
            if self._serve is not None:
                await self._serve(end)
        finally:
            self._strangers.pop(end, None)
            end.abort()
