"""The part of the threat model that is made from a run: a table for each kind of attack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.cases.base import Figure, Row
from benchmarks.document import Document
from benchmarks.hostile import case
from benchmarks.hostile.catalogue import ATTACKS, GROUPS
from benchmarks.hostile.disturbances import BUSY
from benchmarks.markdown import stamp, table

NOT_YET: Final = (
    "No run has been published yet. On a machine that has nothing else to do,\n"
    "`make bench ONLY=hostile BENCH_JSON=.local/bench/hostile.json` measures every row (about 40 minutes), and\n"
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
    "least left of the lease (s); slowest `/readyz` (ms)",
    "held",
)
_NONE: Final = "none"
_NAMED: Final = 5
"""Of the rows that are missing, so many are named."""


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
    about = str(row.details.get("about", row.contestant))
    needs = str(row.details.get("needs", ""))
    verdict = "yes" if row.values[case.HELD.name] == 1 else f"**no**: {'; '.join(row.failures)}"
    logins = f"{_shown(row, case.QUIET_LOGIN, case.LOGIN)}; {_shown(row, case.RESUME)}"
    if row.values.get(case.FAILED_LOGINS.name):
        logins += f"; {_shown(row, case.FAILED_LOGINS)} refused"
    return (
        f"`{row.contestant}`: {about}" + (f" ({needs})" if needs else ""),
        f"{_shown(row, case.ATTACKER_CPU)} %, {_shown(row, case.ATTACKER_BYTES, case.ATTACKER_CONNECTIONS)}",
        f"{_shown(row, case.DONE)} {row.details.get('counts', '')}",
        _shown(row, case.QUIET_P50, case.P50),
        _shown(row, case.QUIET_P99, case.P99),
        logins,
        f"{_shown(row, case.QUIET_CPU)} %, {_shown(row, case.CPU)} %",
        _shown(row, case.RESIDENT_BEFORE, case.RESIDENT, case.RESIDENT_AFTER),
        f"{_shown(row, case.LEASE_LEFT)}; {_shown(row, case.SLOWEST_CHECK)}",
        "; ".join((verdict, *row.flags)),
    )


def _shown(row: Row, *figures: Figure) -> str:
    """Write figures of a row with their digits and without their units; one that there is not says so."""
    values = ((row.values.get(each.name), each.digits) for each in figures)
    return ", ".join(_NONE if value is None else f"{value:,.{digits}f}" for value, digits in values)


def doubts(document: Document) -> Iterator[str]:
    """Tell why a run should not be published: it was a quick one, or rows are missing. Rows that failed are shown."""
    if document.quick:
        yield "it was a quick run, to try things"
    if absent := [name for name in ATTACKS if not any(row.contestant == name for row in document.rows)]:
        more = f" and {len(absent) - _NAMED:,} more" if len(absent) > _NAMED else ""
        yield f"there is nothing of {', '.join(absent[:_NAMED])}{more}"
    if busy := sum(any(each.startswith(BUSY) for each in row.flags) for row in document.rows):
        yield f"{BUSY} in {busy} of {len(document.rows)} rows"
    if document.broken:
        yield f"something did not start or came to nothing: {'; '.join(document.broken)}"
