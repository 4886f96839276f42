"""What crossed links with other clusters, and who was the master of this one."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from gateway.core.journal import events
from pipeline.gold.expressions import shaped, total
from pipeline.gold.tables import MASTERS, ZONE_LINKS

COUNTS: Final = ("events", "bytes", "taken", "repeated", "refused")
"""What nodes count of each link, and what adds up."""

GIVEN_UP: Final = "given_up"
REFUSED: Final = "refused"
"""Why a link ended, as the journal says; any other reason is a loss."""

_MICROSECONDS: Final = 1_000
"""In a millisecond."""


def zone_links(bronze: DataFrame) -> DataFrame:
    """Tell for each hour, other end and direction what crossed, and what became of the links.

    Args:
        bronze: events.
    """
    measured = f.col("type") == events.ZONE_LINK_MEASURED.name
    lost = f.col("type") == events.ZONE_LINK_LOST.name
    connected = f.col("type") == events.ZONE_LINK_CONNECTED.name
    gap = f.col("type") == events.ZONE_GAP_FOUND.name
    hours = (
        bronze.where(measured | lost | connected | gap)
        .withColumn("hour", f.date_trunc("hour", f.when(measured, f.col("until")).otherwise(f.col("at"))))
        .groupBy("hour", "remote", "direction")
        .agg(
            f.sort_array(f.collect_set("node")).alias("nodes"),
            *(total(f.when(measured, f.col(name))).alias(name) for name in COUNTS),
            f.coalesce(f.max(f.when(measured, f.col("behind"))), f.lit(0)).alias("behind"),
            f.count_if(connected).alias("connected"),
            f.count_if(lost & ~f.coalesce(f.col("reason"), f.lit("")).isin(GIVEN_UP, REFUSED)).alias("lost"),
            f.count_if(lost & (f.col("reason") == REFUSED)).alias("hung_up"),
            f.count_if(gap).alias("gaps"),
        )
    )
    return shaped(hours.withColumn("date", f.to_date("hour")), ZONE_LINKS)


def masters(bronze: DataFrame) -> DataFrame:
    """Tell who was the master, and until when.

    Args:
        bronze: events.
    """
    elected = (
        bronze.where(f.col("type") == events.MASTER_ELECTED.name)
        .groupBy("incarnation", "term")
        .agg(
            f.max("node").alias("node"),
            f.max("release").alias("release"),
            f.max("peer").alias("before"),
            f.min("at").alias("elected_at"),
        )
    )
    missed = (
        bronze.where(f.col("type") == events.MASTER_MISSED.name)
        .groupBy(f.col("peer_incarnation").alias("gone"), f.col("term").alias("gone_term"))
        .agg(f.min("at").alias("missed_at"))
    )
    # Few rows: a master stays as long as its node does. So all of them may be in one place.
    in_order = Window.orderBy("elected_at", "term", "incarnation")
    is_same = (f.col("incarnation") == f.col("gone")) & f.col("term").eqNullSafe(f.col("gone_term"))
    joined = elected.join(missed, is_same, "left").withColumn("next_at", f.lead("elected_at").over(in_order))

    def between(begin: str, end: str) -> Column:
        return f.floor((f.unix_micros(end) - f.unix_micros(begin)) / _MICROSECONDS)

    return shaped(
        joined.withColumn("ended_at", f.least("missed_at", "next_at"))
        .withColumn("held_ms", between("elected_at", "ended_at"))
        .withColumn(
            "vacant_ms",
            # The greatest leaves out what is null, so that this is asked apart.
            f.when(
                f.col("missed_at").isNotNull() & f.col("next_at").isNotNull(),
                f.greatest(between("missed_at", "next_at"), f.lit(0)),
            ),
        )
        .withColumn("date", f.to_date("elected_at")),
        MASTERS,
    )
