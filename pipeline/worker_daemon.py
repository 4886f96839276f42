"""The process that Spark's workers in Python are forked from: it has imported what they need, once for all of them.

Spark forks a worker for each task that runs, and each that imports pyarrow and pandas anew takes a second of CPU. What
is imported before the fork is there at once, and its memory is shared. It is Spark's own daemon otherwise; the setting
``spark.python.daemon.module`` names it (ADR 0132).
"""

from __future__ import annotations

import os

# One thread a worker: Spark runs as many of them as there are cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: F401
import pandas as pd  # noqa: F401
import pyarrow.compute
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import pipeline.bronze.ingest
import pipeline.sessions.tasks  # noqa: F401

if __name__ == "__main__":
    manager()
