"""``gateway check-config`` and ``gateway config``."""

from __future__ import annotations

import stat
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.adapters.destination_file import DestinationFileError, read_destinations
from gateway.adapters.logging import StructuredEventLog
from gateway.adapters.memory import MemoryMetrics
from gateway.adapters.tokens import key_id
from gateway.app.runtime.clock import Clock
from gateway.app.security.verifications import Verifications
from gateway.authenticators import Surroundings, describe, secret_files
from gateway.catalogue.log_event import Level
from gateway.cli.authorisation import policy_of
from gateway.cli.options import SettingsCommand, load_from_options, settings_options
from gateway.settings import GROUPS, SETTINGS, ConfigurationError, Loaded, Problem, Settings
from gateway.settings.hooks import reader_of

if TYPE_CHECKING:
    from gateway.adapters.admin import AdminTokens
    from gateway.core.destinations.destination import Destination
    from gateway.core.policy.permissions import Policy


@click.command("check-config", cls=SettingsCommand)
@settings_options
def check_config(file: Path | None, **given: str | bool | None) -> None:
    """Check the configuration without starting anything.

    Takes the same flags, variables and file as `gateway serve`, reads every file they name, and prints each setting
    that was given, with its place. Exit code 2 if the node would refuse to start.
    """
    loaded = load_from_options(file, given)
    _check_files(loaded)
    authentication = _check_authentication(loaded)
    policy = None if loaded.settings.policy is None else policy_of(loaded.settings.policy)
    destinations = None if loaded.settings.destinations is None else _destinations_of(loaded.settings.destinations)
    read_hooks = reader_of(loaded.settings)
    hooks = None if read_hooks is None else read_hooks()
    administrators = _check_administrators(loaded)
    undefined = _undefined_roles(administrators, policy)
    links = _links_of(loaded.settings)
    console = Console()
    console.print(_given_table(loaded))
    if not loaded.settings.token_keys_are_random:
        click.echo(f"token keys: {', '.join(_key_ids(loaded.settings))} (all nodes of a cluster should say the same)")
    for line in authentication:
        click.echo(line)
    if policy is not None:
        click.echo(f"policy: {len(policy.roles)} roles, {len(policy.principals)} principals")
    if destinations is not None:
        kinds = Counter(each.kind.value for each in destinations)
        click.echo(f"destinations: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items())) or 'none'}")
    if hooks is not None:
        click.echo(f"hooks: {', '.join(each.name for each in hooks) or 'none'}")
    if administrators is not None:
        click.echo(f"administrators: {len(administrators)}")
    if links is not None:
        click.echo(f"links: {links}")
    for warning in (*loaded.settings.shortcuts(), *loaded.exposed, *_open_files(loaded.settings), *undefined):
        click.echo(f"gateway: warning: {warning}", err=True)
    click.echo("The configuration is fit to run.")


def _check_authentication(loaded: Loaded) -> Sequence[str]:
    settings = loaded.settings
    log = StructuredEventLog(node=settings.node, level=Level.ERROR, stream=sys.stderr)
    try:
        # Nobody is authenticated here.
        verifications = Verifications(clock=Clock(), metrics=MemoryMetrics(), log=log)
        place = loaded.places["auth"]
        return describe(
            settings.auth, Surroundings(dev=settings.dev, log=log, verifications=verifications, place=place)
        )
    finally:
        log.close()


def _check_administrators(loaded: Loaded) -> AdminTokens | None:
    file = loaded.settings.admin_tokens_file
    if file is None:
        return None
    # Imported here: the other commands start faster without the server.
    from gateway.adapters.admin import AdminTokens, TokensFileError  # noqa: PLC0415

    try:
        return AdminTokens(file)
    except TokensFileError as error:
        complaint, _, remedy = str(error).rpartition("; ")
        raise ConfigurationError([Problem(loaded.places["admin_tokens_file"], complaint, remedy)]) from None


def _destinations_of(file: Path) -> Sequence[Destination]:
    """Read what a file says of paths.

    Raises:
        ConfigurationError: with everything that is wrong.
    """
    try:
        return read_destinations(file)
    except DestinationFileError as error:
        raise ConfigurationError(error.problems) from None


