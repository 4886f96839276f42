"""Erasure: a principal is forgotten in all tables of a lake.

Whatever names the principal is rewritten: in bronze, silver and gold the principal, and what its clients said of
themselves, is null in every row of its sessions; rejected lines that name it lose their text. The rows stay, under the
random ids of their sessions, so that counts do not change and no hole looks like a loss. What the stream of sessions
knows is dropped with its checkpoint, of which it keeps two versions; it begins anew from bronze.

Exactly once, through a kill: which sessions are meant is written down first, because the rewritten files do not tell
any more. Each file is replaced in one step. Whoever runs it again finishes what was begun; to do it twice changes
nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from pipeline.bronze.files import empty, in_turn, only_one, sync, write_whole
from pipeline.bronze.layout import bronze_of
from pipeline.bronze.log import CommitLog
from pipeline.errors import NotReady
from pipeline.gold.job import staging
from pipeline.gold.tables import TABLES
from pipeline.lake import Lake
from pipeline.progress import Tell
from pipeline.sessions.table import SessionsTable
from pipeline.upkeep.replacement import read_file, replace_file

_compute: Final[Any] = pyarrow.compute
"""Of what these functions give for columns, Arrow's stubs cannot tell the type."""

_PERSONAL: Final = ("principal", "client", "names", "other")
"""Columns that tell of a person: whose session it is, what the client said of itself, names of properties and selectors
that it chose, and whatever a newer gateway tells of it."""

_PLAN: Final = "erasure.json"
"""Below ``checkpoints``: whom a run forgets that has not come to its end."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was done.

    Attributes:
        sessions: of the principal.
        files: that were rewritten.
        rows: in which something was erased.
    """

    sessions: int
    files: int
    rows: int


def forget(lake: Path, principal: str, tell: Tell) -> Forgotten:
    """Erase a principal from all tables; no other job may run on the lake meanwhile.

    Args:
        lake: the folder of all tables.
        principal: as the tables name it: as it is, or the keyed hash that the journal has.
        tell: is told of every file.

    Raises:
        NotReady: another job runs on this lake, or there is none.
    """
    lake = lake.absolute()
    folders = Lake(lake)
    if not any(each.is_dir() for each in (folders.bronze, folders.sessions, folders.gold)):
        raise NotReady(f"there are no tables in {lake}; name another lake")
    with _alone(lake):
        plan = lake / "checkpoints" / _PLAN
        for torn in plan.parent.glob(f".{_PLAN}.*"):
            # Of a run that ended while it wrote its plan, and it names whom.
            torn.unlink()
        if plan.exists():
            begun = json.loads(plan.read_bytes())
            tell("finishing what an earlier run has begun")
            _erase(lake, begun["principal"], frozenset(begun["sessions"]), tell)
            plan.unlink()
        sessions = frozenset(_sessions_of(lake, principal))
        plan.parent.mkdir(parents=True, exist_ok=True)
        write_whole(plan, orjson.dumps({"principal": principal, "sessions": sorted(sessions)}))
        done = _erase(lake, principal, sessions, tell)
        plan.unlink()
        sync(plan.parent)
    return done


@contextmanager
def _alone(lake: Path) -> Iterator[None]:
    """Keep all jobs out, and have no copy of a row but those in the tables."""
    layout, table, gold = bronze_of(lake), SessionsTable(lake), Lake(lake).gold
    with ExitStack() as held:
        held.enter_context(only_one(layout.log / "ingest.lock", "`pipeline ingest`"))
        held.enter_context(only_one(layout.log / "compact.lock", "`pipeline compact`"))
        held.enter_context(only_one(table.lock, "`pipeline sessions` or `pipeline backfill`"))
        held.enter_context(in_turn(table.turn))
        log = CommitLog(layout)
        if (newest := log.newest()).sequence:
            log.publish(newest)
        for job in ("ingest", "compact"):
            empty(layout.staging(job))
        for left in (table.staging, table.folding, table.retention):
            shutil.rmtree(left, ignore_errors=True)
        if gold.is_dir():
            with staging(gold):
                yield
        else:
            yield


