"""Puts the page together: figures, charts and timelines, in one file that asks nobody for anything."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gateway import __version__
from pipeline.errors import NotReady
from pipeline.gold.words import FAILED_OVER, REATTACHED, RUNGS
from pipeline.report import charts
from pipeline.report.findings import Findings, Row
from pipeline.report.objective import BurnDown, Objective, judge
from pipeline.report.summary import summary
from pipeline.report.text import FILTERS, count, duration, kind, percent, whom
from pipeline.report.timelines import Picture, picture_of

ROWS: Final = 200
"""Rows of a table that are shown: more are looked up in the tables of the lake, which the page says."""

INCIDENTS: Final = 50
"""Incidents with a chapter of their own: those with the most sessions. All are in the table."""

OPEN: Final = 3
"""Incidents whose timelines are unfolded from the beginning: those with the most sessions."""

SLOW: Final = 20
"""Slow consumers that are shown, the worst first."""

QUEUES: Final = 30
"""Queues that are shown, those with the most messages first."""

LINKS: Final = 60
"""Links with other clusters that are shown, in both directions; those with the most events first."""

MASTERS: Final = 30
"""Times that a node was the master that are shown, the last ones."""

HUES: Final = 6
"""Colours of nodes in timelines; with more nodes they repeat."""


class Chapter:
    """What the page tells of one incident.

    Args:
        incident: its row.
        findings: everything.
        number: its place on the page.
    """

    def __init__(self, incident: Row, findings: Findings, number: int) -> None:
        self.anchor = f"incident-{number}"
        self.row = incident
        self.sessions = findings.touched.get(incident["incident"], ())
        self.picture: Picture = picture_of(incident, findings)
        self.chart = _safe(charts.came_back(incident, self.sessions, self.anchor))
        self.rungs = Counter(row["rung"] for row in self.sessions if row["rung"])


def write_report(findings: Findings, objective: Objective, file: Path, *, made_at: datetime, lake: str) -> None:
    """Write the page.

    Args:
        findings: what it tells.
        objective: what was promised.
        file: where; a page that stood there is replaced in one step.
        made_at: when, UTC.
        lake: what the lake is called, for people.

    Raises:
        NotReady: there is no such folder.
        OSError: the file cannot be written.
    """
    if not file.absolute().parent.is_dir():
        raise NotReady(f"{file} cannot be written: there is no folder {file.absolute().parent}")
    text = render(findings, objective, made_at=made_at, lake=lake)
    staged = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        staged.write_text(text, encoding="utf-8")
        staged.replace(file)
    finally:
        staged.unlink(missing_ok=True)


def render(findings: Findings, objective: Objective, *, made_at: datetime, lake: str) -> str:
    """Make the text of the page; see ``write_report``."""
    judged = judge(objective, findings.gold)
    incidents = sorted(findings.gold["incidents"], key=lambda row: row["begins"])
    told = sorted(incidents, key=lambda row: -row["sessions"])[:INCIDENTS]
    chapters = [Chapter(row, findings, number) for number, row in enumerate(incidents, 1) if row in told]
    anchors = {each.row["incident"]: each.anchor for each in chapters}
    nodes = sorted({each["node"] for intervals in findings.timelines.values() for each in intervals if each["node"]})
    page = _environment().get_template("report.html.j2")
    return page.render(
        findings=findings,
        gold=findings.gold,
        judged=judged,
        objective=objective,
        figures=_figures(findings, judged),
        verdict=_verdict(judged),
        incidents=incidents,
        chapters=chapters,
        names={row["incident"]: f"{kind(row['kind'])} of {whom(row)}" for row in incidents},
        anchors=anchors,
        summary=summary(findings.gold, judged, anchors),
        hues={node: number % HUES for number, node in enumerate(nodes)},
        charts={
            "distribution": _safe(charts.distribution(findings.comebacks)),
            "rungs": _safe(charts.rungs_over_time(findings.comebacks)),
            "budget": _safe(charts.burn_down(judged)),
            "traffic": _safe(charts.traffic(findings.gold["traffic"])),
            "connections": _safe(charts.capacity(findings.gold["capacity"], "connections_peak", "connections")),
            "cpu": _safe(charts.capacity(findings.gold["capacity"], "cpu_share", "CPU, share of a core")),
        },
        unfolded={each["incident"] for each in told[:OPEN]},
        slow=sorted(findings.gold["slow_consumers"], key=lambda row: (-row["closes"], -row["bytes"], row["session"])),
        rejections=sorted(findings.gold["rejections"], key=lambda row: (-row["gaps"], -row["lines"], row["reason"])),
        lossy=sorted((row for row in findings.gold["losses"] if row["missing"]), key=lambda row: -row["missing"]),
        queues=_queues(findings.gold["queues"]),
        links=_links(findings.gold["zone_links"]),
        masters=sorted(findings.gold["masters"], key=lambda row: row["elected_at"])[-MASTERS:],
        mastered=len(findings.gold["masters"]),
        most_links=LINKS,
        most_slow=SLOW,
        most_queues=QUEUES,
        most_rows=ROWS,
        made_at=made_at,
        lake=lake,
        version=__version__,
    )


def _figures(findings: Findings, judged: BurnDown) -> Mapping[str, Any]:
    """Sum up."""
    rungs: Counter[str] = Counter()
    for name in (*RUNGS, "other_rungs", "replayed", "not_replayed"):
        # Rows that an older release has made do not have all of them.
        rungs[name] = sum(row[name] or 0 for row in findings.gold["objectives"])
    kinds = Counter(kind(row["kind"]) for row in findings.gold["incidents"])
    losses, rejections = findings.gold["losses"], findings.gold["rejections"]
    return {
        "comebacks": sum(row["comebacks"] for row in findings.gold["objectives"]),
        "refusals": sum(row["refused"] for row in findings.gold["objectives"]),
        "affected": len({row["session"] for row in findings.gold["incident_sessions"]}),
        "put_off": sum(row["put_off"] for row in findings.gold["objectives"]),
        "expired": sum(row["expired"] for row in findings.gold["objectives"]),
        "lost": sum(row["lost"] for row in findings.gold["objectives"]),
        "rungs": rungs,
        "rungs_told": _rungs_told(rungs),
        "late": sum(each.late for each in judged.hours),
        "lossy": sum(each.lossy for each in judged.hours),
        "kinds": ", ".join(f"{number} {name}{'s' if number > 1 else ''}" for name, number in kinds.most_common()),
        "rejected": sum(row["lines"] for row in rejections),
        "gaps": sum(row["gaps"] for row in rejections),
        "skew_ms": max((row["skew_ms"] or 0 for row in findings.gold["incidents"]), default=0),
        "missing": sum(row["missing"] for row in losses),
        "unexplained": sum(row["unexplained"] for row in losses),
        "events": sum(row["events"] for row in losses),
    }


def _queues(rows: Sequence[Row]) -> list[Mapping[str, Any]]:
    """Sum up each queue, the busiest first; how much more is in it is found by following the hours."""
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["hour"]):
        each = found.setdefault(row["queue"], {"queue": row["queue"], "depth": 0, "peak": 0, "settle_max_ms": 0})
        for name in ("sent", "given", "redelivered", "accepted", "rejected", "released", "settle_ms"):
            each[name] = each.get(name, 0) + row[name]
        each["depth"] += row["growth"]
        each["peak"] = max(each["peak"], each["depth"])
        each["settle_max_ms"] = max(each["settle_max_ms"], row["settle_max_ms"])
    for each in found.values():
        each["settle_mean_ms"] = each["settle_ms"] / each["accepted"] if each["accepted"] else None
    return sorted(found.values(), key=lambda each: (-each["sent"] - each["given"], each["queue"]))


def _links(rows: Sequence[Row]) -> list[Mapping[str, Any]]:
    """Sum up each link with another cluster, the busiest first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["remote"], row["direction"]
        each = found.setdefault(key, {"remote": key[0], "direction": key[1], "behind": 0, "nodes": set()})
        for name in ("events", "bytes", "taken", "repeated", "refused", "connected", "lost", "hung_up", "gaps"):
            each[name] = each.get(name, 0) + row[name]
        each["behind"] = max(each["behind"], row["behind"])
        each["nodes"] |= set(row["nodes"])
    return sorted(found.values(), key=lambda each: (-each["events"], each["remote"], each["direction"]))


