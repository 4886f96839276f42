"""Runs of nodes day by day, and what the journal is missing of them, told by the numbers of its events."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from gateway.core.journal import EventType, events
from pipeline.gold.expressions import shaped, total
from pipeline.gold.tables import LOSSES


def days_of_runs(bronze: DataFrame) -> DataFrame:
    """Sum up each run of a node by days: one pass over all events, from which losses and incidents are told.

    Days are those under which bronze has filed the events. An event whose clock was years behind is filed under the day
    of its arrival; by its own time it would be the first day of all, before which nothing is known.

    Args:
        bronze: events.
    """
    number = f.substring_index("id", "-", -1).cast("long")

    def when(kind: EventType, what: str = "at") -> Column:
        return f.when(f.col("type") == kind.name, f.col(what))

    return bronze.groupBy("incarnation", "date").agg(
        f.max("node").alias("node"),
        f.max("release").alias("release"),
        f.count("*").alias("events"),
        f.min(number).alias("lowest"),
        f.max(number).alias("highest"),
        total(when(events.EVENTS_DROPPED, "count")).alias("dropped"),
        f.min("at").alias("first_at"),
        f.max("at").alias("last_at"),
        f.min(when(events.NODE_STARTED)).alias("started_at"),
        f.min(when(events.NODE_DRAINING)).alias("draining_at"),
        f.min(when(events.NODE_STOPPED)).alias("stopped_at"),
        f.max(when(events.NODE_LEASE_LOST)).alias("lease_lost_at"),
    )


def losses(days: DataFrame) -> DataFrame:
    """Count for each day and run of a node the events that are not there.

    The numbers of a run follow each other without a hole, in the order of time. So what is missing on a day is what is
    missing between the highest number of the days before and the highest of this day. What a run told last before it
    died, and nobody ever received, leaves no hole and cannot be told.

    Args:
        days: of runs, from ``days_of_runs``.
    """
    before = f.max("highest").over(
        Window.partitionBy("incarnation").orderBy("date").rowsBetween(Window.unboundedPreceding, -1)
    )
    first_day = f.min("date").over(Window.partitionBy())
    # A run that lived before the events begin that are still there has lower numbers, of which nothing can be told.
    unknown = (f.col("date") == first_day) & f.col("started_at").isNull()
    begin = f.coalesce(before, f.when(unknown, f.col("lowest") - 1).otherwise(0))
    missing = f.greatest(f.col("highest") - begin - f.col("events"), f.lit(0))
    unexplained = f.greatest(f.col("missing") - f.col("dropped"), f.lit(0))
    return shaped(days.withColumn("missing", missing).withColumn("unexplained", unexplained), LOSSES)
