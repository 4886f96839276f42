"""The report tells what the tables hold, is one file, and obeys no text of a stranger."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipeline.cli.report import report
from pipeline.errors import NotReady
from pipeline.gold.tables import TABLES
from pipeline.report import Objective, charts, read_findings
from pipeline.report.findings import Findings
from pipeline.report.objective import BurnDown, Judged, judge
from pipeline.report.page import render
from pipeline.report.text import NOTHING, count, duration, percent
from pipeline.report.timelines import picture_of
from tests.pipeline.older import as_older
from tests.pipeline.report.tables import (
    DEATH,
    NOON,
    at,
    filled,
    hour,
    incident,
    interval,
    refused,
    session,
    touched,
    write_gold,
    write_lake,
    write_sessions,
)

EVIL = "<script>alert(1)</script>\"'&{{ 7 * 7 }}\u202e\x1b[31m"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    write_lake(tmp_path)
    return tmp_path


def findings_of(lake: Path, first: date | None = None) -> Findings:
    return read_findings(lake / "gold", lake / "silver" / "sessions", first=first)


def page_of(lake: Path, objective: Objective | None = None) -> str:
    return render(findings_of(lake), objective or Objective(), made_at=datetime(2026, 1, 3, tzinfo=UTC), lake="lake")


def judged_of(objective: Objective, **rows: Sequence[Mapping[str, Any]]) -> BurnDown:
    """Judge rows of gold tables, by table; what they do not tell is nothing."""
    empty: dict[str, tuple[Mapping[str, Any], ...]] = dict.fromkeys(TABLES, ())
    given: dict[str, tuple[Mapping[str, Any], ...]] = {
        name: tuple(filled(TABLES[name].schema, row) for row in told) for name, told in rows.items()
    }
    return judge(objective, empty | given)


class Seen(HTMLParser):
    """What a browser would find: text, and whatever it would fetch or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        if (name := given.get("id")) is not None:
            self.ids.append(name)
        for each in ("src", "href", "xlink:href", "action"):
            if (address := given.get(each)) is not None:
                self.addresses.append(address)
        assert not any(name.startswith("on") for name in given), f"<{tag}> would run something"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def words(page: str) -> str:
    return re.sub(r"\s+", " ", " ".join(Seen(page).text))


def test_it_tells_what_the_tables_hold(lake: Path) -> None:
    told = words(page_of(lake))
    assert "3 sessions were connected to it" in told
    assert "2 came back ( 2 failed_over" in told or "2 came back (2 failed_over" in told
    assert "10 of 100 events are missing, 4 of them without a word" in told
    assert "66.67 %" in told
    assert "7 reattached, 2 failed over (1 replayed, 1 not)" in told
    assert "1 of these were sent every update that they had missed, 1 current values" in told


def test_links_with_other_clusters_are_summed_up_for_each_direction(lake: Path) -> None:
    told = words(page_of(lake).split('id="zones"')[1])
    told = told.replace("\N{EN DASH}", "-")
    assert "alice out n1 5 321 99 000 - - - 17 2 1 0 0" in told
    assert "alice in n1 5 432 0 5 400 31 1 - 0 0 0 3" in told
    assert "n1 3 2026-01-02 11:45:00 - 15 min 1.5 s" in told


def test_tables_of_a_release_that_knew_no_replay_are_told_beside_newer_ones(lake: Path) -> None:
    for name in ("objectives", "incidents", "incident_sessions"):
        (file,) = (lake / "gold" / name).rglob("*.parquet")
        place = file.parent.with_name("date=2026-01-01")
        place.mkdir()
        pq.write_table(as_older(pq.read_table(file, partitioning=None)), place / file.name)
    (file,) = (lake / "silver" / "sessions").glob("*.parquet")
    sessions = pq.read_table(file)
    is_late = pc.equal(sessions["session"], pa.scalar("late"))
    pq.write_table(as_older(sessions.filter(pc.invert(is_late))), file.with_name("a-older.parquet"))
    pq.write_table(sessions.filter(is_late), file)

    found = findings_of(lake)
    assert [row["replayed"] for row in found.gold["objectives"]] == [None, None, 1, 0]
    assert {name: [each["replayed"] for each in found.timelines[name]] for name in ("quick", "late")} == {
        "quick": [None, None, None],
        "late": [None, None, False],
    }
    assert sorted(found.comebacks.away_ms.tolist()) == [12, 900, 20_000]
    told = words(page_of(lake))
    assert "14 reattached, 4 failed over (1 replayed, 1 not)" in told
    assert told.count("were sent every update that they had missed") == 1, "of the older incident nobody knows"


