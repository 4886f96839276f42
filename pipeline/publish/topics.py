"""Which topics tell which rows of gold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from pipeline.gold.words import RUNGS

Row: TypeAlias = Mapping[str, Any]
"""A row of a table."""

Value: TypeAlias = "dict[str, Any] | list[dict[str, Any]]"
"""What a topic holds, as JSON."""

ROOT: Final = "ops"
"""First segment of all topics of the pipeline."""

MARK: Final = f"{ROOT}/published"
"""The topic that is published last."""

SLOWEST: Final = 20
"""Slow consumers that are told of: a screenful."""

_PLAIN: Final = "$-_.:+@ "
"""Characters that stand in a segment as they are, beside letters and digits."""


def topics_of(gold: Mapping[str, Iterable[Row]]) -> dict[str, Value]:
    """Tell what the rows of gold are published as.

    Args:
        gold: rows by table; tables that are missing tell nothing.

    Returns:
        Values by topic. The same rows give the same values, in whatever order they come.
    """
    told: dict[str, Value] = {}
    for node, rows in _newest(gold.get("objectives", ()), "node", "hour").items():
        told[topic("objective", node)] = _together(rows)
    for table, key, by in (("traffic", "root", "hour"), ("capacity", "node", "hour")):
        for name, rows in _newest(gold.get(table, ()), key, by).items():
            told[topic(table, name)] = plain(rows[0])
    for node, rows in _newest(gold.get("losses", ()), "node", "date").items():
        told[topic("losses", node)] = {
            "node": node,
            "date": rows[0]["date"].isoformat(),
            **{name: sum(row[name] for row in rows) for name in ("events", "missing", "dropped", "unexplained")},
        }
    for row in gold.get("incidents", ()):
        told[topic("incidents", row["incident"])] = plain(row)
    for row in gold.get("storms", ()):
        told[topic("storms", f"{row['begins']:%Y-%m-%dT%H:%M:%S}Z")] = plain(row)
    slow = list(gold.get("slow_consumers", ()))
    if slow:
        newest = max(row["date"] for row in slow)
        worst = sorted(
            (row for row in slow if row["date"] == newest),
            key=lambda row: (-row["closes"], -row["bytes"], row["session"]),
        )
        told[f"{ROOT}/slow-consumers"] = [plain(row) for row in worst[:SLOWEST]]
    return told


def topic(kind: str, name: str | None) -> str:
    """Name a topic; what no topic may have in it is written as in addresses, such as ``%2A`` for ``*``."""
    return f"{ROOT}/{kind}/{quote(name, safe=_PLAIN) if name else 'unknown'}"


def plain(row: Row) -> dict[str, Any]:
    """Make a row JSON: instants and days as ISO 8601, and nothing that is not there."""
    return {name: _plain(value) for name, value in row.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    return list(value) if isinstance(value, list | tuple) else value


def _newest(rows: Iterable[Row], key: str, by: str) -> dict[str, list[Row]]:
    """Find the newest rows of each key, in an order that does not depend on the one they came in."""
    newest: dict[str, list[Row]] = {}
    for row in rows:
        kept = newest.get(row[key])
        if kept is None or row[by] > kept[0][by]:
            newest[row[key]] = [row]
        elif row[by] == kept[0][by]:
            kept.append(row)
    return {name: sorted(kept, key=lambda row: repr(sorted(plain(row).items()))) for name, kept in newest.items()}


_COUNTS: Final = (
    "comebacks", *RUNGS, "other_rungs", "replayed", "not_replayed", "refused", "refused_sessions", "missed", "put_off",
    "expired", "lossy", "lost",
)  # fmt: skip


def _together(rows: list[Row]) -> dict[str, Any]:
    """Sum up the releases of one node and hour; of percentiles the worst counts, as they cannot be added."""
    told: dict[str, Any] = {"node": rows[0]["node"], "hour": _plain(rows[0]["hour"])}
    # Rows that an older release has made do not have all of them.
    told |= {name: sum(row[name] or 0 for row in rows) for name in _COUNTS}
    for name in ("away_p50_ms", "away_p95_ms", "away_p99_ms", "away_max_ms"):
        known = [row[name] for row in rows if row[name] is not None]
        if known:
            told[name] = max(known)
    tried = told["comebacks"] + told["refused_sessions"] + told["missed"]
    if tried:
        told["recovered_share"] = told["comebacks"] / tried
    return told
