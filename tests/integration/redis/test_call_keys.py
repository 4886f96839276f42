"""Idempotency keys in a real Redis: how long it remembers them, and what was done under them, when they are used again.

Redis has no clock that a test could move, so it is asked for how long it still keeps a key; each is nearly over before.
"""

from __future__ import annotations

import pytest

from gateway.adapters.redis.keys import Keys
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Epoch, RequestNumber, SessionId, TopicPath
from gateway.ports import CALL_KEY_MARGIN, CALL_KEY_SECONDS, Ownership, PublishCommand, Published, SendCommand
from tests.contract.queue_users import FREE
from tests.integration.redis.support import N1, PARTITION, TOPIC, Bench

pytestmark = pytest.mark.promise("P5")

NAME = SessionId("$call-AAAAAAAAAAAAAAAAAAAAAA")
RIGHT = Ownership(NAME, N1, Epoch(1))
JOBS = TopicPath("jobs/render")
NEARLY_OVER_MS = 60_000


class Remembered:
    """How long a key of Redis is remembered."""

    def __init__(self, bench: Bench, key: str) -> None:
        self._server, self._key = bench.server, key

    async def age(self) -> None:
        assert await self._server.call("PEXPIRE", self._key, NEARLY_OVER_MS) == 1

    async def seconds(self) -> float:
        left = await self._server.call("PTTL", self._key)
        assert isinstance(left, int)
        return left / 1000


async def test_a_key_is_remembered_from_its_last_use_on(bench: Bench) -> None:
    grid = await bench.grid()
    key = Remembered(bench, Keys(bench.prefix).call_key(NAME))
    await grid.call_keys.bind(NAME, b"first")
    await key.age()
    assert await grid.call_keys.bind(NAME, b"first") == b"first"
    assert CALL_KEY_SECONDS < await key.seconds() <= CALL_KEY_SECONDS + CALL_KEY_MARGIN


async def test_so_is_what_was_published_under_it(bench: Bench) -> None:
    grid = await bench.grid()
    receipts = Remembered(bench, Keys(bench.prefix).receipts(PARTITION, NAME))
    commands = [
        PublishCommand(RIGHT, RequestNumber(number), RequestNumber(0), TOPIC, b"1", stored=False) for number in (1, 2)
    ]
    await grid.topics.publish(commands)
    await receipts.age()
    for result in await grid.topics.publish(commands):
        assert isinstance(result, Published)
        assert result.duplicate
    assert CALL_KEY_SECONDS - 60 < await receipts.seconds() <= CALL_KEY_SECONDS


async def test_and_what_was_sent_under_it(bench: Bench) -> None:
    grid = await bench.grid()
    receipts = Remembered(bench, Keys(bench.prefix).receipts(topic_partition(JOBS, 1), NAME))
    commands = [
        SendCommand(RIGHT, RequestNumber(number), RequestNumber(0), JOBS, b"1", b"", FREE, stored=False)
        for number in (1, 2)
    ]
    first = await grid.queues.send(commands)
    await receipts.age()
    assert [each.duplicate for each in await grid.queues.send(commands)] == [True, True]  # type: ignore[union-attr]
    assert len(first) == 2
    assert CALL_KEY_SECONDS - 60 < await receipts.seconds() <= CALL_KEY_SECONDS
