"""All that a grid holds, as text: for tests that search it for what must not be there."""

from __future__ import annotations

from typing import Final

from tests.cluster.support_a import GridReader

_READERS: Final[dict[str, tuple[str | int, ...]]] = {
    "string": ("GET",),
    "hash": ("HGETALL",),
    "list": ("LRANGE", 0, -1),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "stream": ("XRANGE", "-", "+"),
}
"""How to read all of a key, by its type: the command, and what follows the key."""

_PAGE: Final = 1000


async def dump(url: str) -> dict[str, str]:
    """Read every key of a Redis.

    Returns:
        The content by key, as text in which every name and value can be found.
    """
    found: dict[str, str] = {}
    async with GridReader(url) as grid:
        cursor = "0"
        while True:
            cursor, keys = await grid.call("SCAN", cursor, "COUNT", _PAGE)
            for key in keys:
                kind = await grid.call("TYPE", key)
                if kind == "none":
                    continue  # it went away since
                command, *arguments = _READERS[kind]
                found[key] = str(await grid.call(str(command), key, *arguments))
            if str(cursor) == "0":
                return found
