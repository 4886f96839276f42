"""The fold says what SQL says, of journals that a generator makes and of those that nobody would like to have."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from gateway.core.journal import FIELDS, Record
from pipeline.generate import Scale, events_table, slices
from pipeline.generate import records as records_of
from pipeline.generate.tables import SCHEMA
from pipeline.sessions import FACT_TYPES, Fact, SessionState, tell
from tests.pipeline.sessions.lives import records
from tests.pipeline.sessions.oracle import silver_by_sql
from tests.support.seeds import seeds

DELAY_MS = 10_000


def silver_by_fold(told: Sequence[Record], heard_until_ms: int) -> list[dict[str, Any]]:
    states: dict[str, SessionState] = {}
    for each in told:
        if each["type"] in FACT_TYPES and "session" in each:
            number = int(each["id"].rpartition("-")[2])
            fact = Fact(**{name: each.get(name) for name in Fact._fields} | {"number": number})  # type: ignore[arg-type]
            states.setdefault(each["session"], SessionState()).add(fact)
    found = (tell(session, state, heard_until_ms) for session, state in sorted(states.items()))
    return [each.row for each in found if each is not None]


def silver_of_sql(told: Sequence[Record]) -> list[dict[str, Any]]:
    columns = {name: [each.get(name) for each in told] for name in FIELDS}
    types = {name: SCHEMA.field(name).type for name in FIELDS}
    table = pa.table({name: pa.array(columns[name], types[name]) for name in FIELDS})
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("events", table)
        return silver_by_sql(connection, delay_ms=DELAY_MS)


def compare(told: Sequence[Record]) -> list[dict[str, Any]]:
    heard = max(each["at"] for each in told if "session" not in each) // 1000 - DELAY_MS
    by_sql, by_fold = silver_of_sql(told), silver_by_fold(told, heard)
    assert [each["session"] for each in by_fold] == [each["session"] for each in by_sql]
    for one, other in zip(by_fold, by_sql, strict=True):
        assert one == other
    return by_fold


@pytest.mark.parametrize("seed", seeds(5))
def test_of_lives_that_go_wrong(seed: int) -> None:
    rows = compare(records(Random(seed), 400, seconds=600))
    assert {each["state"] for each in rows} == {"connected", "away", "ended"}
    assert {each["end_reason"] for each in rows} >= {"presumed", "done", None}
    assert {each["complete"] for each in rows} == {True, False}
    measured = {one["measured_by"] for each in rows for one in each["intervals"]}
    assert measured == {"client", "node", "survivors", None}


def test_of_a_generated_journal() -> None:
    told = [
        each
        for slice_ in slices(Scale(events=20_000, seed=3, hours=6))
        for each in records_of(events_table(slice_, seed=3))
    ]
    rows = compare(told)
    assert sum(each["comebacks"] for each in rows) > 100
