"""What gold is published as."""

from __future__ import annotations

from datetime import UTC, date, datetime
from random import Random
from typing import Any

import orjson
import pytest

from gateway.core.topics.topics import parse_topic
from pipeline.gold.words import RUNGS
from pipeline.publish.topics import SLOWEST, plain, topic, topics_of

HOUR, LATER = datetime(2026, 1, 2, 12, tzinfo=UTC), datetime(2026, 1, 2, 13, tzinfo=UTC)
DAY = date(2026, 1, 2)
REPLAYED = ("replayed", "not_replayed")


def objective(**more: Any) -> dict[str, Any]:
    counts = (
        "comebacks", *RUNGS, "other_rungs", *REPLAYED, "refused", "refused_sessions", "missed", "put_off",
        "expired", "lossy", "lost",
    )  # fmt: skip
    blank = dict.fromkeys(counts, 0)
    away = dict.fromkeys(("away_p50_ms", "away_p95_ms", "away_p99_ms", "away_max_ms"))
    return {"hour": HOUR, "node": "n1", "release": "1.0", **blank, **away, **more}


def slow(session: str, closes: int, day: date = DAY) -> dict[str, Any]:
    return {"session": session, "closes": closes, "bytes": 1, "date": day}


def test_the_newest_hour_of_a_node_is_told_with_its_releases_together() -> None:
    told = topics_of(
        {
            "objectives": [
                objective(comebacks=99),
                objective(
                    hour=LATER, comebacks=3, replayed=3, refused=600, refused_sessions=1, away_p50_ms=10, away_max_ms=50
                ),
                objective(hour=LATER, comebacks=5, missed=1, release="1.1", away_p50_ms=20),
            ]
        }
    )
    assert told == {
        "ops/objective/n1": {
            "node": "n1", "hour": "2026-01-02T13:00:00+00:00", "comebacks": 8, "reattached": 0, "handed_over": 0,
            "mirrored": 0, "failed_over": 0, "other_rungs": 0, "replayed": 3, "not_replayed": 0, "refused": 600,
            "refused_sessions": 1, "missed": 1, "put_off": 0, "expired": 0,
            "lossy": 0, "lost": 0, "away_p50_ms": 20, "away_max_ms": 50,
            "recovered_share": 0.8,
        }
    }  # fmt: skip


def test_rows_that_an_older_release_has_made_count_for_nothing_where_they_have_no_column() -> None:
    added = dict.fromkeys(("handed_over", "mirrored", *REPLAYED))
    rows = [objective(comebacks=2, **added), objective(release="1.1", comebacks=1, replayed=1)]
    told = topics_of({"objectives": rows})
    found = told["ops/objective/n1"]
    assert isinstance(found, dict)
    assert [found[name] for name in ("comebacks", *added)] == [3, 0, 0, 1, 0]


def test_rows_in_any_order_are_the_same_values() -> None:
    gold: dict[str, list[dict[str, Any]]] = {
        "objectives": [objective(release=str(number), comebacks=number) for number in range(5)],
        "traffic": [{"hour": HOUR, "root": root, "deliveries": 1} for root in ("a", "*", "b/c")],
        "incidents": [{"incident": f"death-{number}", "begins": HOUR} for number in range(3)],
        "slow_consumers": [slow(str(number), number % 3) for number in range(SLOWEST + 9)],
    }
    told = topics_of(gold)
    for rows in gold.values():
        Random(1).shuffle(rows)
    assert orjson.dumps(topics_of(gold), option=orjson.OPT_SORT_KEYS) == orjson.dumps(told, option=orjson.OPT_SORT_KEYS)


def test_only_the_worst_of_the_newest_day_are_told_as_slow() -> None:
    rows = [slow("old", 99, date(2026, 1, 1)), *(slow(f"s{number}", number) for number in range(SLOWEST + 5))]
    told = topics_of({"slow_consumers": rows})["ops/slow-consumers"]
    assert isinstance(told, list)
    assert [row["session"] for row in told] == [f"s{number}" for number in range(SLOWEST + 4, 4, -1)]


def test_losses_of_several_runs_of_a_node_are_added() -> None:
    run = {"node": "n1", "events": 10, "missing": 2, "dropped": 1, "unexplained": 1, "date": DAY}
    told = topics_of({"losses": [run, run | {"events": 5}]})
    assert told["ops/losses/n1"] == {
        "node": "n1", "date": "2026-01-02", "events": 15, "missing": 4, "dropped": 2, "unexplained": 2,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["*", "a/b", "**", "price ♥", "%2A", "tab\there", "", None, "ops", "$x"])
def test_any_name_is_a_segment_and_no_two_are_the_same(name: str | None) -> None:
    path = parse_topic(topic("traffic", name))
    assert path.count("/") == 2
    others = {topic("traffic", each) for each in ("*", "a/b", "**", "%2A", "plain")} - {path}
    assert len(others) >= 4


def test_what_is_not_there_is_left_out_and_times_are_iso() -> None:
    row = {"at": HOUR, "day": DAY, "none": None, "nodes": ("a", "b"), "share": 0.5}
    assert plain(row) == {"at": "2026-01-02T12:00:00+00:00", "day": "2026-01-02", "nodes": ["a", "b"], "share": 0.5}
