"""A small lake in which two people have left traces everywhere."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.core.journal import Record
from pipeline.bronze.layout import DAY, HOUR
from pipeline.columns import arrow_schema
from pipeline.gold.tables import TABLES
from pipeline.lake import Lake
from pipeline.schemas import SILVER
from pipeline.sessions.table import SessionsTable
from tests.pipeline.lake import batch_of, entry, take_in
from tests.pipeline.report.tables import filled

ALICE: Final = "alice@example.org"
BOB: Final = "bob"
NOW: Final = time.time_ns() // 1000 // HOUR * HOUR
"""Microseconds since 1970."""


def instant(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def event(number: int, kind: str, at: int, session: str, **told: Any) -> Record:
    head = {"version": 2, "id": f"i-{number}", "type": kind, "at": at, "node": "n1", "incarnation": "i"}
    return head | {"release": "1.0", "session": session, "epoch": 1} | told


def fill(folder: Path, *, days: tuple[int, ...] = (0,)) -> Lake:
    """Write a lake: on each day, counted back from now, a session of each, in bronze, silver and gold."""
    lake, number = Lake(folder), 0
    for back in sorted(days, reverse=True):
        at, lines = NOW - back * DAY - HOUR, []
        for who in (ALICE, BOB):
            session = f"{who[0]}{back}"
            for kind, told in (
                ("session_opened", {"principal": who, "client": f"{who}-phone", "window_ms": 1_000}),
                ("session_selections_changed", {"names": [f"+users/{who}/**"], "count": 1}),
                ("session_properties_changed", {"names": ["theme"], "count": 1, "mood": f"of {who}"}),
                ("session_closed", {"reason": "closed"}),
            ):
                number += 1
                lines.append(event(number, kind, at + number, session, **told))
        bad = b'{"id": 5, "principal": "' + ALICE.encode() + b'"}', b'{"id": 6, "principal": "bob"}'
        text = b"\n".join([*map(orjson.dumps, lines), *bad])
        whole = {b"events": text, b"count": str(len(lines) + 2).encode()}
        take_in(folder, [batch_of({f"1-{number}": whole, f"1-{number + 1}": entry([])})], past=4_000 * 86_400.0)
        _silver(lake, back, at)
        _gold(lake, back, at)
    return lake


def row(who: str, back: int, at: int, **more: Any) -> dict[str, Any]:
    told = {"session": f"{who[0]}{back}", "principal": who, "client": f"{who}-phone", "state": "ended"}
    times = {"first_event_at": instant(at), "last_event_at": instant(at), "opened_at": instant(at)}
    return filled(SILVER, told | times | {"complete": True} | more)


def _silver(lake: Lake, back: int, at: int) -> None:
    schema = arrow_schema(SILVER)
    for bucket, who in enumerate((ALICE, BOB)):
        write(lake.sessions / f"date={instant(at):%Y-%m-%d}" / f"bucket-{bucket}.parquet", [row(who, back, at)], schema)
    changes = SessionsTable(lake.folder).changes / f"{back:012}"
    write(changes / "part-0.parquet", [row(ALICE, back, at), row(BOB, back, at)], schema)
    (changes / "_SUCCESS").touch()
    (changes / ".part-0.parquet.crc").touch()


def _gold(lake: Lake, back: int, at: int) -> None:
    day = {"date": instant(at).date(), "first_at": instant(at), "last_at": instant(at)}
    for name in ("incident_sessions", "slow_consumers", "refused_sessions"):
        table = TABLES[name]
        rows = []
        for who in (ALICE, BOB):
            told = {"incident": "death-a", "fate": "recovered", "session": f"{who[0]}{back}", "principal": who, **day}
            rows.append(filled(table.schema, {key: value for key, value in told.items() if key in table.schema.names}))
        place = lake.gold / name / f"date={day['date']}" / "part.parquet"
        write(place, [{key: value for key, value in each.items() if key != "date"} for each in rows],
              arrow_schema(table.schema).remove(table.schema.names.index("date")))  # fmt: skip


def write(file: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), file)


def tables(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of all files of a lake, by file."""
    files = sorted(folder.rglob("*.parquet"))
    return {str(each.relative_to(folder)): pq.ParquetFile(each).read().to_pylist() for each in files}


def traces(folder: Path, text: str) -> list[str]:
    """Find the files that hold a text: as they are, or in their rows."""
    found = [str(each) for each in folder.rglob("*") if each.is_file() and text.encode() in each.read_bytes()]
    return found + [name for name, rows in tables(folder).items() if text in repr(rows)]
