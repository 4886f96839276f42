"""The receiving end of a zone link without a node: proves the secret, and says what a test wants, right or wrong."""

from __future__ import annotations

import asyncio

from gateway.adapters.memory import MemoryZoneLinks
from gateway.core.zones.messages import decode, encode
from gateway.core.zones.proofs import Meeting, Role, proof
from gateway.core.zones.protocol import Challenge, Hello, Welcome
from gateway.core.zones.records import Member, ZoneUid, zone_key
from gateway.core.zones.routes import ClusterId, Place
from gateway.ports.zone_links import ZoneConnection
from tests.support.raw_zone_peer import RawZonePeer
from tests.support.times import time_limit
from tests.support.virtual_zones import VirtualZones, ZoneCluster


class FalseReceiver:
    """A member of the zone, or the other end of a join, that listens.

    Args:
        world: where it listens.
        victim: that dials it.
        key: by which it proves; by default that of the zone.
        zone: that it is in; empty for the other end of a join.

    Attributes:
        connections: that were opened to it, greeted.
    """

    def __init__(self, world: VirtualZones, victim: ZoneCluster, *, key: str = "", zone: str = "z") -> None:
        self.links = MemoryZoneLinks(world.network, "false")
        self.connections: asyncio.Queue[ZoneConnection] = asyncio.Queue()
        self.victim = victim
        self.key = key or world.key
        self.zone = zone
        self.over = asyncio.Event()

    async def begin(self) -> None:
        """Listen, and have the victim know it as a member."""
        await self.links.start(self.serve)
        member = Member(
            zone=ZoneUid("z"),
            cluster=ClusterId("false"),
            urls=(self.links.url,),
            fingerprints=(self.links.fingerprint,),
        )
        await self.victim.node.grid.zones.merge([member], own=self.victim.id)

    async def serve(self, connection: ZoneConnection) -> None:
        """Greet whoever dials, and leave the rest to the test."""
        await connection.send(encode(Challenge((1,), "n")))
        hello = decode(await connection.receive())
        assert isinstance(hello, Hello)
        prints = connection.fingerprint, connection.own_fingerprint
        meeting = Meeting(hello.reference, hello.cluster, "false", hello.nonce, "n", *prints)
        welcome = Welcome(
            cluster=ClusterId("false"),
            name="false",
            place=Place(self.zone or "false"),
            zone=self.zone,
            zone_name=self.zone,
            proof=proof(self.key, Role.LISTENS, meeting),
        )
        await connection.send(encode(welcome))
        connection.trust()
        await self.connections.put(connection)
        await self.over.wait()


async def false_receiver(world: VirtualZones) -> tuple[ZoneCluster, RawZonePeer]:
    """Have a cluster in a zone dial a false member."""
    (a,) = await world.clusters("A")
    await a.enter("z", seeds=())
    receiver = FalseReceiver(world, a)
    await receiver.begin()
    async with time_limit(60):
        return a, RawZonePeer(await receiver.connections.get())


async def false_end_of_a_join(world: VirtualZones, *selectors: str) -> tuple[ZoneCluster, RawZonePeer]:
    """Have a join to somebody who proves the secret, as partners do, and says what a test wants."""
    a, b = await world.clusters("A", "B")
    receiver = FalseReceiver(world, a, key=zone_key(b"the secret of the join to-b"), zone="")
    await receiver.links.start(receiver.serve)
    await a.join("to-b", b, *selectors, fingerprints=(), urls=(receiver.links.url,))
    async with time_limit(60):
        return a, RawZonePeer(await receiver.connections.get())
