"""Small gold and silver tables, written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StructType

from pipeline.gold.tables import TABLES
from pipeline.schemas import SILVER

NOON: Final = datetime(2026, 1, 2, 12, tzinfo=UTC)
DEATH: Final = "death-ab12"
REPLAYED: Final[dict[str, Any]] = {"rung": "failed_over", "replayed": True}
NOT_REPLAYED: Final[dict[str, Any]] = {"rung": "failed_over", "replayed": False}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def filled(schema: StructType, row: Mapping[str, Any]) -> dict[str, Any]:
    """Give a row all columns: numbers that must be there are 0, lists are empty, and the rest is none."""
    if unknown := row.keys() - set(schema.names):
        raise AssertionError(f"no such columns: {sorted(unknown)}")
    result: dict[str, Any] = {}
    for field in schema.fields:
        blank: Any = None
        if not field.nullable and isinstance(field.dataType, LongType):
            blank = 0
        elif not field.nullable and isinstance(field.dataType, ArrayType):
            blank = []
        result[field.name] = row.get(field.name, blank)
    return result


def write_gold(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a gold table as the job does: a folder for each day."""
    schema = TABLES[name].schema
    for day in sorted({row["date"] for row in rows}):
        mine = [filled(schema, row) for row in rows if row["date"] == day]
        place = folder / name / f"date={day}"
        place.mkdir(parents=True)
        table = pa.Table.from_pylist(mine, to_arrow_schema(schema, timezone="UTC"))
        pq.write_table(table.drop_columns(["date"]), place / "part.parquet")