def test_a_grid_outage_tells_who_was_held_up_and_what_was_lost(tmp_path: Path) -> None:
    outage = "outage-20260102T120100.000"
    of_it = {"incident": outage, "kind": "outage", "node": None, "nodes": ["n1", "n2"], "incarnation": None}
    told_of_it = {"sessions": 3, "put_off": 2, "refused": 1, "held_up_p50_ms": 5_000, "held_up_max_ms": 9_000}
    write_gold(tmp_path / "gold", "incidents", [incident(**of_it, **told_of_it, lost_writes=True, noticed_by="n1")])
    held = {"put_off": 2, "held_up_ms": 9_000}
    write_gold(tmp_path / "gold", "incident_sessions", [touched("held", incident=outage, back_at=at(80), **held)])
    told = words(page_of(tmp_path))
    assert "Grid outage of n1, n2, 2026-01-02 12:01:00" in told
    assert "2 clients were told to try again; those that came back had waited for 5 s (median), 9 s at most." in told
    assert "because the grid had forgotten their sessions: 1." in told
    assert "publishes that were acknowledged shortly before may be gone" in told
    assert "1 grid outage" in told


def test_a_grid_outage_that_held_up_nobody_says_so_without_blanks(tmp_path: Path) -> None:
    outage = {
        "incident": "outage-20260102T120100.000",
        "kind": "outage",
        "node": None,
        "nodes": ["n1"],
        "incarnation": None,
    }
    write_gold(tmp_path / "gold", "incidents", [incident(**outage, put_off=None, refused=None, lost_writes=False)])
    page = page_of(tmp_path)
    chapter = words(page[page.index('<article class="chapter"') : page.index("</article>")])
    assert "Held up: nobody, because nobody wanted to come back meanwhile." in chapter
    assert "forgotten their sessions: nobody." in chapter
    assert NOTHING not in chapter
    assert "p95" not in chapter


def test_an_hour_alone_stands_among_hours_and_not_among_years() -> None:
    rows = [{"hour": NOON, "node": node, "connections_peak": 7} for node in ("n2", "n3")]
    told = words(charts.capacity(rows, "connections_peak", "connections") or "")
    assert "12:00" in told
    assert "2027" not in told


def test_a_crowd_that_comes_back_at_once_is_a_bar_among_moments(lake: Path) -> None:
    comebacks = findings_of(lake).comebacks
    at_once = replace(comebacks, at=comebacks.at * 0 + comebacks.at.min())
    told = words(charts.rungs_over_time(at_once) or "")
    assert "comebacks in 10 s" in told
    assert "12:01" in told.split(), "a minute beside that of the bar"


def test_a_clock_that_is_behind_is_told_and_no_negative_length(tmp_path: Path) -> None:
    write_gold(tmp_path / "gold", "incidents", [incident(ends=at(60), skew_ms=297_000)])
    assert "by at least 4.95 min" in words(page_of(tmp_path))
    write_gold(tmp_path / "older" / "gold", "incidents", [incident(ends=at(60 - 297))])
    for lake in (tmp_path, tmp_path / "older"):
        told = words(page_of(lake))
        assert "-297" not in told
        assert "unknown" in told


