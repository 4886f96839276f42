"""Work on many items, done for so many in a turn of the event loop (P20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


async def portions(items: Iterable[T], most: int) -> AsyncIterator[list[T]]:
    """Take items in portions, and let others have a turn of the loop after each full one.

    What is at most one portion is done without a pause. The items of a portion are asked for when its turn has come: an
    iterator may leave out what is out of date by then. A collection that may change meanwhile has to be given as a
    copy.

    Args:
        items: to be taken, in their order.
        most: items in a portion, at least one.

    Yields:
        The next items, never none.
    """
    left = iter(items)
    while portion := list(islice(left, most)):
        yield portion
        if len(portion) < most:
            return
        await asyncio.sleep(0)
