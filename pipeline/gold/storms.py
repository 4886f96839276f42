"""Storms: clients that come back in a crowd."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, StringType

from gateway.core.journal import events
from pipeline.gold.expressions import comebacks, shaped
from pipeline.gold.tables import STORMS
from pipeline.gold.words import STORM_AFTER_SECONDS, STORM_BUCKET_SECONDS, STORM_FACTOR, STORM_LEAST
from pipeline.sessions.rules import PUT_OFF

_HALF = 50
_HOUR_SECONDS = 3_600
_BUCKETS = _HOUR_SECONDS // STORM_BUCKET_SECONDS


def storms(bronze: DataFrame, silver: DataFrame, found: DataFrame) -> DataFrame:
    """Find storms.

    Args:
        bronze: events.
        silver: sessions.
        found: incidents, from ``found_incidents``.
    """
    back = comebacks(silver).select(
        "session", f.col("back.begins").alias("at"), "back.node", _bucket(f.col("back.begins")).alias("bucket")
    )
    islands = _islands(back.groupBy("bucket").agg(f.count("*").alias("comebacks")))
    within = (f.col("bucket") >= f.col("first")) & (f.col("bucket") <= f.col("last"))
    who = (
        back.join(f.broadcast(islands.select("first", "last")), within)
        .groupBy("first")
        .agg(f.count_distinct("session").alias("sessions"), f.sort_array(f.collect_set("node")).alias("nodes"))
    )
    put_off = (
        bronze.where((f.col("type") == events.SESSION_REFUSED.name) & f.col("reason").isin(*PUT_OFF))
        .where(f.col("session").isNotNull())
        .select(_bucket(f.col("at")).alias("bucket"))
        .join(f.broadcast(islands.select("first", "last")), within)
        .groupBy("first")
        .agg(f.count("*").alias("put_off"))
    )
    begins, ends = f.timestamp_seconds("first"), f.timestamp_seconds(f.col("last") + STORM_BUCKET_SECONDS)
    after = f.expr(f"INTERVAL {STORM_AFTER_SECONDS} SECONDS")
    causes = (
        islands.select("first", begins.alias("from"), ends.alias("to"))
        .join(
            f.broadcast(found.select("incident", "begins", f.coalesce("ends", "begins").alias("ends"))),
            (f.col("begins") < f.col("to")) & (f.col("ends") + after >= f.col("from")),
        )
        .groupBy("first")
        .agg(f.sort_array(f.collect_set("incident")).alias("incidents"))
    )
    none = f.array().cast(ArrayType(StringType(), containsNull=False))
    return shaped(
        islands.join(who, "first", "left")
        .join(put_off, "first", "left")
        .join(causes, "first", "left")
        .withColumns(
            {
                "begins": begins,
                "ends": ends,
                "put_off": f.coalesce("put_off", f.lit(0)),
                "nodes": f.coalesce("nodes", none),
                "incidents": f.coalesce("incidents", none),
                "date": f.to_date(begins),
            }
        ),
        STORMS,
    )


def _bucket(at: Column) -> Column:
    """Return the ten seconds of an instant, as the second since 1970 that they begin with."""
    seconds = f.unix_seconds(at)
    return seconds - f.pmod(seconds, f.lit(STORM_BUCKET_SECONDS))


def _islands(buckets: DataFrame) -> DataFrame:
    """Join crowded buckets that follow each other, or have one between them, to storms.

    Args:
        buckets: those with comebacks, and how many.

    Returns:
        ``first`` and ``last`` bucket, ``comebacks``, ``peak`` and ``usual``. Quiet buckets inside count for nothing.
    """
    hour = f.col("bucket") - f.pmod("bucket", f.lit(_HOUR_SECONDS))
    by_hour = Window.partitionBy("hour")
    # The median of all buckets of the hour, also of those in which nobody came.
    empty = f.lit(_BUCKETS) - f.count("*").over(by_hour)
    ordered = f.array_sort(f.collect_list("comebacks").over(by_hour))
    rank = (_BUCKETS * _HALF // 100) - empty
    usual = f.when(rank >= 1, f.try_element_at(ordered, rank.cast("int"))).otherwise(0)
    crowded = (
        buckets.withColumn("hour", hour)
        .withColumn("usual", usual)
        .where((f.col("comebacks") >= STORM_LEAST) & (f.col("comebacks") >= STORM_FACTOR * f.col("usual")))
    )
    # Few rows: a storm is rare. So all of them may be in one place.
    in_order = Window.orderBy("bucket")
    new = f.coalesce(f.col("bucket") - f.lag("bucket").over(in_order) > 2 * STORM_BUCKET_SECONDS, f.lit(True))
    numbered = crowded.withColumn("new", new.cast("int")).withColumn("storm", f.sum("new").over(in_order))
    peak = f.max_by(f.struct("comebacks", "usual"), f.struct("comebacks", -f.col("bucket")))
    return (
        numbered.groupBy("storm")
        .agg(
            f.min("bucket").alias("first"),
            f.max("bucket").alias("last"),
            f.sum("comebacks").alias("comebacks"),
            peak.alias("peak"),
        )
        .select("first", "last", "comebacks", f.col("peak.comebacks").alias("peak"), f.col("peak.usual").alias("usual"))
    )
