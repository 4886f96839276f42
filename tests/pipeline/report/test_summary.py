"""The first lines of the report say what went wrong, and for whom."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.gold.tables import TABLES
from pipeline.report import Objective
from pipeline.report.objective import judge
from pipeline.report.summary import Line, summary
from tests.pipeline.report.tables import DEATH, at, filled, incident, touched, write_gold
from tests.pipeline.report.test_report import EVIL, page_of, words

OUTAGE = "outage-20260102T120500.000"
HELD_UP: Mapping[str, Any] = {
    "incident": OUTAGE, "kind": "outage", "node": None, "nodes": ["n1", "n2"], "incarnation": None, "begins": at(300),
    "ends": at(312), "sessions": 40, "put_off": 40, "refused": 3, "held_up_max_ms": 14_000, "lost_writes": True,
}  # fmt: skip


def lines_of(**rows: Sequence[Mapping[str, Any]]) -> list[Line]:
    gold: dict[str, tuple[Mapping[str, Any], ...]] = dict.fromkeys(TABLES, ())
    gold |= {name: tuple(filled(TABLES[name].schema, row) for row in told) for name, told in rows.items()}
    return summary(gold, judge(Objective(), gold), {DEATH: "incident-1"})


def test_a_day_with_a_death_an_outage_and_500_that_never_came_back_says_so_first(tmp_path: Path) -> None:
    gold = tmp_path / "gold"
    write_gold(gold, "incidents", [incident(sessions=900, comebacks=400, expired=500), incident(**HELD_UP)])
    gone = [touched(f"gone{number}", fate="expired") for number in range(500)]
    back = [touched(f"back{number}", back_at=at(62), away_ms=1_000) for number in range(400)]
    write_gold(gold, "incident_sessions", [*gone, *back])

    page = page_of(tmp_path)
    told = words(page)

    assert "500 sessions never came back , of 900 that incidents touched, 55.56 %." in told
    assert "A node died : n1, 2026-01-02 12:01:00: 900 sessions, 500 never came back ." in told
    assert (
        "The grid could not be reached : 2026-01-02 12:05:00 for 12 s, from n1, n2: 40 clients held up for up to 14 s, "
        "3 refused for good, the grid had forgotten writes ." in told
    )
    before = told.index("Packets known lost")
    assert max(told.index("never came back"), told.index("A node died"), told.index("could not be reached")) < before
    assert re.search(r'<a href="#incident-\d">n1, 2026-01-02 12:01:00', page)


def test_a_day_without_incidents_is_told_as_one() -> None:
    (line,) = lines_of()
    assert (line.head, line.mood) == ("No incident", "good")


@pytest.mark.parametrize(
    ("put_off", "told"), [(None, "nobody was held up"), (0, "nobody was held up"), (1, "1 client held up")]
)
def test_an_outage_says_in_words_that_it_held_up_nobody(put_off: int | None, told: str) -> None:
    (line,) = lines_of(incidents=[incident(**{**HELD_UP, "put_off": put_off, "held_up_max_ms": None})])
    ((text, _),) = line.links
    assert f"from n1, n2: {told}, 3 refused" in text


def test_only_the_worst_of_a_kind_are_named() -> None:
    deaths = [incident(incident=f"death-{number}", node=f"n{number}", sessions=number) for number in range(5)]
    (line,) = lines_of(incidents=deaths)
    assert line.head == "5 nodes died"
    assert [text.partition(",")[0] for text, _ in line.links] == ["n4", "n3", "n2"]
    assert line.told == "and 2 more."


def test_drains_and_hangs_are_told_after_what_is_worse() -> None:
    drain = incident(incident="drain-a", kind="drain", sessions=7, away=2)
    hang = incident(incident="hang-a", kind="hang", sessions=1)
    lines = lines_of(incidents=[drain, drain | {"incident": "drain-b"}, hang, incident(sessions=1)])
    assert [line.head for line in lines] == ["A node died", "A node hung", "2 drains of nodes"]
    assert lines[-1].told == "of 14 sessions 4 never came back."


def test_names_of_strangers_stay_texts(tmp_path: Path) -> None:
    write_gold(tmp_path / "gold", "incidents", [incident(node=EVIL, sessions=1)])
    page = page_of(tmp_path)
    assert "<script" not in page.replace("script-src", "")
    assert "\u202e" not in page
