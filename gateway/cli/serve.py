"""``gateway serve``: runs a node."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli.options import SettingsCommand, load_from_options, settings_options
from gateway.garbage import uncollected
from gateway.settings.exposure import on_command_lines


@click.command(cls=SettingsCommand)
@settings_options
def serve(file: Path | None, **given: str | bool | None) -> int:
    """Run a node until it is stopped.

    SIGTERM and Ctrl-C drain: clients are moved to other nodes first, and no session ends. For a first try on your own
    machine: gateway serve --dev
    """
    loaded = load_from_options(file, given)
    for warning in on_command_lines(loaded.settings.grid, loaded.places.__getitem__):
        click.echo(f"gateway: warning: {warning}", err=True)
    # All that modules make stays, and a tenth of the time went into looking through it.
    with uncollected():
        # Imported here, so that a mistake in the configuration is told before anything heavy is loaded.
        from gateway.bootstrap import run  # noqa: PLC0415

    return run(loaded.settings)
