"""Arguments of commands that begin with a dash, and are no flags: ids that are random text, and numbers below zero."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

import click

_MARK: Final = "\0"
"""Before an argument that looks like a flag while the command line is parsed; none of a program can hold it."""


class DashedCommand(click.Command):
    """A command whose arguments may begin with a dash.

    Attributes:
        dashed: what such arguments look like. A flag of the command is a flag all the same.
    """

    dashed: ClassVar[re.Pattern[str]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with such arguments kept from being taken for flags."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        flags = {name for each in options for name in (*each.opts, *each.secondary_opts)}
        followed = {name for each in options if not (each.is_flag or each.count) for name in each.opts}
        marked = [
            _MARK + each if self.dashed.fullmatch(each) and each not in flags and before not in followed else each
            for before, each in zip(["", *args], args, strict=False)
        ]
        rest = super().parse_args(ctx, marked)
        ctx.params = {name: _unmarked(value) for name, value in ctx.params.items()}
        return rest


class SessionCommand(DashedCommand):
    """A command that takes ids of sessions: 22 characters of URL-safe base64, of which one in 64 begins with a dash."""

    dashed = re.compile(r"-[A-Za-z0-9_-]{21}")


class ZoneCommand(DashedCommand):
    """A command that takes uids of zones: 16 of these characters."""

    dashed = re.compile(r"-[A-Za-z0-9_-]{15}")


class KeyCommand(DashedCommand):
    """A command that takes ids of signing keys: 8 of these characters."""

    dashed = re.compile(r"-[A-Za-z0-9_-]{7}")


class ValueCommand(DashedCommand):
    """A command that takes a value in JSON, which may be a number below zero."""

    dashed = re.compile(r"-[0-9][0-9.eE+-]*")


def _unmarked(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unmarked, value))
    return value.removeprefix(_MARK) if isinstance(value, str) else value
