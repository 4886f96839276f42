"""``gateway admin zone`` and ``gateway admin join``: zones of clusters, and static joins between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gateway.cli.admin.api_client import ApiClient, api_client_options, confirm
from gateway.cli.admin.changes import yes_option
from gateway.cli.admin.lists import as_json_option, moment, plain, print_json, print_table
from gateway.cli.arguments import ZoneCommand

F = TypeVar("F", bound=Callable[..., Any])

_NOTHING: Final = "-"
"""In the place of what is not there."""


def _secret_option(function: F) -> F:
    return click.option(
        "--secret-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File with the secret that all who take part know: 16 bytes at least, without the line break at its end.",
    )(function)


def _link_url_option(function: F) -> F:
    return click.option(
        "--link-url",
        "urls",
        metavar="URL",
        multiple=True,
        help="Where the other cluster takes links, as wss://HOST:PORT. Can be given several times.",
    )(function)


# --- Zones ------------------------------------------------------------------------------------------------------------


@click.group()
def zone() -> None:
    """See and change in which zone this cluster is."""


@zone.command("list")
@as_json_option
@api_client_options
def list_zones(*, client: ApiClient, as_json: bool) -> None:
    """List the zones that this cluster knows."""
    items = client.ask("GET", "zones")["items"]
    if as_json:
        print_json(items)
        return
    print_table(
        ("Name", "Uid", "Member", "Active", "Members", "Since"),
        (
            (each["name"], each["uid"], each["current"], each["active"], each["members"], moment(each["made"]))
            for each in items
        ),
        nothing="This cluster knows no zone.",
    )


@zone.command("here")
@as_json_option
@api_client_options
def here(*, client: ApiClient, as_json: bool) -> None:
    """Show what other clusters have to know of this one: its id, URLs and fingerprints."""
    found = client.ask("GET", "zones")["here"]
    if as_json:
        print_json([found])
        return
    click.echo(f"cluster      {plain(found['cluster'])}")
    click.echo(f"name         {plain(found['name'] or _NOTHING)}")
    for label, values in (("url", found["urls"]), ("fingerprint", found["fingerprints"])):
        for value in values or [_NOTHING]:
            click.echo(f"{label:12} {plain(value)}")


@zone.command()
@click.argument("name")
@_secret_option
@as_json_option
@api_client_options
def create(name: str, *, client: ApiClient, secret_file: Path | None, as_json: bool) -> None:
    """Make a zone called NAME. It has no members until clusters join it."""
    found = client.ask("POST", "zones", body={"name": name, "secret": _secret(secret_file)})
    text = f"zone {plain(found['name'])} is made: {plain(found['uid'])}; it has no members yet"
    _tell(found, as_json=as_json, text=text)


@zone.command(cls=ZoneCommand)
@click.argument("zone", metavar="UID-OR-NAME")
@_link_url_option
@_secret_option
@as_json_option
@api_client_options
def join(zone: str, *, client: ApiClient, urls: tuple[str, ...], secret_file: Path | None, as_json: bool) -> None:
    """Have this cluster join a zone. A name that nobody knows makes one.

    If other clusters are in it, --link-url says where one of them takes links.
    """
    body: dict[str, Any] = {"zone": zone, "urls": list(urls)}
    if secret_file is not None:
        body["secret"] = _secret(secret_file)
    found = client.ask("PUT", "zone", body=body)
    text = f"this cluster is in zone {plain(found['name'])} ({plain(found['uid'])})"
    _tell(found, as_json=as_json, text=text)


@zone.command()
@yes_option
@api_client_options
def leave(*, client: ApiClient, yes: bool) -> None:
    """Have this cluster leave its zone. Nothing comes from the others, or goes to them, any more."""
    confirm("Leave the zone? Clients here get no more events of its other members.", yes=yes)
    client.ask("DELETE", "zone")
    click.echo("this cluster is in no zone any more")


@zone.command()
@as_json_option
@api_client_options
def show(*, client: ApiClient, as_json: bool) -> None:
    """Show the zone of this cluster."""
    found = client.ask("GET", "zone")
    count = found["members"]
    text = f"zone {plain(found['name'])} ({plain(found['uid'])}), {count} {'member' if count == 1 else 'members'}"
    _tell(found, as_json=as_json, text=text)


@zone.command()
@as_json_option
@api_client_options
def members(*, client: ApiClient, as_json: bool) -> None:
    """List the members of the zone, and the links between them and this cluster."""
    items = client.ask("GET", "zone", "members")["items"]
    if as_json:
        print_json(items)
        return
    print_table(
        ("Cluster", "Name", "Links", "Events out", "Events in", "Behind", "URLs"),
        (
            (
                *(f"{each['cluster']} (here)" if each["here"] else each["cluster"], each["name"] or _NOTHING),
                *(_state(each), _sum(each, "events", "out"), _sum(each, "events", "in"), _sum(each, "behind", "out")),
                ", ".join(each["urls"]) or _NOTHING,
            )
            for each in items
        ),
        nothing="The zone has no members.",
    )
    _tell_why(items, "cluster")


# --- Joins ------------------------------------------------------------------------------------------------------------


@click.group("join")
def joins() -> None:
    """See and change static joins with clusters of other zones."""


@joins.command()
@click.argument("name")
@click.option(
    "--selector",
    "selectors",
    metavar="SELECTOR",
    multiple=True,
    required=True,
    help="What crosses. Can be given several times.",
)
@_link_url_option
@click.option("--from", "incoming", is_flag=True, help="Take what the other cluster sends, instead of sending to it.")
@click.option(
    "--fingerprint",
    "fingerprints",
    metavar="SHA256",
    multiple=True,
    required=True,
    help="Of a certificate of the other cluster; gateway admin zone here shows it there. Can be given several times.",
)
@click.option(
    "--hops", type=click.IntRange(1, 4), help="Joins that an event may have crossed when it has crossed this."
)
@_secret_option
@as_json_option
@api_client_options
def add(
    name: str,
    *,
    client: ApiClient,
    selectors: tuple[str, ...],
    urls: tuple[str, ...],
    incoming: bool,
    fingerprints: tuple[str, ...],
    hops: int | None,
    secret_file: Path | None,
    as_json: bool,
) -> None:
    """Make the join NAME, or change it.

    The cluster from which events go names the other by --link-url; the other one makes a join with --from. Both give
    the fingerprints of each other, and the same secret.
    """
    body: dict[str, Any] = {
        "direction": "in" if incoming else "out",
        "selectors": list(selectors),
        "urls": list(urls),
        "fingerprints": list(fingerprints),
        "most_hops": hops,
    }
    if secret_file is not None:
        body["secret"] = _secret(secret_file)
    found = client.ask("PUT", "joins", name, body=body)
    way = "comes" if incoming else "goes out"
    _tell(found, as_json=as_json, text=f"what matches {plain(', '.join(found['selectors']))} {way} over {plain(name)}")


@joins.command("list")
@as_json_option
@api_client_options
def list_joins(*, client: ApiClient, as_json: bool) -> None:
    """List the joins of this cluster, and their links."""
    items = client.ask("GET", "joins")["items"]
    if as_json:
        print_json(items)
        return
    print_table(
        ("Name", "Direction", "Selectors", "Links", "Events", "Behind", "URLs"),
        (
            (
                *(each["name"], each["direction"], ", ".join(each["selectors"]), _state(each)),
                *(_sum(each, "events", each["direction"]), _sum(each, "behind", each["direction"])),
                ", ".join(each["urls"]) or _NOTHING,
            )
            for each in items
        ),
        nothing="This cluster has no joins.",
    )
    _tell_why(items, "name")


@joins.command()
@click.argument("name")
@yes_option
@api_client_options
def remove(name: str, *, client: ApiClient, yes: bool) -> None:
    """Delete the join NAME."""
    confirm(f"Delete the join {plain(name)}?", yes=yes)
    client.ask("DELETE", "joins", name)
    click.echo(f"there is no join {plain(name)} any more")


def _secret(file: Path | None) -> str:
    if file is None:
        raise click.UsageError("--secret-file is missing; make one with: openssl rand -base64 32 > FILE")
    try:
        return file.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--secret-file {file} cannot be read: {error}") from None


def _state(found: Mapping[str, Any]) -> str:
    """Say how many of the links of a member or join are up."""
    links = found["links"]
    if not links:
        return _NOTHING
    return f"{sum(each['state'] == 'up' for each in links)} of {len(links)} up"


def _sum(found: Mapping[str, Any], what: str, direction: str) -> int:
    return sum(each[what] for each in found["links"] if each["direction"] == direction)


def _tell_why(items: Sequence[Mapping[str, Any]], name: str) -> None:
    """Say why links are not up."""
    for item in items:
        for link in item["links"]:
            if link["state"] != "up":
                click.echo(
                    f"{plain(item[name])}: {plain(link['state'])} at node {plain(link['node'])}: "
                    f"{plain(link['detail'])}"
                )


def _tell(found: dict[str, Any], *, as_json: bool, text: str) -> None:
    if as_json:
        print_json([found])
    else:
        click.echo(text)
