"""Where the tables are, and how jobs read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pipeline.bronze.layout import bronze_of, no_events
from pipeline.bronze.source import read_bronze
from pipeline.errors import NotReady
from pipeline.schemas import REJECTED, SILVER
from pipeline.spark import address


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
    def sessions_work(self) -> Path:
        """Where the jobs that make the sessions keep what they need; it is there from their first run."""
        return self.folder / "checkpoints" / "sessions"

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
        return spark.read.schema(REJECTED).parquet(address(folder))

    def read_sessions(self, spark: SparkSession) -> DataFrame:
        """Read the sessions; there may be none yet, if nodes told only of themselves.

        Raises:
            NotReady: nobody has looked for any.
        """
        if any(self.sessions.rglob("*.parquet")):
            return spark.read.schema(SILVER).parquet(address(self.sessions))
        self.look()
        return spark.createDataFrame([], SILVER)

    def look(self) -> None:
        """See, before Spark is started, whether gold can be made.

        Raises:
            NotReady: there are no events, or nobody has made sessions of them.
        """
        if not bronze_of(self.folder).hours():
            raise NotReady(no_events(self.folder))
        if not self.sessions_work.exists() and not any(self.sessions.rglob("*.parquet")):
            raise NotReady(
                f"there is nothing in {self.sessions} yet; run `pipeline sessions` or `pipeline backfill` first, or "
                "name another lake"
            )
