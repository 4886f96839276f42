"""A slot of a Redis Cluster that stays half moved is named where an operator looks, who can end it (P10)."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from redis.crc import key_slot

from gateway.adapters.redis import slots
from gateway.catalogue import log_events
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from tests.support.nodes import TestNode, running_node
from tests.support.raw_client import RawClient
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import HOST, unique_prefix
from tests.support.times import scaled, time_limit

pytestmark = [pytest.mark.redis, pytest.mark.promise("P10")]

HOW_TO: Final = Path(__file__).parents[3] / "docs" / "how-to" / "run-on-sentinel-or-cluster.md"
FIX: Final = "redis-cli --cluster fix"
TOPIC: Final = "half/moved"


def redis_cli() -> str:
    """Find redis-cli, which comes with redis-server; CI must not go without it."""
    path = shutil.which("redis-cli")
    if path is None:
        assert os.environ.get("CI", "").lower() != "true", "redis-cli is not installed, and CI must not skip tests"
        pytest.skip("redis-cli is not installed")
    return path


async def readiness(node: TestNode) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as http, http.get(f"{node.admin}/readyz") as answer:
        return answer.status, await answer.json()


async def until_warned(node: TestNode, wanted: bool) -> list[str]:
    """Wait until ``/readyz`` has warnings, or none; it answers 200 all the time."""
    async with time_limit():
        while True:
            status, told = await readiness(node)
            assert (status, told["ready"], told["reasons"]) == (200, True, []), "all other slots are as they were"
            if bool(told["warnings"]) is wanted:
                return list(told["warnings"])
            await asyncio.sleep(0.02)


async def ask(client: RawClient, number: int) -> dict[str, Any]:
    """Publish; returns the reply, which is acknowledged: until then a refusal has all that follows be refused, too."""
    await client.send({"id": number, "request": number, "type": "publish", "topic": TOPIC, "value": number})
    reply = await client.expect("reply", where=lambda reply: reply["request"] == number)
    await client.send({"type": "ack", "received": reply["id"]})
    return reply


async def test_a_half_moved_slot_is_named_at_readyz_and_redis_cli_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "HALF_MOVED", scaled(0.5))
    program = redis_cli()
    tag = f"t{topic_partition(TopicPath(TOPIC), 1)}"
    slot = key_slot(tag.encode())
    with RedisCluster() as servers:
        # The masters have this long to agree who serves the slot again before the node gives up on the whole grid.
        settings: dict[str, Any] = {"grid": servers.url, "grid_prefix": unique_prefix(), "grid_timeout": scaled(2.0)}
        async with running_node("n1", **settings) as node, RawClient(node.url) as client:
            await client.send({"type": "hello", "principal": "alice"})
            await client.expect("welcome")
            await until_warned(node, wanted=False)
            before = await ask(client, 1)

            source = await asyncio.to_thread(servers.master_of, tag)
            target = next(each for each in await asyncio.to_thread(servers.masters) if each is not source)
            await target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
            await source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
            # One of the keys has moved, and whoever moved them has died.
            (moved,) = await source.call("CLUSTER", "GETKEYSINSLOT", slot, 1)
            await source.call("MIGRATE", HOST, target.port, moved, 0, 5000)
            assert (await ask(client, 2))["error"]["code"] == "grid_unavailable"

            (warning,) = await until_warned(node, wanted=True)
            assert f"{slot} ({{{tag}}})" in warning
            assert FIX in warning, "what to do is said where it is seen"
            assert node.log.of(log_events.GRID_SLOT_HALF_MOVED) == [{"slot": slot, "tag": tag}]
            assert FIX in log_events.GRID_SLOT_HALF_MOVED.meaning
            page = HOW_TO.read_text()
            assert log_events.GRID_SLOT_HALF_MOVED.name in page
            assert "`/readyz` lists it in `warnings`" in " ".join(page.split())
            assert f"$ {FIX} " in page

            fix = await asyncio.create_subprocess_exec(
                program, *("--cluster", "fix", f"{HOST}:{source.port}"), stdout=asyncio.subprocess.DEVNULL
            )
            async with time_limit():
                assert await fix.wait() == 0
            assert await until_warned(node, wanted=False) == []
            after = await ask(client, 3)
            assert after["version"] == before["version"] + 1, "what was refused was not done, and nothing is lost"
            assert node.log.of(log_events.GRID_UNREACHABLE) == []
