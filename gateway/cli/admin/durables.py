"""``gateway admin durable``: durable subscriptions."""

from __future__ import annotations

import click

from gateway.cli.admin.api_client import ApiClient, api_client_options, confirm
from gateway.cli.admin.changes import yes_option
from gateway.cli.admin.lists import as_json_option, limit_option, moment, plain, print_json, print_table, tell_more


@click.group()
def durable() -> None:
    """See durable subscriptions, and remove them."""


@durable.command("list")
@limit_option
@as_json_option
@api_client_options
def list_durables(*, client: ApiClient, limit: int, as_json: bool) -> None:
    """List the durable subscriptions of all principals."""
    items, more = client.all("durables", query={}, limit=limit)
    if as_json:
        print_json(items)
    else:
        print_table(
            ("Principal", "Name", "Selector", "Shared", "Session", "Position", "Since", "Until"),
            (
                (
                    *(each["principal"], each["name"], each["selector"], each["shared"], each["session"] or "-"),
                    *(each["position"] or "-", moment(each["made"]), moment(each["until"])),
                )
                for each in items
            ),
            nothing="There are no durable subscriptions.",
        )
    tell_more(more)


@durable.command()
@click.argument("principal")
@click.argument("name")
@yes_option
@api_client_options
def remove(principal: str, name: str, *, client: ApiClient, yes: bool) -> None:
    """Remove the durable subscription NAME of PRINCIPAL: its place is forgotten, also if a session uses it."""
    confirm(f"Remove the durable subscription {plain(name)} of {plain(principal)}?", yes=yes)
    client.ask("DELETE", "durables", principal, name)
    click.echo(f"{plain(principal)} has no durable subscription {plain(name)} any more.")
