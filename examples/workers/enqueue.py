"""``python -m examples.workers.enqueue``: puts work into the queue, each piece once."""

from __future__ import annotations

import asyncio

import click

from gateway.client import connect

QUEUE = "jobs/square"


async def enqueue(url: str, count: int) -> None:
    """Send *count* numbers to be squared."""
    async with connect(url, principal="shop") as session:
        for number in range(1, count + 1):
            # When it returns, the message is in the grid, once, however often it had to be sent again.
            await session.send(QUEUE, {"number": number})
    click.echo(f"{count} jobs are in {QUEUE}")


@click.command()
@click.option("--url", default="ws://127.0.0.1:18000", show_default=True, help="Of the gateway.")
@click.option("--count", default=20, show_default=True, help="How many numbers.")
def main(url: str, count: int) -> None:
    """Put numbers to be squared into the queue."""
    asyncio.run(enqueue(url, count))


if __name__ == "__main__":
    main()
