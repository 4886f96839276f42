"""Spark sessions with the settings that the pipeline needs, wherever it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from gateway.core.journal import JOURNAL_PARTITIONS
from pipeline.jvm import launch
from pipeline.prerequisites import look_for_java, look_for_master

LOCAL: Final = "local[*,4]"
"""All cores of this machine, in one process; a task that fails is tried four times, as clusters do. On a busy machine
a worker in Python may not be there in time."""

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""``spark-submit`` sets it for the program that it starts: the JVM runs, and ``--master`` is said already."""

SETTINGS: Final[Mapping[str, str]] = {
    # Times are of UTC everywhere, whatever the zone of the machine.
    "spark.sql.session.timeZone": "UTC",
    # Rows go to Python and back in columns.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Workers in Python are forked from a process that has imported what they need.
    "spark.python.daemon.module": "pipeline.worker_daemon",
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


LIGHT: Final[Mapping[str, str]] = {
    # What pays only for much data: to compile the code of a query, and that of Spark itself once more and better.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of a job whose rows are read and written by Python, so that the JVM only says who does what."""


def spark_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None, quiet: bool = False
) -> SparkSession:
    """Start Spark, or find the session that runs already.

    Args:
        name: of the application, for Spark's own pages.
        master: where it runs, for example ``local[*]``; None if ``spark-submit`` has said it.
        settings: more settings of Spark; they win over ``SETTINGS``.
        quiet: pass on of what the JVM writes only what nobody else tells; see ``pipeline.jvm``.

    Raises:
        NotReady: there is no Java to run it in, or no master.
        PipelineError: Spark did not start.
    """
    if SUBMITTED not in os.environ:
        look_for_java()
    if master is not None:
        look_for_master(master)
    # Drivers and workers must run the same Python; that of the command line is the right one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = {"spark.app.name": name}
    if master is not None:
        chosen["spark.master"] = master
        if master.startswith("local"):
            # Nobody else has to reach it: no open ports, no dependence on how the machine is called.
            chosen |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    chosen |= {**SETTINGS, **(settings or {})}
    if quiet and SUBMITTED not in os.environ:
        launch(chosen)
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF" if quiet else "ERROR")
    return session


def parts_of(spark: SparkSession) -> int:
    """Tell among how many tasks to share the streams of the journal.

    On one machine as many as it has cores: each task costs some hundredths of a second. A cluster may have more of them
    than it has now, so that each stream is a task there.
    """
    context = spark.sparkContext
    is_local = str(context.master).startswith("local")
    return min(context.defaultParallelism, JOURNAL_PARTITIONS) if is_local else JOURNAL_PARTITIONS


def address(path: Path) -> str:
    """Name a file or folder for Spark: on the machine, whatever file system a cluster of Hadoop takes for the default.

    Args:
        path: of a lake.
    """
    return f"file://{path.absolute()}"
