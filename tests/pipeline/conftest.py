"""One Spark for all tests of the pipeline that need one.

To start it takes some seconds, so tests that need it are marked with ``spark`` and run in one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.spark import spark_session
from tests.pipeline.quick import QUICK


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark of this process with two threads, and small shuffles for small data."""
    scratch: Path = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "tests",
        master="local[2]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.stateStore.maintenanceInterval": "600s",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch / "local"),
            "spark.driver.memory": "1g",
            **QUICK,
        },
    )
    yield session
    session.stop()
