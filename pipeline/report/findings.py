"""Reads what the report is made of, from gold and silver, without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipeline.columns import arrow_schema
from pipeline.errors import NotReady
from pipeline.gold.tables import TABLES as GOLD_TABLES
from pipeline.schemas import SILVER

Row: TypeAlias = Mapping[str, Any]
"""A row of a table."""

TABLES: Final = (
    "objectives", "incidents", "incident_sessions", "refused_sessions", "storms", "slow_consumers", "traffic",
    "queues", "zone_links", "masters", "capacity", "losses", "rejections",
)  # fmt: skip
"""The gold tables that the report shows."""

_BY_DATE: Final = ds.partitioning(pa.schema([("date", pa.date32())]), flavor="hive")

Micros: TypeAlias = npt.NDArray[np.int64]
"""Instants, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Comebacks:
    """All comebacks, in columns.

    Attributes:
        at: when the client was back.
        rung: by which rung of the ladder.
        away_ms: for how long it had been away, in milliseconds; -1 if nobody can tell.
    """

    at: Micros
    rung: npt.NDArray[np.str_]
    away_ms: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at)


@dataclass(frozen=True, slots=True)
class Findings:
    """What the tables tell of some days.

    Attributes:
        first: the first day (UTC).
        last: the last one.
        sessions: sessions that lived on these days.
        comebacks: those of these days.
        gold: rows of the gold tables, by table, in the order in which they stand there.
        touched: rows of ``incident_sessions`` by incident, those first that it was worst for: not back, then the
            longest away.
        timelines: intervals of sessions that incidents touched, by session.
        pictured: of how many sessions of each incident the timeline is there; those that it was worst for.
    """

    first: date
    last: date
    sessions: int
    comebacks: Comebacks
    gold: Mapping[str, tuple[Row, ...]]
    touched: Mapping[str, Sequence[Row]]
    timelines: Mapping[str, tuple[Row, ...]]
    pictured: int


def read_findings(
    gold: Path, sessions: Path, *, first: date | None = None, last: date | None = None, timelines: int = 40
) -> Findings:
    """Read what the tables tell of some days.

    Args:
        gold: folder of the gold tables.
        sessions: folder of silver.
        first: the first day; None is as far back as gold goes.
        last: the last day; None is as far as gold goes.
        timelines: of how many sessions of each incident the timeline is wanted; those that it was worst for.

    Raises:
        NotReady: there is no gold for these days.
    """
    tables = read_gold(gold, first, last)
    days = [row["date"] for rows in tables.values() for row in rows]
    if not days:
        told = f"of {first or 'the beginning'} to {last or 'today'}" if first or last else "yet"
        raise NotReady(f"there are no gold tables {told} in {gold}; run `pipeline gold` first, or name other days")
    first, last = first or min(days), last or max(days)
    touched = by_incident(tables["incident_sessions"])
    wanted = {row["session"] for rows in touched.values() for row in rows[:timelines]}
    count, comebacks = _comebacks(sessions, first, last)
    return Findings(first, last, count, comebacks, tables, touched, _timelines(sessions, wanted), timelines)


def read_gold(gold: Path, first: date | None, last: date | None) -> dict[str, tuple[Row, ...]]:
    """Read the rows of some days of all gold tables, by table; see ``read_findings``."""
    return {name: _rows(gold / name, first, last) for name in TABLES}


def by_incident(touched: Iterable[Row]) -> dict[str, list[Row]]:
    """List the sessions of each incident; see ``Findings``."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in touched:
        found[row["incident"]].append(row)
    for rows in found.values():
        rows.sort(key=lambda row: (row["back_at"] is not None, -(row["away_ms"] or 0), row["session"]))
    return dict(found)


def _rows(folder: Path, first: date | None, last: date | None) -> tuple[Row, ...]:
    if not folder.is_dir():
        return ()
    # Files of any release may lie beside each other: a column that one does not have is null.
    schema = arrow_schema(GOLD_TABLES[folder.name].schema)
    table = ds.dataset(folder, schema=schema, format="parquet", partitioning=_BY_DATE)
    wanted = pc.scalar(True)
    if first is not None:
        wanted &= pc.field("date") >= pa.scalar(first)
    if last is not None:
        wanted &= pc.field("date") <= pa.scalar(last)
    return tuple(table.to_table(filter=wanted).to_pylist())


def _silver(folder: Path) -> ds.Dataset:
    """Open silver; fields of intervals that a file does not have are null, as columns of gold are."""
    return ds.dataset(folder, schema=arrow_schema(SILVER), format="parquet")


def _comebacks(folder: Path, first: date, last: date) -> tuple[int, Comebacks]:
    """Read all comebacks of some days, in columns, batch by batch: of millions of sessions, too."""
    begins = datetime.combine(first, datetime.min.time(), UTC)
    ends = datetime.combine(last, datetime.min.time(), UTC) + timedelta(days=1)
    ats, rungs, aways, sessions = [], [], [], 0
    if folder.is_dir():
        # Of a session that is just connected nothing is told, for as long as it is.
        lived: pc.Expression = (pc.field("first_event_at") < pa.scalar(ends)) & (
            (pc.field("last_event_at") >= pa.scalar(begins)) | (pc.field("state") != pa.scalar("ended"))
        )
        for batch in _silver(folder).to_batches(columns=["intervals"], filter=lived):
            sessions += batch.num_rows
            intervals = pc.list_flatten(batch.column("intervals"))
            at = pc.struct_field(intervals, "begins").cast(pa.timestamp("us", "UTC"))
            rung = pc.struct_field(intervals, "rung")
            wanted = pc.and_(
                pc.and_(pc.is_valid(rung), pc.not_equal(rung, pa.scalar("created"))),
                pc.and_(pc.greater_equal(at, pa.scalar(begins)), pc.less(at, pa.scalar(ends))),
            )
            ats.append(at.filter(wanted).cast(pa.int64()).to_numpy(zero_copy_only=False))
            rungs.append(rung.filter(wanted).to_numpy(zero_copy_only=False).astype(np.str_))
            away = pc.fill_null(pc.struct_field(intervals, "away_ms").filter(wanted), -1)
            aways.append(away.to_numpy(zero_copy_only=False))
    return sessions, Comebacks(
        np.concatenate(ats) if ats else np.zeros(0, np.int64),
        np.concatenate(rungs) if rungs else np.zeros(0, np.str_),
        np.concatenate(aways) if aways else np.zeros(0, np.int64),
    )


def _timelines(folder: Path, sessions: set[str]) -> dict[str, tuple[Row, ...]]:
    if not sessions or not folder.is_dir():
        return {}
    wanted = pc.field("session").isin(sorted(sessions))
    table = _silver(folder).to_table(columns=["session", "intervals"], filter=wanted)
    return {row["session"]: tuple(row["intervals"]) for row in table.to_pylist()}
