"""Outages of the grid, found in what nodes tell of it."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from gateway.core.journal import events
from pipeline.gold.words import OUTAGE, OUTAGE_JOINS_SECONDS

_MICROSECONDS = 1_000
"""In a millisecond."""


def outages(bronze: DataFrame) -> DataFrame:
    """Find the outages of the grid: times in which nodes could not reach it, joined where they overlap.

    A node tells when it lost the grid and when it had it again. If it told only the latter, it says for how long it had
    been without; if only the former, it may have died of something else, and nobody knows how long it lasted for it.

    Args:
        bronze: events.

    Returns:
        The columns of ``found_incidents`` but for ``skew_ms`` and ``date``.
    """
    number = f.substring_index("id", "-", -1).cast("long")
    by_node = Window.partitionBy("incarnation").orderBy(number)
    is_lost = f.col("type") == events.GRID_LOST.name
    told = bronze.where(f.col("type").isin(events.GRID_LOST.name, events.GRID_REGAINED.name)).select(
        "*",
        (f.lead("type").over(by_node) == events.GRID_REGAINED.name).alias("is_regained"),
        f.lead("at").over(by_node).alias("regained_at"),
        f.lead("lost_writes").over(by_node).alias("forgot"),
        f.coalesce(f.lag("type").over(by_node) == events.GRID_LOST.name, f.lit(False)).alias("is_told"),
    )
    spans = told.where(is_lost | ~f.col("is_told")).select(
        "node",
        "incarnation",
        "release",
        f.when(is_lost, f.col("at"))
        .otherwise(f.timestamp_micros(f.unix_micros("at") - f.coalesce("away_ms", f.lit(0)) * _MICROSECONDS))
        .alias("begins"),
        f.when(is_lost, f.when(f.col("is_regained"), f.col("regained_at"))).otherwise(f.col("at")).alias("ends"),
        f.when(is_lost, f.when(f.col("is_regained"), f.col("forgot"))).otherwise(f.col("lost_writes")).alias("forgot"),
    )
    # Few rows: an outage is rare. So all of them may be in one place.
    in_order = Window.orderBy("begins", "incarnation")
    so_far = f.max(f.coalesce("ends", "begins")).over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    joins = f.expr(f"INTERVAL {OUTAGE_JOINS_SECONDS} SECONDS")
    new = f.coalesce(f.col("begins") > so_far + joins, f.lit(True)).cast("int")
    # It is numbered in a step of its own, because a window cannot stand within another one.
    numbered = spans.withColumn("new", new).withColumn("outage", f.sum("new").over(in_order))
    grouped = numbered.groupBy("outage").agg(
        f.sort_array(f.collect_set("node")).alias("nodes"),
        f.max("release").alias("release"),
        f.min("begins").alias("begins"),
        f.max("ends").alias("ends"),
        f.min(f.struct("begins", "node"))["node"].alias("noticed_by"),
        f.max("forgot").alias("lost_writes"),
    )
    return grouped.select(
        f.lit(OUTAGE).alias("kind"),
        f.when(f.size("nodes") == 1, f.element_at("nodes", 1)).alias("node"),
        f.lit(None).cast("string").alias("incarnation"),
        "release",
        "begins",
        "ends",
        "noticed_by",
        f.concat(f.lit(f"{OUTAGE}-"), f.date_format("begins", "yyyyMMdd'T'HHmmss.SSS")).alias("incident"),
        "nodes",
        "lost_writes",
    )
