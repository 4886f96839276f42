"""What could not become an event."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.gold.expressions import shaped
from pipeline.gold.tables import REJECTIONS


def rejections(rejected: DataFrame) -> DataFrame:
    """Count by day and reason what stands in the journal and could not be read, and what was given up as lost.

    Args:
        rejected: lines and gaps, with their reasons.
    """
    # What stands behind a colon belongs to one line: a column, a stream.
    reason = f.substring_index("reason", ":", 1)
    return shaped(
        rejected.groupBy(f.to_date("seen_at").alias("date"), reason.alias("reason")).agg(
            f.count_if(f.col("line") >= 0).alias("lines"),
            f.count_if(f.col("line") < 0).alias("gaps"),
            f.sort_array(f.collect_set("stream")).alias("streams"),
            f.min("seen_at").alias("first_at"),
            f.max("seen_at").alias("last_at"),
        ),
        REJECTIONS,
    )
