"""How rows of gold take the place of older ones."""

from __future__ import annotations

import fcntl
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.gold.job import FILE, LOCK, STAGING, Days, publish, staging


def stage(folder: Path, **rows: int) -> Path:
    """Write what Spark would: a folder for each day, a file with a name of its own in it."""
    for day, count in rows.items():
        place = folder / f"date=2026-01-0{day[-1]}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"n": list(range(count))}), place / "part-00000-0123.snappy.parquet")
    folder.mkdir(exist_ok=True)
    return folder


def rows(table: Path) -> dict[str, int]:
    return {each.parent.name[-1]: pq.read_metadata(each).num_rows for each in sorted(table.rglob("*.parquet"))}


def test_days_that_are_made_replace_the_old_ones_and_others_stay(tmp_path: Path) -> None:
    table = tmp_path / "table"
    assert publish(stage(tmp_path / "one", day1=1, day2=2, day3=3), table, Days()) == 6
    assert rows(table) == {"1": 1, "2": 2, "3": 3}
    # Of the second nothing is left to tell, the third is new, the first was not asked for.
    assert publish(stage(tmp_path / "two", day3=30), table, Days(date(2026, 1, 2), date(2026, 1, 3))) == 30
    assert rows(table) == {"1": 1, "3": 30}
    assert {each.name for each in table.rglob("*.parquet")} == {FILE}


def test_to_publish_again_changes_nothing(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for attempt in ("one", "two"):
        publish(stage(tmp_path / attempt, day1=5), table, Days())
        assert rows(table) == {"1": 5}


def test_a_reader_that_has_opened_a_day_reads_it_to_its_end(tmp_path: Path) -> None:
    table = tmp_path / "table"
    publish(stage(tmp_path / "one", day1=5), table, Days())
    with pq.ParquetFile(table / "date=2026-01-01" / FILE) as opened:
        publish(stage(tmp_path / "two", day1=7), table, Days())
        assert opened.read().num_rows == 5
    assert rows(table) == {"1": 7}


def test_one_job_writes_at_a_time_and_what_a_crash_left_is_gone(tmp_path: Path) -> None:
    left = tmp_path / "gold" / STAGING / "old" / "part.parquet"
    left.parent.mkdir(parents=True)
    left.touch()
    with staging(tmp_path / "gold") as place, (tmp_path / "gold" / LOCK).open("ab") as other:
        assert not left.exists()
        place.mkdir(parents=True)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / "gold" / LOCK).open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not place.exists()


def test_days_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="before the first"):
        Days(date(2026, 1, 2), date(2026, 1, 1))