def _undefined_roles(administrators: AdminTokens | None, policy: Policy | None) -> Iterator[str]:
    """Roles of administrators that allow nothing, as no node knows them."""
    undefined = {} if administrators is None else administrators.undefined_roles(() if policy is None else policy.roles)
    for role, tokens in undefined.items():
        yield f"the role {role!r} of {', '.join(tokens)} is neither built in nor in the policy; it allows nothing"


def _check_files(loaded: Loaded) -> None:
    """Read what a node reads besides when it starts.

    Raises:
        ConfigurationError: with everything for which it would not start.
    """
    # Imported here: the other commands start faster without the server.
    from gateway.bootstrap.files import unusable  # noqa: PLC0415

    if problems := tuple(unusable(loaded.settings, loaded.places.__getitem__)):
        raise ConfigurationError(problems)


def _links_of(settings: Settings) -> str | None:
    if settings.link is None:
        return None
    # Imported here: the other commands start faster without the server.
    from gateway.bootstrap.files import link_tls  # noqa: PLC0415

    tls = link_tls(settings)
    if tls is None:
        return f"{settings.link}, in clear text"
    return f"{settings.link}, with a certificate until {datetime.fromtimestamp(tls.expires, UTC):%Y-%m-%d}"


def _given_table(loaded: Loaded) -> Table:
    table = Table("Setting", "Value", "Given by", box=None, pad_edge=False)
    for each, value, place in loaded.given:
        table.add_row(each.name, value, place)
    if not loaded.given:
        table.add_row("all", "their defaults", "no source")
    return table


def _key_ids(settings: Settings) -> Iterator[str]:
    """Ids of the keys with what they are for; the ids are not secret."""
    *older, newest = (key_id(key.reveal().encode()) for key in (*settings.token_verify_keys, *settings.token_keys))
    yield from (f"{each} verifies" for each in older)
    yield f"{newest} signs and verifies"


def _open_files(settings: Settings) -> Iterator[str]:
    """Files with secrets that other users of the machine can read."""
    tls_keys = (
        settings.tls_key or settings.tls_certificate,
        settings.admin_tls_key or settings.admin_tls_certificate,
        settings.link_tls_key or settings.link_tls_certificate,
        settings.zone_tls_key or settings.zone_tls_certificate,
    )
    keys = (settings.token_keys_file, settings.token_verify_keys_file, settings.journal_principals_key_file)
    for file in (*keys, *secret_files(settings.auth), *tls_keys):
        # One that is not there is not read, such as the key of links where there are no links.
        if file is not None and file.exists() and file.stat().st_mode & stat.S_IROTH:
            yield f"{file} holds secrets and can be read by every user of this machine (chmod o-r {file})"


@click.command()
@click.option("--json", "for_programs", is_flag=True, help="Print it for programs.")
def config(*, for_programs: bool) -> None:
    """Print every setting with its default, unit and meaning.

    `gateway check-config` shows the values that a node would run with.
    """
    if for_programs:
        click.echo(_settings_as_json())
    else:
        _print_settings(Console())


def _settings_as_json() -> str:
    """All settings for programs."""
    return orjson.dumps(
        [
            {
                "name": each.name,
                "group": each.group,
                "default": None if each.default in (None, ()) else each.shown_default,
                "default_text": each.shown_default,
                "unit": each.declared.kind.unit or None,
                "values": each.declared.kind.domain,
                "meaning": each.declared.meaning,
                "reason": each.declared.reason,
                "flag": each.flag,
                "variable": each.variable,
                "secret": each.declared.secret,
            }
            for each in SETTINGS.values()
        ],
        option=orjson.OPT_INDENT_2,
    ).decode()


def _print_settings(console: Console) -> None:
    names = max(len(name) for name in SETTINGS)
    for group in GROUPS:
        console.print(f"\n[bold]{group.title}[/bold]", highlight=False)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, min_width=names)
        table.add_column(ratio=1)
        for each in group.settings:
            unit = each.declared.kind.unit
            # "60 s" says its unit itself; "1000" does not.
            default = each.shown_default if not each.shown_default.isdigit() else f"{each.shown_default} {unit}"
            table.add_row(each.name, f"{escape(each.declared.meaning)} [dim]({escape(default)})[/dim]")
        console.print(table)