def test_rejected_lines_and_accepted_losses_are_told(lake: Path) -> None:
    assert "No line of the journal was rejected" in words(page_of(lake))
    rows = [("not JSON", 7, 0, [3, 9]), ("accepted as lost", 0, 2, [3])]
    names = ("reason", "lines", "gaps", "streams")
    days = {"first_at": at(0), "last_at": at(9), "date": NOON.date()}
    write_gold(lake / "gold", "rejections", [dict(zip(names, row, strict=True)) | days for row in rows])
    told = words(page_of(lake))
    assert "7 lines rejected, 2 losses accepted" in told
    assert "7 lines of the journal could not become events, and 2 gaps and losses were written down" in told


def test_all_comebacks_of_the_days_are_found_and_no_others(lake: Path) -> None:
    found = findings_of(lake)
    assert sorted(found.comebacks.away_ms.tolist()) == [12, 900, 20_000]
    assert sorted(found.comebacks.rung.tolist()) == ["failed_over", "failed_over", "reattached"]
    assert found.sessions == 4


def test_who_is_just_connected_for_days_is_counted(tmp_path: Path) -> None:
    write_gold(tmp_path / "gold", "incidents", [incident()])
    days = 86_400
    sessions = [
        session("idle", interval("connected", -9 * days, None, "n1", rung="created")),
        session("over", interval("connected", -9 * days, -8 * days, "n1", rung="created")) | {"state": "ended"},
        session("later", interval("connected", 9 * days, None, "n1", rung="created")),
    ]
    write_sessions(tmp_path / "silver" / "sessions", sessions)
    assert findings_of(tmp_path).sessions == 1


def test_days_without_anything_are_no_report(lake: Path) -> None:
    with pytest.raises(NotReady, match="run `pipeline gold` first, or name other days"):
        findings_of(lake, first=date(2030, 1, 1))
    with pytest.raises(NotReady, match="no gold tables yet"):
        findings_of(lake / "elsewhere")


def test_it_is_one_file_that_asks_nobody_and_runs_nothing(lake: Path) -> None:
    page = page_of(lake)
    seen = Seen(page)
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(seen.tags)
    assert all(each.startswith("#") for each in seen.addresses)
    assert not re.search(r"url\((?!#)|@import", page)
    assert seen.tags.count("svg") >= 6


def test_ids_are_there_once_and_what_is_named_exists(lake: Path) -> None:
    page = page_of(lake)
    seen = Seen(page)
    assert len(seen.ids) == len(set(seen.ids))
    named = {each.removeprefix("#") for each in seen.addresses} | set(re.findall(r"url\(#([^)]+)\)", page))
    assert named <= set(seen.ids)


def test_texts_of_strangers_are_texts(tmp_path: Path) -> None:
    write_lake(tmp_path, evil=EVIL)
    page = page_of(tmp_path)
    seen = Seen(page)
    assert "script" not in seen.tags
    assert "alert(1)" in words(page)
    assert "49" not in re.findall(r"alert\(1\)[^<]{0,40}", page)
    assert "\u202e" not in page
    assert "\x1b" not in page


@pytest.mark.thorough
@pytest.mark.parametrize("root", ["$a$b^{c", "_hidden", "价格"])
def test_a_chart_shows_every_name_as_it_is(tmp_path: Path, root: str) -> None:
    write_lake(tmp_path, evil=root)
    assert root in words(page_of(tmp_path).split('id="traffic"')[1])


def test_the_same_tables_make_the_same_page(lake: Path) -> None:
    assert page_of(lake) == page_of(lake)


def test_a_quiet_day_is_told_as_one(tmp_path: Path) -> None:
    write_gold(
        tmp_path / "gold",
        "losses",
        [{"node": "n1", "incarnation": "a", "events": 5, "first_at": NOON, "last_at": NOON, "date": NOON.date()}],
    )
    write_sessions(tmp_path / "silver" / "sessions", [])
    told = words(page_of(tmp_path))
    sentences = (
        "Nobody came back on these days.",
        "No node died, hung or was drained, and none lost the grid.",
        "There were none.",
        "No link with another cluster was up.",
        "No node became the master on these days.",
    )
    for sentence in sentences:
        assert sentence in told
    assert "The numbers of all 5 events follow without a hole" in told


