"""Gold as Spark makes it is gold as DuckDB computes it, and tells what the generator knows to have happened."""

from __future__ import annotations

import math
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampType

from pipeline.bronze.layout import bronze_of
from pipeline.errors import PipelineError
from pipeline.generate.texts import incarnation
from pipeline.generate.units import MINUTE
from pipeline.generate.world import World
from pipeline.gold import job
from pipeline.gold.tables import TABLES
from pipeline.lake import Lake

from .conftest import SCALE
from .oracle import oracle, query

TIME_TO_BE_NOTICED = MINUTE
"""Until whatever happens to a node stands in the journal."""

pytestmark = pytest.mark.spark


def rows_of(connection: duckdb.DuckDBPyConnection, table: str, source: str) -> list[tuple[Any, ...]]:
    """Read rows, with instants in microseconds since 1970."""
    instants = {each.name for each in TABLES[table].columns if isinstance(each.type, TimestampType)}
    quoted = {each.name: f'"{each.name}"' for each in TABLES[table].columns}
    names = ", ".join(f"epoch_us({text})" if name in instants else text for name, text in quoted.items())
    return sorted(connection.execute(f"SELECT {names} FROM ({source})").fetchall(), key=repr)


def in_files(lake: Lake, table: str) -> str:
    return f"SELECT * FROM read_parquet('{lake.gold}/{table}/date=*/*.parquet', hive_partitioning = true)"


@pytest.fixture(scope="module")
def answers(lake: Lake) -> duckdb.DuckDBPyConnection:
    return oracle(lake.folder)


@pytest.mark.parametrize("table", TABLES)
def test_duckdb_computes_the_same(
    table: str, lake: Lake, gold: dict[str, int], answers: duckdb.DuckDBPyConnection
) -> None:
    found, expected = rows_of(answers, table, in_files(lake, table)), rows_of(answers, table, query(table))
    assert len(found) == gold[table] > 0
    for row, right in zip(found, expected, strict=True):
        for column, value, answer in zip(TABLES[table].columns, row, right, strict=True):
            if isinstance(value, float):
                assert math.isclose(value, answer, rel_tol=1e-12), (column.name, row, right)
            else:
                assert value == answer, (column.name, row, right)


def test_every_incident_of_the_world_is_found_and_no_other(lake: Lake, gold: dict[str, int], world: World) -> None:
    rows = rows_of(duckdb.connect(), "incidents", in_files(lake, "incidents"))
    names = [each.name for each in TABLES["incidents"].columns]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    files = f"{lake.bronze}/date=*/*/*.parquet"
    newest = duckdb.execute(f"SELECT max(epoch_us(\"at\")) FROM read_parquet('{files}')").fetchone()
    assert newest is not None
    end = newest[0] - TIME_TO_BE_NOTICED
    expected = set()
    for number, run in enumerate(world.runs):
        name = incarnation(SCALE.seed, number)
        expected |= {f"drain-{name}"} if run.drains < end else set()
        expected |= {f"hang-{name}"} if run.hangs < end else set()
        expected |= {f"death-{name}"} if run.killed and run.ends < end else set()
    outages = [each for each in found if each["kind"] == "outage"]
    of_nodes = [each for each in found if each["kind"] != "outage"]
    assert {each["incident"] for each in of_nodes if each["begins"] < end} == expected
    assert {each["kind"] for each in of_nodes} == {"death", "hang", "drain"}
    planned = [each for each in world.outages if each.ends < end]
    assert len(planned) == len([each for each in outages if each["begins"] < end]) > 0
    for outage, each in zip(planned, sorted(outages, key=lambda row: row["begins"]), strict=False):
        assert outage.begins <= each["begins"] <= each["ends"] <= outage.ends
        assert each["lost_writes"] == outage.lost_writes
        assert len(each["nodes"]) > 1
        assert each["sessions"] > 0
    runs = {incarnation(SCALE.seed, number): run for number, run in enumerate(world.runs)}
    for each in of_nodes:
        run = runs[each["incarnation"]]
        assert each["node"] == f"n{run.node}"
        assert each["sessions"] == each["comebacks"] + each["expired"] + each["closed"] + each["away"]
        if each["kind"] == "death":
            # Told by survivors and by the node's last words, never later than it died.
            assert each["begins"] <= run.ends <= each["ends"]


def test_a_table_that_fails_fails_alone(
    lake: Lake, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = spark.createDataFrame([(1, date(2026, 1, 1))], "n INT, date DATE")
    bad = good.withColumn("n", f.raise_error(f.lit("cannot be")).cast("int"))
    monkeypatch.setattr(job, "make_tables", lambda *_: {"one": good, "bad": bad, "other": good})
    told: list[tuple[str, int]] = []
    with pytest.raises(PipelineError, match=r"these gold tables could not be made, .* were: bad \(.*cannot be"):
        told += job.write_gold(job.sources_of(spark, lake), tmp_path, job.Days())
    written = {each.parts[-3] for each in tmp_path.rglob("part.parquet")}
    assert written == {"one", "other"}
    assert not list(tmp_path.glob(f"{job.STAGING}/*"))


def test_what_retention_has_touched_stays_as_it_was(
    lake: Lake, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest day lacks hours, and those before it are gone, whichever days are asked for."""
    before, oldest, whole = (date(2025, 12, 31) + timedelta(days=each) for each in range(-1, 2))
    rows = spark.createDataFrame([(1, before), (1, oldest), (1, whole)], "n INT, date DATE")
    later = spark.createDataFrame([(2, oldest), (2, whole)], "n INT, date DATE")
    layout = bronze_of(tmp_path)
    layout.log.mkdir(parents=True)
    sources = job.sources_of(spark, lake)
    assert (sources.whole_from, layout.whole_from()) == (date.min, date.min)
    monkeypatch.setattr(job, "make_tables", lambda *_: {"one": rows})
    assert dict(job.write_gold(sources, tmp_path / "gold", job.Days(before))) == {"one": 3}
    for hour, first in ((23, whole), (24, whole), (25, whole + timedelta(days=1))):
        layout.keep_from((oldest - date(1970, 1, 1)).days * 24 + hour)
        assert layout.whole_from() == first
    monkeypatch.setattr(job, "make_tables", lambda *_: {"one": later})
    told: list[str] = []
    for days in (job.Days(), job.Days(before), job.Days(before, oldest)):
        list(job.write_gold(sources._replace(whole_from=whole), tmp_path / "gold", days, told.append))
    found = {each.parent.name[5:]: pq.read_table(each)["n"].to_pylist() for each in tmp_path.rglob("part.parquet")}
    assert found == {str(before): [1], str(oldest): [1], str(whole): [2]}
    assert len(told) == 3
    assert "days before 2026-01-01 stay as they are" in told[0]


def test_two_deaths_near_each_other_are_two_incidents_and_may_share_sessions(lake: Lake, gold: dict[str, int]) -> None:
    pairs = duckdb.execute(
        f"""
        SELECT a.incident, b.incident FROM ({in_files(lake, "incidents")}) a, ({in_files(lake, "incidents")}) b
        WHERE a.kind = 'death' AND b.kind = 'death' AND a.begins < b.begins
          AND b.begins < a.begins + INTERVAL 30 SECONDS
        """
    ).fetchall()
    assert pairs
    both = duckdb.execute(
        f"""
        SELECT count(*) FROM (
            SELECT session FROM ({in_files(lake, "incident_sessions")}) GROUP BY session HAVING count(*) > 1)
        """
    ).fetchone()
    assert both is not None
    assert both[0] > 0
