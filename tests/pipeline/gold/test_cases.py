"""Cases that a synthetic journal does not have, or hides: told by hand, each with its answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pipeline.gold.expressions import percentile
from pipeline.gold.job import Sources, lived, make_tables
from pipeline.schemas import BRONZE, REJECTED, SILVER

from .silver import silver_of_events

pytestmark = pytest.mark.spark

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


TOLD = frozenset({"incidents", "incident_sessions", "losses", "objectives", "refused_sessions"})
"""The tables that these cases are about."""


class Story:
    """Events as they would stand in bronze, in the order in which they are told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._numbers: defaultdict[str, int] = defaultdict(int)

    def tell(self, seconds: float, node: str, kind: str, skip: int = 0, **told: Any) -> None:
        """Add an event of the run *node*, which is called like its node with a letter for the run: ``n1a``."""
        at = NOON + timedelta(seconds=seconds)
        self._numbers[node] += 1 + skip
        if "peer_incarnation" in told:
            told["peer"] = told["peer_incarnation"][:-1]
        told |= {name: NOON + timedelta(seconds=told[name]) for name in ("since", "until") if name in told}
        self.events.append(
            {
                "version": 1, "id": f"{node}-{self._numbers[node]}", "type": kind, "at": at, "node": node[:-1],
                "incarnation": node, "release": "1.0", "stream": 0, "entry": "1-0", "line": 0, "date": at.date(),
                "hour": at.hour, **told,
            }
        )  # fmt: skip

    def back(self, seconds: float, node: str, session: str, epoch: int, skip: int = 0, **told: Any) -> None:
        """Add that a client came back by failover."""
        comeback = {"rung": "failed_over", "reason": "other_node"} | told
        self.tell(seconds, node, "session_resumed", skip, session=session, epoch=epoch, **comeback)

    def tables(self, spark: SparkSession) -> Mapping[str, DataFrame]:
        """Make gold of them."""
        rows = [tuple(each.get(name) for name in BRONZE.names) for each in self.events]
        bronze = spark.createDataFrame(rows, BRONZE)
        silver = spark.createDataFrame(silver_of_events(self.events), SILVER)
        rejected = spark.createDataFrame([], REJECTED)
        return make_tables(Sources(bronze, silver, rejected), DataFrame.persist)


