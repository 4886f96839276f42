"""Streams of events behind HAProxy: nodes are killed, connections are idle, and everything is encrypted."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.local.stack import Stack
from tests.cluster.crowds import Figures
from tests.cluster.test_calls import call
from tests.cluster.test_tls_failover import nodes_of
from tests.support.certificates import Authority
from tests.support.event_streams import reading
from tests.support.faults import eventually
from tests.support.haproxy import FAST, running_haproxy
from tests.support.http_calls import ALICE
from tests.support.stack import cluster
from tests.support.times import PATIENCE, scaled, time_limit

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]

VALUES: Final = 150
KILLS: Final = (40, 100)
"""After how many values the node is killed that serves the reader."""

TOPIC: Final = "streamed/number"


class _Reader:
    """Reads a stream to its end, over any number of connections, as a browser does."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.values: list[object] = []
        self.nodes: list[str] = []
        self.kinds: list[str] = []
        self.begun = asyncio.Event()
        self._last = ""

    def has(self, count: int) -> bool:
        """Tell whether so many values have come."""
        return len(self.values) >= count

    async def run(self) -> None:
        """Read until all values are there."""
        while len(self.values) < VALUES:
            try:
                await self._connect()
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)

    async def _connect(self) -> None:
        async with reading(self._stack.url, TOPIC, after=self._last) as reader:
            if reader.status != 200:
                await asyncio.sleep(0.05)
                return
            async for event in reader:
                self._last = reader.last_id
                self.kinds.append(event.kind)
                if event.kind == "open":
                    self.nodes.append(event.data["node"])
                elif event.kind == "complete":
                    self.begun.set()
                elif event.kind == "message":
                    self.values.append(event.data["value"])
                    if len(self.values) == VALUES:
                        return


@pytest.mark.promise("P13")
async def test_a_reader_misses_nothing_and_sees_nothing_twice_while_its_nodes_are_killed(
    tmp_path: Path, figures: Figures
) -> None:
    async with cluster(tmp_path / "run") as stack, asyncio.TaskGroup() as tasks, time_limit(4 * PATIENCE):
        reader = _Reader(stack)
        following = tasks.create_task(reader.run())
        await reader.begun.wait()
        url = f"{stack.url.replace('ws', 'http', 1).removesuffix('/v1/connect')}/v1/publish"
        async with aiohttp.ClientSession() as http:
            for number in range(VALUES):
                if number in KILLS:
                    await eventually(partial(reader.has, number), "all up to here has come")
                    tasks.create_task(stack.kill_node(reader.nodes[-1]))
                await call(http, url, number, {"topic": TOPIC, "value": number})
        await following
        assert reader.values == list(range(VALUES)), "each once, and in order"
        assert "gap" not in reader.kinds
        assert len(reader.nodes) > len(KILLS)
        figures(f"{VALUES} values over {len(reader.nodes)} connections at {', '.join(reader.nodes)}")


@pytest.mark.promise("P12")
async def test_a_drained_node_sends_its_readers_to_the_others(tmp_path: Path) -> None:
    async with cluster(tmp_path, nodes=2) as stack, time_limit(4 * PATIENCE):
        async with reading(stack.url, TOPIC) as reader:
            first = (await reader.next()).data["node"]
            await reader.until("complete")
            stopping = asyncio.create_task(stack.drain_node(first))
            (end,) = await reader.until("end")
            assert end.data["code"] == "draining"
        async with reading(stack.url, TOPIC, after=reader.last_id) as reader:
            assert (await reader.next()).data == {"node": "n2" if first == "n1" else "n1", "replayed": True}
        await stopping


@pytest.mark.thorough
async def test_an_idle_stream_over_tls_outlives_what_requests_may_take_and_its_node(
    tmp_path: Path, authority: Authority
) -> None:
    own, node = authority.issue("haproxy"), authority.issue("node")
    ping_interval = scaled(3.0)
    timeouts = {**FAST["timeouts"], "client": scaled(1.0), "tunnel": scaled(30.0)}
    settings = {
        **FAST,
        "timeouts": timeouts,
        "ping_interval": ping_interval,
        "frontend": {"certificate": str(own)},
        "nodes_tls": {"ca": str(authority.file), "certificate": str(own), "admin": False},
    }
    async with cluster(
        tmp_path,
        nodes=2,
        balancer=False,
        lease=scaled(2.0),
        lease_renew=scaled(0.5),
        ping_interval=ping_interval,
        ping_timeout=scaled(9.0),
        tls_certificate=node,
        tls_client_ca=authority.file,
    ) as stack:
        with running_haproxy(nodes_of(stack), settings) as proxy:
            proxy.wait_checked()
            trust = authority.trust()
            async with time_limit(4 * PATIENCE), reading(proxy.url, TOPIC, ssl=trust) as reader:
                victim = (await reader.next()).data["node"]
                await reader.until("complete")
                # Three times as long as HAProxy waits for the answer to a request, or for a client that says nothing.
                waiting = asyncio.ensure_future(reader.next())
                await eventually(lambda: reader.comments > 0, "a sign of life")
                waiting.cancel()
            last = reader.last_id
            await stack.kill_node(victim)
            async with time_limit(4 * PATIENCE), reading(proxy.url, TOPIC, after=last, ssl=trust) as reader:
                assert (await reader.next()).data["replayed"] is True
                async with aiohttp.ClientSession() as http:
                    base = proxy.url.replace("ws", "http", 1).removesuffix("/v1/connect")
                    body = {"topic": TOPIC, "value": "on"}
                    async with http.post(f"{base}/v1/publish", json=body, headers=ALICE, ssl=trust) as answer:
                        assert answer.status == 200, await answer.text()
                assert (await reader.next()).data["value"] == "on"
