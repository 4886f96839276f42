"""The user that the how-to gives to nodes may do what they do, and nothing else; the contract tests run as it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from gateway.adapters.redis import scripts
from tests.support.redis_server import RedisServer
from tests.support.redis_user import PASSWORD, USER, node_arguments, node_rules

SENT_BY_NODES = {
    *("auth", "hello", "select", "asking", "info", "time", "script|load", "evalsha", "cluster|slots"),
    *("client|id", "client|kill", "client|setname", "client|tracking", "client|unblock"),
    *("exists", "get", "hget", "hgetall", "hscan", "xread", "zrangebylex"),
}
"""What the adapter and its library send themselves."""

OTHERS = (
    *(("GET", "other"), ("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("ACL", "LIST"), ("PUBLISH", "c", "m")),
    *(
        ("SHUTDOWN",),
        ("EVAL", "return 1", "0"),
        ("SCRIPT", "FLUSH"),
        ("SCAN", "0"),
        ("MONITOR",),
    ),
)


def test_the_line_of_the_page_is_what_nodes_send() -> None:
    text = "\n".join(each.text for each in scripts.SCRIPTS)
    called = {name.lower() for name in re.findall(r"redis\.p?call\(\s*'([A-Z]+)'", text)}
    assert len(called) > 25
    granted = {word[1:] for word in node_rules().split() if word.startswith("+")}
    assert granted == called | SENT_BY_NODES


async def test_the_user_may_nothing_else() -> None:
    async with (
        RedisServer(arguments=node_arguments()) as server,
        Redis(host="127.0.0.1", port=server.port, username=USER, password=PASSWORD) as client,
    ):
        execute: Any = client.execute_command
        for command in OTHERS:
            with pytest.raises(NoPermissionError):
                await execute(*command)
        assert await execute("EXISTS", "test-x:{nodes}:grid") == 0
