"""``pipeline publish``."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from gateway.settings.client_options import client_options
from pipeline.bronze.source import look_for_commits
from pipeline.cli.options import SPARK, configured, spark_of
from pipeline.cli.output import Teller
from pipeline.cli.signals import until_signalled
from pipeline.configuration import Configuration
from pipeline.lake import Lake
from pipeline.publish.job import PublishOptions, publish_gold
from pipeline.publish.publisher import Target
from pipeline.sizing import sized


@click.command()
@client_options(
    principal="pipeline",
    who="Who publishes. It must be allowed to select and to publish ops/**.",
    timeout=30.0,
    patience="How long to try to connect, and to wait for answers.",
)
@click.option("--follow", is_flag=True, help="Go on until SIGTERM or Ctrl-C, instead of ending when all is published.")
@configured(*SPARK, "follow_every")
def publish(*, configuration: Configuration, urls: Sequence[str], principal: str, timeout: float, follow: bool) -> None:
    """Publish live gold as topics ops/…, so that a dashboard subscribes to it like to anything else.

    Whenever bronze has grown, the gold tables of these days are made anew, and topics whose value has changed are
    published. To run it twice changes nothing. The secret of the principal, if it needs one, is taken from
    GATEWAY_SECRET.
    """
    lake = Lake(configuration.lake)
    look_for_commits(lake.folder, waits=follow)
    target = Target(urls, principal, os.environ.get("GATEWAY_SECRET"), timeout)
    options = PublishOptions(lake, target, configuration.follow_every if follow else None)
    teller = Teller()
    with (
        until_signalled() as stopping,
        teller.working("starting Spark"),
        spark_of(configuration, "publish", sized([lake.bronze, lake.sessions])) as spark,
    ):
        publish_gold(spark, options, teller.note, lambda: not stopping.is_set())
