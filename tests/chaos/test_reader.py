"""What the account learns from the servers themselves: promotions, also those that Sentinels took back at once."""

from __future__ import annotations

import pytest

from tests.chaos.reader import Reader
from tests.support.nodes import eventually
from tests.support.redis_server import HOST, RedisServer

pytestmark = pytest.mark.redis


async def test_a_promotion_is_seen_once_and_starting_again_is_none() -> None:
    async with RedisServer() as master, RedisServer() as replica:
        reader = Reader(master.url)
        ports = [master.port, replica.port]

        async def promoted() -> bool:
            return (await reader.claims(ports)).promoted

        await replica.call("REPLICAOF", HOST, master.port)
        await eventually(lambda: replica._call("INFO", "replication")["master_link_status"] == "up")
        assert not await promoted(), "nobody had looked before"
        assert not await promoted()
        await replica.call("REPLICAOF", "NO", "ONE")
        claims = await reader.claims(ports)
        assert claims.promoted
        assert claims.masters == len(ports), "the one before has yet to be told"
        assert not await promoted()

        await replica.call("REPLICAOF", HOST, master.port)
        assert not await promoted()
        await master.restart()
        assert not await promoted()
