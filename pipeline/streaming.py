"""What the jobs that follow something as a stream have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

_POLL: Final = 0.2
"""Seconds between looks whether somebody wants the query to end."""


def wait_for(query: StreamingQuery, wanted: Callable[[], bool]) -> None:
    """Wait for the end of a query, or end it.

    Args:
        query: that runs.
        wanted: asked several times a second; when it says no, the query is stopped.

    Raises:
        pyspark.errors.StreamingQueryException: it failed.
    """
    try:
        while not query.awaitTermination(_POLL):  # type: ignore[arg-type]  # its stub says whole seconds
            if not wanted():
                break
    finally:
        if query.isActive:
            query.stop()