def write_sessions(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write silver."""
    folder.mkdir(parents=True)
    schema = to_arrow_schema(SILVER, timezone="UTC")
    pq.write_table(pa.Table.from_pylist([filled(SILVER, row) for row in rows], schema), folder / "part.parquet")


def interval(kind: str, begins: float, ends: float | None, node: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "begins": at(begins), "ends": None if ends is None else at(ends), "node": node, **more}


def session(name: str, *intervals: dict[str, Any]) -> dict[str, Any]:
    last = intervals[-1]["ends"] or intervals[-1]["begins"]
    return {
        "session": name,
        "state": "connected",
        "complete": True,
        "intervals": intervals,
        "first_event_at": intervals[0]["begins"],
        "last_event_at": last,
    }


def touched(name: str, **more: Any) -> dict[str, Any]:
    return {"incident": DEATH, "session": name, "fate": "recovered", "date": NOON.date(), **more}


def incident(**more: Any) -> dict[str, Any]:
    return {
        "incident": DEATH,
        "kind": "death",
        "node": "n1",
        "incarnation": "ab12",
        "release": "1.0",
        "begins": at(60),
        "ends": at(66),
        "noticed_by": "n2",
        "date": NOON.date(),
        **more,
    }


def refused(name: str, **more: Any) -> dict[str, Any]:
    told = {"session": name, "refusals": 1, "first_at": at(90), "last_at": at(90), "date": NOON.date()}
    return told | more


def hour(**more: Any) -> dict[str, Any]:
    return {"hour": NOON, "node": "n2", "release": "1.0", "date": NOON.date(), **more}


def write_lake(lake: Path, *, evil: str = "alice") -> None:
    """Write a lake with a death: one session back at once, one late, one never; *evil* is what strangers chose."""
    gold = lake / "gold"
    write_gold(
        gold,
        "objectives",
        [
            hour(comebacks=2, failed_over=2, replayed=1, not_replayed=1, measured=2, refused=600, expired=1),
            hour(hour=at(3600), comebacks=7, reattached=7),
        ],
    )
    write_gold(
        gold,
        "incidents",
        [
            incident(
                sessions=3,
                comebacks=2,
                failed_over=2,
                replayed=1,
                not_replayed=1,
                expired=1,
                recovered_share=2 / 3,
                away_p50_ms=900,
                settled_at=at(80),
            )
        ],
    )
    write_gold(
        gold,
        "incident_sessions",
        [
            touched("quick", principal=evil, back_at=at(61), back_node="n2", **REPLAYED, away_ms=900),
            touched("late", principal=evil, back_at=at(80), back_node="n3", **NOT_REPLAYED, away_ms=20_000),
            touched("gone", principal=evil, fate="expired"),
        ],
    )
    write_gold(gold, "refused_sessions", [refused("unknown", principal=evil, refusals=600)])
    write_gold(
        gold,
        "storms",
        [
            {
                "begins": at(60),
                "ends": at(80),
                "comebacks": 30,
                "peak": 25,
                "nodes": ["n2"],
                "incidents": [DEATH],
                "date": NOON.date(),
            }
        ],
    )
    write_gold(
        gold,
        "slow_consumers",
        [
            {
                "session": "slow",
                "principal": evil,
                "client": evil,
                "closes": 2,
                "first_at": at(1),
                "last_at": at(9),
                "nodes": ["n2"],
                "date": NOON.date(),
            }
        ],
    )
    counts = {"sent": 700, "given": 640, "redelivered": 12, "accepted": 600, "rejected": 3, "released": 9}
    write_gold(
        gold,
        "queues",
        [
            {
                "hour": NOON,
                "queue": evil,
                **counts,
                "growth": 97,
                "settle_ms": 60_000,
                "settle_mean_ms": 100.0,
                "settle_max_ms": 4_000,
                "date": NOON.date(),
            }
        ],
    )
    crossed = {"hour": NOON, "remote": evil, "nodes": ["n1"], "date": NOON.date()}
    write_gold(
        gold,
        "zone_links",
        [
            {**crossed, "direction": "out", "events": 4_321, "bytes": 99_000, "behind": 17, "connected": 2, "lost": 1},
            {**crossed, "direction": "in", "events": 5_432, "taken": 5_400, "repeated": 31, "refused": 1, "gaps": 3},
            {**crossed, "hour": at(3600), "direction": "out", "events": 1_000, "behind": 5},
        ],
    )
    reigns = {"incarnation": "ab12", "elected_at": at(-900), "date": NOON.date()}
    write_gold(
        gold,
        "masters",
        [
            {**reigns, "node": "n1", "term": 3, "ended_at": at(0), "held_ms": 900_000, "vacant_ms": 1_500},
            {**reigns, "node": evil, "term": 4, "before": "n1", "elected_at": at(2)},
        ],
    )
    write_gold(gold, "traffic", [{"hour": NOON, "root": evil, "deliveries": 5000, "date": NOON.date()}])
    write_gold(
        gold, "capacity", [{"hour": NOON, "node": "n2", "connections_peak": 3, "cpu_share": 0.5, "date": NOON.date()}]
    )
    write_gold(
        gold,
        "losses",
        [
            {
                "node": "n2",
                "incarnation": "cd34",
                "events": 90,
                "missing": 10,
                "unexplained": 4,
                "first_at": at(0),
                "last_at": at(99),
                "date": NOON.date(),
            }
        ],
    )
    write_sessions(
        lake / "silver" / "sessions",
        [
            session(
                "quick",
                interval("connected", 0, 60, "n1", rung="created", cause="node_died"),
                interval("away", 60, 61, "n1", cause="node_died"),
                interval(
                    "connected",
                    61,
                    None,
                    "n2",
                    **REPLAYED,
                    reason="other_node",
                    away_ms=900,
                    measured_by="client",
                ),
            ),
            session(
                "late",
                interval("connected", 0, 60, "n1", rung="created", cause="node_died"),
                interval("away", 60, 80, "n1", cause="node_died"),
                interval(
                    "connected",
                    80,
                    None,
                    "n3",
                    **NOT_REPLAYED,
                    reason="other_node",
                    away_ms=20_000,
                    measured_by="client",
                ),
            ),
            session(
                "gone",
                interval("connected", 0, 60, "n1", rung="created", cause="node_died"),
                interval("away", 60, 360, "n1", cause="node_died"),
            ),
            session(
                "bystander",
                interval("connected", 0, 3700, "n2", rung="created", cause="connection_lost"),
                interval("away", 3700, 3701, "n2"),
                interval("connected", 3701, None, "n2", rung="reattached", away_ms=12, measured_by="client"),
            ),
        ],
    )
