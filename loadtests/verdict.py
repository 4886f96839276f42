"""The verdict, for people (a table, a part of the HTML report) and for programs (JSON)."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from loadtests.figures import FIGURES, Of
from loadtests.slo import Finding, Outcome, Verdict

_BODY: Final = "<body>"
_STYLE: Final = (
    "<style>.verdict{font:14px/1.5 system-ui,sans-serif;margin:16px auto;max-width:1100px;padding:12px 20px;"
    "border:1px solid #ccc;border-radius:6px;background:#fff;color:#222}.verdict h2{margin:4px 0 10px}"
    ".verdict table{border-collapse:collapse;width:100%}.verdict td,.verdict th{padding:3px 12px 3px 0;"
    "text-align:left;border-top:1px solid #eee}.verdict .number{text-align:right;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}.verdict .met{color:#15803d}.verdict .missed{color:#b91c1c;font-weight:700}"
    ".verdict .invalid{color:#a16207;font-weight:700}"
    "</style>"
)


NARROW: Final = 110
"""Columns of a terminal below which the table leaves out what figures mean; the how-to has it."""

_MEASURE_AGAIN: Final = (
    "Nothing is known about the gateway by this run. Measure again with fewer users, with more processes "
    "(--processes), or from a machine that nothing else uses."
)

_MARKS: Final = {Outcome.MET: "✓", Outcome.MISSED: "✗", Outcome.INVALID: "?"}
"""Before an objective: met, not met, and not known, as the generator was late."""

_STYLES: Final = {Outcome.MET: "bold green", Outcome.MISSED: "bold red", Outcome.INVALID: "bold yellow"}

_PLAIN_COLUMNS: Final = 130
"""Columns to use where nobody knows: a file, or the log of a CI job."""


def make_console() -> Console:
    """Make what verdict and progress are written to."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_COLUMNS)


def headline(verdict: Verdict) -> str:
    """Say it in one line."""
    missed = sum(not finding.met for finding in verdict.findings)
    total = len(verdict.findings)
    match verdict.outcome:
        case Outcome.INVALID:
            return f"{verdict.scenario}: INVALID, the load generator itself was late"
        case Outcome.MET:
            return f"{verdict.scenario}: all {total} objectives met"
        case Outcome.MISSED:
            missed_of = f"{missed} of {total} objectives MISSED" if total else "no objectives"
            return f"{verdict.scenario}: {missed_of}"


def advice(verdict: Verdict) -> str:
    """Say what to do about a verdict that says nothing about the gateway; empty for others."""
    return _MEASURE_AGAIN if verdict.outcome is Outcome.INVALID else ""


def what_is_left_out(verdict: Verdict) -> str:
    """Say which objectives were not judged, and why; empty if all were."""
    if not verdict.left_out:
        return ""
    names = ", ".join(dict.fromkeys(each.figure for each in verdict.left_out))
    return f"Left out, because no users were asked for that it takes: {names}."


def show(verdict: Verdict, console: Console) -> None:
    """Print the table."""
    table = Table(title=headline(verdict), title_style=_STYLES[verdict.outcome])
    table.add_column("")
    table.add_column("figure", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("objective", justify="right", no_wrap=True)
    wide = console.width >= NARROW
    if wide:
        table.add_column("what it is")
    for finding in verdict.findings:
        found = outcome_of(finding, verdict)
        row = _row(finding, found)
        table.add_row(*(row if wide else row[:-1]), style="" if found is Outcome.MET else _STYLES[found])
    console.print(table)
    for said in filter(None, (what_is_left_out(verdict), advice(verdict))):
        console.print(said, soft_wrap=True)


def outcome_of(finding: Finding, verdict: Verdict) -> Outcome:
    """Tell what an objective counts for in its run: what a late generator spoils is not known."""
    if finding.met:
        return Outcome.MET
    is_spoilt = verdict.is_late and FIGURES[finding.threshold.figure].of is Of.PACE
    return Outcome.INVALID if is_spoilt else Outcome.MISSED


def write_json(verdict: Verdict, path: Path) -> None:
    """Write the verdict and every figure, also those without a threshold."""
    content = {
        "scenario": verdict.scenario,
        "outcome": verdict.outcome.value,
        "met": verdict.met,
        "objectives": [
            {
                "figure": finding.threshold.figure,
                "bound": finding.threshold.bound.value,
                "limit": finding.threshold.limit,
                "measured": finding.value,
                "met": finding.met,
            }
            for finding in verdict.findings
        ],
        "left_out": [
            {"figure": each.figure, "bound": each.bound.value, "limit": each.limit} for each in verdict.left_out
        ],
        "figures": dict(verdict.figures),
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def as_html(verdict: Verdict) -> str:
    """Write the verdict as a part of a page."""
    rows = "".join(
        f'<tr><td class="{found}">{escape(mark)}</td><td>{escape(name)}</td>'
        f'<td class="number">{escape(measured)}</td><td class="number">{escape(objective)}</td>'
        f"<td>{escape(meaning)}</td></tr>"
        for finding in verdict.findings
        for found in [outcome_of(finding, verdict)]
        for mark, name, measured, objective, meaning in [_row(finding, found)]
    )
    return (
        f'{_STYLE}<section class="verdict"><h2 class="{verdict.outcome}">{escape(headline(verdict))}</h2>'
        f"{''.join(f'<p>{escape(said)}</p>' for said in (advice(verdict), what_is_left_out(verdict)) if said)}"
        "<table><tr><th></th>"
        '<th>figure</th><th class="number">measured</th><th class="number">objective</th><th>what it is</th></tr>'
        f"{rows}</table></section>"
    )


def put_into_report(verdict: Verdict, report: Path) -> None:
    """Put the verdict at the top of locust's HTML report."""
    page = report.read_text(encoding="utf-8")
    start, body, rest = page.partition(_BODY)
    report.write_text(start + body + as_html(verdict) + rest, encoding="utf-8")


def _row(finding: Finding, found: Outcome) -> tuple[str, str, str, str, str]:
    threshold = finding.threshold
    figure = FIGURES[threshold.figure]
    return (
        _MARKS[found],
        threshold.figure,
        "nothing" if finding.value is None else _number(finding.value, figure.unit),
        f"{threshold.bound.sign} {_number(threshold.limit, figure.unit)}",
        figure.meaning,
    )


def _number(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
    return f"{text} {unit}".rstrip()
