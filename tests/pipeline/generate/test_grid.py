"""A synthetic journal in a real Redis has the entries, the ids and the order of one that nodes wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from redis import Redis

from gateway.core.journal import BadRecord, Record, read_records, write_records
from pipeline.cli.program import run
from pipeline.generate import Scale, events_table, records, slices, write_grid
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    """A Redis for all tests here; they keep apart by prefixes."""
    with RedisServer() as server:
        yield server


SCALE = Scale(3_000, seed=9, hours=1)


def told(client: Redis, stream: int) -> list[tuple[str, int, Record]]:
    """Read a stream back: entry, line, event."""
    found = []
    read: Any = client.xrange(f"trial:{{j{stream}}}:journal")
    for entry, fields in read:
        lines = [each for each in read_records(fields[b"events"]) if not isinstance(each, BadRecord)]
        assert len(lines) == int(fields[b"count"])
        found += [(entry.decode(), place, each) for place, each in enumerate(lines)]
    return found


def test_entries_are_those_of_bronze(
    redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--events", f"{SCALE.events}", "--seed", f"{SCALE.seed}", "--hours", "1"]
    grid = ["--grid", redis_server.url, "--grid-prefix", "trial"]
    assert run(["generate", "--into", "grid", *options, *grid]) == 0, capsys.readouterr().err
    table = pa.concat_tables(events_table(each, SCALE.seed) for each in slices(SCALE))
    places = zip(*(table[name].to_pylist() for name in ("stream", "entry", "line")), strict=True)
    expected: dict[int, list[tuple[str, int, Record]]] = {stream: [] for stream in range(16)}
    for (stream, entry, line), event in zip(places, read_records(write_records(records(table))), strict=True):
        assert not isinstance(event, BadRecord)
        expected[stream].append((entry, line, event))
    with Redis.from_url(redis_server.url) as client:
        assert {stream: told(client, stream) for stream in range(16)} == expected
        assert all(client.hexists(f"trial:{{j{stream}}}:journal-state", "incarnation") for stream in range(16))
        # A journal of a later generation is there: ours would be older than it.
        client.xadd("trial:{j0}:journal", {"events": "", "count": 0}, id="7-0")
    assert run(["generate", "--into", "grid", *options, *grid]) == 2
    assert "later generation" in capsys.readouterr().err


def test_the_pace_is_kept(redis_server: RedisServer) -> None:
    pauses: list[float] = []
    with Redis.from_url(redis_server.url) as client:
        written = list(write_grid(SCALE, client, "paced", rate=100, sleep=pauses.append))
    assert written[-1] == SCALE.events
    # Nothing was waited for, so that every pause is what is left of the time that the events so far should take.
    assert pauses == sorted(pauses)
    assert SCALE.events / 100 - 20 < pauses[-1] <= SCALE.events / 100
