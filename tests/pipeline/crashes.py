"""A journal that grows while whoever takes it in is killed again and again: bronze must hold every event once.

``python -m tests.pipeline.crashes --events 2000000 --kills 20`` starts a Redis, a process that writes the journal and
`pipeline ingest --follow`, kills that one with SIGKILL (and with it the JVM and its workers) at random moments, lets
the last one finish, and compares bronze with what was written. It prints what it found, and exits with 1 if an event is
missing or there twice. The journal grows while each run lives: a part when it starts, a part after its first commit.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import duckdb
from redis import Redis

from pipeline.bronze.layout import bronze_of
from pipeline.bronze.log import Commit, CommitLog
from tests.pipeline.feeding import Feeder
from tests.pipeline.killing import DEADLINE, Finish, Jobs, options, progress, told
from tests.support.redis_server import RedisServer

PREFIX: Final = "gateway"
NODES: Final = 4
ENTRY: Final = 100
"""Events of an entry."""
STEP: Final = 4_000
"""Events that a node writes at once."""
_POLL: Final = 0.05
_ALLOWED: Final = "allowed"
"""The key that tells the writer how far it may go."""


@dataclass(slots=True)
class Outcome:
    """What was found.

    Attributes:
        written: events in the journal.
        rows: in bronze.
        distinct: ids in bronze.
        kills: how often the job was killed.
        between: of these, kills after a commit and before its files were in their places.
        commits: of bronze.
        seconds: in all.
        duplicates: that bronze left out.
    """

    written: int
    rows: int = 0
    distinct: int = 0
    kills: int = 0
    between: int = 0
    commits: int = 0
    seconds: float = 0.0
    duplicates: int = 0
    missing: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether every event is there once."""
        return self.written == self.rows == self.distinct and not self.missing


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
        events: to write.
        kills: of the job.
        seed: of the moments.
        folder: for the lake.
        longest: seconds between the first commit of a run and its kill, at most.
        arguments: more, for the command.
        finish: runs a command to its end; by default in a process of its own, as those that are killed.
    """
    chance, begun = random.Random(seed), time.monotonic()
    outcome = Outcome(written=events)
    log = CommitLog(bronze_of(folder / "lake"))
    with RedisServer() as server, Redis.from_url(server.url, protocol=2) as client:
        allow(client, 0)
        writer = subprocess.Popen([sys.executable, "-m", "tests.pipeline.crashes", "--write", str(events), server.url])
        jobs, ingest = Jobs(folder), ("ingest", "--grid", server.url, "--lake", str(folder / "lake"), *arguments)
        try:
            for each in range(kills):
                allow(client, events * (2 * each + 1) // (2 * kills + 1))
                before = log.newest().totals.events
                jobs.start(*ingest, "--follow")
                jobs.wait_for(lambda: log.newest().totals.events > before)  # noqa: B023 - called before it changes
                allow(client, events * (2 * each + 2) // (2 * kills + 1))
                time.sleep(chance.uniform(0, longest))
                jobs.kill()
                outcome.kills += 1
                outcome.between += _is_torn(log)
                progress(f"kill {outcome.kills}: {log.newest().totals.events:,} of {events:,} events")
            allow(client, events)
            if writer.wait(DEADLINE):
                raise RuntimeError("the journal could not be written")
            (finish or jobs.finish)(*ingest)
        finally:
            jobs.kill()
            writer.kill()
            writer.wait()
    _look(outcome, folder / "lake", log.newest())
    outcome.seconds = time.monotonic() - begun
    return outcome


def _sequence(log: CommitLog) -> int:
    return max(log.sequences(), default=0)


def _is_torn(log: CommitLog) -> bool:
    published = log.lock.with_name("published")
    return not published.exists() or int(published.read_bytes()) < _sequence(log)


def _look(outcome: Outcome, lake: Path, newest: Commit) -> None:
    files = f"{bronze_of(lake).root}/date=*/hour=*/*.parquet"
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE found AS SELECT id, incarnation FROM read_parquet(?)", [files])
        counts = connection.execute("SELECT count(*), count(DISTINCT id) FROM found").fetchone()
        assert counts is not None
        outcome.rows, outcome.distinct = counts
        # Numbers of an incarnation follow without a hole: the first one that is missing tells which.
        holes = connection.execute(
            "SELECT incarnation, count(DISTINCT id), max(CAST(split_part(id, '-', -1) AS BIGINT)) AS last FROM found "
            "GROUP BY incarnation HAVING count(DISTINCT id) != last"
        ).fetchall()
        outcome.missing = [str(each) for each in holes]
    outcome.commits, outcome.duplicates = newest.sequence, newest.totals.duplicates


def write(events: int, url: str) -> None:
    """Write a journal, as several nodes do."""
    with Redis.from_url(url, protocol=2) as client:
        feeders = [Feeder(client, PREFIX, node=f"n{index}", batch=ENTRY) for index in range(NODES)]
        written = 0
        while written < events:
            allowed = int(client.get(_ALLOWED) or 0)
            if allowed == written:
                time.sleep(_POLL)
            for feeder in feeders:
                step = min(STEP, allowed - written)
                if step:
                    feeder.feed(step, sessions=5_000)
                    written += step


def allow(client: Redis, events: int) -> None:
    """Let the journal grow up to so many events."""
    client.set(_ALLOWED, events)


def main() -> int:
    """Run it by hand."""
    parser = options(__doc__)
    parser.add_argument("--batch-entries", type=int, default=50)
    parser.add_argument("--write", nargs=2, metavar=("EVENTS", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(int(given.write[0]), given.write[1])
        return 0
    arguments = ["--master", given.master, "--batch-entries", str(given.batch_entries), "--follow-every", "1"]
    with tempfile.TemporaryDirectory(prefix="crashes-") as folder:
        outcome = run(
            events=given.events,
            kills=given.kills,
            seed=given.seed,
            folder=Path(folder),
            longest=given.longest,
            arguments=arguments,
        )
    return told(outcome)


if __name__ == "__main__":
    sys.exit(main())
