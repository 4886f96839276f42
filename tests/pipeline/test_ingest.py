"""The ingest job and the readers of bronze in a real Spark, with a real Redis."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from redis import Redis

from gateway.core.journal import FIELDS, Field, FieldKind, journal_partition
from gateway.core.types import SessionId
from pipeline import streaming
from pipeline.bronze import ingest as job
from pipeline.bronze.compaction import compact
from pipeline.bronze.ingest import IngestOptions, ingest
from pipeline.bronze.layout import HOUR, bronze_of
from pipeline.bronze.log import Commit, CommitLog
from pipeline.bronze.source import follow_bronze, read_bronze
from pipeline.bronze.staging import Plan
from pipeline.errors import NotReady
from pipeline.source.journal import JournalPlace, stream_key
from pipeline.source.offsets import EntryId
from pipeline.streaming import run_query
from tests.pipeline.feeding import Feeder
from tests.pipeline.lake import batch_of, entry, events_in, once, quiet, rejected_in, take_in
from tests.support.redis_server import RedisServer, unique_prefix

pytestmark = [pytest.mark.spark, pytest.mark.redis]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def options(server: RedisServer, tmp_path: Path) -> IngestOptions:
    place = JournalPlace(server.url, unique_prefix(), 5.0)
    return IngestOptions(lake=tmp_path, place=place, batch_entries=20, trim_lag=0, past=31 * 86_400.0, future=86_400.0)


@pytest.fixture
def feeder(server: RedisServer, options: IngestOptions) -> Iterator[Feeder]:
    with Redis.from_url(server.url, protocol=2) as client:
        yield Feeder(client, options.place.prefix)


def followed(spark: SparkSession, lake: Path) -> list[str]:
    """What a stream over bronze has not read yet; its checkpoint is in the lake."""
    found: list[str] = []

    def take(batch: DataFrame, _number: int) -> None:
        found.extend(row["id"] for row in batch.select("id").collect())

    def start() -> StreamingQuery:
        query = follow_bronze(spark, lake, commits=2).writeStream.foreachBatch(take)
        return query.option("checkpointLocation", str(lake / "follow")).trigger(availableNow=True).start()

    # Spark gives the process that plans a stream ten seconds to start, which may be too few on a busy machine.
    run_query(start, quiet, lambda: True, lambda: len(found))
    return found


class Crash(Exception):
    """The driver ends here. No BaseException: py4j would hang up on the JVM and say nothing."""


def test_from_the_journal_to_bronze_and_its_readers(
    spark: SparkSession, options: IngestOptions, feeder: Feeder
) -> None:
    records = feeder.feed(600, sessions=2)
    (torn, *_) = streams = {journal_partition(SessionId(each["session"])) for each in records}
    feeder.append(torn, b'{"torn', 1)

    done = ingest(spark, options, quiet)

    assert (done.events, done.rejected, done.duplicates) == (600, 1, 0)
    assert events_in(options.lake) == once(records)
    assert [each["text"] for each in rejected_in(options.lake)] == [b'{"torn']
    found = read_bronze(spark, options.lake)
    assert Counter(row["id"] for row in found.select("id").collect()) == once(records)
    assert found.where("date IS NULL OR hour IS NULL OR batch IS NULL OR other IS NOT NULL").isEmpty()
    assert Counter(followed(spark, options.lake)) == once(records)
    left = sum(feeder.client.xlen(stream_key(options.place.prefix, each)) for each in streams)
    assert left < 100 * len(streams), "what is committed is trimmed"

    # What compaction puts together is not fed again.
    later = (max(each["at"] for each in records) // HOUR + 3) * HOUR
    assert compact(options.lake, grace=60, target=1 << 27, keep=None, tell=quiet, now=later).hours >= 1
    assert events_in(options.lake) == once(records)
    assert followed(spark, options.lake) == []


def test_a_crash_before_spark_hears_of_the_commit(
    spark: SparkSession, options: IngestOptions, feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = feeder.feed(100, sessions=2)
    ingest(spark, options, quiet)
    more = feeder.feed(500, sessions=2)
    publish, known = CommitLog.publish, CommitLog(bronze_of(options.lake)).newest().sequence

    def crash(log: CommitLog, commit: Commit) -> None:
        if commit.sequence > known:
            raise Crash
        publish(log, commit)

    monkeypatch.setattr(CommitLog, "publish", crash)
    with pytest.raises(Exception, match="Crash"):
        ingest(spark, options, quiet)
    monkeypatch.undo()
    again = ingest(spark, options, quiet)

    assert events_in(options.lake) == once([*records, *more])
    assert again.duplicates == 0


@pytest.mark.promise("P20")
def test_a_foreign_entry_hides_no_event_of_its_stream(
    spark: SparkSession, options: IngestOptions, feeder: Feeder
) -> None:
    """Whether the gateway removes it before it is met, or after."""
    (first,) = feeder.feed(1)
    key = stream_key(options.place.prefix, journal_partition(SessionId(first["session"])))
    feeder.client.xadd(key, {"temperature": "21.5"})
    assert ingest(spark, options, quiet).events == 1
    feeder.number = 50
    second = feeder.feed(1)
    assert ingest(spark, options, quiet).events == 1
    feeder.client.xadd(key, {"temperature": "21.5"})
    feeder.number = 100
    third = feeder.feed(1)
    assert third[0]["session"] == first["session"]

    done = ingest(spark, options, quiet)

    assert (done.events, done.duplicates, done.rejected, done.losses) == (1, 0, 0, 0)
    assert events_in(options.lake) == once([first, *second, *third])


def test_bronze_that_stands_behind_a_foreign_entry_goes_on(
    spark: SparkSession, options: IngestOptions, feeder: Feeder
) -> None:
    options = replace(options, trim_lag=10)
    (first,) = feeder.feed(1, sessions=1)
    ingest(spark, options, quiet)
    log = CommitLog(bronze_of(options.lake))
    stream = journal_partition(SessionId(first["session"]))
    newest = log.newest()
    at = replace(newest.positions[stream], entry=EntryId(1_796_026_852_870, 0))
    file = bronze_of(options.lake).log / f"{newest.sequence:012}.json"
    file.write_bytes(replace(newest, positions={**newest.positions, stream: at}).to_json())
    more = feeder.feed(1, sessions=1)

    done = ingest(spark, options, quiet)

    assert (done.events, done.duplicates, done.losses) == (1, 1, 0)
    assert events_in(options.lake) == once([first, *more])


def test_an_empty_journal_is_no_error(spark: SparkSession, options: IngestOptions, feeder: Feeder) -> None:
    assert ingest(spark, options, quiet).events == 0
    records = feeder.feed(50, sessions=2)
    assert ingest(spark, options, quiet).events == 50
    assert ingest(spark, options, quiet).events == 0
    assert events_in(options.lake) == once(records)


@pytest.mark.parametrize("harm", ["deleted", "torn", "of another time"])
def test_whatever_happens_to_the_checkpoint_bronze_is_right(
    spark: SparkSession, options: IngestOptions, feeder: Feeder, harm: str
) -> None:
    checkpoint = options.lake / "checkpoints" / "bronze"
    records = feeder.feed(100, sessions=2)
    ingest(spark, options, quiet)
    shutil.copytree(checkpoint, options.lake / "older")
    records += feeder.feed(100, sessions=2)
    ingest(spark, options, quiet)
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    match harm:
        case "deleted":
            shutil.rmtree(checkpoint)
        case "torn":
            newest.write_bytes(newest.read_bytes()[:-40])
        case _:
            shutil.rmtree(checkpoint)
            shutil.move(options.lake / "older", checkpoint)
    records += feeder.feed(100, sessions=2)

    assert ingest(spark, options, quiet).events == 100
    assert events_in(options.lake) == once(records)


@pytest.mark.thorough
def test_a_worker_that_does_not_connect_back_costs_a_pause(
    spark: SparkSession, options: IngestOptions, feeder: Feeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, tries, said = feeder.feed(300, sessions=2), [0], list[str]()
    planned = job.plan_next

    def busy(*args: Any, **options: Any) -> Plan:
        tries[0] += 1
        if tries[0] in {1, 3}:
            raise RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.")
        return planned(*args, **options)

    monkeypatch.setattr(job, "plan_next", busy)
    monkeypatch.setattr(streaming, "PAUSES", (0.1,))
    done = ingest(spark, replace(options, batch_entries=1), said.append)

    assert events_in(options.lake) == once(records)
    assert (done.events, done.duplicates) == (300, 0)
    assert len([each for each in said if "this machine is very busy" in each]) == 2


def test_version_2_of_the_schema_is_read_beside_version_1(spark: SparkSession, tmp_path: Path) -> None:
    """Fields that a later version adds, told to a pipeline that did not know them yet."""
    added = [
        Field("zone", FieldKind.TEXT, "Text.", since=2),
        Field("tries", FieldKind.NUMBER, "Number.", since=2),
        Field("eager", FieldKind.FLAG, "Flag.", since=2),
        Field("seen", FieldKind.INSTANT, "Instant.", since=2),
        Field("tags", FieldKind.TEXTS, "Texts.", since=2),
    ]
    told = {"zone": "west", "tries": 3, "eager": True, "seen": 1_700_000_000_123_456, "tags": ["a", "b"]}
    head = {"type": "node_started", "node": "n1", "incarnation": "i", "release": "1", "at": time.time_ns() // 1000}
    older, newer = head | {"id": "i-1", "version": 1}, head | {"id": "i-2", "version": 2} | told
    wrong = head | {"id": "i-4", "version": 2} | {"tries": "x", "eager": "perhaps", "seen": "soon", "tags": 3}
    take_in(tmp_path, [batch_of({"1-0": entry([older, newer, wrong])})])
    # The pipeline that knows them writes them as columns.
    folder = bronze_of(tmp_path).hours()[0]
    table = pq.read_table(next(folder.iterdir()), partitioning=None).slice(0, 1).drop_columns(["id"])
    table = table.append_column("id", pa.array(["i-3"])).append_column("zone", pa.array(["east"]))
    pq.write_table(table, folder / "newer.parquet")

    events = read_bronze(spark, tmp_path, dict(FIELDS) | {each.name: each for each in added})
    seen = F.unix_micros("seen").alias("seen")
    found = {row["id"]: row for row in events.select("id", "zone", "tries", "eager", seen, "tags").collect()}

    assert {name: found["i-2"][name] for name in told} == told
    assert [found["i-1"][name] for name in told] == [None] * 5
    assert [found["i-4"][name] for name in told] == [None] * 5, "what is of another kind is not told"
    assert found["i-3"]["zone"] == "east"


def test_an_emptied_grid_is_refused_until_somebody_decides(
    spark: SparkSession, options: IngestOptions, feeder: Feeder
) -> None:
    first = feeder.feed(200, sessions=2)
    ingest(spark, options, quiet)
    feeder.feed(100, sessions=2)
    feeder.client.flushdb()
    other = Feeder(feeder.client, options.place.prefix, node="n2")
    second = other.feed(200, sessions=2)

    with pytest.raises(NotReady, match=r"was emptied .*--accept-loss"):
        ingest(spark, options, quiet)
    assert events_in(options.lake) == once(first)
    done = ingest(spark, replace(options, accept_loss=True), quiet)

    assert done.losses == 2
    assert all("accepted as lost: the stream was emptied" in each["reason"] for each in rejected_in(options.lake))
    assert events_in(options.lake) == once([*first, *second])
    assert CommitLog(bronze_of(options.lake)).newest().totals.losses == 2
    assert ingest(spark, options, quiet).events == 0

    with pytest.raises(NotReady, match="is read by bronze-"):
        ingest(spark, replace(options, lake=options.lake / "other"), quiet)
