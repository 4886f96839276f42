"""``gateway admin token create``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gateway.settings.admin_tokens import new_token, tokens_line


@click.group()
def token() -> None:
    """Make tokens of administrators."""


@token.command()
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    metavar="ROLE",
    help="viewer, operator, administrator, or a role of the policy; may be given several times.",
)
@click.option(
    "--file",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the token into a new file that only you can read, instead of printing it.",
)
def create(name: str, *, roles: tuple[str, ...], target: Path | None) -> None:
    """Make a token called NAME.

    The line for admin_tokens_file, which holds its hash alone, goes to standard output; the token itself goes to
    standard error, once, or into --file. To add an administrator:
    gateway admin token create alice --role operator >> admins
    """
    secret = new_token()
    try:
        line = tokens_line(name, frozenset(roles), secret)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if target is None:
        click.echo(f"The token of {name}, which is shown just this once:\n\n    {secret}\n", err=True)
    else:
        _write(target, secret)
        click.echo(f"The token of {name} is in {target}.", err=True)
    click.echo(line)
    click.echo(
        "It is valid at a node whose admin_tokens_file holds this line, once the node has been started or reloaded "
        "(SIGHUP); all nodes need the same file.",
        err=True,
    )


def _write(target: Path, secret: str) -> None:
    try:
        # Made unreadable for others at once, and never over something that is there.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.UsageError(f"{target} cannot be made ({error.strerror or error})") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(f"{secret}\n")
