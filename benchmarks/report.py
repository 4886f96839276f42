"""Shows what a run gave: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.cases.base import OURS, Better, Case, Figure, Reference, Results, Row
from benchmarks.comparison import is_spread, kept_up, ratio_of
from benchmarks.document import AGAINST, FORMAT
from benchmarks.machine import commit, machine
from benchmarks.runner import Outcome, Plan
from benchmarks.systems.base import SystemUnderTest
from benchmarks.verdict import Verdict, judge
from benchmarks.versions import BOUND, Compared, Finding, compared

_VERDICTS: Final = {True: ("met", "green"), False: ("missed", "red"), None: ("not measured", "dim")}


def number(value: float, figure: Figure) -> str:
    """Write a value without its unit, with thousands separated."""
    return f"{value:,.{figure.digits}f}"


def cell(values: Sequence[float], figure: Figure) -> str:
    """Write the median and the range if there are several values; where they lie far apart, the range alone."""
    if not values:
        return "–"  # noqa: RUF001 - a dash in a table
    middle = number(median(values), figure)
    if len(values) == 1:
        return middle
    bounds = f"{number(min(values), figure)} … {number(max(values), figure)}"
    return bounds if is_spread(values) else f"{middle}\n({bounds})"


def ratio(reference: Reference, results: Results) -> str:
    """Write how many times another's value ours is; nothing if one of both could not keep up with what was asked."""
    ours = replace(reference, contestant=OURS)
    if reference.contestant == OURS or not all(kept_up(results.of(each)) for each in (ours, reference)):
        return ""
    found = ratio_of(results.values(ours), results.values(reference))
    if found is None:
        return ""
    return f"{found.least:.2f} … {found.most:.2f} x" if found.is_range else f"{found.middle:.2f} x"


def tables(case: Case, results: Results) -> list[Table]:
    """Make a table of each variant of a case, in the order in which they were measured."""
    rows = [each for each in results.rows if each.case == case.name]
    return [_table(case, variant, results) for variant in dict.fromkeys(each.variant for each in rows)]


