"""What passed through queues, and how long it took: a table of the nodes' own measurements."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gateway.core.journal import events
from pipeline.gold.expressions import exact, shaped, share, total
from pipeline.gold.tables import QUEUES

COUNTS: Final = ("sent", "given", "redelivered", "accepted", "rejected", "released", "settle_ms")
"""What nodes count of each queue, and what adds up."""


def queues(bronze: DataFrame) -> DataFrame:
    """Tell what passed for each hour and queue.

    Args:
        bronze: events.
    """
    measured = bronze.where(f.col("type") == events.QUEUE_MEASURED.name)
    hours = (
        measured.withColumn("hour", f.date_trunc("hour", "until"))
        .groupBy("hour", "queue")
        .agg(
            *(total(f.col(name)).alias(name) for name in COUNTS),
            f.coalesce(f.max("settle_max_ms"), f.lit(0)).alias("settle_max_ms"),
        )
    )
    # What a node counted that died before it could tell is in neither; the grid knows how many there are.
    growth = exact(f.col("sent")) - exact(f.col("accepted")) - exact(f.col("rejected"))
    return shaped(
        hours.withColumn("growth", growth.cast("long"))
        .withColumn("settle_mean_ms", share(f.col("settle_ms").cast("double"), f.col("accepted")))
        .withColumn("date", f.to_date("hour")),
        QUEUES,
    )
