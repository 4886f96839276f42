"""The session journal of a cluster, as its nodes have written it into Redis."""

from __future__ import annotations

from typing import Any

import redis.asyncio as redis

from gateway.adapters.redis.keys import Keys
from gateway.core.journal import Record, read_records
from tests.cluster.grid_reader import ANSWER, PREFIX


async def read_journal(url: str) -> list[Record]:
    """Read all events that the journal holds, by their time.

    Args:
        url: of the Redis.
    """
    found: list[Record] = []
    async with redis.Redis.from_url(url, socket_timeout=ANSWER, protocol=2) as connection:
        client: Any = connection
        for key in Keys(PREFIX).journal:
            for _, fields in await client.execute_command("XRANGE", key, "-", "+"):
                found += [each for each in read_records(fields[b"events"]) if isinstance(each, dict)]
    return sorted(found, key=lambda each: int(each["at"]))
