"""What passed through nodes, what it cost, and how full they are: tables of the nodes' own measurements."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from gateway.core.journal import events
from pipeline.gold.expressions import shaped, share
from pipeline.gold.tables import CAPACITY, TRAFFIC

_MICROSECONDS = 1_000
"""In a millisecond."""

_COUNTS = ("deliveries", "publishes", "bytes")


def traffic(bronze: DataFrame) -> DataFrame:
    """Tell what passed for each hour and root of topics, and what it cost.

    Args:
        bronze: events.
    """
    measured = _measured(bronze)
    nodes = measured.where(f.col("root").isNull()).select(
        "incarnation",
        "until",
        f.col("cpu_ms").alias("all_cpu_ms"),
        f.col("deliveries").alias("all_deliveries"),
    )
    # In whole microseconds, which add up to the same sum in any order.
    part = f.col("all_cpu_ms") * _MICROSECONDS * f.col("deliveries")
    cost = f.when(f.col("all_deliveries") > 0, f.floor(part / f.col("all_deliveries")))
    roots = (
        measured.where(f.col("root").isNotNull())
        .join(nodes, ["incarnation", "until"], "left")
        .groupBy("hour", "root")
        .agg(*_sums(), f.coalesce(f.sum(cost.cast("long")), f.lit(0)).alias("cost"))
    )
    totals = roots.groupBy("hour").agg(f.sum("cost").alias("total"))
    return shaped(
        roots.join(totals, "hour")
        .withColumn("cpu_ms", f.floor(f.col("cost") / _MICROSECONDS))
        .withColumn("cost_share", share(f.col("cost"), f.col("total")))
        .withColumn("date", f.to_date("hour")),
        TRAFFIC,
    )


def capacity(bronze: DataFrame) -> DataFrame:
    """Tell how full each node was, hour by hour, and how full it had been the day before.

    Args:
        bronze: events.
    """
    length = f.unix_micros("until") - f.unix_micros("since")
    hours = (
        _measured(bronze)
        .where(f.col("root").isNull())
        .groupBy("hour", "node")
        .agg(
            f.max("connections").alias("connections_peak"),
            f.max("sessions").alias("sessions_peak"),
            *_sums(),
            f.sum("cpu_ms").alias("cpu_ms"),
            f.floor(f.sum(length) / _MICROSECONDS).alias("measured_ms"),
        )
        .fillna(0)
    )
    before = hours.select(
        (f.col("hour") + f.expr("INTERVAL 24 HOURS")).alias("hour"),
        "node",
        f.col("connections_peak").alias("connections_peak_before"),
        f.col("deliveries").alias("deliveries_before"),
    )
    return shaped(
        hours.join(before, ["hour", "node"], "left")
        .withColumn("cpu_share", share(f.col("cpu_ms"), f.col("measured_ms")))
        .withColumn("us_per_delivery", share(f.col("cpu_ms") * _MICROSECONDS, f.col("deliveries")))
        .withColumn("date", f.to_date("hour")),
        CAPACITY,
    )


def _measured(bronze: DataFrame) -> DataFrame:
    """Take the measurements, by the hour in which the measured time ends."""
    found = bronze.where(f.col("type") == events.TRAFFIC_MEASURED.name)
    return found.withColumn("hour", f.date_trunc("hour", "until"))


def _sums() -> list[Column]:
    return [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in _COUNTS]
