"""Incidents: deaths, hangs and drains of nodes, outages of the grid, found in what nodes tell; whom they touched."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from gateway.core.journal import EventType, events
from pipeline.gold.expressions import away, percentile, rungs, shaped, share, stints, total
from pipeline.gold.outages import outages
from pipeline.gold.tables import INCIDENT_SESSIONS, INCIDENTS
from pipeline.gold.words import (
    AWAY,
    CLOSED,
    DEATH,
    DRAIN,
    ENDED,
    EXPIRED,
    GRID_UNAVAILABLE,
    HANG,
    OUTAGE,
    OUTAGE_AFTER_SECONDS,
    RECOVERED,
    SESSION_UNKNOWN,
    SLACK_SECONDS,
    UNSAID,
)


def found_incidents(days: DataFrame, bronze: DataFrame) -> DataFrame:
    """Find the incidents, without what became of sessions.

    A node *died* if a survivor says that its lease expired or that its sessions were orphaned, or if it began anew
    without having stopped. If it told anything after its lease had expired, it only *hung*. It was *drained* if it says
    so.

    Args:
        days: of runs, from ``days_of_runs``.
        bronze: events.

    Returns:
        The first columns of ``incidents``; a row for each.
    """
    lives = _lives(days)
    expiries = _expiries(bronze)
    vanished = (
        lives.join(expiries.select("incarnation"), "incarnation", "left_anti")
        .where(f.col("next_started_at").isNotNull() & f.col("stopped_at").isNull())
        .select(
            f.lit(DEATH).alias("kind"), "node", "incarnation", "release", f.col("last_at").alias("begins"),
            f.col("next_started_at").alias("ends"), f.lit(None).cast("string").alias("noticed_by"),
            f.lit(None).cast("timestamp").alias("taken_over_at"),
        )
    )  # fmt: skip
    told = lives.select(
        "incarnation", "release", "lease_lost_at", "last_at", "stopped_at", f.col("node").alias("own_name")
    )
    # Whoever stopped as planned and could not say goodbye to the grid is no dead node.
    gone = expiries.join(told, "incarnation", "left").where(f.col("stopped_at").isNull())
    expired = gone.select(
        f.when(f.col("lease_lost_at") >= f.col("since"), HANG).otherwise(DEATH).alias("kind"),
        f.coalesce("node", "own_name").alias("node"),
        "incarnation",
        "release",
        # It lived for as long as it told anything: survivors know less of that than its own events.
        f.when(f.col("lease_lost_at") >= f.col("since"), f.col("since"))
        .otherwise(f.greatest("since", f.least("last_at", "until")))
        .alias("begins"),
        f.coalesce("taken_over_at", "until").alias("ends"),
        "noticed_by",
        "taken_over_at",
    )
    drained = lives.where(f.col("draining_at").isNotNull()).select(
        f.lit(DRAIN).alias("kind"), "node", "incarnation", "release", f.col("draining_at").alias("begins"),
        f.col("stopped_at").alias("ends"), f.lit(None).cast("string").alias("noticed_by"),
        f.lit(None).cast("timestamp").alias("taken_over_at"),
    )  # fmt: skip
    of_nodes = (
        expired.unionByName(vanished)
        .unionByName(drained)
        .withColumn("incident", f.concat_ws("-", "kind", "incarnation"))
        .withColumn("nodes", f.array_compact(f.array("node")))
        .withColumn("lost_writes", f.lit(None).cast("boolean"))
    )
    # The clock of a survivor may be behind: nothing ends before it begins, and by how much it would is told.
    found = _with_takeovers(of_nodes, bronze).unionByName(outages(bronze), allowMissingColumns=True)
    before = f.unix_millis("begins") - f.unix_millis("ends")
    return (
        found.withColumn("skew_ms", f.greatest(f.coalesce(before, f.lit(0)), f.lit(0)))
        .withColumn("ends", f.when(f.col("ends").isNotNull(), f.greatest("begins", "ends")))
        .withColumn("date", f.to_date("begins"))
    )


def _with_takeovers(of_nodes: DataFrame, bronze: DataFrame) -> DataFrame:
    """Add how other nodes came to suspect a run that died or hung, and how often another one had to take over."""

    def when(kind: EventType) -> Column:
        return f.when(f.col("type") == kind.name, f.col("at"))

    kinds = (events.NODE_SUSPECTED, events.NODE_TAKEOVER_CONTINUED, events.NODE_CLEANED_UP)
    told = (
        bronze.where(f.col("type").isin(*(each.name for each in kinds)) & f.col("peer_incarnation").isNotNull())
        .groupBy(f.col("peer_incarnation").alias("incarnation"))
        .agg(
            f.collect_list(when(events.NODE_SUSPECTED)).alias("suspicions"),
            f.count(when(events.NODE_TAKEOVER_CONTINUED)).alias("takeovers_continued"),
            f.min(when(events.NODE_CLEANED_UP)).alias("cleaned_up_at"),
        )
    )
    # A node may have been suspected before, and heard again: that was another time.
    earliest = f.col("begins") - f.expr(f"INTERVAL {SLACK_SECONDS} SECONDS")
    suspected = f.array_min(f.filter("suspicions", lambda at: at >= earliest))
    is_gone = f.col("kind") != DRAIN
    return of_nodes.join(f.broadcast(told), "incarnation", "left").select(
        *of_nodes.columns,
        f.when(is_gone, suspected).alias("suspected_at"),
        f.when(is_gone, f.coalesce("takeovers_continued", f.lit(0))).alias("takeovers_continued"),
        f.when(is_gone, f.col("cleaned_up_at")).alias("cleaned_up_at"),
    )


def incident_sessions(found: DataFrame, silver: DataFrame, bronze: DataFrame) -> DataFrame:
    """List the sessions that incidents touched, and what became of each.

    A death or a hang touches those whose connection to the node ended then, or has not ended, and of whose loss the
    node itself said nothing. A drain touches all that were connected to the node while it lasted, but for those that
    ended on their own. An outage touches those whose clients were refused because of it.

    Args:
        found: from ``found_incidents``.
        silver: sessions.
        bronze: events.
    """
    lives = stints(silver)
    stint, back = f.col("stint"), f.col("next")
    fate = (
        f.when(back.isNotNull(), RECOVERED)
        .when(f.col("end") == CLOSED, CLOSED)
        .when(f.coalesce(f.col("state"), f.lit(ENDED)) == ENDED, EXPIRED)
        .otherwise(AWAY)
    )
    told = ("incident", "session", "principal", "client", "date", "end", "state", "stint", "next")
    touched = _by_connection(found, lives).select(
        *told, back["put_off"].alias("put_off"), f.lit(None).cast("long").alias("refused")
    )
    return shaped(
        touched.unionByName(_by_refusal(found, lives, bronze).select(*told, "put_off", "refused")).select(
            "incident", "session", "principal", "client", "date",
            stint["begins"].alias("connected_at"), stint["ends"].alias("left_at"), stint["cause"].alias("cause"),
            fate.alias("fate"), back["begins"].alias("back_at"), back["node"].alias("back_node"),
            back["rung"].alias("rung"), back["replayed"].alias("replayed"), back["away_ms"].alias("away_ms"),
            back["measured_by"].alias("measured_by"),
            back["uncertain_ms"].alias("uncertain_ms"), back["resent"].alias("resent"), back["lost"].alias("lost"),
            "put_off", back["held_up_ms"].alias("held_up_ms"), "refused",
        ),
        INCIDENT_SESSIONS,
    )  # fmt: skip


def _by_connection(found: DataFrame, lives: DataFrame) -> DataFrame:
    """Find the first connection of each session that what happened to a node touched."""
    stint = f.col("stint")
    slack = f.expr(f"INTERVAL {SLACK_SECONDS} SECONDS")
    ends = f.coalesce("ends", "begins")
    there = (stint["begins"] <= ends) & (stint["ends"].isNull() | (stint["ends"] >= f.col("begins") - slack))
    unsaid = stint["cause"].isNull() | stint["cause"].isin(*UNSAID)
    own_end = f.coalesce(stint["cause"].isin(CLOSED, EXPIRED), f.lit(False))
    touched = f.when(f.col("kind") == DRAIN, ~own_end).otherwise(unsaid)
    joined = lives.join(
        f.broadcast(found.select("incident", "kind", "incarnation", "begins", "ends", "date")),
        (stint["incarnation"] == f.col("incarnation")) & there & touched,
    )
    first = Window.partitionBy("incident", "session").orderBy("place")
    return joined.withColumn("rank", f.row_number().over(first)).where(f.col("rank") == 1)


def _by_refusal(found: DataFrame, lives: DataFrame, bronze: DataFrame) -> DataFrame:
    """Find the sessions whose clients were refused because of an outage, and the connection that each had before."""
    spans = found.where(f.col("kind") == OUTAGE).select(
        "incident", "date", "nodes", "begins", f.coalesce("ends", "begins").alias("until"), "lost_writes"
    )
    reason, slack = f.col("reason"), f.expr(f"INTERVAL {SLACK_SECONDS} SECONDS")
    put_off = reason == GRID_UNAVAILABLE
    forgotten = f.coalesce(f.col("lost_writes"), f.lit(False)) & (reason == SESSION_UNKNOWN)
    within = f.col("at").between(
        f.col("begins") - slack, f.col("until") + f.expr(f"INTERVAL {OUTAGE_AFTER_SECONDS} SECONDS")
    )
    refusals = bronze.where((f.col("type") == events.SESSION_REFUSED.name) & f.col("session").isNotNull())
    refused = (
        refusals.select("session", "node", "at", "reason")
        .join(f.broadcast(spans), within & f.array_contains("nodes", f.col("node")) & (put_off | forgotten))
        .groupBy("incident", "date", "session")
        .agg(
            f.min("at").alias("first_at"),
            f.count_if(put_off).alias("put_off"),
            f.count_if(forgotten).alias("refused"),
        )
    )
    before = lives.where(f.col("stint.begins").isNotNull()).withColumnRenamed("session", "whose")
    last = Window.partitionBy("incident", "session").orderBy(f.col("place").desc_nulls_last())
    joined = refused.join(
        before, (f.col("whose") == f.col("session")) & (f.col("stint.begins") <= f.col("first_at")), "left"
    )
    return joined.withColumn("rank", f.row_number().over(last)).where(f.col("rank") == 1)


def incidents(found: DataFrame, touched: DataFrame) -> DataFrame:
    """Sum up what became of the sessions of each incident.

    Args:
        found: from ``found_incidents``.
        touched: from ``incident_sessions``.
    """
    fates = touched.groupBy("incident").agg(
        f.count("*").alias("sessions"),
        _fate(RECOVERED).alias("comebacks"),
        *rungs(f.col("rung"), f.col("replayed")),
        *(_fate(name).alias(name) for name in (EXPIRED, CLOSED, AWAY)),
        *away(f.col("away_ms")),
        total(f.col("resent")).alias("resent"),
        f.count_if(f.col("lost") > 0).alias("lossy"),
        total(f.col("lost")).alias("lost"),
        f.count_if(f.col("put_off") > 0).alias("put_off"),
        f.count_if(f.col("refused") > 0).alias("refused"),
        percentile(f.col("held_up_ms"), 50).alias("held_up_p50_ms"),
        f.max("held_up_ms").alias("held_up_max_ms"),
        f.max("back_at").alias("settled_at"),
    )
    joined = found.join(fates, "incident", "left").fillna(0, [each.name for each in INCIDENTS.columns if each.required])
    return shaped(
        joined.withColumn("recovered_share", share(f.col("comebacks"), f.col("sessions"))),
        INCIDENTS,
    )


def _fate(name: str) -> Column:
    return f.count_if(f.col("fate") == name)


def _lives(days: DataFrame) -> DataFrame:
    """Tell of each run of a node when it did what, as it says itself, and when the next run of the node began."""
    earliest = ("first_at", "started_at", "draining_at", "stopped_at")
    runs = days.groupBy("incarnation").agg(
        f.max("node").alias("node"),
        f.max("release").alias("release"),
        *(f.min(name).alias(name) for name in earliest),
        *(f.max(name).alias(name) for name in ("last_at", "lease_lost_at")),
    )
    later = Window.partitionBy("node").orderBy("first_at", "incarnation")
    return runs.withColumn("next_started_at", f.lead("started_at").over(later))


def _expiries(bronze: DataFrame) -> DataFrame:
    """List the runs that survivors say are gone."""
    names = (events.NODE_EXPIRED.name, events.NODE_TAKEN_OVER.name, events.SESSION_ORPHANED.name)
    taken = f.when(f.col("type") == events.NODE_TAKEN_OVER.name, f.col("at"))
    noticed = f.when(f.col("type") != events.NODE_TAKEN_OVER.name, f.struct("at", f.col("node").alias("by")))
    return (
        bronze.where(f.col("type").isin(*names) & f.col("peer_incarnation").isNotNull())
        .groupBy(f.col("peer_incarnation").alias("incarnation"))
        .agg(
            f.max("peer").alias("node"),
            f.coalesce(f.min("since"), f.min("at")).alias("since"),
            f.coalesce(f.min("until"), f.min("at")).alias("until"),
            f.min(taken).alias("taken_over_at"),
            f.min(noticed)["by"].alias("noticed_by"),
        )
    )
