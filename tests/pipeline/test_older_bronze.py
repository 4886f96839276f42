"""Bronze of every version of the journal that there was is read as that of today, whoever wrote it.

A lake keeps its files for years. Those of an older pipeline have no columns for fields that came later; what newer
nodes told of these is in ``other``. Older nodes tell nothing of them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from gateway.core.journal import FIELDS, VERSION, Record, event_type
from pipeline.bronze.compaction import compact
from pipeline.bronze.layout import bronze_of
from pipeline.bronze.source import read_bronze, shaped
from tests.pipeline.lake import batch_of, entry, quiet, take_in
from tests.pipeline.older import as_bronze_of

NOW: Final = time.time_ns() // 1000
HOUR: Final = 3_600_000_000
OLDER: Final = range(1, VERSION)

TOLD: Final[dict[int, dict[str, dict[str, Any]]]] = {
    1: {"session_resumed": {"rung": "failed_over", "away_ms": 12, "lost": 3}},
    2: {"session_resumed": {"rung": "failed_over", "replayed": False}},
    3: {
        "queue_measured": {
            "queue": "jobs/work", "since": NOW - 60, "until": NOW, "sent": 9, "given": 8, "redelivered": 1,
            "accepted": 7, "rejected": 1, "released": 2, "settle_ms": 700, "settle_max_ms": 120,
        }
    },
    4: {
        "master_elected": {"term": 7, "peer": "n2"},
        "zone_link_measured": {
            "link": "c2/0", "remote": "paris", "direction": "in", "since": NOW - 60, "until": NOW, "events": 5,
            "bytes": 50, "taken": 3, "repeated": 1, "refused": 1, "behind": 4,
        },
    },
}  # fmt: skip
"""What nodes of each version told that those before did not, by the type of the event."""


def told_by(version: int) -> list[Record]:
    """Events of a node of some version: of all kinds that it knows."""
    events = [each for known in range(1, version + 1) for each in TOLD[known].items()]
    head = {"version": version, "at": NOW, "node": "n1", "incarnation": f"v{version}", "release": f"0.{version}"}
    return [head | {"id": f"v{version}-{number}", "type": kind} | told for number, (kind, told) in enumerate(events, 1)]


def written(lake: Path, *, by: int | None = None) -> list[dict[str, Any]]:
    """Fill a lake with what nodes of all versions told, a file each, and tell what is in it.

    Args:
        lake: where.
        by: the version that the pipeline knew; by default, the file of each version is by a pipeline of its time.
    """
    files: set[Path] = set()
    for version in range(1, VERSION + 1):
        take_in(lake, [batch_of({f"{version}-0": entry(told_by(version))})])
        (file,) = set(bronze_of(lake).root.glob("date=*/hour=*/*.parquet")) - files
        files.add(file)
        knew = version if by is None else by
        if knew < VERSION:
            pq.write_table(as_bronze_of(knew, pq.read_table(file, partitioning=None)), file)
    return [row for each in files for row in shaped(pq.read_table(each, partitioning=None), each.parent).to_pylist()]


def events_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Tell events by their ids: the fields that the journal declares."""
    return {row["id"]: {name: row[name] for name in FIELDS} for row in rows}


def test_the_cases_are_of_all_versions_and_tell_every_field_that_was_added() -> None:
    assert TOLD.keys() == set(range(1, VERSION + 1))
    for version, told in TOLD.items():
        assert all(event_type(kind) is not None for kind in told)
        added = {name for name, field in FIELDS.items() if field.since == version > 1}
        assert added <= {name for each in told.values() for name in each}


@pytest.mark.parametrize("by", OLDER)
def test_files_of_a_pipeline_that_knew_an_earlier_version_are_read_as_those_of_today(tmp_path: Path, by: int) -> None:
    today = events_of(written(tmp_path / "today", by=VERSION))
    assert len(today) == sum(len(told_by(version)) for version in range(1, VERSION + 1))
    assert today["v4-5"]["taken"] == 3
    assert events_of(written(tmp_path / "older", by=by)) == today


def test_files_of_all_times_beside_each_other_are_read_and_compacted(tmp_path: Path) -> None:
    today = events_of(written(tmp_path / "today", by=VERSION))
    lake = tmp_path / "mixed"
    assert events_of(written(lake)) == today
    compact(lake, grace=60, target=10**9, keep=None, tell=quiet, now=NOW + 6 * HOUR)
    (file,) = bronze_of(lake).root.glob("date=*/hour=*/*.parquet")
    assert events_of(shaped(pq.read_table(file, partitioning=None), file.parent).to_pylist()) == today


@pytest.mark.spark
def test_spark_reads_files_of_all_times_beside_each_other(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "today", by=VERSION)
    written(tmp_path / "mixed")
    written(tmp_path / "first", by=1)
    today, *others = [
        events_of([row.asDict() for row in read_bronze(spark, tmp_path / name).collect()])
        for name in ("today", "mixed", "first")
    ]
    assert today["v4-5"]["taken"] == 3
    assert others == [today, today]
