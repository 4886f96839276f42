"""How numbers, times and texts of strangers are written for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from gateway.core.visible import visible
from pipeline.gold.words import OUTAGE

NOTHING: Final = "\N{EN DASH}"
"""Stands where there is nothing to tell."""

_THOUSANDS: Final = "\N{NARROW NO-BREAK SPACE}"

_SECOND: Final = 1000
"""Milliseconds."""


def shown(text: object) -> str:
    """Write a text of a stranger so that it stays on its line; the template escapes it."""
    return NOTHING if text is None else visible(str(text))


def count(number: int | None) -> str:
    """Write a number with its thousands apart."""
    return NOTHING if number is None else f"{number:,}".replace(",", _THOUSANDS)


def percent(share: float | None) -> str:
    """Write a share, so that what is not all of it never looks like all of it, nor a little like nothing."""
    if share is None:
        return NOTHING
    text = f"{100 * share:.2f}"
    if share < 1 and text == "100.00":
        text = "99.99"
    elif share > 0 and text == "0.00":
        text = "0.01"
    return f"{text.removesuffix('.00')} %"


def duration(milliseconds: float | None) -> str:
    """Write a time in the unit in which it is a small number."""
    if milliseconds is None:
        return NOTHING
    if milliseconds < _SECOND:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / _SECOND
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def lasted(row: Mapping[str, Any]) -> str:
    """Write how long something lasted that may not have ended, or that was told by clocks that differ."""
    if row["ends"] is None:
        return NOTHING
    if row.get("skew_ms") or row["ends"] < row["begins"]:
        return "unknown"
    return duration((row["ends"] - row["begins"]) / timedelta(milliseconds=1))


def kind(name: str) -> str:
    """Call a kind of incident what people call it."""
    return "grid outage" if name == OUTAGE else name


def whom(row: Mapping[str, Any]) -> str:
    """Name the nodes that an incident happened to; rows of an older release name one."""
    return ", ".join(map(shown, row.get("nodes") or [row["node"]]))


def clock(at: datetime | None) -> str:
    """Write a time of the day, with milliseconds."""
    return NOTHING if at is None else f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"


def day(at: datetime | None) -> str:
    """Write a day and a time."""
    return NOTHING if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def yes_or_no(told: bool | None) -> str:
    """Write what is so or not, or not known."""
    return NOTHING if told is None else "yes" if told else "no"


FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "shown": shown,
    "count": count,
    "percent": percent,
    "ms": duration,
    "lasted": lasted,
    "kind": kind,
    "whom": whom,
    "clock": clock,
    "day": day,
    "yes_or_no": yes_or_no,
}
"""For the template."""
