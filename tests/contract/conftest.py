"""Fixtures of the contract suite: the grid under test, in memory and on each kind of real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping

import pytest

from gateway.adapters.redis import grid_connection
from tests.contract.harness import Harness, MemoryHarness, RedisHarness, Servers
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisSentinels
from tests.support.redis_server import RedisServer
from tests.support.redis_user import node_arguments, sentinel_line

IMPLEMENTATIONS = (
    pytest.param("memory", id="memory"),
    *(pytest.param(each, id=each, marks=pytest.mark.redis) for each in ("redis", "cluster")),
    # Behind Sentinels is one Redis, which answers as any other: what differs is tried by tests of the replaced master.
    pytest.param("sentinel", id="sentinel", marks=(pytest.mark.redis, pytest.mark.thorough)),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one real Redis for each test to ``make test``; the other is thorough (ADR 0135).

    A Redis Cluster answers as a single Redis does and refuses more: steps that reach over partitions. One that is
    restarted takes its time, so that such tests have a single one.
    """
    for item in items:
        parameters: Mapping[str, object] = (
            item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        )
        second = "cluster" if "fragile" in getattr(item, "fixturenames", ()) else "redis"
        if parameters.get("implementation") == second:
            item.add_marker("thorough")


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest) -> str:
    """Name of the implementation under test."""
    return str(request.param)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """A server for tests that do it no harm; they keep apart by prefixes."""
    with RedisServer(arguments=node_arguments()) as server:
        yield server


@pytest.fixture(scope="session")
def shared_sentinel() -> Iterator[RedisSentinels]:
    """A master that Sentinels name; nothing to be promoted, so that tests of a restart have one to restart."""
    with RedisSentinels(
        replicas=0, sentinels=2, aof=True, arguments=node_arguments(), lines=(sentinel_line(),)
    ) as servers:
        yield servers


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[RedisCluster]:
    """Three masters; forming takes Redis two seconds, so that tests of a restart use the same ones."""
    with RedisCluster(aof=True, arguments=node_arguments()) as servers:
        yield servers


@pytest.fixture
async def harness(
    implementation: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Harness]:
    """A grid whose server is not harmed."""
    # Which answer is lost is chosen by the tests; none must be that to the look-out.
    monkeypatch.setattr(grid_connection, "LOOK_INTERVAL", 3600.0)
    harness = (
        MemoryHarness()
        if implementation == "memory"
        else RedisHarness(request.getfixturevalue(f"shared_{implementation}"))
    )
    yield harness
    await harness.close()


@pytest.fixture
async def fragile(
    implementation: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Harness]:
    """A grid whose server may be restarted."""
    # A suite that restarts so often would mostly wait for the next try.
    monkeypatch.setattr(grid_connection, "LONGEST_BACKOFF", 0.1)
    if implementation == "memory":
        harness = MemoryHarness()
        yield harness
        await harness.close()
    elif implementation == "redis":
        async with RedisServer(aof=True, arguments=node_arguments()) as server:
            on_redis = RedisHarness(server)
            yield on_redis
            await on_redis.close()
    else:
        servers: Servers = request.getfixturevalue(f"shared_{implementation}")
        on_many = RedisHarness(servers)
        yield on_many
        await on_many.close()
