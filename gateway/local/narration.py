"""How the demonstration is told: with a spinner and colours on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.local.checker import FAILED_OVER, RecoverySeen, Verdict, Violation

_VIOLATIONS_SHOWN: Final = 20
"""Broken promises written out; one broken promise tends to be broken a thousand times."""
_PLAIN_WIDTH: Final = 120
"""Columns where there is no terminal that could tell."""


class Narrator:
    """Tells what happens, while it happens."""

    def __init__(self, console: Console | None = None) -> None:
        """Tell it on *console*, standard output by default."""
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = _PLAIN_WIDTH
        self._step = 0

    def say(self, text: str) -> None:
        """Tell one thing."""
        self._console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """Show that something is going on."""
        if self._console.is_terminal:
            with self._console.status(escape(text)):
                yield
        else:
            yield

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Tell of one step: its title now, and that it goes on until the block ends."""
        self._step += 1
        self._console.print(f"\n[bold]{self._step}. {escape(title)}[/bold]", soft_wrap=True)
        with self.busy("watching what clients see …"):
            yield

    def seen(self, text: str, violations: Sequence[Violation]) -> None:
        """Tell what clients saw of a step, and which promises it broke."""
        mark = "[red]✗[/red]" if violations else "[green]✓[/green]"
        self._console.print(f"   {mark} {escape(text)}", soft_wrap=True)
        self._tell(violations)

    def verdict(self, verdict: Verdict, seconds: float) -> None:
        """Tell the end: the table, and whether every promise was kept."""
        self.end(
            [_recovery_table(verdict), _delivery_table(verdict)],
            verdict.violations,
            f"{verdict.checks} comparisons at the end, {seconds:.0f} s",
        )

    def end(self, tables: Sequence[Table], violations: Sequence[Violation], summary: str) -> None:
        """Tell the end of any demonstration.

        Args:
            tables: what there was.
            violations: the promises that were broken.
            summary: what was compared and how long it took, in a few words.
        """
        self._console.print()
        for table in tables:
            self._console.print(table)
        if violations:
            self._console.print(f"\n[bold red]Promises were broken: {len(violations)}[/bold red]")
            self._tell(violations)
        else:
            self._console.print(f"\n[bold green]Every promise was kept[/bold green] ({summary}).")

    def _tell(self, violations: Sequence[Violation]) -> None:
        for violation in violations[:_VIOLATIONS_SHOWN]:
            self._console.print(f"     {escape(str(violation))}", style="red", soft_wrap=True)
        if len(violations) > _VIOLATIONS_SHOWN:
            self._console.print(f"     … and {len(violations) - _VIOLATIONS_SHOWN} more", style="red")


def describe_recoveries(recoveries: Sequence[RecoverySeen], sessions: int) -> str:
    """Say in one line what a step did to clients.

    Args:
        recoveries: of the step.
        sessions: how many there are in all.
    """
    concerned = {recovery.session for recovery in recoveries}
    if not concerned:
        return f"all {sessions} sessions stayed connected and noticed nothing"
    outcomes = sorted({recovery.outcome for recovery in recoveries})
    counts = ", ".join(
        f"{sum(recovery.outcome == outcome for recovery in recoveries)} {outcome}" for outcome in outcomes
    )
    gaps = [recovery.gap_seconds for recovery in recoveries]
    others = sessions - len(concerned)
    rest = f"; the other {others} noticed nothing" if others else ""
    return (
        f"{len(concerned)} of {sessions} sessions lost their connection: {counts}, "
        f"median {statistics.median(gaps):.2f} s, longest {max(gaps):.2f} s{rest}"
    )


def _recovery_table(verdict: Verdict) -> Table:
    table = Table(title=f"{verdict.sessions} sessions", title_justify="left")
    table.add_column("recovery outcome")
    table.add_column("recoveries", justify="right")
    table.add_column("time without connection, p50", justify="right")
    table.add_column("max", justify="right")
    for outcome, gaps in sorted(verdict.gaps.items()):
        table.add_row(outcome, str(verdict.outcomes[outcome]), f"{statistics.median(gaps):.3f} s", f"{max(gaps):.3f} s")
        if outcome == FAILED_OVER and verdict.replayed:
            table.add_row("… of these replayed", str(verdict.replayed))
    return table


def _delivery_table(verdict: Verdict) -> Table:
    tally = verdict.tally
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in (
        ("publishes acknowledged", verdict.published),
        ("updates delivered", tally.delivered),
        ("… of these full values (snapshots)", tally.snapshots),
        ("updates replaced by a newer value, as reported", tally.skipped),
    ):
        table.add_row(name, f"{count:,}")
    table.add_row("slowest publish, hung nodes and lost grids included", f"{verdict.slowest_publish:.2f} s")
    table.add_section()
    for name, count in (
        ("updates lost in silence", tally.lost),
        ("updates duplicated", tally.duplicated),
        ("updates out of order", tally.out_of_order),
        ("versions and values that contradict (lost or doubled publishes)", tally.contradictory),
    ):
        table.add_row(name, f"[red]{count:,}[/red]" if count else "0")
    return table