def _verdict(judged: BurnDown) -> Mapping[str, str]:
    """Say in words what was found of the objective, and in which colour: green is only what was kept."""
    promised = f"promised {percent(judged.objective.share)} within {duration(judged.objective.away * 1000)}"
    if judged.is_met is None:
        return {"word": "Nothing to judge", "told": f"nobody had to come back; {promised}", "mood": ""}
    told = f"{percent(judged.share)} of {count(judged.tried)} clients were back in time and whole; {promised}"
    return {"word": "Kept", "told": told, "mood": "good"} if judged.is_met else {
        "word": "Broken", "told": told, "mood": "bad"
    }  # fmt: skip


def _rungs_told(rungs: Mapping[str, int]) -> str:
    """Tell how clients came back; rungs that nobody met are left out, but for those that every cluster has."""
    met = (name for name in RUNGS if rungs[name] or name in {REATTACHED, FAILED_OVER})
    told = [f"{count(rungs[name])} {name.replace('_', ' ')}" for name in met]
    if rungs["replayed"] or rungs["not_replayed"]:
        # Failovers are last. Those that are neither had selected nothing, or nobody told.
        told[-1] += f" ({count(rungs['replayed'])} replayed, {count(rungs['not_replayed'])} not)"
    if rungs["other_rungs"]:
        told.append(f"{count(rungs['other_rungs'])} on other rungs")
    return ", ".join(told)


def _safe(svg: str | None) -> Markup | None:
    """Take a chart as it is: matplotlib has escaped the texts in it."""
    return None if svg is None else Markup(svg)  # noqa: S704 - made here


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    return environment
