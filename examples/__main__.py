"""``python -m examples``: serves the pages of the examples until Ctrl-C."""

from __future__ import annotations

import click
from aiohttp import web

from examples.server import LOOPBACK, PAGES, application

_PORT = 18090
"""Beside the ports of `make up`, which begin at 18000."""


@click.command()
@click.option(
    "--gateway",
    default=f"ws://{LOOPBACK}:18000/v1/connect",
    show_default=True,
    help="URL where pages connect, or several with commas between. The nodes' setting `origins` has to allow the "
    "pages; that of `make up` does.",
)
@click.option("--port", default=_PORT, show_default=True, help="Where to serve the pages, on this machine alone.")
def main(gateway: str, port: int) -> None:
    """Serve the pages of the examples."""
    for name in PAGES:
        click.echo(f"  {name:8} http://{LOOPBACK}:{port}/{name}/")
    web.run_app(application(gateway.split(","), port), host=LOOPBACK, port=port, print=None)


if __name__ == "__main__":
    main()
