"""One Spark for all tests of the pipeline that need one.

To start it takes some seconds, so tests that need it are marked with ``spark`` and run in one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.spark import spark_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark of this process with two threads, and small shuffles for small data."""
    scratch: Path = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "tests",
        master="local[2]",
        settings={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.stateStore.maintenanceInterval": "600s",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch / "local"),
            "spark.driver.memory": "1g",
            # What pays only for much data, or after minutes: to compile the code of a query, and that of Spark itself
            # once more and better, takes longer than these queries do.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
        },
    )
    yield session
    session.stop()
