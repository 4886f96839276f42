"""The part of the threat model that is made from a run: a table for each kind of attack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.cases.base import Row
from benchmarks.document import Document
from benchmarks.hostile import case
from benchmarks.hostile.catalogue import ATTACKS, GROUPS
from benchmarks.hostile.verdict import BUSY
from benchmarks.markdown import plain, stamp, table

NOT_YET: Final = (
    "No run has been published yet. On a machine that has nothing else to do,\n"
    "`make bench ONLY=hostile BENCH_JSON=.local/bench/hostile.json` measures every row (about half an hour), and\n"
    "`make bench-publish BENCH_JSON=.local/bench/hostile.json` writes the tables here."
)
"""What stands in the place of the tables until there is a run."""

_HEAD: Final = (
    "attack",
    "costs the attacker: CPU, MB/s, connections",
    "done a second",
    "witness p50: quiet, attacked (ms)",
    "witness p99: quiet, attacked (ms)",
    "login: quiet, attacked; resume attacked (ms)",
    "node's CPU: quiet, attacked",
    "node's memory: before, most, after (MiB)",
    "held",
)
_NONE: Final = "none"
_COST: Final = (case.ATTACKER_BYTES.name, case.ATTACKER_CONNECTIONS.name)


def tables(document: Document | None) -> str:
    """Write the tables of a run; without one, how to make it."""
    if document is None:
        return NOT_YET
    held = sum(row.values[case.HELD.name] == 1 for row in document.rows)
    parts = [
        stamp_of(document),
        f"The node held in {held} of {len(document.rows)} rows.",
    ]
    for title in GROUPS:
        if rows := [each for each in document.rows if each.variant == title]:
            lines = [_HEAD, *(_line(each) for each in rows)]
            parts += [f"**{title}**", table(lines)]
    return "\n\n".join(parts)


def stamp_of(document: Document) -> str:
    """Tell when, what and on what was measured; that rows failed is told beside."""
    return stamp(document.model_copy(update={"failed": False}))


def _line(row: Row) -> tuple[str, ...]:
    value = row.values.get
    about = str(row.details.get("about", row.contestant))
    needs = str(row.details.get("needs", ""))
    verdict = "yes" if row.values[case.HELD.name] == 1 else f"**no**: {'; '.join(row.failures)}"
    refused = value(case.FAILED_LOGINS.name, 0.0)
    logins = _several(row, case.QUIET_LOGIN.name, case.LOGIN.name) + f"; {_number(value(case.RESUME.name))}"
    return (
        f"`{row.contestant}`: {about}" + (f" ({needs})" if needs else ""),
        ", ".join((_percent(value(case.ATTACKER_CPU.name)), _several(row, *_COST))),
        f"{_number(value(case.DONE.name))} {row.details.get('counts', '')}",
        _several(row, case.QUIET_P50.name, case.P50.name),
        _several(row, case.QUIET_P99.name, case.P99.name),
        logins + (f"; {refused:,.0f} refused" if refused else ""),
        f"{_percent(value(case.QUIET_CPU.name))}, {_percent(value(case.CPU.name))}",
        _several(row, case.RESIDENT_BEFORE.name, case.RESIDENT.name, case.RESIDENT_AFTER.name),
        "; ".join((verdict, *row.flags)),
    )


def _several(row: Row, *names: str) -> str:
    return ", ".join(_number(row.values.get(each)) for each in names)


def _number(value: float | None) -> str:
    return plain(value) or _NONE


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0f} %"


def doubts(document: Document) -> Iterator[str]:
    """Tell why a run should not be published: it was a quick one, or rows are missing. Rows that failed are shown."""
    if document.quick:
        yield "it was a quick run, to try things"
    if absent := [name for name in ATTACKS if not any(row.contestant == name for row in document.rows)]:
        yield f"there is nothing of {', '.join(absent)}"
    if busy := sum(any(each.startswith(BUSY) for each in row.flags) for row in document.rows):
        yield f"{BUSY} in {busy} of {len(document.rows)} rows"
    if document.broken:
        yield f"something did not start or came to nothing: {'; '.join(document.broken)}"
