"""Bronze without Spark: each event once, whatever crashes, comes twice, or is wrong."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.core.journal import Record
from pipeline.bronze.ingest import opened
from pipeline.bronze.layout import bronze_of, hour_folder, hour_of
from pipeline.bronze.log import REMEMBERED, Batch, Commit, CommitLog, Counts
from pipeline.bronze.source import shaped
from pipeline.errors import NotReady, PipelineError
from pipeline.source.offsets import EntryId, Position
from tests.pipeline.lake import batch_of, entry, events_in, once, quiet, rejected_in, take_in

NOW = time.time_ns() // 1000
HOUR = 3_600_000_000
YEAR = 365 * 24 * HOUR


def event(number: int, *, incarnation: str = "i", at: int = NOW, **told: Any) -> Record:
    head = {"version": 1, "id": f"{incarnation}-{number}", "type": "session_opened", "at": at, "node": "n1"}
    return head | {"incarnation": incarnation, "release": "1.0", "session": f"s{number}", "epoch": 1} | told


def test_events_are_filed_by_their_hour(tmp_path: Path) -> None:
    records = [event(1), event(2, at=NOW - 5 * HOUR), event(3, at=NOW - 5 * HOUR)]

    done = take_in(tmp_path, [batch_of({"1-0": entry(records)})])

    assert events_in(tmp_path) == once(records)
    assert [hour_of(each) for each in bronze_of(tmp_path).hours()] == [NOW // HOUR - 5, NOW // HOUR]
    assert done.counts == Counts(events=3)
    assert done.positions[3] == Position("J", EntryId(1, 0))


def test_a_batch_that_is_handed_in_again_changes_nothing(tmp_path: Path) -> None:
    records = [event(number) for number in range(1, 6)]
    batch = batch_of({"1-0": entry(records[:2]), "1-1": entry(records[2:])})

    take_in(tmp_path, [batch])
    again = take_in(tmp_path, [batch])

    assert again.counts == Counts()
    assert events_in(tmp_path) == once(records)


def test_a_longer_batch_than_before_brings_in_the_rest(tmp_path: Path) -> None:
    records = [event(number) for number in range(1, 6)]
    first, rest = {"1-0": entry(records[:2])}, {"1-1": entry(records[2:])}

    take_in(tmp_path, [batch_of(first)])
    done = take_in(tmp_path, [batch_of(first | rest)])

    assert done.counts.events == 3
    assert events_in(tmp_path) == once(records)


def test_batches_may_be_cut_within_an_entry(tmp_path: Path) -> None:
    records = [event(number) for number in range(1, 11)]
    whole = batch_of({"1-0": entry(records)})

    take_in(tmp_path, [[whole.slice(0, 3), whole.slice(3, 4), whole.slice(7)]][0])

    assert events_in(tmp_path) == once(records)


def test_what_a_node_appended_twice_over_a_rollback_is_there_once(tmp_path: Path) -> None:
    records = [event(number) for number in range(1, 8)]
    take_in(tmp_path, [batch_of({"1-0": entry(records[:3]), "1-1": entry(records[3:5])})])

    # The grid lost the second entry, the node writes it again under a new generation, and goes on.
    done = take_in(tmp_path, [batch_of({"2-0": entry(records[3:5]), "2-1": entry(records[5:])})])

    assert done.counts == Counts(events=2, duplicates=2)
    assert events_in(tmp_path) == once(records)


def test_what_comes_twice_within_a_batch_is_there_once(tmp_path: Path) -> None:
    records = [event(number) for number in range(1, 5)]

    done = take_in(tmp_path, [batch_of({"1-0": entry(records), "1-1": entry(records[2:]), "1-2": entry(records[:1])})])

    assert done.counts == Counts(events=4, duplicates=3)
    assert events_in(tmp_path) == once(records)


def test_what_comes_late_and_out_of_order_is_not_taken_for_twice(tmp_path: Path) -> None:
    records = [event(number) for number in range(1, 9)]
    take_in(tmp_path, [batch_of({"1-0": entry(records[6:])})])

    done = take_in(
        tmp_path, [batch_of({"1-1": entry([records[3], records[0], records[5]]), "1-2": entry(records[6:])})]
    )

    assert done.counts == Counts(events=3, duplicates=2)
    assert events_in(tmp_path) == once([records[6], records[7], records[3], records[0], records[5]])


def test_twice_with_an_impossible_time_is_still_once(tmp_path: Path) -> None:
    records = [event(1, at=5 * HOUR), event(2, at=6 * HOUR)]
    take_in(tmp_path, [batch_of({"1-0": entry(records)})])

    done = take_in(tmp_path, [batch_of({"2-0": entry(records)})])

    assert done.counts.duplicates == 2
    assert events_in(tmp_path) == once(records)


def test_incarnations_and_streams_number_their_events_apart(tmp_path: Path) -> None:
    one = batch_of({"1-0": entry([event(5), event(1, incarnation="other")])}, stream=3)
    other = batch_of({"1-0": entry([event(4), event(6)])}, stream=4)

    assert take_in(tmp_path, [one], [other]).counts == Counts(events=4)


def test_a_wrong_clock_does_not_spread_the_table(tmp_path: Path) -> None:
    wild = [event(number, at=(number * YEAR) % (900 * YEAR)) for number in range(1, 400)]

    done = take_in(tmp_path, [batch_of({"1-0": entry(wild)})])

    assert events_in(tmp_path) == once(wild)
    assert done.counts.misdated > 390
    assert len(bronze_of(tmp_path).hours()) <= 4
    (file, *_) = bronze_of(tmp_path).hours()[-1].glob("*.parquet")
    assert pq.read_table(file, columns=["id", "at"], partitioning=None).num_rows > 390


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"])
def test_days_and_hours_are_of_utc_wherever_the_machine_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """Over midnight, and over the hours that clocks of people skip or have twice."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        instants = [
            datetime(2026, month, day, hour, minute, tzinfo=UTC)
            for month, day in ((3, 28), (3, 29), (10, 24), (10, 25), (12, 31))
            for hour in (0, 1, 2, 23)
            for minute in (0, 59)
        ]
        told = [event(number, at=int(each.timestamp()) * 1_000_000) for number, each in enumerate(instants, 1)]
        take_in(tmp_path, [batch_of({"1-0": entry(told)})], past=YEAR * 9 / 1e6, future=YEAR * 9 / 1e6)
        for folder in bronze_of(tmp_path).hours():
            for at in pq.read_table(next(folder.iterdir()), partitioning=None)["at"].to_pylist():
                assert f"date={at:%Y-%m-%d}/hour={at:%H}" == f"{folder.parent.name}/{folder.name}"
        assert len(bronze_of(tmp_path).hours()) == len(instants) // 2
    finally:
        monkeypatch.undo()
        time.tzset()


