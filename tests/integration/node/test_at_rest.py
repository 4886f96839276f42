"""What is in Redis: nothing that proves who one is, and no key or script that is made of what clients say."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from gateway.adapters.authentication import HashParameters, hash_secret, users_line
from gateway.adapters.redis import keys as keys_module
from gateway.adapters.redis.scripts import SCRIPTS
from gateway.client import connect
from gateway.settings import StaticUsers
from tests.support.clock import eventually
from tests.support.nodes import TestNode, running_node
from tests.support.raw_client import RawClient
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.promise("P8")]

PREFIX: Final = "rest"
SECRET: Final = "a-secret-that-nobody-else-knows"
HOSTILE: Final = (
    "{nodes}",
    "a}b{c",
    "]]..redis.call('FLUSHALL')..[[",
    "'; return redis.call('KEYS', 'a') --",
    "x\r\nFLUSHALL\r\n",
    "rest:{nodes}:leases",
    "1\r\n$8\r\nFLUSHALL",
    "%s%n{{}}",
)
"""Texts that would do harm if a key, a command or a script were put together of them."""


_OF_OURS: Final = r":[A-Za-z0-9_-]+(:[A-Za-z0-9_-]+)?"
"""What names of keys end with that are made for one session or node: its id, or its name and incarnation."""


@pytest.fixture
async def redis() -> AsyncIterator[RedisServer]:
    async with RedisServer() as server:
        yield server


@pytest.fixture
async def node(redis: RedisServer, tmp_path: Path) -> AsyncIterator[TestNode]:
    users = tmp_path / "users"
    users.write_text(users_line("alice", hash_secret(SECRET, HashParameters(2, 1, 1)), ["r"], {"team": "fx"}))
    async with running_node(
        grid=redis.url, grid_prefix=PREFIX, auth=StaticUsers(users), journal=True, token_life=120.0, window_maximum=30.0
    ) as running:
        yield running


async def everything(redis: RedisServer) -> dict[str, bytes]:
    """Read all that Redis holds: the content of each key, by its name."""
    found: dict[str, bytes] = {}
    async with Redis(host="127.0.0.1", port=redis.port) as typed:
        client: Any = typed
        async for key in client.scan_iter(count=1000):
            match (await client.type(key)).decode():
                case "string":
                    content = await client.get(key)
                case "hash":
                    content = await client.hgetall(key)
                case "zset":
                    content = await client.zrange(key, 0, -1, withscores=True)
                case "list":
                    content = await client.lrange(key, 0, -1)
                case kind:
                    assert kind == "stream"
                    content = await client.xrange(key)
            found[key.decode()] = repr(content).encode()
    return found


async def test_neither_secrets_nor_tokens_are_at_rest(redis: RedisServer, node: TestNode) -> None:
    """A session that was opened, renewed its token, lost its connection, came back, published and subscribed."""
    tokens: list[str] = []
    async with RawClient(node.url) as first:
        tokens.append((await first.hello("alice", secret=SECRET, properties={"mood": "calm"}))["token"])
        await first.send({"id": 1, "type": "subscribe", "request": 1, "selector": "prices/**"})
        await first.expect("reply")
        await first.send({"id": 2, "type": "publish", "request": 2, "topic": "prices/ACME", "value": {"bid": 1}})
        await first.expect("reply")
        node.gateway.node.sessions.renew_tokens()
        tokens.append((await first.expect("ping", where=lambda ping: "token" in ping))["token"])
        await first.cut()
    async with RawClient(node.url) as second:
        welcome = await second.resume(tokens[-1], attempt=1, oldest=3)
        assert welcome["type"] == "welcome", welcome
        tokens.append(welcome["token"])

        async def is_journalled() -> bool:
            return any(b"session_" in content for key, content in (await everything(redis)).items() if "journal" in key)

        await eventually(is_journalled, message="the journal is written")
        held = await everything(redis)

    assert len(set(tokens)) > 1, "it was renewed"
    content = b"\n".join([*map(str.encode, held), *held.values()])
    assert b"alice" in content, "it is that session which was looked at"
    assert b"calm" in content
    for token in tokens:
        assert token.encode() not in content
        # Nor the part of it that proves it, without which the rest is no token.
        assert token.rpartition(".")[2].encode() not in content
    assert SECRET.encode() not in content


async def test_no_text_of_a_client_becomes_a_key_or_a_script(redis: RedisServer, node: TestNode) -> None:
    async with Redis(host="127.0.0.1", port=redis.port) as typed:
        client: Any = typed
        before = await client.info("commandstats")
        for text in HOSTILE:
            topic = re.sub(r"[\x00-\x1f]", "", text) or "x"
            async with connect(node.url, "alice", SECRET, properties={"said": text.replace("\r\n", " ")}) as session:
                stream = await session.subscribe(f"{topic}/**")
                receipt = await session.publish(f"{topic}/{topic}", text)
                update = await anext(aiter(stream))
                assert (update.value, update.version) == (text, receipt.version), "it is stored as it was said"
        known = await client.execute_command("SCRIPT", "EXISTS", *(script.sha for script in SCRIPTS))
        after = await client.info("commandstats")

    assert all(known)
    harmful = {"cmdstat_flushall", "cmdstat_keys", "cmdstat_eval", "cmdstat_config|set"}
    assert {name for name in harmful if name in after} == {name for name in harmful if name in before}
    names = set(await everything(redis))
    patterns = re.findall(r"^``P:\{(s17|t17|j7|nodes)\}:([a-z-]+)(:?)", keys_module.__doc__ or "", re.MULTILINE)
    documented = re.compile(
        "|".join(
            rf"{PREFIX}:\{{{tag.rstrip('0123456789')}\d*\}}:{name}"
            + (r":[A-Za-z0-9_-]+(:[A-Za-z0-9_-]+)?" if more else "")
            for tag, name, more in patterns
        )
    )
    assert names
    assert [name for name in names if documented.fullmatch(name) is None] == []
