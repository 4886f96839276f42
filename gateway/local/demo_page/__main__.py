"""``python -m gateway.local.demo_page``: serves the page and publishes what it shows, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import click
from aiohttp import web

from gateway.local.demo_page.prices import publish_prices
from gateway.local.demo_page.server import application
from gateway.local.ports import LOOPBACK, PortPlan


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="The run folder of the stack.")
@click.option("--port-base", type=int, required=True, help="First of its ports.")
@click.option("--nodes", type=int, required=True, help="How many nodes it has.")
def main(folder: Path, port_base: int, nodes: int) -> None:
    """Serve the page of a stack."""
    asyncio.run(_serve(folder, PortPlan.from_base(port_base, nodes)))


async def _serve(folder: Path, ports: PortPlan) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    runner = web.AppRunner(application(folder, ports), access_log=None)
    await runner.setup()
    publishing = asyncio.create_task(publish_prices(f"ws://{LOOPBACK}:{ports.entry}/v1/connect"), name="prices")
    try:
        await web.TCPSite(runner, LOOPBACK, ports.demo_page).start()
        await stopped.wait()
    finally:
        publishing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await publishing
        await runner.cleanup()


if __name__ == "__main__":
    main()
