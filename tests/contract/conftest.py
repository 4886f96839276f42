"""Fixtures of the contract suite: the grid under test, once in memory and once on a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.contract.harness import Harness, MemoryHarness, RedisHarness
from tests.support.redis_server import RedisServer

IMPLEMENTATIONS = (pytest.param("memory", id="memory"), pytest.param("redis", id="redis", marks=pytest.mark.redis))


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest) -> str:
    """Name of the implementation under test."""
    return str(request.param)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """A server for tests that do it no harm; they keep apart by prefixes."""
    with RedisServer() as server:
        yield server


@pytest.fixture
async def harness(implementation: str, request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    """A grid whose server is not harmed."""
    harness = MemoryHarness() if implementation == "memory" else RedisHarness(request.getfixturevalue("shared_redis"))
    yield harness
    await harness.close()


@pytest.fixture
async def fragile(implementation: str) -> AsyncIterator[Harness]:
    """A grid whose server may be restarted."""
    if implementation == "memory":
        harness = MemoryHarness()
        yield harness
        await harness.close()
    else:
        async with RedisServer(aof=True) as server:
            on_redis = RedisHarness(server)
            yield on_redis
            await on_redis.close()
