"""The table has one row of each session, whatever is merged into it and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.bronze.layout import bronze_of
from pipeline.lake import Lake
from pipeline.schemas import SILVER
from pipeline.sessions import Fact, SessionState, tell
from pipeline.sessions.jobs import whole_from
from pipeline.sessions.rules import CLOSED
from pipeline.sessions.table import UNKNOWN, Days, SessionsTable
from tests.pipeline.older import as_older
from tests.pipeline.sessions.lives import Teller
from tests.pipeline.sessions.oracle import rows_of_table
from tests.pipeline.sessions.rows import row_of

DAY = 86_400.0
FIRST_DAY = date(2025, 12, 29)
"""On which ``START`` is."""


def rows(found: Mapping[str, list[Fact]]) -> list[Any]:
    told = [tell(session, SessionState(facts), 0) for session, facts in found.items()]
    return [row_of(each.row) for each in told if each is not None]


def states(table: SessionsTable) -> dict[str, tuple[str, int]]:
    with duckdb.connect() as connection:
        found = rows_of_table(connection, table.root)
    assert len({each["session"] for each in found}) == len(found)
    return {each["session"]: (each["state"], each["events"]) for each in found}


def test_days_know_which_are_theirs() -> None:
    days = Days(date(2026, 1, 2), date(2026, 1, 3))
    assert [days.have(date(2026, 1, day)) for day in (1, 2, 3, 4)] == [False, True, True, False]
    assert not days.have(None)
    assert Days(date.min, unknown=True).have(None)


def test_a_batch_that_is_not_whole_is_not_merged(tmp_path: Path) -> None:
    table = SessionsTable(tmp_path)
    torn, whole = table.work / "changes" / "000000000001", table.work / "changes" / "000000000002"
    for each in (torn, whole):
        each.mkdir(parents=True)
    (whole / "_SUCCESS").touch()
    assert table.pending() == [whole]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_rows_take_the_place_of_older_ones(spark: SparkSession, tmp_path: Path) -> None:
    table = SessionsTable(tmp_path)

    def put_aside(batch: int, found: Mapping[str, list[Fact]]) -> None:
        made = rows(found)
        assert table.put_aside(batch, spark.createDataFrame(made, SILVER)) == len(made)

    old, young, late = Teller(), Teller(), Teller()
    old.opened(0)
    young.opened(DAY)
    opening = late.opened(DAY)
    late.disconnected(DAY + 5, "n1", 1)
    put_aside(0, {"old": old.facts, "young": young.facts, "late": late.facts[1:]})
    # A row of a later batch wins, in whichever order files are read.
    young.disconnected(DAY + 10, "n1", 1)
    put_aside(1, {"young": young.facts})
    first = table.merge(spark)
    assert (first.rows, first.written, first.strays) == (3, 3, 0)
    assert states(table) == {"old": ("connected", 1), "young": ("away", 2), "late": ("away", 1)}
    assert [each.parent.name for each in table.root.glob(f"date={UNKNOWN}/*")] == [f"date={UNKNOWN}"]

    # Its opening is seen, so it moves; of one that was forgotten only something late is told, which harms nothing.
    forgotten = [old.tell(CLOSED, 3 * DAY, "n1", 1)]
    put_aside(2, {"late": [opening, *late.facts[1:]], "old": forgotten})
    second = table.merge(spark)
    assert second.strays == 1
    assert states(table) == {"old": ("connected", 1), "young": ("away", 2), "late": ("away", 2)}
    assert list(table.root.glob(f"date={UNKNOWN}/*")) == []
    assert table.pending() == []

    # Days that are made anew have what they are given; where bronze is not whole, others stay.
    given = spark.createDataFrame(rows({"old": old.facts}), SILVER)
    table.replace(spark, given, Days(date.min, unknown=True), date(2025, 12, 30))
    assert states(table) == {"old": ("ended", 2)}
    put_aside(3, {"young": young.facts})
    table.replace(spark, given, Days(FIRST_DAY, FIRST_DAY), FIRST_DAY + timedelta(days=2))
    assert states(table) == {"old": ("ended", 2), "young": ("away", 2)}


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_rows_of_an_older_release_stay_as_they_are_beside_newer_ones(spark: SparkSession, tmp_path: Path) -> None:
    """Of what it had put aside, and of what was in the table."""
    table = SessionsTable(tmp_path)
    # Their names put them into one file.
    lives = {name: Teller() for name in ("standing", "coming", "another")}
    for batch, (name, life) in enumerate(lives.items()):
        life.opened(0)
        life.resumed(9, "n2", 2, peer="n1", replayed=True)
        table.put_aside(batch, spark.createDataFrame(rows({name: life.facts}), SILVER))
        if name == "standing":
            table.merge(spark)
        if name != "another":
            for file in (*table.root.rglob("*.parquet"), *table.work.rglob("*.parquet")):
                pq.write_table(as_older(pq.read_table(file, partitioning=None)), file)
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's, of what was there
    table.merge(spark)

    found = Lake(tmp_path).read_sessions(spark).select("session", "intervals.replayed").collect()
    assert {row["session"]: row["replayed"] for row in found} == {
        "standing": [None, None, None],
        "coming": [None, None, None],
        "another": [None, None, True],
    }


def test_a_day_is_whole_if_bronze_begins_with_it_or_before(tmp_path: Path) -> None:
    root = bronze_of(tmp_path).root
    (root / "date=2026-01-02" / "hour=07").mkdir(parents=True)
    assert whole_from(tmp_path) == date(2026, 1, 3)
    (root / "date=2026-01-02" / "hour=00").mkdir(parents=True)
    assert whole_from(tmp_path) == date(2026, 1, 2)
