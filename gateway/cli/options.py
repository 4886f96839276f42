"""Flags of commands, made from the declarations of the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from gateway.settings import GROUPS, SETTINGS, Loaded, Settings, load, peek

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class SettingsCommand(click.Command):
    """A command that takes every setting as a flag and lists them by group in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group."""
        records = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        for group in GROUPS:
            rows = [row for each in group.settings if (row := records.pop(each.name, None)) is not None]
            if rows:
                with formatter.section(group.title):
                    formatter.write_dl(rows)
        with formatter.section("Other"):
            formatter.write_dl([row for row in records.values() if row is not None])
        formatter.write_paragraph()
        formatter.write_text(
            "Every setting is also an environment variable (--grid-timeout: GATEWAY_GRID_TIMEOUT) and a key in TOML "
            "(grid_timeout); flags win over variables, variables over the file. Token keys have no flag, because "
            "others can see command lines: use GATEWAY_TOKEN_KEYS or --token-keys-file. `gateway config` explains all."
        )


def settings_options(function: FunctionT) -> FunctionT:
    """Give a command ``--config`` and a flag for every setting that is not secret."""
    for each in reversed(SETTINGS.values()):
        if each.flag is None:
            continue
        names = each.flag if each.negative_flag is None else f"{each.flag}/{each.negative_flag}"
        function = click.option(
            names,
            each.name,
            default=None,
            type=bool if each.negative_flag else str,
            metavar=None if each.negative_flag else each.declared.kind.metavar,
            help=f"{each.declared.meaning} [default: {each.shown_default}]",
        )(function)
    return config_option(function)


def config_option(function: FunctionT) -> FunctionT:
    """Give a command ``--config``."""
    return click.option(
        "--config",
        "file",
        metavar="FILE",
        default=None,
        type=click.Path(path_type=Path),
        help="Read settings from this TOML file. [default: GATEWAY_CONFIG, if set]",
    )(function)


def load_from_options(file: Path | None, given: Mapping[str, str | bool | None]) -> Loaded:
    """Load the settings with what the flags say.

    Args:
        file: the value of ``--config``.
        given: values by name of the setting; None where the flag was not given.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    return load(flags=_flags(given), file=file)


def load_peeking(file: Path | None, given: Mapping[str, str | bool | None]) -> Settings:
    """Load the settings without the files that they name; see ``gateway.settings.peek``.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    return peek(flags=_flags(given), file=file).settings


def _flags(given: Mapping[str, str | bool | None]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else str(value).lower()
        for name, value in given.items()
        if value is not None
    }
