"""``pipeline publish``."""

from __future__ import annotations

import os

import click

from pipeline.bronze.reading import look_for_commits
from pipeline.cli.options import SPARK, configured, spark_of
from pipeline.cli.stopping import until_signalled
from pipeline.cli.telling import Teller
from pipeline.configuration import Configuration
from pipeline.lake import Lake
from pipeline.publish.job import PublishOptions, publish_gold
from pipeline.publish.publisher import Target
from pipeline.sizing import sized

DEFAULT_URL = "ws://127.0.0.1:8101/v1/connect"
"""Where ``gateway serve`` listens if nobody says otherwise."""


@click.command()
@click.option(
    "--url",
    "urls",
    envvar="GATEWAY_URL",
    show_envvar=True,
    default=DEFAULT_URL,
    show_default=True,
    help="A node or a load balancer; several, separated by commas, are tried in turn.",
)
@click.option(
    "--principal",
    envvar="GATEWAY_PRINCIPAL",
    show_envvar=True,
    default="pipeline",
    show_default=True,
    help="Who publishes. It must be allowed to select and to publish ops/**.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to try to connect, and to wait for answers.",
)
@click.option("--follow", is_flag=True, help="Go on until SIGTERM or Ctrl-C, instead of ending when all is published.")
@configured(*SPARK, "follow_every")
def publish(*, configuration: Configuration, urls: str, principal: str, timeout: float, follow: bool) -> None:
    """Publish live gold as topics ops/…, so that a dashboard subscribes to it like to anything else.

    Whenever bronze has grown, the gold tables of these days are made anew, and topics whose value has changed are
    published. To run it twice changes nothing. The secret of the principal, if it needs one, is taken from
    GATEWAY_SECRET.
    """
    several = [url.strip() for url in urls.split(",") if url.strip()]
    if not several:
        raise click.UsageError("--url is empty")
    lake = Lake(configuration.lake)
    look_for_commits(lake.folder, waits=follow)
    target = Target(several, principal, os.environ.get("GATEWAY_SECRET"), timeout)
    options = PublishOptions(lake, target, configuration.follow_every if follow else None)
    teller = Teller()
    with (
        until_signalled() as stopping,
        teller.working("starting Spark"),
        spark_of(configuration, "publish", sized([lake.bronze, lake.sessions])) as spark,
    ):
        publish_gold(spark, options, teller.note, lambda: not stopping.is_set())
