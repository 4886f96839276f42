"""``python -m examples.workers.worker``: takes work out of the queue and publishes results, until Ctrl-C.

Start as many as you like, and kill any of them. A message is held by one worker at a time. Its result is published in
the same transaction in which it is accepted: a worker that dies before has done neither, and the next one is given the
message; one that dies after has done both. So each message has exactly one result.
"""

from __future__ import annotations

import asyncio
import os

import click

from examples.workers.enqueue import QUEUE
from gateway.client import Message, NoSuchTransaction, NotHeld, Session, connect

RESULTS = "results/square"

WINDOW = 3.0
"""Seconds that the gateway waits for a worker that is gone before somebody else gets what it holds."""


async def work(url: str, seconds: float) -> None:
    """Work for ever."""
    async with (
        connect(url, principal="workers", window=WINDOW) as session,
        # One message at a time: whoever takes long has nothing else waiting behind it.
        await session.consume(QUEUE, credit=1, ack="each") as consumer,
    ):
        click.echo(f"worker {os.getpid()} is ready")
        async for message in consumer:
            await do(session, message, seconds)


async def do(session: Session, message: Message, seconds: float) -> None:
    """Do one piece of work."""
    number = message.value["number"]
    click.echo(f"worker {os.getpid()} took {number}{', again' if message.redelivered else ''}")
    await asyncio.sleep(seconds)  # stands for the work
    try:
        async with session.transaction() as transaction:
            await transaction.accept(message)
            await transaction.publish(f"{RESULTS}/{number}", number**2)
    except NotHeld:
        return  # it was away for too long, and another worker has the message
    except NoSuchTransaction:
        await message.release()  # it took too long, and was rolled back
        return
    click.echo(f"worker {os.getpid()} did {number}")


@click.command()
@click.option("--url", default="ws://127.0.0.1:18000", show_default=True, help="Of the gateway.")
@click.option("--seconds", default=0.5, show_default=True, help="How long one piece of work takes.")
def main(url: str, seconds: float) -> None:
    """Square numbers that others put into the queue."""
    try:
        asyncio.run(work(url, seconds))
    except KeyboardInterrupt:
        click.echo("What this worker held goes to another one.")


if __name__ == "__main__":
    main()