def _table(case: Case, variant: str, results: Results) -> Table:
    mine = [each for each in results.rows if (each.case, each.variant) == (case.name, variant)]
    figures = [figure for figure in case.figures if any(figure.name in row.values for row in mine)]
    compared = [each for each in figures if each.better is not Better.NEITHER][:1]
    table = Table(title=f"{case.title}: {variant}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("")
    for figure in figures:
        table.add_column(f"{figure.title}\n{figure.unit}", justify="right")
    for figure in compared:
        table.add_column(f"ours / it\n{figure.title}", justify="right")
    table.add_column("remarks", overflow="fold")
    for contestant in dict.fromkeys(each.contestant for each in mine):
        references = {each.name: Reference(case.name, variant, contestant, each.name) for each in figures}
        remarks = Text()
        for row in mine:
            if row.contestant == contestant:
                remarks.append("".join(f"FAILED {each}\n" for each in row.failures[:1]), style="red")
        flags = {flag: None for row in mine if row.contestant == contestant for flag in row.flags}
        remarks.append("\n".join(flags), style="yellow")
        table.add_row(
            contestant,
            *(cell(results.values(references[each.name]), each) for each in figures),
            *(ratio(references[each.name], results) for each in compared),
            remarks,
            style="bold" if contestant == OURS else "",
        )
    return table


def verdicts_table(verdicts: Sequence[Verdict]) -> Table:
    """Make the table of targets."""
    table = Table(title="Targets", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("target", overflow="fold")
    table.add_column("ours", justify="right")
    table.add_column("reference", justify="right")
    table.add_column("reached", justify="right")
    table.add_column("demanded", justify="right")
    table.add_column("")
    for each in verdicts:
        word, style = _VERDICTS[each.met]
        table.add_row(
            each.target.text,
            "" if each.ours is None else f"{each.ours:,.2f}",
            "" if each.reference is None else f"{each.reference:,.2f}",
            each.reason if each.reached is None else _reached(each),
            f"{'≥' if each.target.at_least else '≤'} {each.target.factor:g}",
            Text(word, style=style),
        )
    return table


def _reached(verdict: Verdict) -> str:
    if verdict.least is None or verdict.most is None:
        return f"{verdict.reached:,.2f}"
    return f"{verdict.least:,.2f} … {verdict.most:,.2f}"


_FINDINGS: Final = {
    Finding.HOLDS: "green",
    Finding.PROBABLE: "yellow",
    Finding.DOUBTFUL: "yellow",
    Finding.BROKEN: "red",
}


def comparison(plan: Plan, outcome: Outcome) -> list[Compared]:
    """Compare this version with the other one, as far as both were measured."""
    return [each for case in plan.cases for each in compared(case, outcome.turns)]


def comparison_table(found: Sequence[Compared], against: str) -> Table:
    """Make the table of both versions."""
    table = Table(
        title=f"This version against {against}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for heading in ("case", "workload", "figure"):
        table.add_column(heading, overflow="fold")
    for heading in (against, "this version", "more, median of turns (95 % interval)", "turns"):
        table.add_column(heading, justify="right")
    table.add_column(f"at most {BOUND - 1:.0%} worse")
    for each in found:
        unit = f", {each.figure.unit}" if each.figure.unit else ""
        table.add_row(
            each.case,
            each.variant,
            f"{each.figure.title}{unit}",
            number(each.before, each.figure),
            number(each.after, each.figure),
            str(each.ratio),
            str(each.ratio.turns),
            Text(each.finding, style=_FINDINGS.get(each.finding, "dim")),
        )
    return table


def verdicts(plan: Plan, outcome: Outcome) -> list[Verdict]:
    """Judge the targets of all cases that were run."""
    return [judge(target, outcome.results) for case in plan.cases for target in case.targets]


def show(plan: Plan, outcome: Outcome, console: Console) -> None:
    """Print all tables, the settings and what failed."""
    for case in plan.cases:
        for position, table in enumerate(tables(case, outcome.results)):
            if position == 0:
                console.print(Text(case.about, style="dim"), end="\n\n")
            console.print(table)
    if judged := verdicts(plan, outcome):
        console.print(verdicts_table(judged))
    if plan.against is not None:
        console.print(comparison_table(comparison(plan, outcome), plan.against.title))
    _show_surroundings(plan, outcome, console)
    for name, reason in outcome.unavailable.items():
        console.print(Text(f"Not measured: {name}: {reason}", style="yellow"))
    others = [replace(row, contestant="the other version") for turn in outcome.turns for row in turn.before]
    _show_failures([*outcome.results.rows, *others], console)
    for sentence in outcome.broken:
        console.print(Text(f"BROKEN {sentence}", style="red"))


def _show_failures(rows: Sequence[Row], console: Console) -> None:
    for row in rows:
        for failure in row.failures:
            console.print(Text(f"FAILED {row.case}, {row.variant}, {row.contestant}: {failure}", style="red"))


def _show_surroundings(plan: Plan, outcome: Outcome, console: Console) -> None:
    lines = [
        f"{datetime.now().astimezone():%Y-%m-%d %H:%M}, commit {commit()}"
        + (", quick: for trying, not for publishing" if plan.quick else ""),
        ", ".join(f"{name} {value}" for name, value in machine().items()),
    ]
    for name in outcome.versions:
        versions = ", ".join(f"{each} {version}" for each, version in outcome.versions[name].items())
        settings = ", ".join(f"{each}: {value}" for each, value in outcome.settings[name].items())
        lines.append(f"{name}: {versions}; set: {settings or 'nothing'}")
    console.print(Text("\n".join(lines), style="dim"))


def as_json(plan: Plan, outcome: Outcome, systems: Sequence[SystemUnderTest]) -> Mapping[str, Any]:
    """Collect everything, raw values included."""
    return {
        "format": FORMAT,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "quick": plan.quick,
        "cases": {case.name: {"title": case.title, "about": case.about} for case in plan.cases},
        "systems": {
            each.name: {
                "title": each.title,
                "versions": outcome.versions.get(each.name, {}),
                "settings": outcome.settings.get(each.name, {}),
                "unavailable": outcome.unavailable.get(each.name),
            }
            for each in systems
        },
        "figures": {case.name: [asdict(each) for each in case.figures] for case in plan.cases},
        "rows": [asdict(each) for each in outcome.results.rows],
        "targets": [
            {name: value for name, value in asdict(each).items() if name not in {"target", "reference"}}
            | asdict(each.target)
            for each in verdicts(plan, outcome)
        ],
        **_versions(plan, outcome),
        "broken": outcome.broken,
        "failed": outcome.failed,
    }


def _versions(plan: Plan, outcome: Outcome) -> Mapping[str, Any]:
    """Collect what there is of another version; nothing if there was none."""
    if plan.against is None:
        return {}
    return {
        AGAINST: plan.against.title,
        "comparison": [asdict(each) for each in comparison(plan, outcome)],
        "turns": [asdict(each) for each in outcome.turns],
    }


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write it for people, too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
