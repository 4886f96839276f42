"""Servers: one for all tests that do it no harm, and one of its own for each that does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.integration.redis.support import Bench
from tests.support.redis_server import RedisServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integration/redis" in item.nodeid:
            item.add_marker(pytest.mark.redis)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
async def bench(shared_server: RedisServer) -> AsyncIterator[Bench]:
    """For tests that leave the server as it is."""
    bench = Bench(shared_server)
    yield bench
    await bench.close()


@pytest.fixture
async def harmed() -> AsyncIterator[Bench]:
    """For tests that kill the server, which writes everything to disk before it answers."""
    async with RedisServer(aof=True) as server:
        bench = Bench(server)
        yield bench
        await bench.close()


@pytest.fixture
async def forgetful() -> AsyncIterator[Bench]:
    """For tests that kill a server which writes nothing to disk."""
    async with RedisServer() as server:
        bench = Bench(server)
        yield bench
        await bench.close()
