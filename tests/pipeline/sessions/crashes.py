"""The stream of sessions is killed again and again while bronze grows: its table must be that of a backfill.

``python -m tests.pipeline.sessions.crashes --events 2000000 --kills 20`` generates a journal, takes it into bronze part
by part, and lets `pipeline sessions --follow` run beside it, which it kills with SIGKILL (and with it the JVM and its
workers) at random moments: in turn while it writes its table, and after a batch. The last run ends by itself. Then
`pipeline backfill` makes the table anew in another lake with the same bronze, SQL computes it a third time from the
same files, and all three are compared row by row. It prints what it found, and exits with 1 if a row differs.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from gateway.core.journal import JOURNAL_PARTITIONS
from pipeline.bronze.layout import bronze_of
from pipeline.generate import Scale, events_table, records, slices, usual_hours
from pipeline.sessions.table import SessionsTable
from tests.pipeline.killing import Finish, Jobs, options, progress, told
from tests.pipeline.lake import batch_of, entry, take_in
from tests.pipeline.sessions.oracle import rows_of_table, silver_by_sql, view_events

ENTRY: Final = 500
"""Events of an entry."""
PIECES: Final = 4
"""Commits of a slice of the journal, which is an hour or less."""
FAR: Final = 3650 * 86_400.0
"""Seconds by which the times of a generated journal may differ from now."""
MERGE: Final = 1.0
"""Seconds that a merge takes at least."""
DELAY_MS: Final = 600_000
"""The default of ``watermark_delay``."""


@dataclass(slots=True)
class Outcome:
    """What was found.

    Attributes:
        events: in bronze, each id once.
        commits: of bronze.
        sessions: in the table of the stream.
        distinct: of them.
        kills: how often the stream was killed.
        merging: of these, kills while the table was written.
        batches: micro-batches of the stream.
        differ_from_backfill: rows that stream and backfill do not tell alike.
        differ_from_sql: rows that stream and SQL do not tell alike.
        stream_seconds: all runs of the stream together.
        backfill_seconds: the backfill.
    """

    events: int = 0
    commits: int = 0
    sessions: int = 0
    distinct: int = 0
    kills: int = 0
    merging: int = 0
    batches: int = 0
    differ_from_backfill: int = 0
    differ_from_sql: int = 0
    stream_seconds: float = 0.0
    backfill_seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether all three tables are the same, with one row for each session."""
        return self.sessions == self.distinct > 0 == self.differ_from_backfill + self.differ_from_sql


