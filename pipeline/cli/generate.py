"""``pipeline generate``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import click
from redis import Redis

from gateway.settings.grid_url import GridKind, read_grid_url
from pipeline.cli.options import configured, needed
from pipeline.cli.output import Teller, result
from pipeline.configuration import Configuration
from pipeline.errors import NotReady
from pipeline.generate import GREATEST_SEED, LEAST_NODES, MOST_NODES, Scale, usual_hours, write_bronze, write_grid


@click.command()
@click.option("--events", metavar="N", type=click.IntRange(1), default=1_000_000, show_default=True, help="How many.")
@click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(0, GREATEST_SEED),
    default=1,
    show_default=True,
    help="Same seed, same journal.",
)
@click.option(
    "--hours",
    metavar="N",
    type=click.FloatRange(1, 8_784),
    help="In which they happen, about. [default: 1 to 24, as many fill]",
)
@click.option(
    "--nodes",
    metavar="N",
    type=click.IntRange(LEAST_NODES, MOST_NODES),
    default=6,
    show_default=True,
    help=f"Of the cluster, {MOST_NODES} at most.",
)
@click.option(
    "--into",
    type=click.Choice(["lake", "grid"]),
    default="lake",
    show_default=True,
    help="Write bronze of an empty lake, or the entries of a journal in a Redis.",
)
@click.option(
    "--rate", metavar="N", type=click.IntRange(1), help="Events a second, into a grid. [default: as fast as it goes]"
)
@configured("lake", "grid", "grid_prefix")
def generate(
    *,
    configuration: Configuration,
    events: int,
    seed: int,
    hours: float | None,
    nodes: int,
    into: str,
    rate: int | None,
) -> None:
    """Make a synthetic journal: sessions, deploys, deaths, storms and losses.

    The same seed makes the same journal: as files to the byte, in a grid to the entry.
    """
    scale = Scale(events, seed=seed, hours=usual_hours(events) if hours is None else hours, nodes=nodes)
    begun = time.monotonic()
    teller = Teller()
    with teller.working(f"generating {events:,} events"):
        for written in _into_lake(configuration, scale) if into == "lake" else _into_grid(configuration, scale, rate):
            teller.now(f"{written:,} of {events:,} events")
    place = configuration.lake / "bronze" if into == "lake" else "the grid"
    result(f"{events:,} events of seed {seed} in {place}, in {time.monotonic() - begun:.1f} s")


def _into_lake(configuration: Configuration, scale: Scale) -> Iterator[int]:
    bronze = configuration.lake / "bronze"
    if any(bronze.rglob("*.parquet")):
        raise NotReady(f"{bronze} holds events already; name an empty lake, or delete that folder")
    return write_bronze(scale, bronze, threads=os.cpu_count() or 1)


def _into_grid(configuration: Configuration, scale: Scale, rate: int | None) -> Iterator[int]:
    url: str = needed(configuration, "grid")
    if read_grid_url(url).kind is not GridKind.SINGLE:
        raise NotReady("a journal is generated into a single Redis, for trials; give a URL that begins with redis://")
    with Redis.from_url(url, socket_timeout=configuration.grid_timeout) as client:
        yield from write_grid(scale, client, configuration.grid_prefix, rate=rate)
