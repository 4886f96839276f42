"""Commands that are imported when they are called: a program tells what it can do without loading any of it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import click

_COLUMNS_BESIDE: Final = 6
"""Columns that click leaves before and between the names of commands and what they do."""


class LazyCommand(NamedTuple):
    """Where a command is, and what its group's help says of it.

    Attributes:
        module: to import.
        attribute: name of the command in it.
        summary: the first sentence of its own help, without the full stop; a test compares them.
    """

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, or when somebody asks for their help.

    Args:
        lazy: the commands, by the names by which they are called. Others can be added as to any group.
        arguments: of ``click.Group``.
    """

    def __init__(self, *arguments: Any, lazy: Mapping[str, LazyCommand], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.lazy = dict(lazy)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See ``click.Group``."""
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See ``click.Group``."""
        if cmd_name in self.lazy and cmd_name not in self.commands:
            where = self.lazy[cmd_name]
            self.add_command(getattr(import_module(where.module), where.attribute), cmd_name)
        return super().get_command(ctx, cmd_name)

    def load(self) -> Mapping[str, click.Command]:
        """Import all commands, for pages and tests that look at them.

        Returns:
            The commands by name.
        """
        context = click.Context(self)
        found = {name: self.get_command(context, name) for name in self.list_commands(context)}
        return {name: command for name, command in found.items() if command is not None}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section of commands, without importing them."""
        names = self.list_commands(ctx)
        limit = formatter.width - _COLUMNS_BESIDE - max(map(len, names), default=0)
        rows = []
        for name in names:
            if name in self.lazy:
                rows.append((name, self.lazy[name].summary))
            elif (command := self.get_command(ctx, name)) is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
