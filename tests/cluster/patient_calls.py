"""Calls by HTTP behind HAProxy that are made again while nodes are killed, as the how-to says."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp

TRY_AGAIN: Final = frozenset({429, 502, 503, 504})
"""Answers after which the same call may be made again."""

PAUSE: Final = 0.05
"""Seconds before that."""


async def repeat(http: aiohttp.ClientSession, method: str, url: str, **request: Any) -> tuple[dict[str, Any], int]:
    """Make a call until it is answered; returns the answer, and how often it was made.

    Args:
        http: makes it.
        method: of HTTP.
        url: of the call.
        request: as aiohttp takes it.
    """
    tries = 0
    while True:
        tries += 1
        try:
            async with http.request(method, url, **request) as answer:
                if answer.status == 200:
                    return await answer.json(), tries
                assert answer.status in TRY_AGAIN, await answer.text()
        except aiohttp.ClientConnectionError:
            pass
        await asyncio.sleep(PAUSE)
