"""What the jobs that follow something as a stream have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from pipeline.progress import Tell
from pipeline.sentences import is_busy

_POLL: Final = 0.2
"""Seconds between looks whether somebody wants the query to end."""

PAUSES: Final = (1.0, 5.0, 15.0, 60.0, 60.0, 60.0)
"""Seconds before a query is started again that failed because the machine was too busy to start a worker, one after the
other: some minutes in all, in which a storm of work passes. Whenever the query gets on meanwhile, they begin anew."""


def trigger(every: float | None) -> dict[str, Any]:
    """Tell ``DataStreamWriter.trigger`` when to work.

    Args:
        every: seconds between micro-batches; None to end when all that there is has been read.
    """
    return {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}


def run_query(
    start: Callable[[], StreamingQuery], tell: Tell, wanted: Callable[[], bool], done: Callable[[], object]
) -> None:
    """Run a query to its end, and start it again from its checkpoint if a worker in Python could not be started.

    Args:
        start: starts the query, as often as it is called.
        tell: is told when it is started again.
        wanted: asked several times a second; when it says no, the query is stopped.
        done: tells how far the job is, in any words: another answer than before means that it got on.

    Raises:
        pyspark.errors.PySparkException: it failed for another reason, or too often without getting on.
    """
    failures, before = 0, done()
    while True:
        try:
            wait_for(start(), wanted)
        except Exception as error:
            if not is_busy(error):
                raise
            failures, before = (0 if done() != before else failures), done()
            if failures == len(PAUSES):
                raise
            pause = PAUSES[failures]
            failures += 1
            tell(
                "Spark could not start a worker in Python within its ten seconds, because this machine is very busy; "
                f"going on in {pause:g} s from where it was"
            )
            if not _rest(pause, wanted):
                return
        else:
            return


def _rest(seconds: float, wanted: Callable[[], bool]) -> bool:
    """Wait, unless somebody wants the job to end; returns whether nobody does."""
    until = time.monotonic() + seconds
    while wanted():
        if time.monotonic() >= until:
            return True
        time.sleep(_POLL)
    return False


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
