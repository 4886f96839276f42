"""``gateway admin token create``."""

from __future__ import annotations

import os
from collections.abc import Collection
from difflib import get_close_matches
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
    "--policy",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="GATEWAY_POLICY",
    show_envvar=True,
    metavar="FILE",
    help="The policy of the nodes, if it defines the role.",
)
@click.option(
    "--file",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the token into a new file that only you can read, instead of printing it.",
)
def create(name: str, *, roles: tuple[str, ...], policy: Path | None, target: Path | None) -> None:
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
    _must_be_defined(roles, policy)
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


def _must_be_defined(roles: Collection[str], policy: Path | None) -> None:
    """Refuse roles that mean nothing to any node: a token with them would be valid, and allowed nothing.

    Raises:
        UsageError: there is such a role.
        ConfigurationError: the policy cannot be used.
    """
    # Imported here: the program starts faster without the server and the policies.
    from gateway.adapters.admin.access import ROLES  # noqa: PLC0415
    from gateway.cli.authorisation import policy_of  # noqa: PLC0415

    defined = [*ROLES, *(() if policy is None else policy_of(policy).roles)]
    for role in roles:
        if role in defined:
            continue
        meant = get_close_matches(role, defined, n=1)
        raise click.UsageError(
            f"there is no role {role!r}{f', did you mean {meant[0]!r}?' if meant else ';'} built in are "
            f"{', '.join(ROLES)}"
            + (
                "; if the policy of your nodes defines it, name the file by --policy"
                if policy is None
                else f"; {policy} defines {', '.join(map(repr, defined[len(ROLES) :])) or 'none'}"
            )
        )


def _write(target: Path, secret: str) -> None:
    try:
        # Made unreadable for others at once, and never over something that is there.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.UsageError(f"{target} cannot be made ({error.strerror or error})") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(f"{secret}\n")
