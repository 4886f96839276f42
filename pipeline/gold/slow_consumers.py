"""Clients that read too slowly."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gateway.core.journal import events
from pipeline.gold.expressions import shaped
from pipeline.gold.tables import SLOW_CONSUMERS


def slow_consumers(bronze: DataFrame, silver: DataFrame) -> DataFrame:
    """List the sessions whose connections were closed because they read too slowly, day by day.

    Args:
        bronze: events.
        silver: sessions, which tell whose they are.
    """
    slow = (
        bronze.where(f.col("type") == events.SESSION_SLOW_CLOSED.name)
        .groupBy(f.to_date("at").alias("date"), "session")
        .agg(
            f.count("*").alias("closes"),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
            f.sort_array(f.collect_set("node")).alias("nodes"),
            f.coalesce(f.max("packets"), f.lit(0)).alias("packets"),
            f.coalesce(f.max("bytes"), f.lit(0)).alias("bytes"),
        )
    )
    return shaped(slow.join(silver.select("session", "principal", "client"), "session", "left"), SLOW_CONSUMERS)
