"""What several transformations have in common."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DecimalType

from pipeline.gold.tables import GoldTable
from pipeline.gold.words import CONNECTED, CREATED, PERCENTILES, RUNGS

_MOST: Final = (1 << 63) - 1
"""The largest number of 64 bits."""


def stints(silver: DataFrame) -> DataFrame:
    """Take the connected intervals of sessions apart.

    Args:
        silver: the table of sessions.

    Returns:
        A row for each: the columns of the session; ``place``, from 0; ``stint``, the interval; ``next``, the connected
        interval after it, null if there is none. Nothing is shuffled for it.
    """
    connected = f.filter("intervals", lambda each: each["kind"] == CONNECTED)
    paired = f.transform(
        "connected",
        lambda each, place: f.struct(each.alias("stint"), f.get("connected", place + 1).alias("next")),
    )
    return (
        silver.withColumn("connected", connected)
        .select("session", "principal", "client", "end", "state", f.posexplode(paired).alias("place", "pair"))
        .select("*", "pair.stint", "pair.next")
        .drop("pair")
    )


def comebacks(silver: DataFrame) -> DataFrame:
    """List how clients came back: the connected intervals that did not begin with the session."""
    found = silver.select("session", f.explode("intervals").alias("back"))
    return found.where((f.col("back.kind") == CONNECTED) & (f.col("back.rung") != CREATED))


def rungs(rung: Column, replayed: Column) -> list[Column]:
    """Count the comebacks of each rung, and whether they were replayed, in a group.

    Args:
        rung: of a comeback.
        replayed: whether every update that was missed followed; null if there is nothing to tell.
    """
    return [
        *(f.count_if(rung == name).alias(name) for name in RUNGS),
        f.count_if(~rung.isin(*RUNGS)).alias("other_rungs"),
        f.count_if(replayed).alias("replayed"),
        f.count_if(~replayed).alias("not_replayed"),
    ]


def away(away_ms: Column) -> list[Column]:
    """Tell how long sessions of a group were away."""
    return [
        f.count(away_ms).alias("measured"),
        *(percentile(away_ms, hundredths).alias(f"away_{name}_ms") for hundredths, name in PERCENTILES),
        f.max(away_ms).alias("away_max_ms"),
    ]


def percentile(column: Column, hundredths: int) -> Column:
    """Find the smallest value of a group that at least so many hundredths of its values do not exceed.

    Of whole numbers, and by whole numbers alone: no engine rounds it to another of the values. Null if there is none.
    """
    ordered = f.array_sort(f.collect_list(column))
    rank = f.floor((f.size(ordered).cast("long") * hundredths + 99) / 100).cast("int")
    return f.try_element_at(ordered, f.greatest(rank, f.lit(1)))


def exact(column: Column) -> Column:
    """Take a whole number as one of 20 digits, whose products with another one no engine has to cut."""
    return column.cast(DecimalType(20, 0))


def _whole(column: Column) -> Column:
    """Bring a number of many digits back to 64 bits: what is beyond them is told as the most that they can hold.

    No number that was measured is near to it. Bronze of an older release may hold one that cannot be, and one event
    must not keep the tables from being made.
    """
    bound = f.lit(_MOST).cast(DecimalType(38, 0))
    return f.greatest(f.least(column.cast(DecimalType(38, 0)), bound), -bound).cast("long")


def total(column: Column) -> Column:
    """Add up the whole numbers of a group, which cannot overflow; 0 if there are none."""
    return _whole(f.coalesce(f.sum(exact(column)), f.lit(0)))


def share(part: Column, whole: Column) -> Column:
    """Divide; null if there is nothing to divide by."""
    return f.when(whole > 0, part / whole)


def shaped(frame: DataFrame, table: GoldTable) -> DataFrame:
    """Give a table the columns that it is declared with, in that order and of these types."""
    return frame.select(*(f.col(each.name).cast(each.type).alias(each.name) for each in table.columns))
