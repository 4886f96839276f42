"""What is counted for a session is what it takes in Redis, whatever form its client gives it (P20)."""

from __future__ import annotations

import itertools
import random
import string
from collections.abc import Callable
from typing import Any, Final

import pytest

from gateway.adapters.redis import RedisGrid
from gateway.core.session.stored_size import record_bytes
from gateway.core.topics.selections import Selections
from gateway.core.topics.topics import TOPIC_PARTITIONS, topic_partition
from gateway.core.types import RequestNumber, TopicPath
from gateway.ports import Published, SessionRecord
from tests.integration.redis.support import Bench, Publisher, session_record

pytestmark = [pytest.mark.redis, pytest.mark.promise("P20")]

ROUNDED_UP: Final = 1.25
"""By the allocator of Redis, at worst; test_packaging.py reckons with the same."""

KEY_BYTES: Final = 64
"""Of a key besides what MEMORY USAGE tells: its place in the dictionary of all keys, which is up to half empty."""

SUM_OF_KEYS: Final = """
local sum = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  sum = sum + ARGV[1] + redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0)
end
return sum
"""

SESSIONS: Final = 200
"""Of each form: enough that what all of them share does not decide."""

FEW: Final = 40
"""Of those that take long."""


def word(length: int) -> str:
    return "".join(random.choices(string.ascii_letters, k=length))


FORMS: Final[dict[str, tuple[int, Callable[[], dict[str, Any]]]]] = {
    "nothing": (SESSIONS, dict),
    "a long name": (SESSIONS, lambda: {"properties": {"$client": word(64)}}),
    "usual": (SESSIONS, lambda: {"selections": tuple(f"+prices/{word(8)}" for _ in range(5))}),
    "many short selectors": (
        FEW,
        lambda: {"selections": tuple("+" + "".join(each) for each in itertools.product("abcdefghij", repeat=3))},
    ),
    "long selectors": (FEW, lambda: {"selections": tuple("+" + word(1000) for _ in range(64))}),
    "selectors that are rounded up": (FEW, lambda: {"selections": tuple("+" + word(1020) for _ in range(60))}),
    "all properties": (FEW, lambda: {"properties": {word(64): word(1024) for _ in range(64)}}),
    "properties that are escaped": (FEW, lambda: {"properties": {word(64): "\x01" * 1024 for _ in range(64)}}),
    "properties in four bytes": (FEW, lambda: {"properties": {word(64): "\U0001f600" * 1024 for _ in range(64)}}),
    "a principal with properties": (SESSIONS, lambda: {"principal_properties": {"team": word(2000)}}),
}


def counted(record: SessionRecord) -> int:
    return record_bytes(
        properties=record.properties,
        principal_properties=record.principal_properties,
        roles=record.roles,
        entries=len(record.selections),
        entries_bytes=Selections.from_wire(record.selections).text_bytes,
        publish_partitions=len(record.publish_partitions),
    )


async def used(bench: Bench) -> int:
    """Tell what all keys take; what Redis uses as a whole also changes by buffers that it gives back at times."""
    taken: int = await bench.server.call("EVAL", SUM_OF_KEYS, 0, KEY_BYTES)
    return taken


@pytest.mark.parametrize("form", FORMS)
async def test_a_session_takes_no_more_than_is_counted(bench: Bench, form: str) -> None:
    grid = await bench.grid()
    number, parts = FORMS[form]
    records = [session_record(f"{each:022}", **parts()) for each in range(number)]
    await grid.sessions.create(session_record(**parts()))  # the buffers of its connection stay as they are
    before = await used(bench)
    for record in records:
        await grid.sessions.create(record)
    taken = await used(bench) - before
    expected = sum(map(counted, records))
    assert taken <= expected * ROUNDED_UP, (taken / number, expected / number)
    assert taken >= expected / 5, "and it is not counted for much more"


async def publish_everywhere(grid: RedisGrid, session: str) -> None:
    """Publish thirty times to a topic in each partition, as whoever wants many receipts does, and have all settled."""
    roots: dict[int, str] = {}
    for each in itertools.count():
        roots.setdefault(topic_partition(TopicPath(f"r{each}/x"), 1), f"r{each}/x")
        if len(roots) == TOPIC_PARTITIONS:
            break
    publisher, request = Publisher(grid, session=session), 0
    for topic in roots.values():
        publisher.topic = TopicPath(topic)
        for _ in range(30):
            request += 1
            command = publisher.command(request, settled=request - 1)
            (result,) = await grid.topics.publish([command._replace(value=b"1", settled=RequestNumber(request - 1))])
            assert isinstance(result, Published)


@pytest.mark.thorough
async def test_receipts_take_no_more_than_is_counted(bench: Bench) -> None:
    grid = await bench.grid(stream_length=100)
    await publish_everywhere(grid, "first")  # the values stay as large as they are
    before = await used(bench)
    everywhere = frozenset(range(TOPIC_PARTITIONS))
    records = [session_record(f"publisher-{number:012}", publish_partitions=everywhere) for number in range(10)]
    for record in records:
        await grid.sessions.create(record)
        await publish_everywhere(grid, record.id)
    taken = await used(bench) - before
    expected = sum(map(counted, records))
    assert taken <= expected * ROUNDED_UP, (taken / 10, expected / 10)
