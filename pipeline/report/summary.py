"""The first lines of the report: what went wrong on these days, and for whom, in a sentence each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pipeline.gold.words import DEATH, DRAIN, HANG, OUTAGE
from pipeline.report.objective import BurnDown
from pipeline.report.text import NOTHING, clock, count, duration, lasted, percent, whom

NAMED: Final = 3
"""Incidents of a kind that are told one by one, those with the most sessions; of the others only how many they are."""

Row = Mapping[str, Any]


class Line(NamedTuple):
    """A sentence.

    Attributes:
        head: what it is about, in a few words.
        told: the rest.
        links: what incidents are called, and where on the page their chapters are; none if they have none.
        mood: ``bad``, ``good`` or nothing.
    """

    head: str
    told: str
    links: tuple[tuple[str, str], ...] = ()
    mood: str = ""


def summary(gold: Mapping[str, Sequence[Row]], judged: BurnDown, anchors: Mapping[str, str]) -> list[Line]:
    """Tell the worst first: who never came back, what happened to nodes and the grid, and whether it was kept.

    Args:
        gold: rows of the gold tables, by table.
        judged: what became of the objective.
        anchors: where on the page the chapters of incidents are.
    """
    incidents = sorted(gold["incidents"], key=lambda row: (-row["sessions"], row["begins"]))
    kinds = Counter(row["kind"] for row in incidents)
    lines = [*_missed(gold, judged)]
    for kind, one, many in (
        (DEATH, "A node died", "{} nodes died"),
        (OUTAGE, "The grid could not be reached", "The grid could not be reached {} times"),
        (HANG, "A node hung", "{} nodes hung"),
    ):
        if kinds[kind]:
            mine = [row for row in incidents if row["kind"] == kind]
            head = one if kinds[kind] == 1 else many.format(count(kinds[kind]))
            lines.append(_of_kind(head, mine, anchors))
    if kinds[DRAIN]:
        drained = [row for row in incidents if row["kind"] == DRAIN]
        stayed = sum(row["expired"] + row["away"] for row in drained)
        told = f"of {count(sum(row['sessions'] for row in drained))} sessions {count(stayed)} never came back."
        lines.append(
            Line("A node was drained" if len(drained) == 1 else f"{count(len(drained))} drains of nodes", told)
        )
    if not incidents:
        lines.append(Line("No incident", "no node died, hung or was drained, and none lost the grid.", mood="good"))
    return lines


def _missed(gold: Mapping[str, Sequence[Row]], judged: BurnDown) -> Iterable[Line]:
    affected = len({row["session"] for row in gold["incident_sessions"]})
    if judged.missed:
        share = f", {percent(judged.missed / affected)}" if affected else ""
        yield Line(
            f"{count(judged.missed)} {'session' if judged.missed == 1 else 'sessions'} never came back",
            f"of {count(affected)} that incidents touched{share}. The objective counts each of them as missed.",
            mood="bad",
        )


def _of_kind(head: str, rows: Sequence[Row], anchors: Mapping[str, str]) -> Line:
    """Tell of the incidents of a kind in one sentence."""
    told = [(_told(row), anchors.get(row["incident"], "")) for row in rows[:NAMED]]
    rest = len(rows) - len(told)
    return Line(head, f"and {count(rest)} more." if rest else "", tuple(told), "bad")


def _told(row: Row) -> str:
    when = f"{row['begins']:%Y-%m-%d} {clock(row['begins'])[:8]}"
    away = row["expired"] + row["away"]
    if row["kind"] == OUTAGE:
        length = lasted(row)
        held_up = row["put_off"] or 0
        parts = [
            f"{count(held_up)} {'client' if held_up == 1 else 'clients'} held up" if held_up else "nobody was held up"
        ]
        if row["held_up_max_ms"] is not None:
            parts[0] += f" for up to {duration(row['held_up_max_ms'])}"
        if row["refused"]:
            parts.append(f"{count(row['refused'])} refused for good")
        if row["lost_writes"]:
            parts.append("the grid had forgotten writes")
        for_how_long = "" if length == NOTHING else f" for {length}"
        return f"{when}{for_how_long}, from {whom(row)}: {', '.join(parts)}"
    return f"{whom(row)}, {when}: {count(row['sessions'])} sessions, {count(away)} never came back"
