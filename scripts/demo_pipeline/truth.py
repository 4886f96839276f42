"""Compares what the pipeline tells with what clients wrote down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scripts.demo_pipeline.clients import Seen

MOST_APART_MS: Final = 100
"""Milliseconds by which a client and the report may differ about how long it was away, if the machine is not busy."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Happened:
    """What was done, and whom it disturbed.

    Attributes:
        kind: ``death`` or ``drain``.
        node: to which node.
        seen: what each client at that node then saw of it, by its session.
        clock_ms: milliseconds by which a client and a node may have been apart besides, about when a welcome was there:
            what one round trip took then, at most.
    """

    kind: str
    node: str
    seen: Mapping[str, Seen]
    clock_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an incident that happened is told.

    Attributes:
        happened: what was done.
        told: the row of ``incidents``, if there is one.
        differences: a sentence each; none if the report tells the truth.
        most_apart_ms: by how much a client and the report differ at most about the time away.
    """

    happened: Happened
    told: Row | None
    differences: Sequence[str]
    most_apart_ms: float


def compare(happened: Happened, incidents: Iterable[Row], touched: Iterable[Row]) -> Comparison:
    """Compare one incident.

    Args:
        happened: what was done.
        incidents: rows of the gold table.
        touched: rows of the gold table ``incident_sessions``.
    """
    mine = [row for row in incidents if (row["kind"], row["node"]) == (happened.kind, happened.node)]
    if len(mine) != 1:
        return Comparison(
            happened, None, [f"{len(mine)} incidents are reported of the {happened.kind} of {happened.node}"], 0
        )
    told = mine[0]
    rows = {row["session"]: row for row in touched if row["incident"] == told["incident"]}
    differences = [
        *(f"{name} was touched, and the report does not say so" for name in sorted(happened.seen.keys() - rows.keys())),
        *(f"{name} was not touched, and the report says so" for name in sorted(rows.keys() - happened.seen.keys())),
    ]
    most = 0.0
    for name in sorted(rows.keys() & happened.seen.keys()):
        row, seen = rows[name], happened.seen[name]
        for what, reported, saw in (
            ("rung", row["rung"], seen.rung),
            ("node", row["back_node"], seen.node),
            ("losses", row["lost"], seen.lost),
            ("replayed", row["replayed"], seen.replayed),
        ):
            if reported != saw:
                differences.append(f"{name}: the report says {what} {reported}, its client saw {saw}")
        if row["away_ms"] is None:
            differences.append(f"{name}: the report does not say how long it was away")
            continue
        apart = abs(row["away_ms"] - seen.away_ms)
        most = max(most, apart)
        if apart > MOST_APART_MS + happened.clock_ms:
            differences.append(f"{name}: away {row['away_ms']} ms by the report, {seen.away_ms:.0f} ms by its client")
    if told["sessions"] != len(happened.seen):
        differences.append(f"the report counts {told['sessions']} sessions, there were {len(happened.seen)}")
    if told["comebacks"] != len(happened.seen):
        differences.append(f"the report counts {told['comebacks']} comebacks, there were {len(happened.seen)}")
    return Comparison(happened, told, differences, most)
