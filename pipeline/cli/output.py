"""How commands tell what they do: progress on standard error, results on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.text import Text

from gateway.core.visible import visible


class Teller:
    """Tells how far a job is: one line that changes on a terminal, else a line each time.

    Args:
        console: where; standard error by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._status = self._console.status("") if self._console.is_terminal else None

    def now(self, what: str) -> None:
        """Tell what the job does now, or how far it is."""
        if self._status is not None:
            self._status.update(Text(visible(what)))
        else:
            self._console.print(Text(visible(what)))

    def note(self, what: str) -> None:
        """Tell something that stays to be read."""
        self._console.print(Text(visible(what)))

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show that the job goes on, until the block ends."""
        if self._status is None:
            self.now(what)
            yield
            return
        self.now(what)
        with self._status:
            yield


def result(line: str) -> None:
    """Write a line of what the command was asked for."""
    click.echo(visible(line))
