"""Silver of a whole lake at once, as `pipeline backfill` makes it: ``… silver LAKE [SETTING=VALUE …]``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pipeline.lake import Lake
from pipeline.sessions.frames import facts_of, heard_until_ms, silver_of
from pipeline.sizing import sized
from pipeline.spark import LOCAL, spark_session


def main(lake: Lake, settings: dict[str, str]) -> None:
    """Read bronze, write the sessions."""
    master = os.environ.get("PIPELINE_MASTER", LOCAL)
    spark = spark_session("silver", master=master, settings={**sized([lake.bronze]), **settings})
    bronze = lake.read_bronze(spark)
    silver_of(facts_of(bronze), heard_until_ms(bronze, 0)).write.parquet(str(lake.sessions), mode="overwrite")
    spark.stop()


if __name__ == "__main__":
    main(Lake(Path(sys.argv[1])), dict(each.split("=", 1) for each in sys.argv[2:]))
