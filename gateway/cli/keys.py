"""``gateway keys``: makes, lists, promotes and retires the keys of session tokens. Never prints a key, only ids."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import orjson

from gateway.adapters.tokens import KeyFiles, KeyUse, ListedKey, when
from gateway.cli.arguments import KeyCommand
from gateway.cli.link_keys import link
from gateway.cli.options import config_option, load_peeking
from gateway.cli.zone_keys import zone
from gateway.settings import SETTINGS

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_FILES: Final = ("token_keys_file", "token_verify_keys_file")

_MEANINGS: Final = {
    KeyUse.SIGNS: "signs and verifies",
    KeyUse.FORMER: "verifies",
    KeyUse.NEXT: "verifies, to sign next",
}


@click.group()
def keys() -> None:
    """Make, list, promote and retire the keys of session tokens; make the certificates of links.

    All but `link` and `zone` work on the files that the settings token_keys_file and token_verify_keys_file name.
    Bring the files to all nodes after each step, and have them read again (SIGHUP). Prints ids, never a key.
    """


keys.add_command(link)
keys.add_command(zone)


def _files_options(function: FunctionT) -> FunctionT:
    """Give a command ``--config`` and the flags of the settings that name the files."""
    for name in reversed(_FILES):
        each = SETTINGS[name]
        function = click.option(each.flag or name, name, metavar="FILE", default=None, help=each.declared.meaning)(
            function
        )
    return config_option(function)


@keys.command("create")
@_files_options
def create(file: Path | None, **given: str | None) -> None:
    """Make a key, and print its id.

    The first key signs at once. Every other goes to token_verify_keys_file: all nodes must know it before any signs
    with it.
    """
    files = _open(file, given)
    made = files.create(now=time.time())
    click.echo(made.id)
    if made.use is KeyUse.SIGNS:
        _advise(f"{made.file} holds the first key; bring it to all nodes, and start them with it")
    else:
        _advise(f"bring {made.file} to all nodes and reload each (SIGHUP); then: gateway keys promote {made.id}")
    _warn(files)


@keys.command("list")
@_files_options
@click.option("--json", "as_json", is_flag=True, help="Print it for programs.")
def list_keys(file: Path | None, *, as_json: bool, **given: str | None) -> None:
    """List the keys by their ids: what each is used for, and from when on it can be retired."""
    files = _open(file, given)
    now = time.time()
    listed = files.list()
    if as_json:
        click.echo(orjson.dumps([_fields(each, now) for each in listed], option=orjson.OPT_INDENT_2))
    else:
        _print_table(
            ("KEY", "USE", "CREATED", "SIGNS SINCE", "UNTIL", "CAN BE RETIRED"),
            [
                (
                    *(each.id, _MEANINGS[each.use]),
                    *(_shown(time) for time in (each.times.created, each.times.promoted, each.times.demoted)),
                    _retirable(each, now),
                )
                for each in listed
            ],
        )
    _warn(files)


@keys.command("promote", cls=KeyCommand)
@click.argument("key", metavar="ID")
@_files_options
def promote(key: str, file: Path | None, **given: str | None) -> None:
    """Let the key ID sign; the one that has signed verifies from now on.

    Only when all nodes have the key: a node that does not would refuse the tokens of those that do. A former key can be
    promoted again, which takes a promotion back.
    """
    files = _open(file, given)
    promoted = files.promote(key, now=time.time())
    _advise(
        f"key {promoted.id} is to sign; a node signs with it once it has these files: bring them to all nodes and "
        "reload each (SIGHUP), in any order"
    )
    for each in files.list():
        if each.use is KeyUse.FORMER and each.retirable is not None:
            _advise(f"from {when(each.retirable)} on: gateway keys retire {each.id}")
    _warn(files)


@keys.command("retire", cls=KeyCommand)
@click.argument("key", metavar="ID")
@click.option("--force", is_flag=True, help="Also if clients may still hold valid tokens of it: it has leaked.")
@_files_options
def retire(key: str, file: Path | None, *, force: bool, **given: str | None) -> None:
    """Remove the key ID: its tokens are refused as soon as the nodes have been reloaded.

    Refuses to remove the key that signs, and one of which valid tokens may be left.
    """
    files = _open(file, given)
    files.retire(key, now=time.time(), force=force)
    _advise(
        f"key {key} is out of the files; a node accepts its tokens until it has them: bring them to all nodes and "
        "reload each (SIGHUP), in any order"
    )
    _warn(files)


def _open(file: Path | None, given: dict[str, str | None]) -> KeyFiles:
    settings = load_peeking(file, given)
    if settings.token_keys_file is None:
        raise click.UsageError(
            "no file of token keys is named: give --token-keys-file or --config (keys in GATEWAY_TOKEN_KEYS are "
            "changed where that variable is set)"
        )
    return KeyFiles(
        settings.token_keys_file,
        settings.token_verify_keys_file,
        life=settings.token_life + settings.token_leeway,
    )


def _fields(key: ListedKey, now: float) -> dict[str, str | bool | None]:
    times = key.times
    return {
        "id": key.id,
        "use": key.use.value,
        "created": None if times.created is None else when(times.created),
        "promoted": None if times.promoted is None else when(times.promoted),
        "demoted": None if times.demoted is None else when(times.demoted),
        "retirable": None if not key.retirable else when(key.retirable),
        "retirable_now": key.retirable is not None and now >= key.retirable,
        "file": str(key.file),
    }


def _shown(time: float | None) -> str:
    return "-" if time is None else when(time)


def _retirable(key: ListedKey, now: float) -> str:
    if key.use is KeyUse.SIGNS:
        return "no"
    if key.retirable is None:
        return "not known"
    return "now" if now >= key.retirable else when(key.retirable)


def _print_table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print columns, whole even if the width of the screen is unknown."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _advise(sentence: str) -> None:
    click.echo(sentence, err=True)


def _warn(files: KeyFiles) -> None:
    for exposed in files.exposed():
        click.echo(
            f"gateway: warning: {exposed} holds secrets and can be read by every user of this machine "
            f"(chmod o-r {exposed})",
            err=True,
        )
