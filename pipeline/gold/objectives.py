"""The recovery objective, hour by hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gateway.core.journal import events
from pipeline.gold.expressions import away, comebacks, rungs, shaped, share
from pipeline.gold.tables import OBJECTIVES
from pipeline.gold.words import CONNECTED, EXPIRED, PUT_OFF, RUNGS
from pipeline.sessions.rules import PRESUMED

_KEY = ("hour", "node", "release")


def objectives(bronze: DataFrame, silver: DataFrame) -> DataFrame:
    """Tell for each hour, node and release who came back, how, after how long, and who did not.

    Args:
        bronze: events.
        silver: sessions.
    """
    back = comebacks(silver).select(
        "session",
        f.date_trunc("hour", "back.begins").alias("hour"),
        "back.node",
        "back.release",
        "back.rung",
        "back.replayed",
        "back.away_ms",
        "back.resent",
        "back.conflated",
        "back.deduplicated",
        "back.lost",
    )
    returned = back.groupBy(*_KEY).agg(
        f.count("*").alias("comebacks"),
        *rungs(f.col("rung"), f.col("replayed")),
        *away(f.col("away_ms")),
        *(f.sum(name).alias(name) for name in ("resent", "conflated", "deduplicated", "lost")),
        f.count_if(f.col("lost") > 0).alias("lossy"),
    )
    put_off = f.col("reason").isin(*PUT_OFF)
    known = f.col("session").isNotNull()
    refusals = (
        bronze.where(f.col("type") == events.SESSION_REFUSED.name)
        .groupBy(f.date_trunc("hour", "at").alias("hour"), "node", "release")
        .agg(
            f.count_if(known & ~put_off).alias("refused"),
            f.count_if(known & put_off).alias("put_off"),
            f.count_if(~known).alias("strangers"),
        )
    )
    last = f.element_at(f.filter("intervals", lambda each: each["kind"] == CONNECTED), -1)
    expired = (
        silver.where((f.col("end") == EXPIRED) | (f.col("end_reason") == PRESUMED))
        .select(f.date_trunc("hour", "ended_at").alias("hour"), last.alias("last"))
        .groupBy("hour", "last.node", "last.release")
        .agg(f.count("*").alias("expired"))
    )
    counts = (
        "comebacks", *RUNGS, "other_rungs", "replayed", "not_replayed", "measured", "resent", "conflated",
        "deduplicated", "lost", "lossy", "refused", "put_off", "strangers", "expired",
    )  # fmt: skip
    # A union that is grouped once, and not a join of three: keys may be null, and none may be lost.
    every = returned.unionByName(refusals, allowMissingColumns=True).unionByName(expired, allowMissingColumns=True)
    longest = [name for name in every.columns if name.startswith("away_")]
    joined = every.groupBy(*_KEY).agg(
        *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in counts),
        *(f.max(name).alias(name) for name in longest),
    )
    return shaped(
        joined.withColumn("recovered_share", share(f.col("comebacks"), f.col("comebacks") + f.col("refused")))
        .withColumn("reattached_share", share(f.col("reattached"), f.col("comebacks")))
        .withColumn("date", f.to_date("hour")),
        OBJECTIVES,
    )
