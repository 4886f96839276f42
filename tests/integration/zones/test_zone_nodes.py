"""Nodes of two clusters with certificates, as they are configured: what clients publish at one comes to the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from gateway.adapters.link_authority import ZONES, make_certificates
from gateway.adapters.memory import MemoryGridServer
from gateway.app.zone_links.linked_clusters import LinkedClusters
from gateway.client import connect
from gateway.core.types import Epoch, RequestNumber, SessionId, TopicPath
from gateway.ports import Ownership, PublishCommand
from gateway.settings import HostPort
from tests.support.clock import eventually as sooner_or_later
from tests.support.nodes import TestNode, declare_queues, eventually, running_node
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P18")

SECRET = "a secret that is long enough"


def fingerprint(certificate: Path) -> str:
    return x509.load_pem_x509_certificates(certificate.read_bytes())[0].fingerprint(hashes.SHA256()).hex()


class Sniffer:
    """Passes on what two clusters say, and keeps it.

    Attributes:
        seen: all bytes, of both directions.
        target: port to which they are passed on.
    """

    def __init__(self) -> None:
        self.seen = bytearray()
        self.target = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection("127.0.0.1", self.target)
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
    folder: Path, *names: str, sniffers: dict[str, Sniffer] | None = None
) -> AsyncIterator[list[TestNode]]:
    """Run a node of each cluster, in one zone, as an administrator puts them there."""
    made = make_certificates(folder, names, now=time.time(), kind=ZONES)
    nodes: list[TestNode] = []
    async with AsyncExitStack() as stack:
        for name, certificate, key in made.nodes:
            sniffer = Sniffer()
            port = await stack.enter_async_context(sniffer.listening())
            if sniffers is not None:
                sniffers[name] = sniffer
            node = await stack.enter_async_context(
                running_node(
                    name,
                    memory=MemoryGridServer(),
                    zone_listen=HostPort("127.0.0.1", 0),
                    zone_advertise=None if sniffers is None else HostPort("127.0.0.1", port),
                    zone_tls_certificate=certificate,
                    zone_tls_key=key,
                    zone_tls_ca=made.ca,
                )
            )
            sniffer.target = node.gateway._zone_links.port if node.gateway._zone_links is not None else 0
            assert linked(node).links.fingerprint == fingerprint(certificate)
            nodes.append(node)
        await zone_of(*nodes)
        others = len(names) - 1
        await eventually(lambda: all(sum(view.up for view in linked(each).views()) == 2 * others for each in nodes))
        yield nodes


def linked(node: TestNode) -> LinkedClusters:
    found = node.gateway.node.linked_clusters
    assert found is not None
    return found


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


async def zone_of(*nodes: TestNode) -> None:
    """Put the clusters of nodes into one zone, as an administrator does."""
    first, *others = (each.gateway.node for each in nodes)
    await first.administration.zones.create("europe", SECRET)
    await first.administration.zones.join("europe", urls=(), secret=None)
    assert first.linked_clusters is not None
    for each in others:
        await each.administration.zones.join("europe", urls=(first.linked_clusters.links.url,), secret=SECRET)


@asynccontextmanager
async def selecting(node: TestNode, *selectors: str) -> AsyncIterator[None]:
    """Have a session of a node select this until the end of the block; nobody reads what it is sent."""
    async with await connect(node.url) as session:
        streams = [await session.subscribe(each) for each in selectors]
        yield
        del streams  # without one that is held, nothing is selected


async def newest(node: TestNode, topic: str) -> bytes:
    (found,) = await node.gateway.node._context.grid.topics.read([TopicPath(topic)])
    return b"" if found is None else found.value


async def comes(node: TestNode, topic: str, value: bytes) -> None:
    async def is_there() -> bool:
        return await newest(node, topic) == value

    await sooner_or_later(is_there, message=f"{topic} comes")


async def test_a_client_of_one_cluster_is_sent_what_a_client_of_another_one_publishes(tmp_path: Path) -> None:
    """From what an administrator does to what a client is sent."""
    async with clusters(tmp_path, "london", "paris", "rome") as (london, paris, rome):
        seen: list[object] = []
        async with await connect(paris.url) as reader, await connect(london.url) as writer:
            updates = await reader.subscribe("news/**")

            async def read() -> None:
                while True:
                    seen.append((await anext(updates)).value)

            reading = asyncio.create_task(read())
            await writer.publish("news/1", "before")
            await sooner_or_later(lambda: "before" in seen, message="the first update comes")
            for number in range(100):
                await writer.publish("news/1", number)
            await sooner_or_later(lambda: bool(seen) and seen[-1] == 99, message="the last update comes")
            reading.cancel()
        assert await newest(rome, "news/1") == b""


async def test_what_is_published_at_one_comes_to_the_other(tmp_path: Path) -> None:
    async with clusters(tmp_path, "london", "paris") as (london, paris), selecting(paris, "news/**"):
        for number in range(1, 200):
            await publish(london, f"news/{number % 10}", b"%d" % number, number)
        await comes(paris, "news/9", b"199")


async def test_messages_of_queues_stay_where_they_were_sent(tmp_path: Path) -> None:
    """003-04: whatever the other cluster selects, and though it has a queue of that name; Z7."""
    async with clusters(tmp_path, "london", "paris") as (london, paris):
        for node in (london, paris):
            await declare_queues(node, "work/1")
        async with (
            selecting(paris, "**", "work/**"),
            await connect(london.url) as sender,
            await connect(paris.url) as receiver,
        ):
            for number in range(50):
                await sender.send("work/1", number)
            await sender.publish("news/1", "at last")
            await comes(paris, "news/1", b'"at last"')
            consumer = await receiver.consume("work/1")
            with pytest.raises(TimeoutError):
                async with time_limit(0.3):
                    await anext(consumer)
            assert sum(view.events for view in linked(london).views() if view.direction == "out") == 1


async def test_not_a_clear_byte_is_on_the_wire(tmp_path: Path) -> None:
    """Z8: what passes between two clusters holds nothing of what is said."""
    sniffers: dict[str, Sniffer] = {}
    async with clusters(tmp_path, "london", "paris", sniffers=sniffers) as (london, paris):
        async with selecting(paris, "**"):
            await publish(london, "news/secret", b'"nobody shall read this"', 1)
            await comes(paris, "news/secret", b'"nobody shall read this"')
        for each in sniffers.values():
            # A record of TLS, whose first one is a handshake.
            assert each.seen[:2] == b"\x16\x03"
            for word in (b"nobody shall", b"news/secret", b"selectors", b"proof", b"nonce"):
                assert word not in each.seen
