"""``gateway admin destination``: what paths are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from gateway.cli.admin.api_client import ApiClient, api_client_options, confirm
from gateway.cli.admin.changes import yes_option
from gateway.cli.admin.lists import as_json_option, limit_option, moment, plain, print_json, print_table, tell_more
from gateway.core.destinations.limits import DECLARABLE, LIMITS, Kind, Limit, Unit
from gateway.settings.errors import Unfit
from gateway.settings.quantities import Bytes, Seconds, Whole

_SHOWN: Final = Bytes(), Seconds()


@click.group()
def destination() -> None:
    """See and say what paths are: plain values, or topics whose history is kept."""


@destination.command("list")
@limit_option
@as_json_option
@api_client_options
def list_destinations(*, client: ApiClient, limit: int, as_json: bool) -> None:
    """List what administrators and the file say of paths."""
    items, more = client.all("destinations", query={}, limit=limit)
    if as_json:
        print_json(items)
    else:
        print_table(
            ("Selector", "Kind", "Limits", "By", "Since", "In force"),
            (
                (each["selector"], each["kind"], _limits(each), each["origin"], moment(each["made"]), each["in_force"])
                for each in items
            ),
            nothing="Nothing is said of any path: all are plain values.",
        )
    tell_more(more)


@destination.command()
@click.argument("path")
@as_json_option
@api_client_options
def show(path: str, *, client: ApiClient, as_json: bool) -> None:
    """Show what PATH is, and which selector says so; or what is said of a selector with wildcards."""
    found = client.ask("GET", "destinations", path)
    said = f"{_named(found)}, as the {plain(found['origin'])} says of {plain(found['selector'])}"
    _tell(found, as_json=as_json, text=f"{plain(path)} is {said}")


@destination.command()
@click.argument("selector")
@limit_option
@as_json_option
@api_client_options
def trees(selector: str, *, client: ApiClient, limit: int, as_json: bool) -> None:
    """List the trees with presence that SELECTOR marks, and how many members each has now."""
    items, more = client.all("destinations", selector, "trees", query={}, limit=limit)
    if as_json:
        print_json(items)
    else:
        print_table(
            ("Tree", "Members"),
            ((each["tree"], each["members"]) for each in items),
            nothing="None of these trees has a member.",
        )
    tell_more(more)


@destination.command("set")
@click.argument("selector")
@click.argument("kind", type=click.Choice([kind.value for kind in Kind if kind in DECLARABLE]))
@click.option("--count", metavar="NUMBER", help="Most events kept of one topic, or messages in the queue.")
@click.option("--age", metavar="TIME", help="How long an event is kept: 30m, 24h, 7d.")
@click.option("--bytes", "size", metavar="SIZE", help="Most bytes kept of one topic, or of the queue: 512KiB, 16MiB.")
@click.option("--ttl", metavar="TIME", help="After how long a value ends if its publisher says nothing: 30s, 24h.")
@click.option(
    "--limit",
    "limits",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any limit of the kind, such as deliveries=3 or exclusive=true of a queue. Can be given several times.",
)
@as_json_option
@api_client_options
def set_destination(
    selector: str,
    kind: str,
    *,
    client: ApiClient,
    count: str | None,
    age: str | None,
    size: str | None,
    ttl: str | None,
    limits: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say that the paths of SELECTOR are of KIND, in the place of what administrators said before.

    Limits that are not given are as by default. All nodes follow within a second.
    """
    options = {"count": count, "age": age, "bytes": size, "ttl": ttl}
    given = {name: text for name, text in options.items() if text is not None}
    for each in limits:
        name, _, text = each.partition("=")
        given[name] = text
    body = {"kind": kind, "limits": _read(Kind(kind), given)}
    found = client.ask("PUT", "destinations", selector, body=body)
    _tell(found, as_json=as_json, text=f"{plain(found['selector'])} is {_named(found)}; nodes follow within a second")


@destination.command()
@click.argument("selector")
@yes_option
@api_client_options
def remove(selector: str, *, client: ApiClient, yes: bool) -> None:
    """Take back what administrators say of SELECTOR. What the file says counts again.

    A topic whose history is not kept any more loses it.
    """
    confirm(f"Take back what is said of {plain(selector)}? Histories that are not kept any more are lost.", yes=yes)
    client.ask("DELETE", "destinations", selector)
    click.echo(f"nothing is said of {plain(selector)} by administrators any more; nodes follow within a second")


def _read(kind: Kind, given: Mapping[str, str]) -> dict[str, float | str | bool]:
    """Read limits as they are typed, with their units."""
    known = {each.name: each for each in LIMITS[kind]}
    values: dict[str, float | str | bool] = {}
    for name, text in given.items():
        if name not in known:
            raise click.UsageError(f"a {kind.value} has no --{name}")
        if known[name].unit is Unit.NAMES:
            values[name] = text
            continue
        if known[name].unit in {Unit.SWITCH, Unit.CHOICE}:
            values[name] = _read_word(known[name], text)
            continue
        reader = _reader(known[name])
        try:
            values[name] = reader.read(text)
        except Unfit as unfit:
            raise click.UsageError(f"--{name} {unfit}; give {reader.accepts}") from None
    return values


def _read_word(limit: Limit, text: str) -> str | bool:
    words: dict[str, str | bool] = (
        {"true": True, "false": False} if limit.unit is Unit.SWITCH else {each: each for each in limit.choices}
    )
    if text not in words:
        raise click.UsageError(f"--limit {limit.name} is {' or '.join(words)}, and not {text!r}")
    return words[text]


def _reader(limit: Limit) -> Whole | Seconds | Bytes:
    if limit.unit is Unit.SECONDS:
        return Seconds(limit.low, limit.high)
    low, high = int(limit.low), int(limit.high)
    return Bytes(low, high) if limit.unit is Unit.BYTES else Whole(limit.name, low, high)


def _named(found: Mapping[str, Any]) -> str:
    limits = _limits(found)
    return f"a {plain(found['kind'])}" + (f" ({limits})" if limits != "-" else "")


def _limits(found: Mapping[str, Any]) -> str:
    """Write limits for people, with units."""
    units = {each.name: each.unit for each in LIMITS.get(found["kind"], ())}
    written = [f"{plain(name)} {_written(units.get(name), value)}" for name, value in found["limits"].items()]
    return ", ".join(written) or "-"


def _written(unit: Unit | None, value: Any) -> str:
    if value is None or unit is None:
        return plain(value)
    size, time = _SHOWN
    if unit is Unit.BYTES:
        return size.show(value)
    return time.show(value) if unit is Unit.SECONDS else plain(value)


def _tell(found: dict[str, Any], *, as_json: bool, text: str) -> None:
    if as_json:
        print_json([found])
    else:
        click.echo(text)
