"""A node reaches each server of a grid with replicas through a proxy of its own, and by the server's true address."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests.chaos.grid_links import grid_links
from tests.support.redis_server import RedisServer
from tests.support.times import time_limit

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_process_is_led_to_its_own_proxy_of_each_server(loop: str) -> None:
    program = (
        f"import asyncio, sys, {loop}, redis.asyncio\n"
        "async def ping():\n"
        "    for port in sys.argv[1:]:\n"
        "        async with redis.asyncio.Redis(host='127.0.0.1', port=int(port)) as client:\n"
        "            await client.ping()\n"
        f"{loop}.run(ping())\n"
    )
    async with RedisServer() as first, RedisServer() as second:
        ports = [first.port, second.port]
        async with grid_links(["n1", "n2"], ports) as links, time_limit():
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-c", program, str(first.port), str(second.port)),
                env={**os.environ, **links.environment()["n2"]},
            )
            assert await process.wait() == 0
            assert [proxy.accepted for proxy in links.of("n2")] == [1, 1]
            assert [proxy.accepted for proxy in links.of("n1")] == [0, 0]
            assert links.of("n1", second.port) == links.of("n1")[1:]
