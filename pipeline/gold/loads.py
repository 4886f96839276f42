"""What passed through nodes, what it cost, and how full they are: tables of the nodes' own measurements."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from gateway.core.journal import events
from pipeline.gold.expressions import exact, shaped, share, total
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
    # In whole microseconds, which add up to the same sum in any order. No root has more deliveries than its node.
    deliveries = f.greatest(f.least("deliveries", "all_deliveries"), f.lit(0))
    part = exact(f.col("all_cpu_ms") * _MICROSECONDS) * exact(deliveries)
    # By `div`, which gives the whole number below: the quotient of decimals has too few digits for that.
    cost = f.when(f.col("all_deliveries") > 0, f.call_function("div", part, exact(f.col("all_deliveries"))))
    roots = (
        measured.where(f.col("root").isNotNull())
        .join(nodes, ["incarnation", "until"], "left")
        .groupBy("hour", "root")
        .agg(*_sums(), total(cost).alias("cost"))
    )
    totals = roots.groupBy("hour").agg(total(f.col("cost")).alias("total"))
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
            total(f.col("cpu_ms")).alias("cpu_ms"),
            f.call_function("div", total(length), f.lit(_MICROSECONDS)).alias("measured_ms"),
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
        .withColumn("us_per_delivery", share(f.col("cpu_ms").cast("double") * _MICROSECONDS, f.col("deliveries")))
        .withColumn("date", f.to_date("hour")),
        CAPACITY,
    )


def _measured(bronze: DataFrame) -> DataFrame:
    """Take the measurements, by the hour in which the measured time ends."""
    found = bronze.where(f.col("type") == events.TRAFFIC_MEASURED.name)
    return found.withColumn("hour", f.date_trunc("hour", "until"))


def _sums() -> list[Column]:
    return [total(f.col(name)).alias(name) for name in _COUNTS]
