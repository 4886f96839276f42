"""Micro-batches of the stream of sessions, ended before every change that they make to the disk; without Spark."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from gateway.core.journal import JOURNAL_PARTITIONS, Record
from pipeline.bronze.compaction import compact
from pipeline.bronze.layout import HOUR, bronze_of
from pipeline.bronze.source import BronzeFilesStream
from pipeline.errors import PipelineError
from pipeline.sessions.jobs import SessionsOptions, Writer
from pipeline.sessions.store import StateStore
from pipeline.sessions.table import SessionsTable
from tests.pipeline.lake import quiet
from tests.pipeline.sessions.lives import records
from tests.pipeline.sessions.test_jobs import fill
from tests.pipeline.steps import until_killed

COMMITS: Final = 3
NO_SPARK: Final = cast("SparkSession", None)


class Batch:
    """What a micro-batch is to the job: files of some commits, and tasks that run over them, here one by one."""

    def __init__(self, lake: Path, after: int, until: int) -> None:
        self._stream = BronzeFilesStream(bronze_of(lake).root, 64, parts=3)
        self._parts = self._stream.partitions({"commit": after, "lake": ""}, {"commit": until, "lake": ""})

    def mapInArrow(  # noqa: N802 - Spark's name
        self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: str
    ) -> Batch:
        self._rows = [
            row for part in self._parts for batch in task(self._stream.read(part)) for row in batch.to_pylist()
        ]
        return self

    def collect(self) -> list[dict[str, Any]]:
        return self._rows


def take(lake: Path, number: int, after: int, until: int) -> None:
    """Take a batch in, as Spark hands it to the job."""
    writer = Writer(NO_SPARK, SessionsTable(lake), SessionsOptions(lake=lake, delay=10.0, commits=64), quiet)
    writer.take(cast("DataFrame", Batch(lake, after, until)), number)


def changes(lake: Path) -> dict[str, dict[str, Any]]:
    """The newest row of each session, of those that are put aside and whole."""
    found: dict[str, dict[str, Any]] = {}
    for folder in SessionsTable(lake).pending():
        for file in folder.glob("*.parquet"):
            found |= {row["session"]: row for row in pq.read_table(file).to_pylist()}
    return found


def known(lake: Path, batch: int) -> dict[str, tuple[Any, ...]]:
    """What is known of each session after a batch."""
    store = StateStore(SessionsTable(lake).checkpoint)
    rows = [row for stream in range(JOURNAL_PARTITIONS) for row in store.read(batch, stream).to_pylist()]
    found = {row["session"]: tuple(row.values()) for row in rows}
    assert len(found) == len(rows) == store.version(batch).sessions
    return found


@pytest.fixture(scope="module")
def told() -> list[Record]:
    return records(Random(11), 25, seconds=300)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, told: list[Record]) -> Path:
    lake = tmp_path_factory.mktemp("model")
    fill(lake, told, COMMITS)
    return lake


@pytest.fixture
def lake(model: Path, tmp_path: Path) -> Path:
    shutil.copytree(model, tmp_path / "lake")
    return tmp_path / "lake"


def test_in_pieces_or_at_once_the_rows_are_the_same(lake: Path, tmp_path: Path, model: Path) -> None:
    shutil.copytree(model, tmp_path / "whole")
    take(tmp_path / "whole", 0, 0, COMMITS + 1)
    for number in range(COMMITS + 1):
        take(lake, number, number, number + 1)
    assert changes(lake) == changes(tmp_path / "whole")
    # But for how long it is kept: that counts from when it was told.
    facts = {session: each[1] for session, each in known(lake, COMMITS).items()}
    assert facts == {session: each[1] for session, each in known(tmp_path / "whole", 0).items()}
    assert len(changes(lake)) > 15


@pytest.mark.thorough
def test_wherever_a_batch_is_ended_it_is_done_once_by_the_next_try(lake: Path, tmp_path: Path) -> None:
    take(lake, 0, 0, COMMITS)
    before = changes(lake), known(lake, 0)
    shutil.copytree(lake, tmp_path / "expected")
    take(tmp_path / "expected", 1, COMMITS, COMMITS + 1)
    expected = changes(tmp_path / "expected"), known(tmp_path / "expected", 1)
    assert expected != before
    step, killed = 0, True
    while killed:
        step += 1
        broken = tmp_path / str(step)
        shutil.copytree(lake, broken)
        work = functools.partial(take, broken, 1, COMMITS, COMMITS + 1)
        killed = until_killed(work, step)
        assert known(broken, 0) == before[1], f"before step {step}: a try cannot be repeated"
        work()
        assert (changes(broken), known(broken, 1)) == expected, f"before step {step}"
        shutil.rmtree(broken)
    assert step > 20, "the steps of a batch were not found"


def test_a_batch_that_was_done_may_come_again(lake: Path) -> None:
    take(lake, 0, 0, 2)
    take(lake, 1, 2, COMMITS + 1)
    once = changes(lake), known(lake, 1)
    take(lake, 1, 2, COMMITS + 1)
    assert (changes(lake), known(lake, 1)) == once


def test_compaction_makes_no_difference(lake: Path, told: list[Record], tmp_path: Path, model: Path) -> None:
    shutil.copytree(model, tmp_path / "whole")
    take(tmp_path / "whole", 0, 0, COMMITS + 1)
    take(lake, 0, 0, 2)
    later = (max(each["at"] for each in told) // HOUR + 400 * 24) * HOUR
    assert compact(lake, grace=0, target=1 << 27, keep=None, tell=quiet, now=later).hours
    take(lake, 1, 2, COMMITS + 1)
    assert changes(lake) == changes(tmp_path / "whole")


def test_only_the_last_two_versions_are_kept(lake: Path) -> None:
    for number in range(COMMITS + 1):
        take(lake, number, number, number + 1)
    names = sorted(each.name for each in (SessionsTable(lake).checkpoint / "known").iterdir())
    assert names == [f"{COMMITS - 1:012}", f"{COMMITS:012}"]


@pytest.mark.parametrize("harm", ["a file is gone", "a file is torn", "the version is torn", "a version is gone"])
def test_what_is_damaged_is_told_and_not_read_as_something_else(lake: Path, harm: str) -> None:
    take(lake, 0, 0, 2)
    folder = StateStore(SessionsTable(lake).checkpoint).folder(0)
    files = sorted(folder.glob("stream-*.parquet"))
    match harm:
        case "a file is gone":
            files[0].unlink()
        case "a file is torn":
            files[0].write_bytes(files[0].read_bytes()[:-20])
        case "the version is torn":
            (folder / "version.json").write_bytes(b'{"batch": 0')
        case _:
            shutil.rmtree(folder)
    with pytest.raises(PipelineError, match=r"is damaged: .*run it again: it begins anew"):
        take(lake, 1, 2, COMMITS + 1)
    shutil.rmtree(SessionsTable(lake).checkpoint)
    take(lake, 0, 0, COMMITS + 1)
    assert known(lake, 0)


def test_an_older_release_has_left_nothing_that_is_known(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "stream")
    assert not store.is_missing(), "there is no checkpoint at all"
    (tmp_path / "stream" / "state").mkdir(parents=True)
    assert store.is_missing()
    store.root.mkdir()
    assert not store.is_missing()


def test_a_file_system_without_links_gets_copies(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError("no links here")

    take(lake, 0, 0, 2)
    monkeypatch.setattr("os.link", refuse)
    # Nothing has happened: every file is passed on.
    take(lake, 1, 2, 2)
    assert known(lake, 1) == known(lake, 0)
