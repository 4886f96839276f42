"""The walks of the architecture page: what happens in a real cluster calls the functions of the page, in its order."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import gateway
from gateway.app.registry import sessions
from gateway.settings import HostPort
from tests.docs.architecture import PAGE, read_walks
from tests.support.linked_nodes import LinkedNodes, is_linked
from tests.support.nodes import SHORT_LEASE, TestNode, eventually, running_node
from tests.support.raw_client import Packet, RawClient
from tests.support.redis_server import RedisServer, unique_prefix

pytestmark = pytest.mark.redis

PACKAGE: Final = str(Path(gateway.__file__).parent)
SHORT_TIMES: Final = {
    **SHORT_LEASE,
    "heartbeat": SHORT_LEASE["lease_renew"] / 2,
    "suspect_after": 2,
    "transient_wait": 1.0,
}
"""Settings of nodes that fail, are suspected before their leases are over, and are cleaned up after soon."""
RESUMABLE: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@contextmanager
def calls() -> Iterator[list[str]]:
    """Note which functions of the gateway are called, as ``module:function``.

    A coroutine counts once: when it begins, or when it goes on for the first time. So one that has been running for
    long cannot be a hop that has others before it.
    """
    found: list[str] = []
    begun: set[FrameType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            if code.co_flags & RESUMABLE:
                if frame in begun:
                    return
                begun.add(frame)
            found.append(f"{frame.f_globals['__name__']}:{code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


def first_missing(hops: Sequence[str], called: Sequence[str]) -> str | None:
    """Tell the first of *hops* that was not called after the hop before it; None if all were."""
    remaining = iter(called)
    return next((hop for hop in hops if hop not in remaining), None)


def check(title: str, called: Sequence[str]) -> None:
    """Compare the lists of a walk with what was called."""
    chains = read_walks()[title]
    missing = [hop for chain in chains if (hop := first_missing(chain, called)) is not None]
    assert missing == [], f"not called after the hop before it; mend the walk {title!r} in {PAGE.name}"


@asynccontextmanager
async def cluster(**settings: Any) -> AsyncIterator[tuple[TestNode, TestNode]]:
    """Run two nodes over one Redis."""
    async with RedisServer() as redis:
        settings |= {"grid": redis.url, "grid_prefix": unique_prefix()}
        async with running_node("n1", **settings) as n1, running_node("n2", **settings) as n2:
            yield n1, n2


async def subscribed(client: RawClient, **hello: Any) -> Packet:
    """Open a session that is sent all prices, and return its welcome."""
    welcome = await client.hello(**hello)
    await client.send({"type": "subscribe", "id": 1, "request": 1, "selector": "prices/**"})
    await client.expect("reply")
    return welcome


async def publish(client: RawClient) -> None:
    """Open a session and publish a price."""
    await client.hello("publisher")
    await client.send({"type": "publish", "id": 1, "request": 1, "topic": "prices/ACME", "value": 101})
    await client.expect("reply")


async def test_a_publish_that_reaches_subscribers_of_another_node() -> None:
    async with (
        cluster() as (n1, n2),
        RawClient(n1.url) as publisher,
        RawClient(n2.url) as one,
        RawClient(n2.url) as other,
    ):
        for subscriber in (one, other):
            await subscribed(subscriber)
        with calls() as called:
            await publish(publisher)
            for subscriber in (one, other):
                await subscriber.expect("update")

    check("A publish that reaches subscribers of another node", called)


async def test_a_client_returns_after_its_node_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    title = "A client returns after its node has died"
    cleaned_up = read_walks()[title][1][-1]
    linked = LinkedNodes(monkeypatch)
    async with cluster(**SHORT_TIMES) as (n1, n2), RawClient(n2.url) as publisher, RawClient(n1.url) as client:
        await eventually(lambda: is_linked(n1, n2))
        welcome = await subscribed(client)
        await publish(publisher)
        update = await client.expect("update")
        async with RawClient(n1.url) as absent:
            await absent.hello("absent")
            with calls() as called:
                linked.network.cut(n1.gateway.me, n2.gateway.me)  # a node that dies does not say good-bye
                await n1.gateway.close()
                async with RawClient(n2.url) as back:
                    again = await back.resume(welcome["token"], attempt=1, received=update["id"], oldest=2)
                    snapshot = await back.expect("update")
                    await eventually(lambda: cleaned_up in called)

    assert (again["outcome"], snapshot["snapshot"]) == ("failed_over", True)
    check(title, called)


async def test_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise n1 might find out by writing that its client has gone, before n2 has told it: soon after the client has
    # gone, and when nobody is connected any more.
    monkeypatch.setattr(sessions, "LINGER", 60.0)
    async with cluster() as (n1, n2), RawClient(n1.url) as client, RawClient(n1.url) as last:
        welcome = await subscribed(client)
        await last.hello("last")
        with calls() as called:
            draining = asyncio.create_task(n1.gateway.drain())
            await client.expect("ping")
            await client.send({"type": "pong", "received": 1})
            await client.expect("go-away")
            await client.ws.close()
            async with RawClient(n2.url) as back:
                again = await back.resume(welcome["token"], attempt=1, received=1, oldest=2)
                await eventually(lambda: all(each.id != welcome["session"] for each in n1.gateway.node.sessions))
                await last.ws.close()
                await draining
                await n1.gateway.close()

    assert again["outcome"] == "failed_over"
    check("A drain", called)


async def test_a_handoff() -> None:
    links: dict[str, Any] = {"link": HostPort("127.0.0.1", 0), "dev": True, "drain_jitter": 0.0}
    async with cluster(**links) as (n1, n2), RawClient(n1.url) as client, RawClient(n2.url) as publisher:
        await eventually(lambda: is_linked(n1, n2))
        welcome = await subscribed(client, supports=["handed_over"])
        with calls() as called:
            draining = asyncio.create_task(n1.gateway.drain())
            await client.expect("go-away")
            await publish(publisher)
            update = await client.expect("update")
            await client.ws.close()
            async with RawClient(n2.url) as back:
                again = await back.resume(
                    welcome["token"], attempt=1, received=update["id"], oldest=2, supports=["handed_over"]
                )
                await back.send({"type": "ack", "received": update["id"]})
                await draining

    assert again["outcome"] == "handed_over"
    check("A handoff", called)


def test_every_walk_of_the_page_is_walked_here() -> None:
    names = {f"test_{title.lower().replace(' ', '_')}" for title in read_walks()}

    assert len(names) == 4
    assert names <= globals().keys()


@pytest.mark.parametrize(
    ("hops", "missing"), [(["a", "b", "d"], None), (["b", "a"], "a"), (["a", "x"], "x"), (["c", "c"], "c")]
)
def test_a_hop_that_is_not_called_in_its_place_is_found(hops: list[str], missing: str | None) -> None:
    assert first_missing(hops, ["a", "b", "c", "d"]) == missing
