"""``python -m examples.devices.device NAME``: a thermometer, until Ctrl-C.

```text
devices/<name>/state          "on"; "off" if it was switched off, "lost" if it died: the last wills of its session
devices/<name>/temperature    a reading, which ends if no other follows: nobody shall take an old one for a new one
```
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import signal

import click

from gateway.client import Will, connect

READINGS_KEPT = 5
"""Readings that may fail to come before the last one ends."""

MIDDLE, SWING, PERIOD = 21.0, 1.5, 40.0
"""Degrees Celsius, and readings of one wave: it looks alive."""


async def measure(name: str, url: str, window: float, seconds: float) -> None:
    """Be a thermometer."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    # The window says how soon others learn that it is lost: a device that comes back within it was never lost.
    async with connect(url, principal=name, window=window) as session:
        state = f"devices/{name}/state"
        await session.set_wills(Will(state, "lost"), Will(state, "off", when=["closed"]))
        await session.publish(state, "on")
        click.echo(f"{name} is on")
        for step in itertools.count():
            degrees = round(MIDDLE + SWING * math.sin(step * math.tau / PERIOD), 1)
            await session.publish(f"devices/{name}/temperature", degrees, ttl=READINGS_KEPT * seconds)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), seconds)
            if stopped.is_set():
                return


@click.command()
@click.argument("name")
@click.option("--url", default="ws://127.0.0.1:18000", show_default=True, help="Of the gateway.")
@click.option("--window", default=10.0, show_default=True, help="Seconds without a connection until it counts as lost.")
@click.option("--seconds", default=1.0, show_default=True, help="Between two readings.")
def main(name: str, url: str, window: float, seconds: float) -> None:
    """Publish the readings of the thermometer NAME."""
    asyncio.run(measure(name, url, window, seconds))


if __name__ == "__main__":
    main()
