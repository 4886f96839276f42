"""Jobs are killed with SIGKILL, and another process goes on: once each; ``crashes`` does it as often as you like."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pipeline.bronze.ingest import IngestOptions, ingest
from pipeline.sessions.jobs import SessionsOptions, backfill_sessions, stream_sessions
from pipeline.source.journal import JournalPlace
from tests.pipeline import crashes
from tests.pipeline.crashes import PREFIX
from tests.pipeline.killing import Finish
from tests.pipeline.quick import QUICK
from tests.pipeline.sessions import crashes as session_crashes
from tests.pipeline.sessions.crashes import DELAY_MS
from tests.support.times import scaled

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

EVENTS: Final = 6_000
ARGUMENTS: Final = ["--master=local[2]", "--spark-conf=" + ",".join(map("=".join, QUICK.items()))]
_DAY: Final = 86_400.0
_DELAY: Final = DELAY_MS / 1000


def quiet(_: str) -> None:
    """Tell nobody."""


def here(work: Callable[[str, dict[str, str]], object]) -> Finish:
    """Do in this process, whose Spark runs already, what a command would do."""

    def finish(command: str, *arguments: str) -> float:
        begun = time.monotonic()
        work(command, dict(zip(arguments[::2], arguments[1::2], strict=False)))
        return time.monotonic() - begun

    return finish


@pytest.mark.redis
def test_bronze_has_each_event_once(spark: SparkSession, tmp_path: Path) -> None:
    def work(_command: str, options: dict[str, str]) -> None:
        ingest(
            spark,
            IngestOptions(
                lake=Path(options["--lake"]),
                place=JournalPlace(options["--grid"], PREFIX, timeout=scaled(10.0)),
                batch_entries=10,
                trim_lag=0,
                past=_DAY,
                future=_DAY,
            ),
            quiet,
        )

    outcome = crashes.run(
        events=EVENTS,
        kills=1,
        seed=1,
        folder=tmp_path,
        longest=1.0,
        arguments=["--batch-entries", "10", *ARGUMENTS, "--follow-every=1"],
        finish=here(work),
    )
    assert outcome.kills == 1
    assert outcome.good, outcome


@pytest.mark.thorough
def test_the_table_of_the_stream_is_that_of_a_backfill(spark: SparkSession, tmp_path: Path) -> None:
    def work(command: str, options: dict[str, str]) -> None:
        lake = Path(options["--lake"])
        if command == "sessions":
            stream_sessions(spark, SessionsOptions(lake=lake, delay=_DELAY, commits=100), quiet)
        else:
            backfill_sessions(spark, lake, delay=_DELAY, days=None, tell=quiet)

    outcome = session_crashes.run(
        events=EVENTS,
        kills=1,
        seed=1,
        folder=tmp_path,
        longest=1.0,
        arguments=ARGUMENTS,
        finish=here(work),
    )
    assert outcome.kills == 1
    assert outcome.good, outcome
