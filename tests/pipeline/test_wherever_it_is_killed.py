"""Jobs are ended before every single change that they make to the disk, and not at random moments alone."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.bronze.compaction import compact
from pipeline.bronze.layout import HOUR, bronze_of
from pipeline.gold.job import FILE, Days, publish
from pipeline.schemas import SILVER
from pipeline.sessions.table import SessionsTable
from tests.pipeline.lake import events_in, once, quiet
from tests.pipeline.sessions.lives import Teller
from tests.pipeline.sessions.test_table import rows, states
from tests.pipeline.steps import until_killed
from tests.pipeline.test_compaction import NOW, SIZE, fill

pytestmark = pytest.mark.thorough


def test_compaction_loses_nothing_and_has_nothing_twice(tmp_path: Path) -> None:
    records = fill(tmp_path / "0")
    step, killed = 0, True
    while killed:
        step += 1
        lake = tmp_path / str(step)
        shutil.copytree(tmp_path / "0", lake)
        work = functools.partial(compact, lake, grace=60, target=SIZE, keep=None, tell=quiet, now=NOW + 6 * HOUR)
        killed = until_killed(work, step)
        assert events_in(lake) == once(records), f"before step {step}"
        work()
        assert events_in(lake) == once(records), f"before step {step}"
        assert len(list(bronze_of(lake).root.glob("date=*/hour=*/*"))) == 1
        assert list(bronze_of(lake).staging("compact").iterdir()) == []
    assert step > 8, "the steps of a compaction were not found"


def test_readers_of_gold_see_each_day_as_it_was_or_as_it_is(tmp_path: Path) -> None:
    """Of three days the first has new rows, of the second nothing is left to tell, and the third is new."""
    before, after = {"1": 1, "2": 2}, {"1": 10, "3": 3}
    step, killed = 0, True
    while killed:
        step += 1
        table = tmp_path / str(step)
        _stage(table, before, FILE)
        staged = _stage(tmp_path / f"staged-{step}", after, "part-00000.parquet")
        killed = until_killed(functools.partial(publish, staged, table, Days(date(2026, 1, 1), date(2026, 1, 3))), step)
        for day, number in _days(table).items():
            assert number in {before.get(day), after.get(day)}, f"before step {step}"
        again = _stage(tmp_path / f"again-{step}", after, "part-00000.parquet")
        publish(again, table, Days(date(2026, 1, 1), date(2026, 1, 3)))
        assert _days(table) == after, f"before step {step}"
    assert step > 4, "the steps of publishing were not found"


def _stage(folder: Path, days: Mapping[str, int], name: str) -> Path:
    for day, count in days.items():
        place = folder / f"date=2026-01-0{day}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"n": list(range(count))}), place / name)
    return folder


def _days(table: Path) -> dict[str, int]:
    return {each.parent.name[-1]: pq.read_metadata(each).num_rows for each in table.glob("date=*/*.parquet")}


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_merge_of_sessions_that_is_killed_is_finished_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    told = Teller()
    told.opened(0)
    first = spark.createDataFrame(rows({"s": told.facts}), SILVER)
    told.disconnected(10, "n1", 1)
    second = spark.createDataFrame(rows({"s": told.facts}), SILVER)
    model = SessionsTable(tmp_path / "model")
    model.put_aside(0, first)
    model.merge(spark)
    model.put_aside(1, second)
    step, killed = 0, True
    while killed:
        step += 1
        lake = tmp_path / str(step)
        shutil.copytree(tmp_path / "model", lake)
        table = SessionsTable(lake)
        killed = until_killed(functools.partial(table.merge, spark), step)
        assert states(table)["s"] in {("connected", 1), ("away", 2)}, f"before step {step}"
        table.merge(spark)
        assert states(table) == {"s": ("away", 2)}, f"before step {step}"
        assert table.pending() == []
    assert step > 4, "the steps of a merge were not found"
