"""``pipeline generate``."""

from __future__ import annotations

import os
import time

import click

from pipeline.cli.options import configured
from pipeline.cli.telling import Teller, result
from pipeline.configuration import Configuration
from pipeline.errors import NotReady
from pipeline.generate import Scale, usual_hours, write_bronze


@click.command()
@click.option("--events", metavar="N", type=click.IntRange(1), default=1_000_000, show_default=True, help="How many.")
@click.option(
    "--seed", metavar="N", type=click.IntRange(0), default=1, show_default=True, help="Same seed, same journal."
)
@click.option(
    "--hours",
    metavar="N",
    type=click.FloatRange(1, 8_784),
    help="In which they happen, about. [default: 1 to 24, as many fill]",
)
@click.option("--nodes", metavar="N", type=click.IntRange(3), default=6, show_default=True, help="Of the cluster.")
@configured("lake")
def generate(*, configuration: Configuration, events: int, seed: int, hours: float | None, nodes: int) -> None:
    r"""Make a synthetic journal: sessions, deploys, deaths, storms and losses, as bronze of an empty lake.

    \b
    Example:
      pipeline generate --events 1000000 --seed 7 --lake /tmp/lake
    """  # fmt: skip
    scale = Scale(events, seed=seed, hours=usual_hours(events) if hours is None else hours, nodes=nodes)
    bronze = configuration.lake / "bronze"
    if any(bronze.rglob("*.parquet")):
        raise NotReady(f"{bronze} holds events already; name an empty lake, or delete that folder")
    teller = Teller()
    begun = time.monotonic()
    with teller.working(f"generating {events:,} events"):
        for written in write_bronze(scale, bronze, threads=os.cpu_count() or 1):
            teller.now(f"{written:,} of {events:,} events")
    result(f"{events:,} events of seed {seed} in {bronze}, in {time.monotonic() - begun:.1f} s")
