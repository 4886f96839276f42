"""A reader of history as a program of its own, to be killed: ``python -m tests.cluster.history_reader POSITION URL…``.

It writes a line for each event as soon as it has it: the position behind it, from where to go on, topic and value.
"""

from __future__ import annotations

import asyncio
import sys

from gateway.client import connect

SELECTOR = "log/**"


async def main(position: str, urls: list[str]) -> None:
    """Read until somebody kills this process."""
    async with connect(urls, "reader") as session:
        stream = await session.subscribe(SELECTOR, start=position)
        async for update in stream:
            stream.done()  # what is written with its position is had by whoever reads it
            flags = "".join(each for each in ("gap", "folded", "snapshot") if getattr(update, each))
            sys.stdout.write(f"{stream.position} {update.topic} {update.value} {flags or 'event'}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
