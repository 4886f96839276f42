"""The end of a zone link without a node: says what a test wants it to say, right or wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.adapters.memory import MemoryZoneLinks
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.core.types import TopicPath, Version
from gateway.core.zones.messages import decode, encode
from gateway.core.zones.proofs import Meeting, Role, proof
from gateway.core.zones.protocol import Beat, Challenge, Hello, Purpose, Refuse, SentEvent, Welcome, ZoneMessage
from gateway.core.zones.records import Member, ZoneUid
from gateway.core.zones.routes import ClusterId, Place
from gateway.core.zones.stamps import Origin, Stamp
from gateway.ports.zone_links import ZoneConnection, ZoneLinkBroken
from tests.support.virtual_zones import VirtualZones, ZoneCluster

STAMP = Stamp(1_000_000_000, ClusterId("liar"))
"""Of its events, unless a test says another."""


def event(topic: str, value: bytes = b'"lie"', version: int = 1, **changed: object) -> SentEvent:
    """Make an event of its own."""
    made = SentEvent(TopicPath(topic), value, Origin(ClusterId("liar"), Version(version)), STAMP)
    return made._replace(**changed)  # type: ignore[arg-type]


def stopped(cluster: ZoneCluster, reason: str) -> float:
    """Tell how many events a cluster did not let in."""
    return cluster.node.metrics.count(catalogue.ZONE_STOPPED, label=reason)


class RawZonePeer:
    """One connection to a cluster, as its sender; or as its receiver, which needs nothing but the connection.

    Args:
        connection: dialled, or greeted.
        key: by which it proves.
        cluster: who it says that it is.
        zone: of which zone.
    """

    def __init__(self, connection: ZoneConnection, *, key: str = "", cluster: str = "", zone: str = "") -> None:
        self.connection = connection
        self.key = key
        self.cluster = ClusterId(cluster)
        self.zone = zone
        self.hello_bytes = b""

    async def say(self, message: ZoneMessage) -> None:
        """Say something."""
        await self.connection.send(encode(message))

    async def hear(self) -> ZoneMessage:
        """Return the next message, but beats; a refusal, if the other end hung up."""
        try:
            while True:
                message = decode(await self.connection.receive())
                if not isinstance(message, Beat):
                    return message
        except ZoneLinkBroken as error:
            raise AssertionError(f"it hung up without a word: {error}") from None

    async def heard(self, kind: type[Any]) -> Any:
        """Return the next message of a kind."""
        while True:
            message = await self.hear()
            if isinstance(message, kind):
                return message
            assert not isinstance(message, Refuse), message

    async def refused(self) -> str:
        """Wait until it is refused; returns why."""
        while True:
            message = await self.hear()
            if isinstance(message, Refuse):
                return message.why.value

    async def hello(self, challenge: Challenge | None = None, **changed: Any) -> None:
        """Say hello."""
        challenge = challenge or await self.heard(Challenge)
        meeting = Meeting(
            self.zone,
            self.cluster,
            "",
            "nonce",
            challenge.nonce,
            self.connection.own_fingerprint,
            self.connection.fingerprint,
        )
        member = Member(
            zone=ZoneUid(self.zone),
            cluster=self.cluster,
            name="liar",
            urls=("wss://liar:1",),
            fingerprints=(self.connection.own_fingerprint,),
        )
        hello = Hello(
            protocol=1,
            purpose=Purpose.MEMBER,
            reference=self.zone,
            cluster=self.cluster,
            name="liar",
            place=Place(self.zone),
            share=0,
            shares=1,
            term=1,
            nonce="nonce",
            proof=proof(self.key, Role.DIALS, meeting),
            member=member,
        )
        self.hello_bytes = encode(replace(hello, **changed))
        await self.connection.send(self.hello_bytes)

    async def welcomed(self, **changed: Any) -> Welcome:
        """Say hello and be let in."""
        await self.hello(**changed)
        found = await self.heard(Welcome)
        assert isinstance(found, Welcome)
        self.connection.trust()
        return found


async def raw_zone_peer(
    world: VirtualZones,
    victim: ZoneCluster,
    *,
    name: str = "liar",
    fingerprint: str = "",
    key: str = "",
    cluster: str = "liar",
    zone: str = "z",
) -> RawZonePeer:
    """Dial a cluster, with some certificate."""
    links = MemoryZoneLinks(world.network, name, fingerprint=fingerprint)
    connection = await links.dial(victim.urls[0], within=5.0)
    return RawZonePeer(connection, key=key or world.key, cluster=cluster, zone=zone)
