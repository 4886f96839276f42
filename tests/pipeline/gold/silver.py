"""Silver by the fold alone, without Spark: it starts no Python of its own for a few thousand events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from gateway.core.journal import read_event_id
from pipeline.columns import arrow_schema
from pipeline.schemas import SILVER
from pipeline.sessions import FACT_TYPES, Fact
from pipeline.sessions.frames import fold_sorted


def silver_of_events(events: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Fold events, whose instants may be times or microseconds since 1970."""
    rows, heard = [], 0
    for event in events:
        heard = max(heard, _micros(event["at"]))
        if event["type"] in FACT_TYPES and event.get("session") is not None:
            known = {name: _micros(event.get(name)) for name in Fact._fields}
            rows.append({"session": event["session"], **known, "number": read_event_id(event["id"])[1]})
    rows.sort(key=lambda each: each["session"])
    batch = pa.RecordBatch.from_pylist(rows)
    return pa.Table.from_batches(fold_sorted([batch], heard // 1_000), arrow_schema(SILVER))


def _micros(value: Any) -> Any:
    return round(value.timestamp() * 1_000_000) if isinstance(value, datetime) else value
