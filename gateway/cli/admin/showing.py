"""Shows what the admin API answers: tables for people, one JSON object a line for programs.

Principals, properties and topics are what clients chose to write: nothing of them may steer a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

LONGEST_CELL: Final = 120
"""Characters of one cell; what is longer is cut, and whole in JSON."""


def plain(value: object) -> str:
    """Write a value so that it cannot steer a terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def moment(seconds: float | None) -> str:
    """Write seconds since 1970 for people."""
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%SZ}"


def print_json(items: Iterable[object]) -> None:
    """Print one object a line, in ASCII."""
    for each in items:
        click.echo(json.dumps(each))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, nothing: str) -> None:
    """Print a table; columns of numbers are aligned to the right.

    Args:
        headings: of the columns.
        rows: values of each row.
        nothing: what to say if there are none.
    """
    found = [list(row) for row in rows]
    if not found:
        click.echo(nothing, err=True)
        return
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        numbers = all(isinstance(row[number], int | float | None) and row[number] is not True for row in found)
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold")
    for row in found:
        table.add_row(*(_cell(value) for value in row))
    # A table into a file or a pipe is not cut at the width of a terminal that is not there.
    console = Console()
    console = console if console.is_terminal else Console(width=10_000)
    console.print(table, soft_wrap=not console.is_terminal)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print one thing, a field a line."""
    width = max(len(name) for name in fields) + 2
    for name, value in fields.items():
        click.echo(f"{name:<{width}}{plain(value)}")


def _cell(value: object) -> Text:
    text = plain(value)
    return Text(text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…")
