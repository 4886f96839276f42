"""What the jobs that follow something as a stream have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

_POLL: Final = 0.2
"""Seconds between looks whether somebody wants the query to end."""


def trigger(every: float | None) -> dict[str, Any]:
    """Tell ``DataStreamWriter.trigger`` when to work.

    Args:
        every: seconds between micro-batches; None to end when all that there is has been read.
    """
    return {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}


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