def _two_nodes_die(story: Story) -> None:
    # n1 dies at 100 s. s1 is at n2 at once, which dies four seconds later; s5 says goodbye before; s6 never comes back.
    story.tell(99, "n1a", "session_closed", session="s5", epoch=1, reason="normal")
    story.back(101, "n2a", "s1", 2, away_ms=900, peer_incarnation="n1a", replayed=True)
    # It had been suspected and heard again before; whoever takes over does not finish, and n4 goes on.
    story.tell(40, "n4a", "node_suspected", peer_incarnation="n1a")
    story.tell(41, "n4a", "node_suspicion_cleared", peer_incarnation="n1a")
    story.tell(101, "n4a", "node_suspected", peer_incarnation="n1a")
    story.tell(102, "n3a", "node_suspected", peer_incarnation="n1a")
    story.tell(105, "n3a", "session_orphaned", session="s6", epoch=1, peer_incarnation="n1a", since=98.5, until=104)
    story.tell(105, "n3a", "node_expired", peer_incarnation="n1a", since=98.5, until=104)
    story.tell(105.5, "n4a", "node_takeover_continued", peer_incarnation="n1a", reason="queues")
    story.tell(106, "n3a", "node_taken_over", peer_incarnation="n1a", count=1)
    story.tell(180, "n4a", "node_cleaned_up", peer_incarnation="n1a")
    story.back(107, "n3a", "s1", 3, away_ms=2_500, peer_incarnation="n2a", replayed=True)
    story.back(108, "n3a", "s2", 2, away_ms=3_500, peer_incarnation="n2a", lost=7, replayed=False)
    story.tell(109, "n3a", "node_expired", peer_incarnation="n2a", since=103, until=108.5)
    story.tell(166, "n3a", "session_expired", session="s6", epoch=1)


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Gold of one day on which much happens."""
    story = Story()
    for node in ("n1a", "n2a", "n3a", "n4a", "n5a"):
        story.tell(0, node, "node_started")
    for session, node in (("s1", "n1a"), ("s2", "n2a"), ("s3", "n3a"), ("s4", "n4a"), ("s5", "n1a"), ("s6", "n1a")):
        story.tell(1, node, "session_opened", session=session, epoch=1, window_ms=60_000, principal=f"of-{session}")
    _two_nodes_die(story)
    # Its client comes too late, again and again; so does one whose session nobody knows.
    for again in range(5):
        story.tell(170 + again, "n3a", "session_refused", session="s6", reason="session_expired", away_ms=70_000)
        story.tell(171 + again, "n4a", "session_refused", session="s9", reason="session_unknown")
    story.tell(172, "n3a", "session_refused", session="s9", reason="grid_unavailable")
    story.tell(180, "n3a", "session_refused", session="s9", reason="session_unknown")
    # n4 begins anew, and nobody ever said that it was gone: s4 comes back to the new run, which loses three events.
    story.tell(199, "n4a", "traffic_measured", since=140, until=199, deliveries=0, connections=1, sessions=1, cpu_ms=2)
    story.tell(300, "n4b", "node_started")
    story.back(301, "n4b", "s4", 2, away_ms=100_000, peer_incarnation="n4a")
    # n3 is drained. s1 goes to n4, s2 closes by itself meanwhile, s3 was gone before.
    story.tell(390, "n3a", "session_closed", session="s3", epoch=1, reason="normal")
    story.tell(400, "n3a", "node_draining", sessions=2)
    story.tell(401, "n3a", "session_disconnected", session="s1", epoch=3, cause="going_away", code=4000)
    story.back(402, "n4b", "s1", 4, skip=3, away_ms=200, peer_incarnation="n3a", rung="handed_over", reason=None)
    story.tell(403, "n3a", "session_closed", session="s2", epoch=2, reason="normal")
    story.tell(420, "n3a", "node_stopped", sessions=0)
    # It could not leave the grid, so that its lease expired afterwards; that is no death.
    story.tell(430, "n4b", "node_expired", peer_incarnation="n3a", since=419, until=429)
    story.tell(431, "n4b", "events_dropped", count=2, since=401, until=402, reason="grid_unavailable")
    # n5 hangs, and wakes up.
    story.tell(500, "n4b", "node_expired", peer_incarnation="n5a", since=490, until=499)
    story.tell(510, "n5a", "node_lease_lost")
    # n6 began before the events that are there. One of them has a wrong clock, and is filed where it arrived.
    story.tell(520, "n6a", "traffic_measured", skip=100, since=460, until=520)
    story.tell(-1e9, "n6a", "traffic_measured", since=-1e9, until=-1e9, date=NOON.date(), hour=NOON.hour)
    # s7 is left at n6, and nobody tells how it ended; an hour later its window has passed long ago.
    story.tell(525, "n6a", "session_opened", session="s7", epoch=1, window_ms=60_000, principal="of-s7")
    story.tell(530, "n6a", "session_disconnected", session="s7", epoch=1, cause="connection_lost")
    story.tell(3_500, "n6a", "traffic_measured", since=3_440, until=3_500)
    # The grid is away for n4 and n6. s1 is put off twice and back, s8 is forgotten, s10 is refused and back too soon.
    story.tell(2_000, "n4b", "session_opened", session="s8", epoch=1, window_ms=60_000, principal="of-s8")
    story.tell(2_001, "n6a", "session_opened", session="s10", epoch=1, window_ms=60_000, principal="of-s10")
    story.tell(2_100, "n4b", "grid_lost")
    story.tell(2_103, "n4b", "session_disconnected", session="s1", epoch=4, cause="connection_lost")
    for seconds, session, reason in (
        (2_105, "s1", "grid_unavailable"), (2_110, "s1", "grid_unavailable"), (2_106, "s10", "try_later"),
    ):  # fmt: skip
        story.tell(seconds, "n6a", "session_refused", session=session, reason=reason)
    story.tell(2_120, "n4b", "grid_regained", away_ms=20_000, lost_writes=True, generation=2)
    story.tell(2_122, "n6a", "grid_regained", away_ms=21_000, lost_writes=True, generation=2)
    story.back(2_125, "n6a", "s1", 5, away_ms=22_000, peer_incarnation="n4b", replayed=False)
    story.tell(2_130, "n4b", "session_refused", session="s8", reason="session_unknown")
    # Later only n6 loses it, and never tells that it has it again.
    story.tell(3_000, "n6a", "grid_lost")
    # n7 dies, and the clock of the one who tells is five minutes behind.
    story.tell(3_100, "n7a", "node_started")
    story.tell(3_200, "n7a", "traffic_measured", since=3_140, until=3_200)
    story.tell(2_903, "n4b", "node_expired", peer_incarnation="n7a", since=3_200, until=3_206)
    story.tell(2_904, "n4b", "node_taken_over", peer_incarnation="n7a", count=0)
    made = story.tables(spark)
    return {name: [each.asDict(recursive=True) for each in made[name].collect()] for name in TOLD}


OUTAGE = "outage-20260301T123500.000"


def by(tables: Mapping[str, list[dict[str, Any]]], table: str, *key: str) -> dict[Any, dict[str, Any]]:
    rows = tables[table]
    return {each[key[0]] if len(key) == 1 else tuple(each[name] for name in key): each for each in rows}


def test_incidents_are_what_happened_and_nothing_else(tables: dict[str, list[dict[str, Any]]]) -> None:
    assert {each["incident"] for each in tables["incidents"]} == {
        "death-n1a", "death-n2a", "death-n4a", "death-n7a", "drain-n3a", "hang-n5a", "outage-20260301T123500.000",
        "outage-20260301T125000.000",
    }  # fmt: skip


def test_a_death_begins_with_the_last_word_of_the_dead_and_ends_with_the_takeover(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    found = by(tables, "incidents", "incident")
    death = found["death-n1a"]
    assert death["begins"].replace(tzinfo=UTC) == NOON + timedelta(seconds=99)
    assert death["ends"].replace(tzinfo=UTC) == NOON + timedelta(seconds=106)
    assert death["noticed_by"] == "n3"
    vanished = found["death-n4a"]
    assert vanished["begins"].replace(tzinfo=UTC) == NOON + timedelta(seconds=199)
    assert vanished["ends"].replace(tzinfo=UTC) == NOON + timedelta(seconds=300)
    assert vanished["noticed_by"] is None


def test_how_a_node_was_suspected_and_taken_over_is_told(tables: dict[str, list[dict[str, Any]]]) -> None:
    found = by(tables, "incidents", "incident")
    names = ("suspected_at", "taken_over_at", "cleaned_up_at")
    told = [found["death-n1a"][name].replace(tzinfo=UTC) for name in names]
    assert told == [NOON + timedelta(seconds=seconds) for seconds in (101, 106, 180)]
    assert found["death-n1a"]["takeovers_continued"] == 1
    assert [found["death-n2a"][name] for name in (*names, "takeovers_continued")] == [None, None, None, 0]
    for each in ("drain-n3a", OUTAGE):
        assert [found[each][name] for name in (*names, "takeovers_continued")] == [None] * 4


def test_everybody_whom_an_incident_touched_is_named_with_his_fate(tables: dict[str, list[dict[str, Any]]]) -> None:
    touched = by(tables, "incident_sessions", "incident", "session")
    assert {key: (each["fate"], each["away_ms"]) for key, each in touched.items()} == {
        ("death-n1a", "s1"): ("recovered", 900),
        ("death-n1a", "s6"): ("expired", None),
        # The same session, which the second death touched, too.
        ("death-n2a", "s1"): ("recovered", 2_500),
        ("death-n2a", "s2"): ("recovered", 3_500),
        ("death-n4a", "s4"): ("recovered", 100_000),
        ("drain-n3a", "s1"): ("recovered", 200),
        (OUTAGE, "s1"): ("recovered", 22_000),
        (OUTAGE, "s8"): ("away", None),
    }
    assert touched["death-n2a", "s2"]["lost"] == 7
    assert touched["death-n2a", "s2"]["principal"] == "of-s2"
    assert touched["drain-n3a", "s1"]["back_node"] == "n4"


def test_an_outage_of_the_grid_is_told_with_who_was_held_up_and_what_was_lost(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    found = by(tables, "incidents", "incident")
    names = ("node", "nodes", "incarnation", "noticed_by", "lost_writes", "sessions", "put_off", "refused")
    assert [found[OUTAGE][name] for name in names] == [None, ["n4", "n6"], None, "n4", True, 2, 1, 1]
    assert found[OUTAGE]["ends"] - found[OUTAGE]["begins"] == timedelta(seconds=22)
    assert (found[OUTAGE]["comebacks"], found[OUTAGE]["held_up_p50_ms"], found[OUTAGE]["held_up_max_ms"]) == (
        1, 20_000, 20_000,
    )  # fmt: skip
    alone = found["outage-20260301T125000.000"]
    assert [alone[name] for name in names] == ["n6", ["n6"], None, "n6", None, 0, None, None]
    assert alone["ends"] is None
    touched = by(tables, "incident_sessions", "incident", "session")
    told = ("put_off", "held_up_ms", "refused", "principal")
    assert [touched[OUTAGE, "s1"][name] for name in told] == [2, 20_000, 0, "of-s1"]
    assert [touched[OUTAGE, "s8"][name] for name in told] == [0, None, 1, "of-s8"]


def test_nothing_ends_before_it_begins_and_clocks_that_differ_are_told(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    found = by(tables, "incidents", "incident")
    behind = found["death-n7a"]
    assert behind["ends"] == behind["begins"]
    assert behind["skew_ms"] == 296_000
    assert {name for name, each in found.items() if each["skew_ms"]} == {"death-n7a"}


def test_incidents_sum_up_their_sessions(tables: dict[str, list[dict[str, Any]]]) -> None:
    found = by(tables, "incidents", "incident")
    names = ("sessions", "comebacks", "failed_over", "expired", "lost", "recovered_share", "away_p50_ms", "away_max_ms")
    assert [found["death-n1a"][name] for name in names] == [2, 1, 1, 1, 0, 0.5, 900, 900]
    assert [found["death-n2a"][name] for name in names] == [2, 2, 2, 0, 7, 1.0, 2_500, 3_500]
    assert [found["hang-n5a"][name] for name in names] == [0, 0, 0, 0, 0, None, None, None]


def test_every_rung_is_counted_and_whether_all_that_was_missed_followed(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    found = by(tables, "incidents", "incident")
    names = ("reattached", "handed_over", "mirrored", "failed_over", "other_rungs", "replayed", "not_replayed")
    assert [found["death-n2a"][name] for name in names] == [0, 0, 0, 2, 0, 1, 1]
    assert [found["drain-n3a"][name] for name in names] == [0, 1, 0, 0, 0, 0, 0]
    assert [sum(each[name] for each in tables["objectives"]) for name in names] == [0, 1, 0, 5, 0, 2, 2]
    touched = by(tables, "incident_sessions", "incident", "session")
    told = [touched[key]["replayed"] for key in (("death-n2a", "s1"), ("death-n2a", "s2"), ("death-n4a", "s4"))]
    assert told == [True, False, None], "a node of the first version of the journal does not tell"


def test_whoever_did_not_come_back_in_time_has_expired_whether_somebody_told_or_not(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    expired = {each["node"]: each["expired"] for each in tables["objectives"] if each["expired"]}
    assert expired == {"n1": 1, "n6": 1}


def test_one_client_that_tries_a_dead_token_often_is_one(tables: dict[str, list[dict[str, Any]]]) -> None:
    found = by(tables, "refused_sessions", "session")
    names = ("refusals", "reason", "node", "principal")
    assert [found["s6"][name] for name in names] == [5, "session_expired", "n3", "of-s6"]
    assert [found["s9"][name] for name in names] == [6, "session_unknown", "n4", None]
    noon = {each["node"]: each for each in tables["objectives"] if each["hour"].replace(tzinfo=UTC) == NOON}
    assert {name: (each["refused"], each["refused_sessions"], each["put_off"]) for name, each in noon.items()} == {
        "n1": (0, 0, 0), "n2": (0, 0, 0), "n3": (6, 0, 1), "n4": (6, 1, 0), "n6": (0, 0, 3), None: (0, 0, 0),
    }  # fmt: skip


def test_who_never_came_back_from_an_incident_is_counted_and_once(tables: dict[str, list[dict[str, Any]]]) -> None:
    noon = {each["node"]: each for each in tables["objectives"] if each["hour"].replace(tzinfo=UTC) == NOON}
    assert {name: each["missed"] for name, each in noon.items() if each["missed"]} == {"n1": 1, None: 1}
    assert noon["n1"]["recovered_share"] == 0
    assert noon["n4"]["recovered_share"] == 2 / 3


def test_missing_numbers_are_told_and_explained_as_far_as_they_are(tables: dict[str, list[dict[str, Any]]]) -> None:
    found = by(tables, "losses", "incarnation")
    assert {name: each["missing"] for name, each in found.items() if each["missing"]} == {"n4b": 3}
    assert (found["n4b"]["dropped"], found["n4b"]["unexplained"]) == (2, 1)


@pytest.mark.thorough
def test_one_impossible_number_stops_no_table(spark: SparkSession) -> None:
    """Bronze of an older release holds numbers that ingest refuses by now, and times of which every one is possible."""
    story, huge, never = Story(), 1 << 39, 251_000_000_000
    story.tell(0, "n1a", "node_started")
    for minute in range(60, 3_000, 60):
        story.tell(minute, "n1a", "traffic_measured", since=minute - 60, until=minute, deliveries=huge, cpu_ms=huge)
        story.tell(minute, "n1a", "traffic_measured", root="a", until=minute, deliveries=huge, publishes=-huge)
        story.tell(minute, "n1a", "traffic_measured", root="b", until=minute, deliveries=-huge)
        story.tell(minute, "n2a", "traffic_measured", since=-1.7e9, until=never, deliveries=1, cpu_ms=huge)
    story.tell(3_001, "n1a", "events_dropped", count=huge)
    story.tell(3_002, "n1a", "session_opened", session="s1", epoch=1, window_ms=huge)
    made = story.tables(spark)
    found = {name: [each.asDict() for each in frame.collect()] for name, frame in made.items()}
    traffic = {each["root"]: (each["cpu_ms"], each["cost_share"]) for each in found["traffic"]}
    assert traffic == {"a": (49 * huge, 1.0), "b": (0, 0.0)}
    measured = {each["node"]: each["measured_ms"] for each in found["capacity"]}
    assert (measured["n1"], measured["n2"]) == (49 * 60_000, ((1 << 63) - 1) // 1_000)


def test_percentiles_are_nearest_rank_in_every_engine(spark: SparkSession) -> None:
    sizes = [*range(1, 60), 99, 100, 101, 199, 200, 201, 1_000]
    values = spark.createDataFrame(
        [(size, 10 * number) for size in sizes for number in range(1, size + 1)], "n INT, v LONG"
    )
    found = (
        values.groupBy("n").agg(*(percentile(f.col("v"), each).alias(f"p{each}") for each in (50, 95, 99))).collect()
    )
    expected = {size: tuple(10 * -(-size * hundredths // 100) for hundredths in (50, 95, 99)) for size in sizes}
    assert {row["n"]: (row["p50"], row["p95"], row["p99"]) for row in found} == expected
    for size in sizes:
        row = duckdb.execute(
            f"SELECT quantile_disc(v * 10, [0.5, 0.95, 0.99]) FROM range(1, {size + 1}) t(v)"
        ).fetchone()
        assert row is not None
        assert tuple(row[0]) == expected[size]


def test_sessions_of_which_nothing_was_told_for_weeks_are_there_when_their_node_dies(spark: SparkSession) -> None:
    weeks, days = timedelta(days=20), timedelta(days=2)
    told = {
        "idle": (NOON - weeks, NOON - weeks, "connected"),
        "gone": (NOON - weeks, NOON - weeks, "away"),
        "over": (NOON - weeks, NOON - days, "ended"),
        "over since": (NOON - weeks, NOON - days / 2, "ended"),
        "later": (NOON + days, NOON + days, "connected"),
    }
    rows = [(name, *each) for name, each in told.items()]
    sessions = spark.createDataFrame(
        rows, "session STRING, first_event_at TIMESTAMP, last_event_at TIMESTAMP, state STRING"
    )
    found = sessions.where(lived(NOON.date(), NOON.date())).collect()
    assert {row["session"] for row in found} == {"idle", "gone", "over since"}
