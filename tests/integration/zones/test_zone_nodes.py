"""Nodes of two clusters with certificates, as they are configured: what clients publish at one comes to the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from gateway.adapters.link_authority import ZONES, make_certificates
from gateway.adapters.memory import MemoryGridServer
from gateway.client import connect
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import Epoch, RequestNumber, SessionId, TopicPath
from gateway.core.zones.records import Member, Zone, ZoneUid, zone_key
from gateway.ports import Ownership, PublishCommand
from gateway.settings import HostPort
from tests.support.clock import eventually as sooner_or_later
from tests.support.nodes import TestNode, declare_queues, eventually, running_node
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P18")

ZONE = Zone(uid=ZoneUid("z1"), name="europe", key=zone_key(b"a secret that is long enough"), made=1.0)


def fingerprint(certificate: Path) -> str:
    return x509.load_pem_x509_certificates(certificate.read_bytes())[0].fingerprint(hashes.SHA256()).hex()


class Sniffer:
    """Passes on what two clusters say, and keeps it.

    Attributes:
        seen: all bytes, of both directions.
    """

    def __init__(self, port: int) -> None:
        self.seen = bytearray()
        self._port = port

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection("127.0.0.1", self._port)
        with suppress(OSError):
            await asyncio.gather(self._pass(reader, onward[1]), self._pass(onward[0], writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.seen += data
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def clusters(
    folder: Path, *names: str, sniffers: dict[str, Sniffer] | None = None, **settings: Any
) -> AsyncIterator[list[TestNode]]:
    """Run a node of each cluster, in one zone."""
    made = make_certificates(folder, names, now=time.time(), kind=ZONES)
    files = {name: (certificate, key) for name, certificate, key in made.nodes}
    async with AsyncExitStack() as stack:
        nodes = []
        for name in names:
            certificate, key = files[name]
            node = await stack.enter_async_context(
                running_node(
                    name,
                    memory=MemoryGridServer(),
                    zone_listen=HostPort("127.0.0.1", 0),
                    zone_tls_certificate=certificate,
                    zone_tls_key=key,
                    zone_tls_ca=made.ca,
                    **settings,
                )
            )
            nodes.append(node)
        links = [each.gateway.node.linked_clusters for each in nodes]
        await eventually(lambda: all(each is not None and each.knowledge.is_ready for each in links))
        urls = {}
        for name, link in zip(names, links, strict=True):
            assert link is not None
            urls[name] = link.links.url
            if sniffers is not None:
                sniffers[name] = Sniffer(int(link.links.url.rpartition(":")[2]))
                urls[name] = await stack.enter_async_context(sniffers[name].listening())
        members = [
            Member(
                zone=ZONE.uid,
                cluster=link.knowledge.cluster,
                name=name,
                urls=(urls[name],),
                fingerprints=(link.links.fingerprint,),
            )
            for name, link in zip(names, links, strict=True)
            if link is not None
        ]
        for node, member, name in zip(nodes, members, names, strict=True):
            assert member.fingerprints == (fingerprint(files[name][0]),)
            zones = node.gateway.node._context.grid.zones
            await zones.enter(ZONE, member, made=1.0)
            await zones.merge(members, own=member.cluster)
        await eventually(
            lambda: all(
                link is not None and sum(view.up for view in link.views()) == 2 * (len(names) - 1) for link in links
            )
        )
        yield nodes


async def publish(node: TestNode, topic: str, value: bytes, number: int) -> None:
    gateway = node.gateway
    command = PublishCommand(
        Ownership(SessionId("publisher"), gateway.me, Epoch(1)),
        RequestNumber(number),
        RequestNumber(0),
        TopicPath(topic),
        value,
        stored=False,
    )
    await gateway.node._context.grid.topics.publish([command])


async def select(node: TestNode, *selectors: str) -> None:
    """Tell the grid of a node that its sessions select this."""
    zones = node.gateway.node._context.grid.zones
    await zones.put_interest(node.gateway.me, [parse_selector(each) for each in selectors], keep=60.0)


async def newest(node: TestNode, topic: str) -> bytes:
    (found,) = await node.gateway.node._context.grid.topics.read([TopicPath(topic)])
    return b"" if found is None else found.value


async def comes(node: TestNode, topic: str, value: bytes) -> None:
    async def is_there() -> bool:
        return await newest(node, topic) == value

    await sooner_or_later(is_there, message=f"{topic} comes")


async def test_what_is_published_at_one_comes_to_the_other(tmp_path: Path) -> None:
    async with clusters(tmp_path, "london", "paris") as (london, paris):
        await select(paris, "news/**")
        for number in range(1, 200):
            await publish(london, f"news/{number % 10}", b"%d" % number, number)
        await comes(paris, "news/9", b"199")


async def test_messages_of_queues_stay_where_they_were_sent(tmp_path: Path) -> None:
    """003-04: whatever the other cluster selects, and though it has a queue of that name; Z7."""
    async with clusters(tmp_path, "london", "paris") as (london, paris):
        for node in (london, paris):
            await declare_queues(node, "work/1")
        await select(paris, "**", "work/**")
        async with await connect(london.url) as sender, await connect(paris.url) as receiver:
            for number in range(50):
                await sender.send("work/1", number)
            await sender.publish("news/1", "at last")
            await comes(paris, "news/1", b'"at last"')
            consumer = await receiver.consume("work/1")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(scaled(0.3)):
                    await anext(consumer)
            link = london.gateway.node.linked_clusters
            assert link is not None
            assert sum(view.events for view in link.views() if view.direction == "out") == 1


async def test_not_a_clear_byte_is_on_the_wire(tmp_path: Path) -> None:
    """Z8: what passes between two clusters holds nothing of what is said."""
    sniffers: dict[str, Sniffer] = {}
    async with clusters(tmp_path, "london", "paris", sniffers=sniffers) as (london, paris):
        await select(paris, "**")
        await publish(london, "news/secret", b'"nobody shall read this"', 1)
        await comes(paris, "news/secret", b'"nobody shall read this"')
        for each in sniffers.values():
            # A record of TLS, whose first one is a handshake.
            assert each.seen[:2] == b"\x16\x03"
            for word in (b"nobody shall", b"news/secret", b"selectors", b"proof", b"nonce"):
                assert word not in each.seen
