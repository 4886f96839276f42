"""Links with other clusters and masters, told by hand: what a synthetic journal does not have, or hides."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from .test_cases import NOON, Story

pytestmark = pytest.mark.spark

PARIS: dict[str, Any] = {"link": "c2/0", "remote": "paris", "direction": "out"}
HOUR = 3600.0


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Gold of two hours."""
    story = Story()
    story.tell(0, "n1a", "node_started")
    story.tell(1, "n1a", "session_opened", session="s1", epoch=1, window_ms=60_000, principal="alice")
    story.tell(1, "n1a", "master_elected", term=7)
    story.tell(2, "n1a", "zone_link_connected", **PARIS)
    story.tell(59, "n1a", "zone_link_measured", **PARIS, since=0, until=59, events=10, bytes=100, behind=4)
    story.tell(70, "n2a", "zone_link_measured", **PARIS, since=10, until=70, events=5, bytes=50, behind=9)
    for seconds, reason in ((80, "lost"), (81, "refused"), (82, "given_up"), (83, "a word of a newer release")):
        story.tell(seconds, "n1a", "zone_link_lost", **PARIS, since=2, reason=reason)
    story.tell(HOUR + 5, "n2a", "zone_gap_found", **PARIS)
    # What passed before the full hour and is told of after it belongs to the hour in which counting ended.
    story.tell(HOUR + 6, "n2a", "zone_link_measured", **PARIS, since=HOUR - 50, until=HOUR + 6, events=2, bytes=8)
    # Two nodes find that there is no master, one of them late; the next one has another term.
    story.tell(500, "n2a", "master_missed", peer_incarnation="n1a", term=7)
    story.tell(502, "n3a", "master_missed", peer_incarnation="n1a", term=7)
    story.tell(504.5, "n3a", "master_elected", term=8)
    story.tell(900, "n2a", "master_elected", peer_incarnation="n3a", term=9)
    made = story.tables(spark)
    return {name: [row.asDict() for row in made[name].collect()] for name in ("zone_links", "masters")}


def test_each_hour_of_a_link_has_what_all_nodes_told(tables: dict[str, list[dict[str, Any]]]) -> None:
    first, second = sorted(tables["zone_links"], key=lambda row: row["hour"])
    assert first == {
        "hour": NOON.replace(tzinfo=None), "remote": "paris", "direction": "out", "nodes": ["n1", "n2"], "events": 15,
        "bytes": 150, "taken": 0, "repeated": 0, "refused": 0, "behind": 9, "connected": 1, "lost": 2, "hung_up": 1,
        "gaps": 0, "date": NOON.date(),
    }  # fmt: skip
    assert (second["events"], second["gaps"], second["nodes"]) == (2, 1, ["n2"])


def test_a_master_is_one_until_somebody_misses_it_or_the_next_one_is_elected(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    found = sorted(tables["masters"], key=lambda row: row["term"])
    told = [(row["node"], row["before"], row["held_ms"], row["vacant_ms"]) for row in found]
    assert told == [("n1", None, 499_000, 4_500), ("n3", None, 395_500, None), ("n2", "n3", None, None)]
    assert found[2]["ended_at"] is None