# --- The objective ----------------------------------------------------------------------------------------------------


def test_refused_lossy_and_late_comebacks_are_not_good_and_each_counts_once() -> None:
    touched_ones = [
        touched("late", back_at=at(80), away_ms=20_000, lost=0),
        touched("late", incident="drain-cd34", back_at=at(80), away_ms=20_000),
        touched("lossy", back_at=at(80), away_ms=20_000, lost=3),
        touched("quick", back_at=at(61), away_ms=10_000),
        touched("gone", fate="expired"),
    ]
    judged = judged_of(
        Objective(0.9, 10),
        objectives=[hour(comebacks=8, refused=600, lossy=1), hour(node="n3", comebacks=1, refused=0, lossy=0)],
        incident_sessions=touched_ones,
        incidents=[incident()],
        refused_sessions=[refused("dead", refusals=600)],
    )
    assert judged.hours == (Judged(NOON, tried=11, refused=1, lossy=1, late=1, missed=1),)
    assert judged.bad == 4
    assert judged.budget == pytest.approx(1.1)
    assert judged.is_met is False
    ((hour_told, share),) = judged.left()
    assert hour_told == NOON
    assert share == pytest.approx(1 - 4 / 1.1)


def test_who_never_came_back_from_an_incident_was_missed() -> None:
    """9,000 of 10,000 sessions that a death touched and that never return are no 100 %."""
    judged = judged_of(
        Objective(),
        objectives=[hour(comebacks=1_000)],
        incidents=[incident()],
        incident_sessions=[
            *(touched(f"back{number}", back_at=at(61), away_ms=900) for number in range(1_000)),
            *(touched(f"gone{number}", fate="expired") for number in range(9_000)),
        ],
    )
    assert (judged.tried, judged.missed) == (10_000, 9_000)
    assert judged.share == pytest.approx(0.1)
    assert judged.is_met is False


def test_who_never_came_back_counts_once_whatever_else_is_told_of_him() -> None:
    death = "death-cd34"
    judged = judged_of(
        Objective(),
        incidents=[incident(), incident(incident=death, begins=at(-7200))],
        incident_sessions=[touched("gone", fate="expired"), touched("gone", incident=death, fate="expired")],
        refused_sessions=[refused("gone", first_at=at(4000)), refused("gone", first_at=at(90_000))],
    )
    assert judged.hours == (Judged(at(-7200), tried=1, refused=0, lossy=0, late=0, missed=1),)


@pytest.mark.parametrize(("seconds", "missed"), [(69, 0), (71, 1)])
def test_who_is_away_is_missed_when_it_takes_longer_than_promised(seconds: int, missed: int) -> None:
    judged = judged_of(
        Objective(0.999, 10),
        incidents=[incident()],
        incident_sessions=[touched("away", fate="away"), touched("closed", fate="closed")],
        losses=[{"incarnation": "ab12", "first_at": NOON, "last_at": at(seconds), "date": NOON.date()}],
    )
    assert judged.missed == missed


def test_where_nobody_had_to_come_back_there_is_nothing_to_judge(tmp_path: Path) -> None:
    assert judged_of(Objective()).is_met is None
    write_gold(tmp_path / "gold", "objectives", [hour()])
    page = page_of(tmp_path)
    assert "Nothing to judge" in words(page)
    assert 'class="tile good"><dt>The objective' not in page


def test_refusals_that_an_older_release_has_counted_are_counted_as_it_did() -> None:
    older = filled(TABLES["objectives"].schema, hour(comebacks=9, refused=2)) | {"refused_sessions": None}
    judged = judge(Objective(), dict.fromkeys(TABLES, ()) | {"objectives": (older,)})
    assert (judged.tried, judged.refused) == (11, 2)


