"""The body of a request: events as *CloudEvents* 1.0, several in one JSON array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import orjson

from gateway.core.hooks.cursor import Gap
from gateway.core.hooks.hook import HookName
from gateway.core.journal import Record

CONTENT_TYPE: Final = "application/cloudevents-batch+json; charset=utf-8"
"""Of every request."""

GAP: Final = "gap"
"""Type of the event that says that others are missing."""

ID_CHARACTERS: Final = 32
"""Of the id of a request: 128 bits of a hash."""

_ATTRIBUTES: Final = ("id", "type", "at", "node", "session", "version")
"""Fields of a record that are attributes of its event, and not repeated in its data."""

_MICROSECONDS: Final = 1_000_000
_DAY: Final = 86_400
_ERA: Final = 719_468
"""Days from the first of March of the year 0 to 1970."""


def from_record(record: Record) -> dict[str, Any]:
    """Make an event of a record of the journal; its id is the record's, also when it is sent again."""
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": record["id"],
        "source": f"/nodes/{record['node']}",
        "type": record["type"],
        "time": timestamp(record["at"]),
        "datacontenttype": "application/json",
        "data": {name: value for name, value in record.items() if name not in _ATTRIBUTES and value is not None},
    }
    if record.get("session") is not None:
        event["subject"] = record["session"]
    return event


def from_gap(gap: Gap, hook: HookName, now: float) -> dict[str, Any]:
    """Make the event that tells a receiver what it does not get.

    Args:
        gap: what is missing.
        hook: of the receiver.
        now: seconds since 1970.
    """
    data: dict[str, Any] = {"reason": gap.reason.value, "stream": gap.partition, "after": gap.after}
    if gap.count is not None:
        data["count"] = gap.count
    return {
        "specversion": "1.0",
        "id": f"gap-{_hash(hook, str(gap.partition), gap.incarnation, gap.after, gap.reason.value)}",
        "source": f"/hooks/{hook}",
        "type": GAP,
        "time": timestamp(round(now * _MICROSECONDS)),
        "datacontenttype": "application/json",
        "data": data,
    }


def body_of(events: Sequence[bytes]) -> bytes:
    """Join encoded events to the body of a request."""
    return b"[" + b",".join(events) + b"]"


def encode(event: Mapping[str, Any]) -> bytes:
    """Encode one event."""
    return orjson.dumps(event)


def message_id(hook: HookName, ids: Sequence[str]) -> str:
    """Name a request by what is in it, so that it has the same id whenever the same events are sent again."""
    return f"msg_{_hash(hook, *ids)}"


def timestamp(microseconds: int) -> str:
    """Write a time since 1970 as RFC 3339 does.

    Years before 1970 and behind 9999 are none that a clock shows; they are written as the nearest that can be.
    """
    seconds, fraction = divmod(max(0, min(microseconds, 253_402_300_799_999_999)), _MICROSECONDS)
    days, seconds = divmod(seconds, _DAY)
    # Days to a date, by Howard Hinnant's algorithm: years begin in March, so that the leap day is the last one.
    era, day_of_era = divmod(days + _ERA, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9  # noqa: PLR2004 - March is month 0
    year = year_of_era + era * 400 + (month <= 2)  # noqa: PLR2004 - January and February are of the next year
    hours, seconds = divmod(seconds, 3600)
    return f"{year:04}-{month:02}-{day:02}T{hours:02}:{seconds // 60:02}:{seconds % 60:02}.{fraction:06}Z"


def _hash(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:ID_CHARACTERS]
