"""Spark sessions with the settings that the pipeline needs, wherever it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, cast

from pyspark.sql import SparkSession

from pipeline.prerequisites import look_for_java, look_for_master

LOCAL: Final = "local[*]"
"""All cores of this machine, in one process."""

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""``spark-submit`` sets it for the program that it starts: the JVM runs, and ``--master`` is said already."""

SETTINGS: Final[Mapping[str, str]] = {
    # Times are of UTC everywhere, whatever the zone of the machine.
    "spark.sql.session.timeZone": "UTC",
    # State of streams in RocksDB: transformWithState needs it, and it does not live in the heap.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Rows go to Python and back in columns.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A journal of any size is small beside what Spark's 200 partitions are meant for; adaptive execution joins those
    # that are too small, never those of state, whose number is fixed for the life of a checkpoint.
    "spark.sql.adaptive.enabled": "true",
    # Instants as every reader of Parquet knows them, and not as the 96 bits of old, which have no zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A bar that draws over the pipeline's own progress is of no use.
    "spark.ui.showConsoleProgress": "false",
    # Errors come with the place in Python, not with a hundred lines of the JVM.
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
}
"""What holds everywhere; ``--conf`` of the command line, and ``spark-submit``, win over it."""


_LOG: Final = files("pipeline").joinpath("log4j2.properties")


def spark_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None, quiet: bool = False
) -> SparkSession:
    """Start Spark, or find the session that runs already.

    Args:
        name: of the application, for Spark's own pages.
        master: where it runs, for example ``local[*]``; None if ``spark-submit`` has said it.
        settings: more settings of Spark; they win over ``SETTINGS``.
        quiet: have the JVM write nothing but what ``log4j2.properties`` says: whatever goes wrong comes to Python, too.

    Raises:
        NotReady: there is no Java to run it in, or no master.
    """
    if SUBMITTED not in os.environ:
        look_for_java()
    if master is not None:
        look_for_master(master)
    # Drivers and workers must run the same Python; that of the command line is the right one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            # Nobody else has to reach it: no open ports, no dependence on how the machine is called.
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    if quiet:
        builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_LOG}")
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF" if quiet else "ERROR")
    if quiet:
        _hush(session)
    return session


def address(path: Path) -> str:
    """Name a file or folder for Spark: on the machine, whatever file system a cluster of Hadoop takes for the default.

    Args:
        path: of a lake.
    """
    return f"file://{path.absolute()}"


def _hush(session: SparkSession) -> None:
    """Throw away what is written to the standard error of the JVM: workers tell there of each query that they run."""
    java = cast("Any", session.sparkContext)._jvm.java  # noqa: SLF001 - there is no other way to the JVM
    java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
