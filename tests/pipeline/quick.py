"""Spark for small data."""

from __future__ import annotations

from typing import Final

QUICK: Final = {
    "spark.ui.enabled": "false",
    # What pays only for much data, or after minutes: to compile the code of a query, and that of Spark itself once more
    # and better, takes longer than these queries do.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings with which it starts sooner, and is done sooner unless there is much to do."""
