"""Work that belongs together: what ends one part of it ends all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all parts until one of them ends, and end the others then.

    Raises:
        BaseException: what the part that ended first has raised.
    """
    tasks = [asyncio.create_task(each) for each in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        if (error := task.exception()) is not None:
            raise error