def test_a_budget_is_used_up_hour_by_hour() -> None:
    hours = tuple(Judged(at(3600 * number), 1000, wrong, 0, 0) for number, wrong in enumerate((1, 0, 2)))
    judged = BurnDown(Objective(0.999, 10), hours)
    assert [share for _, share in judged.left()] == pytest.approx([2 / 3, 2 / 3, 0])
    assert judged.is_met
    assert BurnDown(Objective(0.9, 10), (Judged(NOON, 10, 1, 0, 0),)).is_met


@pytest.mark.parametrize(("wrong", "met"), [(0, True), (1, False)])
def test_a_promise_of_all_leaves_no_budget(wrong: int, *, met: bool) -> None:
    judged = BurnDown(Objective(1.0, 10), (Judged(NOON, 5, wrong, 0, 0),))
    assert judged.is_met is met
    assert judged.left() == [(NOON, float(met))]


# --- Timelines --------------------------------------------------------------------------------------------------------


def test_those_it_was_worst_for_come_first_and_every_piece_is_in_its_place(lake: Path) -> None:
    found = findings_of(lake)
    (incident,) = found.gold["incidents"]
    assert incident["incident"] == DEATH
    picture = picture_of(incident, found)
    assert [line.session for line in picture.lines] == ["gone", "late", "quick"]
    for line in picture.lines:
        place = 0.0
        for piece in line.pieces:
            assert piece.left == pytest.approx(place, abs=0.01)
            place = piece.left + piece.width
        assert place == pytest.approx(100, abs=0.01)
    late = picture.lines[1]
    assert [piece.kind for piece in late.pieces] == ["connected", "away", "connected"]
    assert late.pieces[1].left == pytest.approx(picture.incident_at, abs=0.01)
    assert "failed_over, other_node, not replayed, after 20000 ms (client)" in late.pieces[2].title


def test_who_is_pictured_for_another_incident_is_not_for_this_one(lake: Path) -> None:
    other = [
        touched("quick", incident="drain-cd34", back_at=at(61), away_ms=900),
        touched("late", incident="drain-cd34", back_at=at(61), away_ms=800),
    ]
    write_gold(lake / "more", "incident_sessions", other)
    shutil.copytree(lake / "more" / "incident_sessions", lake / "gold" / "incident_sessions" / "more")
    found = read_findings(lake / "gold", lake / "silver" / "sessions", timelines=1)
    assert set(found.timelines) == {"gone", "quick"}
    picture = picture_of(found.gold["incidents"][0], found)
    assert [line.session for line in picture.lines] == ["gone"]


def test_more_sessions_than_there_is_room_for_are_counted(lake: Path) -> None:
    found = read_findings(lake / "gold", lake / "silver" / "sessions", timelines=1)
    picture = picture_of(found.gold["incidents"][0], found)
    assert [line.session for line in picture.lines] == ["gone"]
    assert picture.left_out == 2


# --- Writing for people -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100 %"), (0.99999, "99.99 %"), (0.999, "99.90 %"), (0.00001, "0.01 %"), (0.0, "0 %"), (None, NOTHING)],
)
def test_a_share_never_looks_like_all_or_nothing_unless_it_is(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_times_are_in_units_that_people_read() -> None:
    assert [duration(each) for each in (0, 999, 1000, 61_000, 7_200_000, 172_800_000)] == [
        "0 ms", "999 ms", "1 s", "1.02 min", "2 h", "2 d",
    ]  # fmt: skip
    assert count(1_234_567) == "1\u202f234\u202f567"


# --- The command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page_and_says_where(lake: Path) -> None:
    file = lake / "january.html"
    file.write_text("the page before")
    ran = CliRunner().invoke(report, ["--lake", str(lake), "--output", str(file)])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.strip() == str(file)
    assert file.read_text().startswith("<!doctype html>")
    assert [each.name for each in lake.glob(".*")] == []


def test_days_in_the_wrong_order_are_told(lake: Path) -> None:
    ran = CliRunner().invoke(report, ["--lake", str(lake), "--from", "2026-02-01", "--to", "2026-01-01"])
    assert ran.exit_code == 2
    assert "is before the first" in ran.output
