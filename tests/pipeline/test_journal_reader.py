"""The reader of the journal on a real Redis, with what the gateway's own script appends."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from redis import Redis
from redis.exceptions import ResponseError

from gateway.adapters.redis.keys import Keys
from gateway.core.journal import JOURNAL_PARTITIONS, journal_partition
from gateway.core.types import SessionId
from pipeline.errors import NotReady, PipelineError
from pipeline.source.datasource import (
    RANGES,
    EntryRange,
    JournalSource,
    Part,
    commit,
    ranges,
    read_range,
    source_options,
)
from pipeline.source.journal import Journal, JournalPlace, state_key, stream_key
from pipeline.source.offsets import START, EntryId, Position, StreamState, positions_of
from tests.pipeline.feeding import Feeder, ids
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisSentinels
from tests.support.redis_server import RedisServer, unique_prefix
from tests.support.redis_user import PIPELINE, as_user, pipeline_arguments, pipeline_sentinel_line

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def client(server: RedisServer) -> Iterator[Redis]:
    with Redis.from_url(server.url, protocol=2) as connection:
        yield connection


@pytest.fixture
def place(server: RedisServer) -> JournalPlace:
    return JournalPlace(server.url, unique_prefix(), 5.0)


@pytest.fixture
def feeder(client: Redis, place: JournalPlace) -> Feeder:
    return Feeder(client, place.prefix)


@pytest.fixture
def journal(place: JournalPlace) -> Iterator[Journal]:
    with Journal(place) as opened:
        yield opened


def source(place: JournalPlace, *, reader: str = "r", start: dict[int, Position] | None = None) -> JournalSource:
    return JournalSource(source_options(place, batch_entries=5, trim_lag=2, reader=reader, start=start or START))


def read(place: JournalPlace, parts: list[EntryRange]) -> list[str]:
    return [str(each["id"]) for part in parts for batch in read_range(place, part) for each in batch.to_pylist()]


def test_the_keys_are_those_of_the_gateway() -> None:
    keys = Keys("p")
    streams = range(JOURNAL_PARTITIONS)

    assert [stream_key("p", each) for each in streams] == list(keys.journal)
    assert [state_key("p", each) for each in streams] == list(keys.journal_state)


def test_an_empty_grid_has_nothing_to_read(place: JournalPlace) -> None:
    stream = source(place).streamReader(RANGES)

    assert stream.latestOffset(stream.initialOffset(), ReadAllAvailable()) == stream.initialOffset()


def test_everything_is_read_once_in_bounded_steps(place: JournalPlace, feeder: Feeder) -> None:
    records = feeder.feed(1500)
    stream = source(place).streamReader(RANGES)
    found: list[str] = []
    offset, steps = stream.initialOffset(), 0
    while (end := stream.latestOffset(offset, stream.getDefaultReadLimit())) != offset:
        parts = [each for part in stream.partitions(offset, end) if isinstance(part, Part) for each in part.ranges]
        assert all(each.until.entry.sequence - each.after.entry.sequence <= 5 for each in parts)
        found += read(place, pickle.loads(pickle.dumps(parts)))
        offset, steps = end, steps + 1
    stream.stop()

    assert sorted(found) == sorted(ids(records))
    assert steps > 1


def test_a_range_can_be_read_again(place: JournalPlace, feeder: Feeder) -> None:
    feeder.feed(300)
    stream = source(place).streamReader(RANGES)
    end = stream.latestOffset(stream.initialOffset(), ReadMaxRows(3))
    parts = ranges(START, positions_of(end))
    first = read(place, parts)
    feeder.feed(300)

    assert read(place, parts) == first
    assert first


def test_a_query_that_ends_does_not_run_after_what_comes_later(place: JournalPlace, feeder: Feeder) -> None:
    first = feeder.feed(100)
    stream = source(place).streamReader(RANGES)
    stream.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
    feeder.feed(100)

    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())

    assert sorted(read(place, ranges(START, positions_of(end)))) == sorted(ids(first))
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    stream.stop()


def test_only_the_commit_trims_and_leaves_the_lag(place: JournalPlace, feeder: Feeder, journal: Journal) -> None:
    feeder._batch = 1
    feeder.feed(4000, sessions=1)
    (used,) = [stream for stream, state in journal.states().items() if state.incarnation]
    stream = source(place).streamReader(RANGES)
    end = stream.latestOffset(stream.initialOffset(), ReadMaxRows(3000))
    read(place, ranges(START, positions_of(end)))
    assert journal.state(used).first == EntryId(1, 0)

    stream.commit(end)

    first = journal.state(used).first
    # Redis removes whole nodes of a stream, up to 100 entries.
    assert first is not None
    assert 2890 <= first.sequence <= 2998
    assert journal.holder(used).reader == "r"
    assert feeder.client.hget(state_key(place.prefix, used), "committed") == b"1-2999"
    stream.commit(end)
    stream.stop()


def test_what_an_event_hook_has_yet_to_pass_is_not_trimmed(
    place: JournalPlace, feeder: Feeder, journal: Journal
) -> None:
    feeder._batch = 1
    feeder.feed(1000, sessions=1)
    ((used, state),) = [each for each in journal.states().items() if each[1].incarnation]
    hash_key = state_key(place.prefix, used)

    def first_left() -> int:
        commit(journal, {used: Position(state.incarnation, state.last)}, "r", 0)
        first = journal.state(used).first
        return 1000 if first is None else first.sequence

    feeder.client.hset(hash_key, "hook:crm", f"7 {state.incarnation} 1-500.2 500")
    # Redis removes whole nodes of a stream, up to 100 entries.
    left = first_left()
    assert 390 <= left <= 500
    feeder.client.hset(hash_key, "hook:crm", "7 another 1-999 999")
    assert first_left() == left, "its cursor is of another incarnation, so that it has all of this before it"
    feeder.client.hdel(hash_key, "hook:crm")
    assert first_left() >= 890


def test_of_two_readers_that_start_together_one_has_the_journal(place: JournalPlace, journal: Journal) -> None:
    """Both have seen that nobody reads it; each of them claims."""
    together, won = threading.Barrier(2), []

    def start(reader: str) -> None:
        with Journal(place) as mine:
            assert mine.holder(0).reader == ""
            together.wait()
            with suppress(NotReady):
                mine.claim(reader)
                won.append(reader)

    readers = [threading.Thread(target=start, args=(name,)) for name in ("one", "other")]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
    assert len(won) == 1
    assert {journal.holder(stream).reader for stream in range(JOURNAL_PARTITIONS)} == set(won)
    journal.claim(won[0])


def test_a_reader_learns_that_another_one_has_taken_over(place: JournalPlace, feeder: Feeder, journal: Journal) -> None:
    feeder.feed(100, sessions=3)
    ends = {name: each for name, each in _ends(journal.states()).items() if each.incarnation}
    journal.claim("old")
    commit(journal, ends, "old", 0)
    with pytest.raises(NotReady, match="the journal is read by old"):
        journal.claim("new")
    journal.claim("new", take_over=True)
    for again in (lambda: journal.claim("old"), lambda: commit(journal, ends, "old", 0)):
        with pytest.raises(NotReady, match="the journal is read by new"):
            again()


def test_a_commit_does_not_touch_another_incarnation(place: JournalPlace, feeder: Feeder, journal: Journal) -> None:
    feeder.feed(50, sessions=1)
    positions = {used: Position("gone", EntryId(1, 3)) for used, state in journal.states().items() if state.incarnation}

    assert commit(journal, positions, "r", 0) == 0

    assert [journal.holder(used).reader for used in positions] == [""]


def test_what_the_cap_cut_unread_is_refused(place: JournalPlace, feeder: Feeder) -> None:
    capped = Feeder(feeder.client, place.prefix, batch=1, length=10)
    capped.feed(5, sessions=1)
    stream = source(place).streamReader(RANGES)
    begin = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    capped.feed(3, sessions=1)
    end = stream.latestOffset(begin, ReadAllAvailable())
    capped.feed(20, sessions=1)

    with pytest.raises(NotReady, match="trimmed before they were read"):
        stream.latestOffset(begin, ReadAllAvailable())
    with pytest.raises(NotReady, match="trimmed before they were read"):
        read(place, ranges(positions_of(begin), positions_of(end)))
    stream.stop()


def test_what_was_cut_before_anybody_read_is_no_gap(place: JournalPlace, feeder: Feeder) -> None:
    capped = Feeder(feeder.client, place.prefix, batch=1, length=10)
    records = capped.feed(30, sessions=1)
    stream = source(place).streamReader(RANGES)

    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())

    assert read(place, ranges(START, positions_of(end))) == [each["id"] for each in records[-10:]]
    stream.stop()


def test_an_emptied_grid_is_refused(place: JournalPlace, feeder: Feeder) -> None:
    feeder.feed(50)
    stream = source(place).streamReader(RANGES)
    begin = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    feeder.client.flushdb()

    with pytest.raises(NotReady, match=r"was emptied .*there is none now.* 13 more streams"):
        stream.latestOffset(begin, ReadAllAvailable())
    Feeder(feeder.client, place.prefix).feed(50)
    with pytest.raises(NotReady, match=r"was emptied .*it is a new one"):
        stream.latestOffset(begin, ReadAllAvailable())
    stream.stop()


def test_a_grid_that_is_not_there_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.source.journal._RETRIES", 0)
    with (
        Journal(JournalPlace("redis://me:hidden@127.0.0.1:1/0", "p", 0.5)) as nowhere,
        pytest.raises(PipelineError, match="the grid cannot be reached") as caught,
    ):
        nowhere.states()

    assert "hidden" not in str(caught.value)
    assert "hidden" not in repr(JournalPlace("redis://me:hidden@127.0.0.1:1/0", "p", 0.5))


def test_a_limit_of_another_kind_is_refused(place: JournalPlace) -> None:
    stream = source(place).streamReader(RANGES)

    with pytest.raises(PipelineError, match="ReadMaxBytes"):
        stream.latestOffset(stream.initialOffset(), ReadMaxBytes(1))
    stream.stop()


def test_missing_options_are_named() -> None:
    with pytest.raises(PipelineError, match="needs the options gridUrl"):
        JournalSource({}).streamReader(RANGES)


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_sentinels_and_clusters_are_read_and_trimmed_too(kind: str) -> None:
    """As the user with least privilege that the how-to gives the pipeline."""
    users = pipeline_arguments("p")
    with (
        RedisCluster(arguments=users)
        if kind == "cluster"
        else RedisSentinels(replicas=0, sentinels=2, arguments=users, lines=(pipeline_sentinel_line(),)) as servers
    ):
        with Journal(JournalPlace(servers.url, "p", 5.0)) as everything:
            for stream in range(JOURNAL_PARTITIONS):
                everything._client.hset(state_key("p", stream), "incarnation", "J")
                for _ in range(3):
                    everything._client.xadd(stream_key("p", stream), {"events": "{}", "count": "1"}, id="1-*")

        place = JournalPlace(as_user(servers.url, PIPELINE), "p", 5.0)
        with Journal(place) as journal:
            states = journal.states()
            assert {each.last for each in states.values()} == {EntryId(1, 2)}
            assert journal.following(7, EntryId(1, 0)) == EntryId(1, 1)
            found = [batch for part in ranges(START, _ends(states)) for batch in read_range(place, part)]
            assert [batch["text"].to_pylist() for batch in found] == [[b"{}"] * 3] * JOURNAL_PARTITIONS
            journal.claim("r")
            commit(journal, _ends(states), "r", 0)

            assert {journal.holder(stream).reader for stream in states} == {"r"}


def test_the_user_of_the_pipeline_may_read_and_trim_the_journal_and_nothing_else() -> None:
    with RedisServer(arguments=pipeline_arguments("p")) as server, Redis(port=server.port, protocol=2) as everything:
        Feeder(everything, "p").feed(200)
        everything.hset("p:{s1}:session:x", "principal", "alice")
        everything.hset("p:{j0}:journal-states", "x", "y")
        with Journal(JournalPlace(as_user(server.url, PIPELINE), "p", 5.0)) as journal:
            states = journal.states()
            found = [entry for part in ranges(START, _ends(states)) for entry in read_range(_place(server), part)]
            assert sum(batch.num_rows for batch in found) == 200
            journal.claim("r")
            commit(journal, _ends(states), "r", 0)
            assert journal.holder(0).reader == "r"
            execute: Any = journal._client.execute_command
            for command in (
                *(
                    ("HGETALL", "p:{s1}:session:x"),
                    ("HGET", "p:{s1}:session:x", "principal"),
                    ("GET", "p:{nodes}:renewed"),
                ),
                *(("HGET", "p:{nodes}:revocations", "x"), ("HGET", "p:{j0}:journal-states", "x"), ("KEYS", "*")),
                *(("XRANGE", "p:{t1}:stream", "-", "+"), ("XADD", "p:{j0}:journal", "*", "events", "{}")),
                *(("DEL", "p:{j0}:journal"), ("XTRIM", "p:{t1}:stream", "MAXLEN", "0"), ("FLUSHALL",), ("INFO",)),
                *(("EVAL", "return redis.call('HGET', KEYS[1], 'x')", "1", "p:{s1}:session:x"), ("CONFIG", "GET", "*")),
                *(("EVAL", "return redis.call('DEL', KEYS[1])", "1", "p:{j0}:journal"), ("PUBLISH", "c", "m")),
            ):
                with pytest.raises(ResponseError, match=r"(?i)no.?perm|can't run|ACL"):
                    execute(*command)


def _place(server: RedisServer) -> JournalPlace:
    return JournalPlace(as_user(server.url, PIPELINE), "p", 5.0)


def _ends(states: dict[int, StreamState]) -> dict[int, Position]:
    return {stream: Position(each.incarnation, each.last) for stream, each in states.items()}


def test_a_foreign_entry_is_no_end_and_no_beginning(journal: Journal, feeder: Feeder, client: Redis) -> None:
    (event,) = feeder.feed(1, sessions=1)
    stream = journal_partition(SessionId(event["session"]))
    key = stream_key(feeder.prefix, stream)
    client.xadd(key, {"temperature": "21.5"})
    found = journal.state(stream)
    assert (found.first, found.last, found.deleted) == (EntryId(1, 0), EntryId(1, 0), EntryId(0, 0))
    assert journal.following(stream, EntryId(1, 0)) is None
    client.xtrim(key, maxlen=1, approximate=False)
    assert (journal.state(stream).first, journal.state(stream).last) == (None, EntryId(0, 0))
    feeder.feed(1, sessions=1)
    found = journal.state(stream)
    assert (found.first, found.last, found.deleted) == (EntryId(1, 0), EntryId(1, 0), EntryId(0, 1))
    assert client.xinfo_stream(key)["max-deleted-entry-id"] == b"0-1", "it is as if it had never been there"


def test_what_is_cut_behind_a_foreign_commit_is_counted(feeder: Feeder, client: Redis) -> None:
    (event,) = feeder.feed(1, sessions=1)
    key = state_key(feeder.prefix, journal_partition(SessionId(event["session"])))
    client.hset(key, "committed", "1796026852870-0")
    short = Feeder(client, feeder.prefix, length=1)
    short.feed(1, sessions=1)
    assert client.hget(key, "lost") == b"1"
