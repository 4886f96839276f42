"""Timelines of sessions around an incident, as what stands where in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pipeline.report.findings import Findings, Row

LEAD: Final = 0.15
"""Share of the span of a picture that lies before the incident: enough to see what was normal."""

LEAST_SPAN: Final = timedelta(seconds=5)
"""Shortest span of a picture: below it nothing but the lead would be seen."""

COVERS: Final = 0.9
"""Share of those who came back whose comeback is to be seen: with the last stragglers the rest would be too small to
see."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a row.

    Attributes:
        left: where it begins, in hundredths of the width.
        width: how wide it is, in hundredths of the width.
        kind: ``connected`` or ``away``.
        node: on which node, or none.
        title: what is told of it.
    """

    left: float
    width: float
    kind: str
    node: str | None
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A session's row.

    Attributes:
        session: its id.
        told: its row of ``incident_sessions``.
        pieces: of its timeline.
    """

    session: str
    told: Row
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """The timelines of the sessions that an incident was worst for.

    Attributes:
        begins: the left end.
        ends: the right end.
        incident_at: where the incident began, in hundredths of the width.
        lines: the sessions.
        left_out: how many more the incident touched.
    """

    begins: datetime
    ends: datetime
    incident_at: float
    lines: tuple[Line, ...]
    left_out: int


def picture_of(incident: Row, findings: Findings) -> Picture:
    """Lay out the timelines of an incident."""
    touched = findings.touched.get(incident["incident"], ())
    begins, ends = _span(incident, touched)
    shown = [row for row in touched[: findings.pictured] if row["session"] in findings.timelines]
    lines = tuple(Line(row["session"], row, _pieces(findings.timelines[row["session"]], begins, ends)) for row in shown)
    return Picture(begins, ends, _hundredths(incident["begins"], begins, ends), lines, len(touched) - len(shown))


def _span(incident: Row, touched: Sequence[Row]) -> tuple[datetime, datetime]:
    came: list[datetime] = sorted(row["back_at"] for row in touched if row["back_at"] is not None)
    start: datetime = incident["begins"]
    end = came[min(len(came) - 1, int(COVERS * len(came)))] if came else (incident["ends"] or start)
    span = max(end - start, LEAST_SPAN)
    return start - span * LEAD, start + span * (1 + LEAD)


def _pieces(intervals: Sequence[Row], begins: datetime, ends: datetime) -> tuple[Piece, ...]:
    pieces = []
    for each in intervals:
        left, right = each["begins"], each["ends"] or ends
        if right <= begins or left >= ends:
            continue
        at = _hundredths(max(left, begins), begins, ends)
        until = _hundredths(min(right, ends), begins, ends)
        pieces.append(Piece(round(at, 3), round(until - at, 3), each["kind"], each["node"], _title(each)))
    return tuple(pieces)


def _hundredths(at: datetime, begins: datetime, ends: datetime) -> float:
    return 100 * ((at - begins) / (ends - begins))


def _title(interval: Mapping[str, object]) -> str:
    begins = interval["begins"]
    since = f"{begins:%H:%M:%S.%f}"[:-3]
    parts = [f"{interval['kind']} since {since}"]
    if interval["kind"] == "connected":
        parts.append(f"to {interval['node'] or 'an unknown node'}")
        parts += [str(interval[name]) for name in ("rung", "reason") if interval[name]]
        if interval["replayed"] is not None:
            parts.append("replayed" if interval["replayed"] else "not replayed")
        if interval["away_ms"] is not None:
            parts.append(f"after {interval['away_ms']} ms ({interval['measured_by']})")
    if interval["cause"]:
        parts.append(f"{'ended' if interval['kind'] == 'connected' else 'because'}: {interval['cause']}")
    return ", ".join(parts)
