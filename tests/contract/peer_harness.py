"""What the contract suite needs of an implementation of ``PeerLinks``: nodes, and a network that can be broken."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics, MemoryPeerLinks, MemoryPeerNetwork
from gateway.adapters.peers import LinkContexts, LinkPlace, StreamPeerLinks
from gateway.adapters.tls import LinkTls
from gateway.core.types import NodeRef
from gateway.local.proxy import FaultProxy, Way
from gateway.ports.peers import Down, LinkEvent, LinkLimits, PeerLinks, PeerPlace, Question, Record, Up
from tests.support.certificates import Authority
from tests.support.clock import eventually
from tests.support.times import scaled

CLUSTER: Final = "cluster-under-test"

HEARTBEAT: Final = scaled(0.1)
"""Seconds on this machine."""

SILENCE: Final = 10 * HEARTBEAT
"""Seconds after which a silent link is broken."""

LIMITS: Final = LinkLimits(message=4 * 1024 * 1024, queue=6 * 1024 * 1024, inbox=256 * 1024, questions=16)
"""Small, so that tests reach them."""


class Member:
    """A node of the suite, which takes all events and keeps them.

    Attributes:
        ref: which.
        started: when.
        links: its links.
        taken: all events, the newest last.
    """

    def __init__(self, ref: NodeRef, started: float, links: PeerLinks) -> None:
        self.ref = ref
        self.started = started
        self.links = links
        self.taken: list[LinkEvent] = []
        self.answering = True
        self._taker: asyncio.Task[None] | None = None

    def take(self) -> None:
        """Begin to take events."""
        self._taker = asyncio.create_task(self._take())

    async def stop_taking(self) -> None:
        """Take no more events."""
        if self._taker is not None:
            self._taker.cancel()
            await asyncio.gather(self._taker, return_exceptions=True)

    def records(self, of: Member) -> list[Record]:
        """List the records of one peer."""
        return [each for each in self.taken if isinstance(each, Record) and each.peer == of.ref]

    def questions(self, of: Member) -> list[Question]:
        """List the questions of one peer."""
        return [each for each in self.taken if isinstance(each, Question) and each.peer == of.ref]

    def ups(self, of: Member) -> list[Up]:
        """List how often a link came up."""
        return [each for each in self.taken if isinstance(each, Up) and each.peer == of.ref]

    def downs(self, of: Member) -> list[Down]:
        """List how often it went."""
        return [each for each in self.taken if isinstance(each, Down) and each.peer == of.ref]

    def is_up(self, to: Member) -> bool:
        """Tell whether there is a link."""
        return self.links.state(to.ref).up

    async def _take(self) -> None:
        async for event in self.links.events():
            self.taken.append(event)
            if isinstance(event, Question) and self.answering:
                match event.kind:
                    case "echo":
                        event.answer(event.body)
                    case "size":
                        event.answer(b"x" * int(event.body))
                    case "fail":
                        event.fail()
                    case "mute":
                        pass
                    case _:
                        event.decline()


class PeerHarness(ABC):
    """Nodes and what lies between them."""

    def __init__(self) -> None:
        self.members: dict[NodeRef, Member] = {}

    async def node(
        self,
        ref: NodeRef,
        *,
        started: float = 1.0,
        features: Iterable[str] = (),
        limits: LinkLimits = LIMITS,
        takes: bool = True,
    ) -> Member:
        """Start a node, which knows nobody yet."""
        member = Member(ref, started, self._make(ref, started, features, limits))
        await member.links.start()
        self.members[ref] = member
        if takes:
            member.take()
        return member

    async def pair(self, one: NodeRef, other: NodeRef) -> tuple[Member, Member]:
        """Start two nodes and wait for their link."""
        first, second = await self.node(one), await self.node(other)
        await self.introduce(first, second)
        await self.linked(first, second)
        return first, second

    async def introduce(self, *members: Member, cluster: str = CLUSTER) -> None:
        """Tell each of these nodes of all others of these."""
        for member in members:
            await self.tell(member, *members, cluster=cluster)

    async def tell(self, member: Member, *others: Member, cluster: str = CLUSTER) -> None:
        """Tell one node of others."""
        member.links.meet(
            cluster,
            {
                other.ref: PeerPlace(await self._address(member, other), other.started)
                for other in others
                if other is not member
            },
        )

    async def linked(self, one: Member, other: Member) -> None:
        """Wait until two nodes have a link, and it is the same one for both."""
        await eventually(lambda: one.is_up(other) and other.is_up(one), message=f"{one.ref} and {other.ref} are linked")

        async def talk() -> bool:
            try:
                return await one.links.ask(other.ref, "echo", b"?", within=SILENCE) == b"?"
            except Exception:  # noqa: BLE001 - both may have dialled, and the link is about to be another one
                return False

        await eventually(talk, message=f"{one.ref} and {other.ref} talk")

    async def close(self) -> None:
        """Close everything."""
        for member in self.members.values():
            await member.stop_taking()
        await asyncio.gather(*(member.links.close() for member in self.members.values()))

    @abstractmethod
    def _make(self, ref: NodeRef, started: float, features: Iterable[str], limits: LinkLimits) -> PeerLinks: ...

    @abstractmethod
    async def _address(self, member: Member, other: Member) -> str: ...

    @abstractmethod
    def move_in(self, new: Member, old: Member) -> None:
        """Have a run of a node be found where a former run of it was."""

    @abstractmethod
    def cut(self, one: Member, other: Member) -> None:
        """Break the link of two nodes, and let there be none until ``mend``."""

    @abstractmethod
    async def mend(self, one: Member, other: Member) -> None:
        """End all faults between two nodes."""

    @abstractmethod
    def stall(self, sender: Member, receiver: Member) -> None:
        """Let nothing arrive that *sender* says to *receiver*."""

    @abstractmethod
    def delay(self, seconds: float, sender: Member, receiver: Member) -> None:
        """Hold back what *sender* says to *receiver*."""

    @abstractmethod
    def drop_soon(self, sender: Member, receiver: Member) -> None:
        """Break the link in the middle of what *sender* says to *receiver* next, of which there must be much."""


class MemoryPeerHarness(PeerHarness):
    """The twin."""

    def __init__(self) -> None:
        super().__init__()
        self.network = MemoryPeerNetwork(silence=SILENCE)

    def _make(self, ref: NodeRef, started: float, features: Iterable[str], limits: LinkLimits) -> PeerLinks:
        return MemoryPeerLinks(self.network, ref, started=started, features=features, limits=limits)

    async def _address(self, member: Member, other: Member) -> str:
        return other.links.address

    def move_in(self, new: Member, old: Member) -> None:
        """Addresses are names, and these are the same."""

    def cut(self, one: Member, other: Member) -> None:
        self.network.cut(one.ref, other.ref)

    async def mend(self, one: Member, other: Member) -> None:
        self.network.mend(one.ref, other.ref)

    def stall(self, sender: Member, receiver: Member) -> None:
        self.network.stall(sender.ref, receiver.ref)

    def delay(self, seconds: float, sender: Member, receiver: Member) -> None:
        self.network.delay(seconds, sender.ref, receiver.ref)

    def drop_soon(self, sender: Member, receiver: Member) -> None:
        self.network.drop_after(20, sender.ref, receiver.ref)


_BYTES_BEFORE_DROP: Final = 100_000
"""After which ``drop_soon`` cuts: several records of the suite, less than all of them."""


class StreamPeerHarness(PeerHarness):
    """The real one over the loopback, each pair through two proxies: one for each of them that may dial.

    Args:
        folder: for certificates; None to go without TLS.
        both_dial: whether the larger name dials at once, too.
    """

    def __init__(self, folder: Path | None = None, *, both_dial: bool = False) -> None:
        super().__init__()
        self.folder = folder
        self.authority = None if folder is None else Authority(folder)
        self.patience = 0.0 if both_dial else scaled(0.3)
        self.logs: dict[NodeRef, MemoryEventLog] = {}
        self.metrics: dict[NodeRef, MemoryMetrics] = {}
        self._proxies: dict[tuple[NodeRef, NodeRef], FaultProxy] = {}

    def tls(self, node: str) -> LinkContexts | None:
        """Make the certificate of a node."""
        if self.authority is None:
            return None
        return LinkTls(node, self.authority.issue(node, node), key=None, ca=self.authority.file)

    def _make(self, ref: NodeRef, started: float, features: Iterable[str], limits: LinkLimits) -> StreamPeerLinks:
        self.logs[ref], self.metrics[ref] = MemoryEventLog(), MemoryMetrics()
        return StreamPeerLinks(
            ref,
            started=started,
            place=LinkPlace("127.0.0.1", 0, ("127.0.0.1", 0)),
            tls=self.tls(ref.node),
            metrics=self.metrics[ref],
            log=self.logs[ref],
            heartbeat=HEARTBEAT,
            features=features,
            limits=limits,
            patience=self.patience,
        )

    async def _address(self, member: Member, other: Member) -> str:
        way = member.ref, other.ref
        if way not in self._proxies:
            host, _, port = other.links.address.rpartition(":")
            self._proxies[way] = FaultProxy(host, int(port))
            await self._proxies[way].start()
        return f"127.0.0.1:{self._proxies[way].port}"

    def move_in(self, new: Member, old: Member) -> None:
        host, _, port = new.links.address.rpartition(":")
        for (_, to), proxy in self._proxies.items():
            if to == old.ref:
                proxy._target = host, int(port)

    def proxies(self, one: Member, other: Member) -> list[tuple[FaultProxy, Way]]:
        """List the proxies between two nodes, each with the way in which *one* speaks to *other*."""
        ways = (((one.ref, other.ref), Way.UP), ((other.ref, one.ref), Way.DOWN))
        return [(self._proxies[pair], way) for pair, way in ways if pair in self._proxies]

    def connections(self, one: Member, other: Member) -> int:
        """Count the connections between two nodes."""
        return sum(proxy.connections for proxy, _ in self.proxies(one, other))

    def cut(self, one: Member, other: Member) -> None:
        for proxy, _ in self.proxies(one, other):
            proxy.refuse()
            proxy.cut()

    async def mend(self, one: Member, other: Member) -> None:
        for proxy, _ in self.proxies(one, other):
            proxy.heal()
            proxy.refuse()
            await proxy.start()

    def stall(self, sender: Member, receiver: Member) -> None:
        for proxy, way in self.proxies(sender, receiver):
            proxy.stall(way)

    def delay(self, seconds: float, sender: Member, receiver: Member) -> None:
        for proxy, way in self.proxies(sender, receiver):
            proxy.delay(seconds, way)

    def drop_soon(self, sender: Member, receiver: Member) -> None:
        for proxy, way in self.proxies(sender, receiver):
            proxy.cut_after(_BYTES_BEFORE_DROP, way)

    async def close(self) -> None:
        await super().close()
        await asyncio.gather(*(proxy.stop() for proxy in self._proxies.values()))
        for log in self.logs.values():
            assert not log.undeclared
