"""A journal that grows while whoever takes it in is killed again and again: bronze must hold every event once.

``python -m tests.pipeline.crashes --events 2000000 --kills 20`` starts a Redis, a process that writes the journal and
`pipeline ingest --follow`, kills that one with SIGKILL (and with it the JVM and its workers) at random moments, lets
the last one finish, and compares bronze with what was written. It prints what it found, and exits with 1 if an event is
missing or there twice. The journal grows while each run lives: a part when it starts, a part after its first commit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
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
from tests.support.redis_server import RedisServer

PREFIX: Final = "gateway"
NODES: Final = 4
ENTRY: Final = 100
"""Events of an entry."""
STEP: Final = 4_000
"""Events that a node writes at once."""
DEADLINE: Final = 600.0
"""Seconds without a new commit after which a run has failed; the machine may be busy with other things."""
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
    *, events: int, kills: int, seed: int, folder: Path, pause: tuple[float, float], arguments: Sequence[str]
) -> Outcome:
    """Play it.

    Args:
        events: to write.
        kills: of the job.
        seed: of the moments.
        folder: for the lake.
        pause: seconds between the first commit of a run and its kill, from and to.
        arguments: more, for the command.
    """
    chance, begun = random.Random(seed), time.monotonic()
    outcome = Outcome(written=events)
    log = CommitLog(bronze_of(folder / "lake"))
    with RedisServer() as server, Redis.from_url(server.url, protocol=2) as client:
        allow(client, 0)
        writer = subprocess.Popen([sys.executable, "-m", "tests.pipeline.crashes", "--write", str(events), server.url])
        jobs = _Jobs(server.url, folder)
        try:
            for each in range(kills):
                allow(client, events * (2 * each + 1) // (2 * kills + 1))
                job = jobs.start(["--follow", *arguments])
                jobs.wait_for_events(job, log)
                allow(client, events * (2 * each + 2) // (2 * kills + 1))
                time.sleep(chance.uniform(*pause))
                jobs.kill()
                outcome.kills += 1
                outcome.between += _is_torn(log)
                sys.stderr.write(f"kill {outcome.kills}: {log.newest().totals.events:,} of {events:,} events\n")
            allow(client, events)
            if writer.wait(DEADLINE):
                raise RuntimeError("the journal could not be written")
            if code := jobs.start(arguments).wait(DEADLINE):
                raise jobs.failure(f"the last run ended with {code}")
        finally:
            jobs.kill()
            writer.kill()
            writer.wait()
    _look(outcome, folder / "lake", log.newest())
    outcome.seconds = time.monotonic() - begun
    return outcome


class _Jobs:
    """Runs of `pipeline ingest`, one at a time.

    Args:
        url: of the grid.
        folder: for the lake, and for what the runs say.
    """

    def __init__(self, url: str, folder: Path) -> None:
        lake = str(folder / "lake")
        self._command = [sys.executable, "-m", "pipeline", "ingest", "--grid", url, "--lake", lake]
        self._said = folder / "ingest.log"
        self._running: subprocess.Popen[bytes] | None = None

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start one, in a process group of its own, so that a kill takes the JVM, too; its workers end with that."""
        with self._said.open("ab") as output:
            self._running = subprocess.Popen(
                [*self._command, *arguments], stdout=output, stderr=output, start_new_session=True
            )
        return self._running

    def kill(self) -> None:
        """Kill -9; harmless if it has ended."""
        job, self._running = self._running, None
        if job is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()

    def wait_for_events(self, job: subprocess.Popen[bytes], log: CommitLog) -> None:
        """Wait until a run has taken something in, so that no kill only hits a JVM that is starting."""
        before, deadline = log.newest().totals.events, time.monotonic() + DEADLINE
        while log.newest().totals.events == before:
            if job.poll() is not None:
                raise self.failure(f"the job ended with {job.returncode}")
            if time.monotonic() > deadline:
                raise self.failure("the job takes nothing in")
            time.sleep(_POLL)

    def failure(self, what: str) -> RuntimeError:
        """Say what went wrong, with what the last run said."""
        return RuntimeError(f"{what}; it said:\n{self._said.read_text('utf-8', 'replace')[-2000:]}")


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--batch-entries", type=int, default=50)
    parser.add_argument("--longest", type=float, default=8.0, help="seconds between a commit and the kill, at most")
    parser.add_argument("--write", nargs=2, metavar=("EVENTS", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(int(given.write[0]), given.write[1])
        return 0
    options = ["--master", given.master, "--batch-entries", str(given.batch_entries), "--follow-every", "1"]
    with tempfile.TemporaryDirectory(prefix="crashes-") as folder:
        outcome = run(
            events=given.events,
            kills=given.kills,
            seed=given.seed,
            folder=Path(folder),
            pause=(0.0, given.longest),
            arguments=options,
        )
    told = {name: getattr(outcome, name) for name in Outcome.__dataclass_fields__} | {"good": outcome.good}
    sys.stdout.write(f"{json.dumps(told, indent=1)}\n")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
