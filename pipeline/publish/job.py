"""The streaming job: whenever bronze has grown, the gold of these days is made anew and what differs is published."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.bronze.source import follow_bronze
from pipeline.gold.job import CONTEXT, Days, sources_of, write_gold
from pipeline.lake import Lake
from pipeline.progress import Tell
from pipeline.publish.publisher import Outcome, Target, publish
from pipeline.publish.topics import topics_of
from pipeline.report.findings import read_gold
from pipeline.spark import address
from pipeline.streaming import run_query, trigger

PUBLISHED_DAYS: Final = 7
"""Days whose incidents and storms are topics: what a team talks about. Older ones are withdrawn, so that topics do not
grow without end; the tables keep them."""

COMMITS: Final = 1_000
"""Commits of bronze in one micro-batch at most: only their days are looked at, so that they are cheap."""


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What the stream needs to know.

    Attributes:
        lake: the folder of all tables.
        target: where to publish.
        every: seconds between micro-batches while following; None to end when all of bronze has been looked at.
    """

    lake: Lake
    target: Target
    every: float | None


def publish_gold(
    spark: SparkSession, options: PublishOptions, tell: Tell, wanted: Callable[[], bool] = lambda: True
) -> None:
    """Publish live gold.

    A batch that a crash repeats makes the same rows, and what is there already is not published again.

    Args:
        spark: to run in.
        options: what to read, and where to publish.
        tell: is told of every batch.
        wanted: asked several times a second; when it says no, the job ends after the batch in hand.

    Raises:
        PipelineError: the gateway cannot be reached, or refuses; run it again.
        pyspark.errors.PySparkException: Spark failed, or a disk; run it again.
    """
    failed: list[Exception] = []
    published: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        try:
            outcome = _publish_days(spark, batch, number, options)
        except Exception as error:
            # Spark would tell of it only as a text within a text.
            failed.append(error)
            raise
        published.append(number)
        if outcome is not None:
            tell(
                f"batch {number}: {outcome.published:,} topics published, {outcome.unchanged:,} unchanged, "
                f"{outcome.withdrawn:,} withdrawn"
            )

    def start() -> StreamingQuery:
        failed.clear()
        days = follow_bronze(spark, options.lake.folder, commits=COMMITS).select("date")
        return (
            days.writeStream.queryName("publish")
            .option("checkpointLocation", address(options.lake.folder / "checkpoints" / "publish"))
            .foreachBatch(take)
            .trigger(**trigger(options.every))
            .start()
        )

    try:
        run_query(start, tell, wanted, lambda: len(published))
    except Exception:
        if failed:
            raise failed[0] from None
        raise


def _publish_days(spark: SparkSession, batch: DataFrame, number: int, options: PublishOptions) -> Outcome | None:
    row = batch.agg(f.min("date").alias("first"), f.max("date").alias("last")).first()
    if row is None or row["first"] is None:
        return None
    lake = options.lake
    # Who comes back after midnight belongs to the incident of the evening before.
    days = Days(row["first"] - CONTEXT, row["last"])
    for _table in write_gold(sources_of(spark, lake), lake.gold, days):
        pass
    return asyncio.run(
        publish_tables(lake.gold, row["last"], {"batch": number, "first": row["first"].isoformat()}, options.target)
    )


async def publish_tables(gold: Path, last: date, mark: dict[str, object], target: Target) -> Outcome:
    """Publish what the gold tables tell of the days up to one.

    Args:
        gold: folder of the tables.
        last: the newest day.
        mark: what ``ops/published`` tells beside the newest day.
        target: where.
    """
    tables = read_gold(gold, last - timedelta(days=PUBLISHED_DAYS - 1), last)
    return await publish(topics_of(tables), {**mark, "last": last.isoformat()}, target)