def test_bad_lines_are_kept_apart_with_their_reason(tmp_path: Path) -> None:
    lines = entry([event(1)])
    lines[b"events"] += b"\nnonsense"
    lines[b"count"] = b"2"

    done = take_in(tmp_path, [batch_of({"1-0": lines, "1-1": {b"what": b"?"}})])

    assert done.counts == Counts(events=1, rejected=2)
    assert events_in(tmp_path) == once([event(1)])
    found = rejected_in(tmp_path)
    assert [(each["entry"], each["line"], each["text"]) for each in found] == [
        ("1-0", 1, b"nonsense"),
        ("1-1", -1, b"what"),
    ]
    assert "not JSON" in found[0]["reason"]


def test_a_batch_of_nothing_but_bad_lines_moves_on(tmp_path: Path) -> None:
    take_in(tmp_path, [batch_of({"1-0": {b"what": b"?"}})])

    assert take_in(tmp_path, [batch_of({"1-0": {b"what": b"?"}})]).counts == Counts()
    assert len(rejected_in(tmp_path)) == 1


def test_another_incarnation_of_a_stream_is_refused(tmp_path: Path) -> None:
    take_in(tmp_path, [batch_of({"1-0": entry([event(1)])})])

    with pytest.raises(PipelineError, match="stream 3 of the journal was emptied"):
        take_in(tmp_path, [batch_of({"1-0": entry([event(2)])}, journal="K")])

    assert events_in(tmp_path) == once([event(1)])


class Crash(BaseException):
    """The process ends here."""


