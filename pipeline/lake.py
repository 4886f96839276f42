"""Where the tables are, and how jobs read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pipeline.bronze.layout import bronze_of
from pipeline.bronze.reading import read_bronze
from pipeline.schemas import REJECTED, SILVER


@dataclass(frozen=True, slots=True)
class Lake:
    """The folder of all tables.

    Attributes:
        folder: every machine that Spark runs on sees it under the same path.
    """

    folder: Path

    @property
    def bronze(self) -> Path:
        """The events."""
        return self.folder / "bronze"

    @property
    def sessions(self) -> Path:
        """The sessions, silver."""
        return self.folder / "silver" / "sessions"

    @property
    def gold(self) -> Path:
        """The tables that answer questions."""
        return self.folder / "gold"

    def read_bronze(self, spark: SparkSession) -> DataFrame:
        """Read the events.

        Raises:
            NotReady: there are none.
        """
        return read_bronze(spark, self.folder)

    def read_rejected(self, spark: SparkSession) -> DataFrame:
        """Read what could not be an event, if there is anything."""
        folder = bronze_of(self.folder).rejected
        if not any(folder.rglob("*.parquet")):
            return spark.createDataFrame([], REJECTED)
        return spark.read.schema(REJECTED).parquet(str(folder))

    def read_sessions(self, spark: SparkSession) -> DataFrame:
        """Read the sessions."""
        return spark.read.schema(SILVER).parquet(str(self.sessions.absolute()))
