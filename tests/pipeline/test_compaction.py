"""Compaction and retention: the same rows in fewer files, and never a moment at which a reader sees half."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from gateway.core.journal import Record
from pipeline.bronze import compaction, files
from pipeline.bronze.compaction import Compacted, compact
from pipeline.bronze.layout import DAY, HOUR, bronze_of, hour_folder
from pipeline.bronze.log import CommitLog
from pipeline.bronze.source import BronzeStream, CommittedFile, look_for_commits
from pipeline.errors import NotReady
from tests.pipeline.lake import batch_of, entry, events_in, once, quiet, rejected_in, take_in

NOW = time.time_ns() // 1000
THEN = NOW - 5 * HOUR
SIZE = 1 << 27


def event(number: int, *, at: int = THEN, **told: Any) -> Record:
    head = {"version": 1, "id": f"i-{number}", "type": "session_opened", "at": at, "node": "n1"}
    return head | {"incarnation": "i", "release": "1.0", "session": f"s{number % 3}", "epoch": 1} | told


def fill(lake: Path, batches: int = 4, each: int = 5, at: int = THEN) -> list[Record]:
    records = [event(number, at=at) for number in range(1, batches * each + 1)]
    for index in range(batches):
        take_in(lake, [batch_of({f"1-{index}": entry(records[index * each : (index + 1) * each])})])
    return records


def put_together(lake: Path, *, keep: float | None = None, target: int = SIZE, later: int = 6 * HOUR) -> Compacted:
    return compact(lake, grace=60, target=target, keep=keep, tell=quiet, now=NOW + later)


def rows(lake: Path) -> list[dict[str, Any]]:
    table = ds.dataset(bronze_of(lake).root, format="parquet", partitioning="hive").to_table()
    return sorted(table.to_pylist(), key=lambda row: (row["stream"], row["entry"], row["line"]))


def test_the_rows_stay_and_the_files_become_one(tmp_path: Path) -> None:
    records = fill(tmp_path)
    before = rows(tmp_path)

    done = put_together(tmp_path)

    assert (done.hours, done.before, done.after) == (1, 4, 1)
    assert rows(tmp_path) == before
    assert events_in(tmp_path) == once(records)
    assert put_together(tmp_path) == Compacted(), "there is nothing more to gain"


def test_rows_keep_their_order(tmp_path: Path) -> None:
    records = fill(tmp_path)
    put_together(tmp_path)
    (file,) = bronze_of(tmp_path).root.glob("date=*/hour=*/*")

    assert pq.read_table(file, partitioning=None)["id"].to_pylist() == [each["id"] for each in records]


def test_files_have_about_the_target_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_READ_AT_ONCE", 5)
    fill(tmp_path, batches=8)

    done = put_together(tmp_path, target=20_000)

    assert 1 <= done.after < 8


def test_an_hour_that_is_not_over_is_left_alone(tmp_path: Path) -> None:
    fill(tmp_path, at=NOW)

    assert compact(tmp_path, grace=60, target=SIZE, keep=None, tell=quiet, now=NOW).hours == 0
    assert compact(tmp_path, grace=60, target=SIZE, keep=None, tell=quiet, now=(NOW // HOUR + 1) * HOUR).hours == 0


def test_what_comes_while_an_hour_is_compacted_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = fill(tmp_path)
    late = event(100)
    write = compaction._write

    def writing(*arguments: Any) -> list[Path]:
        take_in(tmp_path, [batch_of({"1-9": entry([late])})])
        return write(*arguments)

    monkeypatch.setattr(compaction, "_write", writing)
    assert put_together(tmp_path).hours == 0
    monkeypatch.undo()

    assert put_together(tmp_path).before == 5
    assert events_in(tmp_path) == once([*records, late])


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("name", ["exchange", "sync", "in_turn"])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_loses_nothing(tmp_path: Path, name: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    records = fill(tmp_path)
    real = getattr(compaction, name)

    def crash(*arguments: Any) -> Any:
        if after:
            real(*arguments)
        raise Crash

    monkeypatch.setattr(compaction, name, crash)
    with pytest.raises(Crash):
        put_together(tmp_path)
    assert events_in(tmp_path) == once(records)
    monkeypatch.undo()
    put_together(tmp_path)

    assert events_in(tmp_path) == once(records)
    assert len(list(bronze_of(tmp_path).root.glob("date=*/hour=*/*"))) == 1
    assert list(bronze_of(tmp_path).staging("compact").iterdir()) == []


def test_no_reader_sees_half_while_files_are_exchanged(tmp_path: Path) -> None:
    """Readers in other threads list and read all the time; each sees every event once, or is told of a lost file."""
    records = fill(tmp_path, batches=6)
    expected = [len(records)]
    root = bronze_of(tmp_path).root
    stop, seen, told = threading.Event(), set[int](), set[str]()

    def read() -> None:
        with duckdb.connect() as connection:
            while not stop.is_set():
                try:
                    query = f"SELECT count(DISTINCT id), count(*) FROM read_parquet('{root}/date=*/hour=*/*.parquet')"
                    found = connection.execute(query).fetchone()
                    assert found is not None
                    seen.update(found)
                except duckdb.IOException as error:
                    told.add(str(error))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for each in readers:
        each.start()
    try:
        for index in range(10):
            number = 1000 + index
            # The sum stays: one more event, and compaction again.
            folder = root / hour_folder(THEN // HOUR)
            spare = tmp_path / "spare"
            spare.mkdir()
            sources = sorted(folder.iterdir())
            tables = [pq.read_table(source, partitioning=None) for source in sources]
            whole = pa.concat_tables(tables)
            pq.write_table(whole.slice(0, 7), spare / f"a-{number}.parquet")
            pq.write_table(whole.slice(7), spare / f"b-{number}.parquet")
            files.exchange(folder, spare)
            for old in spare.iterdir():
                old.unlink()
            spare.rmdir()
            assert put_together(tmp_path).after == 1
    finally:
        stop.set()
        for each in readers:
            each.join()

    assert seen <= {*expected}
    assert all("No such file" in each or "No files found" in each or "Cannot open" in each for each in told)


def test_a_file_system_that_cannot_swap_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="No such file"):
        files.exchange(tmp_path / "a", tmp_path / "b")


def test_old_hours_are_removed(tmp_path: Path) -> None:
    old = [event(number, at=NOW - 3 * DAY) for number in range(1, 4)]
    take_in(tmp_path, [batch_of({"1-0": entry(old), "1-1": {b"what": b"?"}})])
    records = [event(number) for number in range(4, 8)]
    take_in(tmp_path, [batch_of({"1-2": entry(records)})])

    assert put_together(tmp_path, keep=2 * 86_400.0, later=0).removed == 1
    assert events_in(tmp_path) == once(records)
    assert len(rejected_in(tmp_path)) == 1, "it is not old itself"
    put_together(tmp_path, keep=2 * 86_400.0, later=4 * DAY)

    assert events_in(tmp_path) == {}
    assert rejected_in(tmp_path) == []
    assert len(CommitLog(bronze_of(tmp_path)).sequences()) == 1, "the newest stays: it tells where to go on"
    assert take_in(tmp_path, [batch_of({"1-2": entry(records)})]).counts.events == 0


def test_what_comes_twice_is_found_though_its_hour_is_swapped_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = fill(tmp_path)
    read = pq.read_table
    done: list[Compacted] = []

    def late(*arguments: Any, **options: Any) -> Any:
        if not done:
            done.append(put_together(tmp_path))
        return read(*arguments, **options)

    monkeypatch.setattr(pq, "read_table", late)
    again = take_in(tmp_path, [batch_of({"2-0": entry(records)})])

    assert done[0].hours == 1
    assert (again.counts.events, again.counts.duplicates) == (0, len(records))


def test_two_compactions_do_not_run_at_once(tmp_path: Path) -> None:
    fill(tmp_path, batches=1)
    with (
        files.only_one(bronze_of(tmp_path).log / "compact.lock", "x"),
        pytest.raises(NotReady, match="another `pipeline compact`"),
    ):
        put_together(tmp_path)


# The stream of commits ------------------------------------------------------------------------------------------------


def streamed(lake: Path, start: int, stream: BronzeStream) -> Iterator[str]:
    begin = {"commit": start, "lake": ""}
    for part in stream.partitions(begin, stream.latestOffset(begin, ReadAllAvailable())):
        assert isinstance(part, CommittedFile)
        for batch in stream.read(part):
            yield from map(str, batch.column("id").to_pylist())


def test_a_stream_reads_each_commit_once_compacted_or_not(tmp_path: Path) -> None:
    records = fill(tmp_path)
    expected = [each["id"] for each in records]
    stream = BronzeStream(bronze_of(tmp_path).root, 2)
    begin = stream.initialOffset()
    assert begin == {"commit": 0, "lake": ""}
    second = stream.latestOffset(begin, ReadMaxFiles(2))
    assert second["commit"] == 2
    assert stream.latestOffset(second, ReadMaxFiles(2)) == second | {"commit": 4}
    assert list(streamed(tmp_path, 0, stream)) == expected

    put_together(tmp_path)

    assert list(streamed(tmp_path, 0, stream)) == expected
    assert list(streamed(tmp_path, 3, stream)) == expected[10:]
    assert list(streamed(tmp_path, 5, stream)) == []


def test_a_stream_waits_for_the_files_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A commit counts before its files are in their places; a stream that runs beside `pipeline ingest` may look then.
    with monkeypatch.context() as torn:
        torn.setattr(CommitLog, "publish", lambda _log, _commit: None)
        records = fill(tmp_path, batches=1)
    stream = BronzeStream(bronze_of(tmp_path).root, 2)
    assert list(streamed(tmp_path, 0, stream)) == []

    log = CommitLog(bronze_of(tmp_path))
    log.publish(log.newest())

    assert list(streamed(tmp_path, 0, stream)) == [each["id"] for each in records]


def test_a_stream_that_rested_too_long_is_told(tmp_path: Path) -> None:
    fill(tmp_path)
    log = CommitLog(bronze_of(tmp_path))
    log.expire(NOW + DAY)
    stream = BronzeStream(bronze_of(tmp_path).root, 2)

    with pytest.raises(NotReady, match="are not in its log any more"):
        stream.partitions({"commit": 1, "lake": ""}, {"commit": 5, "lake": ""})
    assert stream.initialOffset()["commit"] == 4


def test_a_stream_does_not_go_on_in_another_bronze(tmp_path: Path) -> None:
    fill(tmp_path, batches=3)
    stream = BronzeStream(bronze_of(tmp_path).root, 64)
    read = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    shutil.rmtree(bronze_of(tmp_path).root)

    # Shorter than what was read, or longer: nothing of it may be left out, or be taken for what follows.
    for batches in (1, 8):
        fill(tmp_path, batches=batches)
        with pytest.raises(NotReady, match="is not the bronze that this stream has read, up to commit"):
            stream.latestOffset(read, ReadAllAvailable())


def test_a_stream_is_told_that_there_is_nothing_for_it(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="there are no events in"):
        look_for_commits(tmp_path, waits=False)
    look_for_commits(tmp_path, waits=True)
    fill(tmp_path, batches=1)
    look_for_commits(tmp_path, waits=False)
    shutil.rmtree(bronze_of(tmp_path).log)
    with pytest.raises(NotReady, match="did not come through the journal"):
        look_for_commits(tmp_path, waits=True)


def test_a_lake_without_bronze_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"there are no events in .*name another lake"):
        put_together(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_a_stream_goes_on_past_what_retention_has_removed(tmp_path: Path) -> None:
    """Such as one late event: it stands in the newest commit, and is too old at once."""
    records = fill(tmp_path, batches=2)
    late = [event(90, at=NOW - 9 * DAY), event(91)]
    take_in(tmp_path, [batch_of({"1-8": entry(late)})])
    assert put_together(tmp_path, keep=2 * 86_400.0, later=0).removed == 1
    stream = BronzeStream(bronze_of(tmp_path).root, 2)

    assert list(streamed(tmp_path, 0, stream)) == [each["id"] for each in [*records, late[1]]]
    assert stream.initialOffset()["commit"] == 0
    # It stays known when less is kept for a while, and when more is.
    put_together(tmp_path, keep=20 * 86_400.0, later=0)
    assert len(list(streamed(tmp_path, 2, stream))) == 6


def test_a_stream_is_told_when_its_file_was_removed(tmp_path: Path) -> None:
    fill(tmp_path)
    for folder in bronze_of(tmp_path).hours():
        shutil.rmtree(folder)

    with pytest.raises(NotReady, match="is not there any more, though"):
        list(streamed(tmp_path, 3, BronzeStream(bronze_of(tmp_path).root, 2)))


# Schema evolution -----------------------------------------------------------------------------------------------------


def test_files_of_two_versions_lie_beside_each_other_and_are_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fill(tmp_path, batches=2)
    second = [event(number, version=2, zone="west") for number in range(50, 55)]
    # A pipeline that does not know the field yet keeps it.
    take_in(tmp_path, [batch_of({"1-8": entry(second[:2])})])
    root = bronze_of(tmp_path).root
    # What the next version writes has it as a column.
    folder = next(root.glob("date=*/hour=*"))
    table = pq.read_table(min(folder.glob("*.parquet")), partitioning=None).slice(0, 1)
    newer = table.append_column("zone", pa.array(["west"])).set_column(1, "id", pa.array(["i-54"]))
    pq.write_table(newer, folder / "events-000000099-03.parquet")
    os.utime(folder / "events-000000099-03.parquet", (NOW / 1e6, NOW / 1e6))

    for _ in range(2):
        query = f"SELECT id, zone, other FROM read_parquet('{root}/date=*/hour=*/*', union_by_name = true)"
        with duckdb.connect() as connection:
            found = {row[0]: row[1:] for row in connection.execute(query).fetchall()}
        assert len(found) == len(first) + 3
        assert found["i-1"] == (None, None)
        assert found["i-50"] == (None, '{"zone":"west"}')
        assert found["i-54"] == ("west", None)
        put_together(tmp_path)
    assert len(list(folder.iterdir())) == 1
