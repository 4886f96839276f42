"""The recovery objective, hour by hour, and who was refused for good."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from gateway.core.journal import events
from pipeline.gold.expressions import away, comebacks, rungs, shaped, share, total
from pipeline.gold.tables import OBJECTIVES, REFUSED_SESSIONS
from pipeline.gold.words import CONNECTED, EXPIRED, NOT_BACK, RUNGS
from pipeline.sessions.rules import PRESUMED, PUT_OFF

_KEY = ("hour", "node", "release")


def objectives(bronze: DataFrame, silver: DataFrame, found: DataFrame, touched: DataFrame) -> DataFrame:
    """Tell for each hour, node and release who came back, how, after how long, and who did not.

    Args:
        bronze: events.
        silver: sessions.
        found: incidents, from ``found_incidents``.
        touched: sessions that they touched, from ``incident_sessions``.
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
        *(total(f.col(name)).alias(name) for name in ("resent", "conflated", "deduplicated", "lost")),
        f.count_if(f.col("lost") > 0).alias("lossy"),
    )
    known = f.col("session").isNotNull()
    refusals = (
        bronze.where(f.col("type") == events.SESSION_REFUSED.name)
        .groupBy(f.date_trunc("hour", "at").alias("hour"), "node", "release")
        .agg(
            f.count_if(known & ~_put_off()).alias("refused"),
            f.count_if(known & _put_off()).alias("put_off"),
            f.count_if(~known).alias("strangers"),
        )
    )
    missed = _missed(found, touched)
    refused = (
        _refused_for_good(bronze)
        .join(missed.select("session"), "session", "left_anti")
        .groupBy(f.date_trunc("hour", "first.at").alias("hour"), "first.node", "first.release")
        .agg(f.count("*").alias("refused_sessions"))
    )
    gone = missed.groupBy(f.date_trunc("hour", "first.begins").alias("hour"), "first.node", "first.release").agg(
        f.count("*").alias("missed")
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
        "deduplicated", "lost", "lossy", "refused", "refused_sessions", "missed", "put_off", "strangers", "expired",
    )  # fmt: skip
    # A union that is grouped once, and not a join of five: keys may be null, and none may be lost.
    every = returned
    for each in (refusals, refused, gone, expired):
        every = every.unionByName(each, allowMissingColumns=True)
    longest = [name for name in every.columns if name.startswith("away_")]
    joined = every.groupBy(*_KEY).agg(
        *(total(f.col(name)).alias(name) for name in counts),
        *(f.max(name).alias(name) for name in longest),
    )
    return shaped(
        joined.withColumn(
            "recovered_share",
            share(f.col("comebacks"), f.col("comebacks") + f.col("refused_sessions") + f.col("missed")),
        )
        .withColumn("reattached_share", share(f.col("reattached"), f.col("comebacks")))
        .withColumn("date", f.to_date("hour")),
        OBJECTIVES,
    )


def refused_sessions(bronze: DataFrame, silver: DataFrame) -> DataFrame:
    """List the sessions that were refused for good, day by day.

    Args:
        bronze: events.
        silver: sessions, which tell whose they are.
    """
    whose = silver.select("session", "principal", "client")
    refused = _refused_for_good(bronze).select("*", f.col("first.at").alias("first_at"), "first.node", "first.reason")
    return shaped(refused.join(whose, "session", "left"), REFUSED_SESSIONS)


def _put_off() -> Column:
    return f.coalesce(f.col("reason").isin(*PUT_OFF), f.lit(False))


def _refused_for_good(bronze: DataFrame) -> DataFrame:
    """Take the refusals for good together, day by day and session by session: a client may try a dead token often."""
    return (
        bronze.where((f.col("type") == events.SESSION_REFUSED.name) & f.col("session").isNotNull() & ~_put_off())
        .groupBy(f.to_date("at").alias("date"), "session")
        .agg(
            f.count("*").alias("refusals"),
            f.min(f.struct("at", "node", "release", "reason")).alias("first"),
            f.max("at").alias("last_at"),
        )
    )


def _missed(found: DataFrame, touched: DataFrame) -> DataFrame:
    """Tell which sessions have not come back from an incident: each once, and the first incident that it is owed to."""
    return (
        touched.where(f.col("fate").isin(*NOT_BACK))
        .select("incident", "session")
        .join(f.broadcast(found.select("incident", "begins", "node", "release")), "incident")
        .groupBy("session")
        .agg(f.min(f.struct("begins", "incident", "node", "release")).alias("first"))
    )