def _crashing(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """End the process before the *step*-th change of the file system that the commit makes."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                raise Crash
            return function(*arguments, **options)

        return wrapper

    for owner, name in ((Path, "replace"), (Path, "mkdir"), (os, "fsync"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return lambda: count


def test_wherever_it_crashes_each_event_is_there_once(tmp_path: Path) -> None:
    records = [event(number, at=NOW - (number % 2) * HOUR) for number in range(1, 13)]
    batches = [batch_of({f"1-{index}": entry(records[index * 4 : index * 4 + 4])}) for index in range(3)]
    step, crashed = 0, True
    take_in(tmp_path / "0", [batches[0]])
    while crashed:
        step += 1
        lake = tmp_path / str(step)
        shutil.copytree(tmp_path / "0", lake)
        with pytest.MonkeyPatch.context() as patch:
            _crashing(patch, step)
            try:
                take_in(lake, [batches[1]])
                crashed = False
            except Crash:
                pass
        assert max(events_in(lake).values()) == 1, f"before step {step}"
        # Spark hands the batch in again, together with what came since or by itself.
        if step % 2:
            take_in(lake, [batches[1]])
        take_in(lake, [batches[1], batches[2]])

        assert events_in(lake) == once(records), f"before step {step}"
        assert list(bronze_of(lake).staging("ingest").iterdir()) == []
    assert step > 10, "the steps of a commit were not found"


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Have the system refuse to write a file beyond a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    records = [event(number) for number in range(1, 200)]
    first, second = batch_of({"1-0": entry(records[:100])}), batch_of({"1-1": entry(records[100:])})
    take_in(tmp_path, [first])
    refused: list[int | None] = []
    for size in range(0, 12_000, 500):
        with largest_file(size):
            try:
                take_in(tmp_path, [second])
                break
            except OSError as error:
                refused.append(error.errno)
        assert events_in(tmp_path) == once(records[:100])
    take_in(tmp_path, [second])

    assert len(refused) > 3
    assert set(refused) == {errno.EFBIG}
    assert events_in(tmp_path) == once(records)
    assert list(bronze_of(tmp_path).log.glob(".*")) == [], "no half commit is left"


def test_two_jobs_do_not_write_at_once(tmp_path: Path) -> None:
    with (
        opened(tmp_path, quiet),
        pytest.raises(NotReady, match="another `pipeline ingest` works on"),
        opened(tmp_path, quiet),
    ):
        pass


def test_a_file_that_vanished_is_told(tmp_path: Path) -> None:
    take_in(tmp_path, [batch_of({"1-0": entry([event(1)])})])
    for file in bronze_of(tmp_path).root.glob("date=*/hour=*/*"):
        file.unlink()
    (bronze_of(tmp_path).log / "published").unlink()

    with pytest.raises(PipelineError, match="bronze is damaged: commit 2 has"), opened(tmp_path, quiet):
        pass


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"format": 1}', b'{"format": 1, "positions": 3}'])
def test_a_damaged_commit_is_told(tmp_path: Path, text: bytes) -> None:
    take_in(tmp_path, [batch_of({"1-0": entry([event(1)])})])
    (bronze_of(tmp_path).log / f"{2:012}.json").write_bytes(text)

    with pytest.raises(PipelineError, match=r"0002\.json is no commit of bronze"):
        CommitLog(bronze_of(tmp_path)).newest()


def test_a_commit_of_a_newer_pipeline_is_refused() -> None:
    with pytest.raises(PipelineError, match="newer pipeline"):
        Commit.from_json(b'{"format": 2}', "x")


def test_what_is_remembered_of_nodes_is_bounded(tmp_path: Path) -> None:
    layout = bronze_of(tmp_path)
    layout.log.mkdir(parents=True)
    log = CommitLog(layout)
    for round_ in range(3):
        numbers = {f"i{round_}-{index}": index for index in range(REMEMBERED)}
        log.append(Batch(numbers={5: numbers | {"steady": round_}}))

    known = log.newest().numbers[5]
    assert len(known) == REMEMBERED
    assert known["steady"] == 2


def test_a_stream_finds_what_an_older_pipeline_did_not_know(tmp_path: Path) -> None:
    """Its files have no column for a field of version 2, and what nodes told of it, right or wrong, is in ``other``."""
    told: list[dict[str, Any]] = [{}, {"replayed": True}, {"replayed": False}, {"version": 9, "colour": "red"}, {}]
    records = [event(number, type="session_resumed", **each) for number, each in enumerate(told, 1)]
    take_in(tmp_path, [batch_of({"1-0": entry(records)})])
    (folder,) = bronze_of(tmp_path).hours()
    (file,) = folder.glob("*.parquet")
    table = pq.read_table(file, partitioning=None)
    kept = [None, '{"replayed": true}', '{"replayed": false}', '{"colour": "red"}', '{"replayed": "perhaps"}']
    older = table.drop_columns(["replayed"])
    older = older.set_column(older.schema.get_field_index("other"), "other", pa.array(kept, pa.string()))

    assert shaped(table, folder)["replayed"].to_pylist() == [None, True, False, None, None]
    assert shaped(older, folder)["replayed"].to_pylist() == [None, True, False, None, None]


def test_folders_are_named_after_hours() -> None:
    assert hour_folder(0) == "date=1970-01-01/hour=00"
    assert hour_of(Path(hour_folder(490_000))) == 490_000
    assert hour_of(Path("date=x/hour=1")) is None