def _files(lake: Path) -> list[Path]:
    """All files of tables that may name a principal, in order."""
    layout, table, gold = bronze_of(lake), SessionsTable(lake), Lake(lake).gold
    named = [each.name for each in TABLES.values() if "principal" in each.schema.names]
    return sorted(
        [
            *layout.root.glob("date=*/hour=*/*.parquet"),
            *table.root.glob("date=*/bucket-*.parquet"),
            *table.root.glob("*.parquet"),
            *table.changes.glob("*/*.parquet"),
            *(file for name in named for file in (gold / name).glob("date=*/*.parquet")),
        ]
    )


def _sessions_of(lake: Path, principal: str) -> Iterator[str]:
    """Find the sessions of a principal, whichever table still names it."""
    for file in _files(lake):
        with pq.ParquetFile(file) as opened:
            if {"principal", "session"} <= set(opened.schema_arrow.names):
                rows = opened.read(columns=["principal", "session"])
                mine = rows["session"].filter(_compute.equal(rows["principal"], pa.scalar(principal)))
                yield from (each for each in mine.unique().to_pylist() if each is not None)


def _erase(lake: Path, principal: str, sessions: frozenset[str], tell: Tell) -> Forgotten:
    place = lake / "checkpoints" / "erasure"
    empty(place)
    table = SessionsTable(lake)
    if table.checkpoint.exists() and sessions:
        # First: whatever is told anew from it later is told from what is rewritten by then.
        shutil.rmtree(table.checkpoint)
        tell("the stream of sessions has forgotten what it knew, and begins anew from bronze")
    files = rows = 0
    for file, erased in _rewritten(lake, principal, sessions, place):
        tell(f"{file.relative_to(lake)}: {erased} rows")
        files, rows = files + 1, rows + erased
    place.rmdir()
    return Forgotten(len(sessions), files, rows)


def _rewritten(lake: Path, principal: str, sessions: Iterable[str], place: Path) -> Iterator[tuple[Path, int]]:
    """Rewrite every file that names the principal; yields it, and in how many rows that was erased."""
    ids = pa.array(sorted(sessions), pa.string())
    for file in _files(lake):
        with pq.ParquetFile(file) as opened:
            known = set(opened.schema_arrow.names)
            keys = opened.read(columns=[name for name in ("principal", "session", *_PERSONAL) if name in known])
        mine = _mine(keys, principal, ids)
        if number := _compute.sum(mine).as_py():
            replace_file(file, _without(read_file(file), mine), place)
            yield file, number
    for file in sorted(bronze_of(lake).rejected.rglob("*.parquet")):
        rows = read_file(file)
        named = pa.array([_names(text, principal) for text in rows["text"].to_pylist()], pa.bool_())
        if number := _compute.sum(named).as_py():
            gone = pa.nulls(len(rows), rows.schema.field("text").type)
            at = rows.schema.get_field_index("text")
            replace_file(file, rows.set_column(at, "text", _compute.if_else(named, gone, rows["text"])), place)
            yield file, number


def _mine(rows: pa.Table, principal: str, sessions: Any) -> Any:
    """Tell which rows are the principal's and still say anything of it."""
    owned = _compute.fill_null(_compute.equal(rows["principal"], pa.scalar(principal)), False)
    if "session" in rows.column_names:
        owned = _compute.or_(owned, _compute.fill_null(_compute.is_in(rows["session"], value_set=sessions), False))
    told: Any = pa.chunked_array([pa.repeat(pa.scalar(False), len(rows))])
    for name in _PERSONAL:
        if name in rows.column_names:
            told = _compute.or_(told, _compute.is_valid(rows[name]))
    return _compute.and_(owned, told)


def _without(rows: pa.Table, mine: Any) -> pa.Table:
    for name in _PERSONAL:
        if name in rows.column_names:
            at, field = rows.schema.get_field_index(name), rows.schema.field(name)
            erased = _compute.if_else(mine, pa.nulls(len(rows), field.type), rows[name])
            rows = rows.set_column(at, field, erased)
    return rows


def _names(text: bytes | None, principal: str) -> bool:
    """Tell whether a line that is no event names a principal: as JSON does, or cut off behind it."""
    return text is not None and orjson.dumps(principal)[:-1] in text