def parts(events: int, seed: int) -> Iterator[tuple[int, list[list[pa.RecordBatch]]]]:
    """Give a journal in parts: how many events each has, and what its streams hold."""
    generation = 0
    for slice_ in slices(Scale(events=events, seed=seed, hours=usual_hours(events))):
        table = events_table(slice_, seed)
        streams = {
            stream: list(records(table.filter(pc.equal(table["stream"], pa.scalar(stream, pa.int32())))))
            for stream in range(JOURNAL_PARTITIONS)
        }
        for piece in range(PIECES):
            generation += 1
            count, held = 0, []
            for stream, lines in streams.items():
                own = lines[piece * len(lines) // PIECES : (piece + 1) * len(lines) // PIECES]
                if own:
                    count += len(own)
                    entries = {
                        f"{generation}-{begin + 1}": entry(own[begin : begin + ENTRY])
                        for begin in range(0, len(own), ENTRY)
                    }
                    held.append([batch_of(entries, stream=stream)])
            yield count, held


class Bronze:
    """A bronze that grows.

    Args:
        lake: where it is.
        events: of the journal.
        seed: of the journal.
    """

    def __init__(self, lake: Path, events: int, seed: int) -> None:
        self._lake = lake
        self._parts = parts(events, seed)
        self.events = 0
        self.commits = 0

    def grow(self, events: int) -> None:
        """Take in parts until so many events are there."""
        while self.events < events:
            count, held = next(self._parts)
            self.events += count
            self.commits = take_in(self._lake, *held, past=FAR, future=FAR).sequence


def run(
    *,
    events: int,
    kills: int,
    seed: int,
    folder: Path,
    longest: float,
    arguments: Sequence[str],
    finish: Finish | None = None,
) -> Outcome:
    """Play it.

    Args:
        events: of the journal.
        kills: of the stream.
        seed: of the journal and of the moments.
        folder: for the lakes.
        longest: seconds between the first batch of a run and its kill, at most, unless it is killed while it merges.
        arguments: more, for the commands.
        finish: runs a command to its end; by default in a process of its own, as those that are killed.
    """
    chance, outcome = random.Random(seed), Outcome(events=events)
    streamed, refilled = folder / "streamed", folder / "refilled"
    table = SessionsTable(streamed)
    bronze = Bronze(streamed, events, seed)
    jobs = Jobs(folder)
    finish = finish or jobs.finish
    stream = ("sessions", "--lake", str(streamed), *arguments)
    try:
        for each in range(kills):
            bronze.grow(events * (2 * each + 1) // (2 * kills + 1))
            begun, before = time.monotonic(), _batches(table)
            jobs.start(*stream, "--follow", "--follow-every", "1", "--merge-every", "2", "--batch-commits", "4")
            if each % 2:
                jobs.wait_for(lambda: _batches(table) > before)  # noqa: B023 - called before it changes
                bronze.grow(events * (2 * each + 2) // (2 * kills + 1))
                time.sleep(chance.uniform(0, longest))
            else:
                jobs.wait_for(table.staging.exists)
                time.sleep(chance.uniform(0, MERGE))
            jobs.kill()
            outcome.kills += 1
            outcome.merging += table.staging.exists()
            outcome.stream_seconds += time.monotonic() - begun
            progress(f"kill {outcome.kills}: {bronze.events:,} events, {_batches(table)} batches")
        bronze.grow(events)
        outcome.commits = bronze.commits
        outcome.stream_seconds += finish(*stream)
        outcome.batches = _batches(table)
        refilled.mkdir()
        (refilled / "bronze").symlink_to(bronze_of(streamed).root)
        outcome.backfill_seconds = finish("backfill", "--lake", str(refilled), *arguments)
    finally:
        jobs.kill()
    _compare(outcome, streamed, refilled)
    return outcome


def _batches(table: SessionsTable) -> int:
    return max((int(each.name) for each in (table.checkpoint / "commits").glob("[0-9]*")), default=-1) + 1


def _compare(outcome: Outcome, streamed: Path, refilled: Path) -> None:
    with duckdb.connect(config={"threads": 2}) as connection:
        by_stream = {each["session"]: each for each in rows_of_table(connection, SessionsTable(streamed).root)}
        by_backfill = rows_of_table(connection, SessionsTable(refilled).root)
        files = f"{SessionsTable(streamed).root}/*/*.parquet"
        outcome.sessions = _count(connection, f"SELECT count(*) FROM read_parquet('{files}')")
        outcome.distinct = len(by_stream)
        outcome.differ_from_backfill = _differing(by_stream, by_backfill)
        view_events(connection, bronze_of(streamed).root)
        outcome.events = _count(connection, "SELECT count(DISTINCT id) FROM events")
        outcome.differ_from_sql = _differing(by_stream, silver_by_sql(connection, delay_ms=DELAY_MS))


def _differing(rows: dict[str, dict[str, Any]], others: Sequence[dict[str, Any]]) -> int:
    other = {each["session"]: each for each in others}
    return sum(rows.get(session) != other.get(session) for session in rows.keys() | other.keys())


def _count(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def main() -> int:
    """Run it by hand."""
    given = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="crashes-") as folder:
        outcome = run(
            events=given.events,
            kills=given.kills,
            seed=given.seed,
            folder=Path(folder),
            longest=given.longest,
            arguments=["--master", given.master],
        )
    return told(outcome)


if __name__ == "__main__":
    sys.exit(main())
