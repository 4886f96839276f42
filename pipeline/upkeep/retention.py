"""Retention of silver and gold: what is older than bronze is kept goes, day by day and file by file.

Every step is one that a file system does at once, and to do it again changes nothing: a run that is killed leaves
tables of which some days are gone already, and the next one removes the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from pipeline.bronze.files import empty, in_turn, sync
from pipeline.gold.job import staging
from pipeline.gold.tables import TABLES
from pipeline.gold.words import ENDED
from pipeline.lake import Lake
from pipeline.progress import Tell
from pipeline.sessions.table import UNKNOWN, SessionsTable
from pipeline.upkeep.replacement import read_file, replace_file

_compute: Final[Any] = pyarrow.compute
"""Of what these functions give for columns, Arrow's stubs cannot tell the type."""

SILENT: Final = timedelta(days=90)
"""For how much longer a session is kept whose end nobody told: it may be connected all that time. As long as the stream
keeps what it knows of one."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Retained:
    """What was removed.

    Attributes:
        sessions: rows of silver.
        days: of tables of gold.
    """

    sessions: int = 0
    days: int = 0


def retain(lake: Path, before: int, tell: Tell) -> Retained:
    """Remove what is too old from silver and gold.

    A session goes when the last thing that was told of it is too old and it has ended; one that nobody ended goes
    90 days later. A day of gold goes when all of it is too old.

    Args:
        lake: the folder of all tables.
        before: the instant from which on everything is kept, in microseconds since 1970.
        tell: is told of every file and day.
    """
    limit = _EPOCH + timedelta(microseconds=before)
    return Retained(_retain_sessions(lake, limit, tell), _retain_gold(Lake(lake).gold, limit.date(), tell))


def _retain_sessions(lake: Path, limit: datetime, tell: Tell) -> int:
    table = SessionsTable(lake)
    removed = 0
    files = sorted(table.root.glob("date=*/bucket-*.parquet"))
    if not files:
        return 0
    place = table.retention
    empty(place)
    for file in files:
        day = file.parent.name.removeprefix("date=")
        if day != UNKNOWN and date.fromisoformat(day) >= limit.date():
            continue  # whoever was opened later was heard of later
        # A merge reads the rows of a file and replaces it; what it has read must not come back.
        with in_turn(table.turn):
            removed += _retain_file(file, limit, place, tell)
    place.rmdir()
    return removed


def _retain_file(file: Path, limit: datetime, place: Path, tell: Tell) -> int:
    try:
        rows = read_file(file)
    except FileNotFoundError:
        return 0  # a merge had no rows left for it
    heard, state = rows["last_event_at"], rows["state"]
    ended = _compute.and_(_compute.equal(state, pa.scalar(ENDED)), _compute.less(heard, _instant(limit, heard.type)))
    old = _compute.or_(ended, _compute.less(heard, _instant(limit - SILENT, heard.type)))
    number = _compute.sum(old).as_py() or 0
    if not number:
        return 0
    if number == len(rows):
        file.unlink()
        sync(file.parent)
        if not any(file.parent.iterdir()):
            file.parent.rmdir()
    else:
        replace_file(file, rows.filter(_compute.invert(old)), place)
    tell(f"{file.parent.name}/{file.name}: {number} sessions removed")
    return int(number)


def _instant(at: datetime, kind: pa.DataType) -> Any:
    return pa.scalar(at, pa.timestamp("us", "UTC")).cast(kind)


def _retain_gold(folder: Path, first: date, tell: Tell) -> int:
    if not folder.is_dir():
        return 0
    removed = 0
    with staging(folder) as place:
        place.mkdir(parents=True)
        for name in TABLES:
            for day in sorted((folder / name).glob("date=*")):
                if date.fromisoformat(day.name.removeprefix("date=")) < first:
                    # Out of the readers' sight in one step; the place is emptied at the end, or by the next run.
                    day.rename(place / f"{name}-{day.name}")
                    tell(f"{name}/{day.name}: removed")
                    removed += 1
    return removed
