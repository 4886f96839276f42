"""Windows that began while the grid was unreachable: no session ends by an older one (P7, P10).

The client of a session that is away comes back and leaves again, both without the grid, which holds the end of the
window before. Whoever reaches the grid first must not end the session by that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pytest

from gateway.adapters.memory import LoopbackConnection
from gateway.catalogue import log_events as events
from gateway.catalogue.takeover_log_events import WINDOWS_PROLONGED
from gateway.core.topics.topics import session_partition
from gateway.core.types import SessionId
from gateway.local.proxy import FaultProxy
from gateway.ports import GridState
from tests.support.delivery import DeliveryBench
from tests.support.nodes import eventually, running_node
from tests.support.numbering import packets_of
from tests.support.raw_client import RawClient
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.times import scaled
from tests.support.virtual_cluster import VirtualCluster, VirtualNode, run_virtually

pytestmark = pytest.mark.promise("P7", "P10")

WINDOW: Final = 40.0
LEASE: Final = 9.0
RENEW: Final = 3.0
SETTINGS: Final[dict[str, Any]] = {
    "lease": LEASE,
    "lease_renew": RENEW,
    "reap_interval": 0.2,
    "ping_interval": 600.0,
    "ping_timeout": 1200.0,
}
LATE: Final = 3 * RENEW
"""Seconds after the end of its window in which a session has ended, if nothing is in the way."""


@dataclass
class Client:
    """A client of one session.

    Attributes:
        session: its id.
        token: the last one it has.
        attempts: to come back.
        connection: the last one.
    """

    session: SessionId
    token: str
    attempts: int
    connection: LoopbackConnection

    @classmethod
    async def open(cls, node: VirtualNode, *, window: float = WINDOW) -> Client:
        connection, welcome = await _first(node, {"type": "hello", "principal": "alice", "window": window})
        assert welcome["type"] == "welcome", welcome
        return cls(SessionId(welcome["session"]), welcome["token"], 0, connection)

    def leave(self) -> None:
        self.connection.hang_up()

    async def resume(self, node: VirtualNode) -> dict[str, Any]:
        self.attempts += 1
        packet = {"type": "resume", "token": self.token, "attempt": self.attempts}
        self.connection, answer = await _first(node, packet | {"received": 0, "oldest": 1})
        if answer["type"] == "welcome":
            self.token = answer["token"]
        return answer

    async def is_held(self, by: VirtualNode) -> bool:
        """Tell whether the grid holds the session."""
        return await by.grid.sessions.find(self.session) is not None


async def _first(node: VirtualNode, packet: dict[str, Any]) -> tuple[LoopbackConnection, dict[str, Any]]:
    connection = LoopbackConnection()
    serving = asyncio.get_running_loop().create_task(node.node.serve(connection))
    node.serving = [*getattr(node, "serving", []), serving]  # type: ignore[attr-defined]
    connection.send(orjson.dumps(packet))
    message = await connection.next_written()
    assert message is not None, connection.closed
    return connection, packets_of(message.decode())[0]


async def open_and_leave(cluster: VirtualCluster, node: VirtualNode) -> tuple[Client, float]:
    """Open a session, and leave; tell when its window ends, by what the grid knows.

    It is in a partition in which n2 ends sessions.
    """
    while True:
        client = await Client.open(node)
        client.leave()
        if session_partition(client.session) % len(cluster.nodes) == 1:
            break

    async def is_on_the_clock() -> bool:
        record = await node.grid.sessions.find(client.session)
        return record is not None and not record.connected

    await cluster.until(is_on_the_clock)
    return client, cluster.now() + WINDOW


async def at(cluster: VirtualCluster, moment: float) -> None:
    await cluster.until(lambda: cluster.now() >= moment)


async def come_back_without_the_grid(
    cluster: VirtualCluster, node: VirtualNode, cut: Callable[[], None]
) -> tuple[Client, float, float]:
    """Open a session, and leave; the client comes back when an outage has begun, a second before its window ends.

    Returns:
        The client, when the outage began, and when the window ends, by what the grid knows.
    """
    client, ends = await open_and_leave(cluster, node)
    await at(cluster, ends - 1)
    cut()
    began = cluster.now()
    assert (await client.resume(node))["outcome"] == "reattached"
    return client, began, ends


Outage = Callable[[VirtualCluster], Awaitable[Callable[[], None]]]


async def unreachable(cluster: VirtualCluster) -> Callable[[], None]:
    cluster.server.go_away()
    return cluster.server.come_back


async def restarted(cluster: VirtualCluster) -> Callable[[], None]:
    cluster.server.go_away()
    return lambda: cluster.server.come_back(restarted=True)


OUTAGES: Final[dict[str, Outage]] = {"unreachable": unreachable, "restarted": restarted}


@pytest.mark.parametrize("length", [1.5, pytest.param(LEASE / 2 + 1, marks=pytest.mark.thorough), 30.0])
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_session_that_left_anew_in_an_outage_outlives_its_node(outage: str, length: float) -> None:
    """Its node is killed before the grid is back, and the grid holds the end of the window before."""

    async def scene(cluster: VirtualCluster) -> None:
        n1, n2, _ = await cluster.start("n1", "n2", "n3")
        client, ends = await open_and_leave(cluster, n1)
        await at(cluster, ends - 1.2)
        come_back = await OUTAGES[outage](cluster)
        assert n1.grid.state is GridState.UNREACHABLE
        began = cluster.now()
        assert (await client.resume(n1))["outcome"] == "reattached"
        client.leave()
        await cluster.until(lambda: client.connection.is_closing)
        left = cluster.now()
        cluster.kill(n1)
        await at(cluster, began + length)
        come_back()
        await at(cluster, left + WINDOW - 1)
        assert await client.is_held(n2)
        await at(cluster, began + length + LEASE + 2 * RENEW + WINDOW + LATE)
        assert not await client.is_held(n2), "it has ended by its new window"

    run_virtually(scene, **SETTINGS)


@pytest.mark.parametrize("comes_back", [True, False])
def test_nodes_that_start_after_the_outage_end_no_session_by_what_they_find(*, comes_back: bool) -> None:
    """All others were killed in it."""

    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        client, _, _ = await come_back_without_the_grid(cluster, n1, cluster.server.go_away)
        client.leave()
        left = cluster.now()
        cluster.kill(n1)
        cluster.kill(n2)
        await at(cluster, left + LEASE)
        cluster.server.come_back()
        (n3,) = await cluster.start("n3")
        while comes_back:
            answer = await client.resume(n3)
            if answer.get("code") != "try_later":
                assert answer.get("outcome") == "failed_over", answer
                return
            await asyncio.sleep(0.5)
        await at(cluster, left + WINDOW - 1)
        assert await client.is_held(n3)
        assert [each["expired"] for each in n3.log.of(WINDOWS_PROLONGED)] == [str(n1.me)]

    run_virtually(scene, **SETTINGS)


@pytest.mark.parametrize("length", [1.5, 30.0])
def test_who_comes_elsewhere_before_the_takeover_is_not_told_that_the_session_has_ended(length: float) -> None:
    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        client, began, _ = await come_back_without_the_grid(cluster, n1, cluster.server.go_away)
        client.leave()
        cluster.kill(n1)
        await at(cluster, began + length)
        cluster.server.come_back()
        answers: list[dict[str, Any]] = []
        while not answers or answers[-1].get("code") == "try_later":
            answers.append(await client.resume(n2))
            await asyncio.sleep(0.5)
        assert answers[-1].get("outcome") == "failed_over", answers[-1]
        assert cluster.now() < began + length + LEASE + 2 * RENEW

    run_virtually(scene, **SETTINGS)


@pytest.mark.parametrize("length", [1.5, 30.0])
@pytest.mark.parametrize("stays", [True, False], ids=["stays", "leaves"])
def test_a_node_that_reaches_the_grid_last_keeps_its_session(length: float, *, stays: bool) -> None:
    """Another one ends sessions meanwhile."""

    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        client, began, _ = await come_back_without_the_grid(cluster, n1, cluster.server.go_away)
        if not stays:
            client.leave()
        await at(cluster, began + length)
        left = cluster.now() if stays else began
        n1.grid.cut()
        cluster.server.come_back()
        await at(cluster, began + length + LEASE / 2)
        n1.grid.mend()
        await at(cluster, left + WINDOW - 1)
        record = await n2.grid.sessions.find(client.session)
        assert record is not None
        assert record.connected is stays
        assert n1.node.sessions.get(client.session) is not None
        assert client.connection.closed is None

    run_virtually(scene, **SETTINGS)


@pytest.mark.parametrize("stays", [True, False], ids=["stays", "leaves"])
def test_a_node_that_alone_was_cut_off_keeps_its_session(*, stays: bool) -> None:
    """Those that end sessions reach the grid all the time."""

    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        client, _, ends = await come_back_without_the_grid(cluster, n1, n1.grid.cut)
        if not stays:
            client.leave()
        await at(cluster, ends + RENEW)
        n1.grid.mend()
        await at(cluster, ends + WINDOW - 5)
        record = await n2.grid.sessions.find(client.session)
        assert record is not None
        assert record.connected is stays

    run_virtually(scene, **SETTINGS)


def test_the_death_of_a_node_lengthens_no_window_that_runs() -> None:
    """The grid was there all the time: who has left long before has told it."""

    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        client, ends = await open_and_leave(cluster, n1)
        await at(cluster, ends - WINDOW / 2)
        cluster.kill(n1)
        await at(cluster, ends - 0.5)
        assert await client.is_held(n2)
        await at(cluster, ends + LATE)
        assert not await client.is_held(n2)

    run_virtually(scene, **SETTINGS)


def test_an_outage_before_the_last_word_of_a_node_lengthens_no_window_either() -> None:
    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        client, ends = await open_and_leave(cluster, n1)
        cluster.server.go_away()
        await at(cluster, cluster.now() + 2)
        cluster.server.come_back()
        await at(cluster, ends - WINDOW / 2)
        cluster.kill(n1)
        await at(cluster, ends + LATE)
        assert not await client.is_held(n2)
        assert n2.log.of(events.TAKEOVER_FINISHED)
        assert n2.log.of(WINDOWS_PROLONGED) == []

    run_virtually(scene, **SETTINGS)


def test_a_session_that_never_had_a_client_is_in_nobodys_way() -> None:
    """Found by chaos: one that is being handed over has left at no time, and its node lost its lease to that number."""

    async def scene(cluster: VirtualCluster) -> None:
        n1, n2 = await cluster.start("n1", "n2")
        n1.node.sessions.add(DeliveryBench().session())
        cluster.server.go_away()
        await at(cluster, cluster.now() + 2)
        cluster.server.come_back()
        back = cluster.now()
        await cluster.until(lambda: n2.node._membership._saved.nodes.get(n1.me, 0.0) > back)

    run_virtually(scene, **SETTINGS)


@pytest.mark.redis
async def test_a_node_lost_while_redis_stood_still_loses_no_session() -> None:
    """As the first of these tests, with a Redis that is suspended, and in real time."""
    lease: dict[str, Any] = {
        "lease": scaled(2.0),
        "lease_renew": scaled(0.4),
        "reap_interval": 0.2,
        "grid_timeout": scaled(0.5),
    }
    async with RedisServer() as redis, FaultProxy("127.0.0.1", redis.port) as way:
        prefix = unique_prefix()
        through: dict[str, Any] = {"grid": f"redis://127.0.0.1:{way.port}/0", "grid_prefix": prefix}
        async with (
            running_node("n1", **lease, **through) as n1,
            running_node("n2", **lease, grid=redis.url, grid_prefix=prefix) as n2,
        ):
            grid = n2.gateway.node._context.grid
            await eventually(lambda: len(n2.gateway.node.cluster.alive) == 2)
            while True:
                async with RawClient(n1.url) as raw:
                    opened = await raw.hello(window=scaled(3.0))
                session = SessionId(opened["session"])
                if session_partition(session) % 2 == 1:
                    break
            deadlines = f"{prefix}:{{s{session_partition(session)}}}:deadlines"
            ends: list[Any] = []
            while not ends:
                ends = [each for each in [await redis.call("ZSCORE", deadlines, session)] if each is not None]
            redis.suspend()
            await eventually(lambda: n1.gateway.node._context.grid.state is GridState.UNREACHABLE)
            async with RawClient(n1.url) as back:
                again = await back.resume(opened["token"], attempt=1)
                assert again["outcome"] == "reattached"
            way.refuse()
            way.cut()
            redis.resume()
            await eventually(lambda: bool(n2.log.of(events.TAKEOVER_FINISHED)), within=20.0)
            assert n2.log.of(WINDOWS_PROLONGED)
            longer = await redis.call("ZSCORE", deadlines, session)
            assert longer > ends[0]
            async with RawClient(n2.url) as elsewhere:
                assert (await elsewhere.resume(again["token"], attempt=2))["outcome"] == "failed_over"
            assert await grid.sessions.find(session) is not None
