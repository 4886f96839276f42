"""What the contract suite needs of an implementation of ``ZoneLinks``: ports, and a network that can be broken."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from gateway.adapters.memory import MemoryMetrics, MemoryZoneLinks, MemoryZoneNetwork
from gateway.adapters.tls import ZoneTls
from gateway.adapters.zone_links import StreamZoneLinks
from gateway.local.proxy import FaultProxy, Way
from gateway.ports.zone_links import ZoneConnection, ZoneLinkBroken, ZoneLinkLimits, ZoneLinks
from tests.support.certificates import Authority
from tests.support.times import scaled, time_limit

LIMITS: Final = ZoneLinkLimits(
    message=1024 * 1024, greeting=4096, queue=64 * 1024, byte_rate=1e9, message_rate=1e6, silence=scaled(2.0)
)
"""Small, so that tests reach them."""

PATIENT: Final = scaled(20.0)
"""Seconds for what must happen."""


class Port:
    """One port of the suite: keeps what it accepts.

    Attributes:
        name: of it.
        links: the port.
        accepted: connections that have come, the newest last.
    """

    def __init__(self, name: str, links: ZoneLinks) -> None:
        self.name = name
        self.links = links
        self.accepted: asyncio.Queue[ZoneConnection] = asyncio.Queue()
        self.trusts = True
        self._open: list[asyncio.Event] = []

    async def serve(self, connection: ZoneConnection) -> None:
        """Take a connection until the test ends."""
        if self.trusts:
            connection.trust()
        await self.accepted.put(connection)
        over = asyncio.Event()
        self._open.append(over)
        await over.wait()

    def hang_up(self) -> None:
        """End the serving of all that was accepted."""
        for over in self._open:
            over.set()


class ZoneLinkHarness(ABC):
    """Ports and what lies between them."""

    def __init__(self) -> None:
        self.ports: dict[str, Port] = {}

    async def port(self, name: str, *, limits: ZoneLinkLimits = LIMITS, trusts: bool = True) -> Port:
        """Start a port."""
        port = self.ports[name] = Port(name, self._make(name, limits))
        port.trusts = trusts
        await port.links.start(port.serve)
        return port

    async def pair(self) -> tuple[ZoneConnection, ZoneConnection]:
        """Start two ports, a and b, and have a dial b; returns both ends of the connection."""
        a, b = await self.port("a"), await self.port("b")
        return await self.dial(a, b)

    async def dial(self, one: Port, other: Port) -> tuple[ZoneConnection, ZoneConnection]:
        """Have one port dial another; both trust each other if that does."""
        end = await one.links.dial(await self.url(one, other), within=PATIENT)
        if other.trusts:
            end.trust()
        async with time_limit():
            return end, await other.accepted.get()

    async def close(self) -> None:
        """Close everything."""
        for port in self.ports.values():
            port.hang_up()
            await port.links.close()

    @abstractmethod
    def _make(self, name: str, limits: ZoneLinkLimits) -> ZoneLinks: ...

    @abstractmethod
    async def url(self, one: Port, other: Port) -> str:
        """Tell by which URL one port dials another."""

    @abstractmethod
    def cut(self, one: str, other: str) -> None:
        """Break what *one* has dialled at *other*, and let there be nothing until ``mend``."""

    @abstractmethod
    async def mend(self, one: str, other: str) -> None:
        """End all faults."""

    @abstractmethod
    def stall(self, one: str, other: str) -> None:
        """Let nothing arrive at *other* that *one* says, which has dialled it."""


class MemoryZoneHarness(ZoneLinkHarness):
    """The twin."""

    def __init__(self) -> None:
        super().__init__()
        self.network = MemoryZoneNetwork()

    def _make(self, name: str, limits: ZoneLinkLimits) -> ZoneLinks:
        return MemoryZoneLinks(self.network, name, limits=limits)

    async def url(self, one: Port, other: Port) -> str:
        return other.links.url

    def cut(self, one: str, other: str) -> None:
        self.network.cut(one, other)

    async def mend(self, one: str, other: str) -> None:
        self.network.mend(one, other)

    def stall(self, one: str, other: str) -> None:
        self.network.stall(one, other)


class StreamZoneHarness(ZoneLinkHarness):
    """The real one over the loopback, each pair through a proxy.

    Args:
        folder: for certificates.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.authority = Authority(folder)
        self.metrics: dict[str, MemoryMetrics] = {}
        self.proxies: dict[tuple[str, str], FaultProxy] = {}

    def tls(self, name: str) -> ZoneTls:
        """Make a certificate."""
        return ZoneTls(self.authority.issue(name, name), key=None, ca=self.authority.file)

    def _make(self, name: str, limits: ZoneLinkLimits) -> StreamZoneLinks:
        self.metrics[name] = MemoryMetrics()
        return StreamZoneLinks(
            "127.0.0.1",
            0,
            advertised=("127.0.0.1", 0),
            tls=self.tls(name),
            metrics=self.metrics[name],
            limits=limits,
        )

    async def url(self, one: Port, other: Port) -> str:
        way = one.name, other.name
        if way not in self.proxies:
            host, _, port = other.links.url.removeprefix("wss://").rpartition(":")
            self.proxies[way] = FaultProxy(host, int(port))
            await self.proxies[way].start()
        return f"wss://127.0.0.1:{self.proxies[way].port}"

    def cut(self, one: str, other: str) -> None:
        self.proxies[one, other].refuse()
        self.proxies[one, other].cut()

    async def mend(self, one: str, other: str) -> None:
        proxy = self.proxies[one, other]
        proxy.heal()
        proxy.refuse()
        await proxy.start()

    def stall(self, one: str, other: str) -> None:
        self.proxies[one, other].stall(Way.UP)

    async def close(self) -> None:
        await super().close()
        for proxy in self.proxies.values():
            await proxy.stop()


async def is_broken(connection: ZoneConnection) -> bool:
    """Wait until a connection is over, whatever comes before."""
    async with time_limit():
        try:
            while True:
                await connection.receive()
        except ZoneLinkBroken as error:
            return bool(str(error))
