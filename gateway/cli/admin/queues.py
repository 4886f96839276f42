"""``gateway admin queue``: queues and their dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from gateway.cli.admin.api_client import ApiClient, api_client_options, confirm
from gateway.cli.admin.changes import yes_option
from gateway.cli.admin.lists import as_json_option, limit_option, moment, plain, print_json, print_table, tell_more
from gateway.settings.quantities import Bytes

TOGETHER: Final = 100
"""Dead letters that one request names: as many as a page has."""

_FIELDS: Final = ("ready", "held", "delayed", "dead", "consumers")


@click.group()
def queue() -> None:
    """See queues, and put dead letters back or drop them."""


@queue.command("list")
@click.option("--dead", is_flag=True, help="Only those that have dead letters.")
@limit_option
@as_json_option
@api_client_options
def list_queues(*, client: ApiClient, dead: bool, limit: int, as_json: bool) -> None:
    """List the queues in which something is, or from which somebody consumes."""
    items, more = client.all("queues", query={}, limit=limit)
    items = [each for each in items if each["dead"] or not dead]
    if as_json:
        print_json(items)
    else:
        _print_queues(items, nothing="No queue has dead letters." if dead else "There are no queues.")
    tell_more(more)


@queue.command()
@click.argument("name", metavar="QUEUE")
@as_json_option
@api_client_options
def show(name: str, *, client: ApiClient, as_json: bool) -> None:
    """Show how QUEUE is."""
    found = client.ask("GET", "queues", name)
    if as_json:
        print_json([found])
    else:
        _print_queues([found], nothing="")


@queue.command()
@click.argument("name", metavar="QUEUE")
@limit_option
@as_json_option
@api_client_options
def dead(name: str, *, client: ApiClient, limit: int, as_json: bool) -> None:
    """List the dead letters of QUEUE, the oldest first."""
    items, more = client.all("queues", name, "dead", query={}, limit=limit, page_size=TOGETHER)
    if as_json:
        print_json(items)
    else:
        print_table(
            ("Id", "Reason", "Deliveries", "Sent", "Since", "Bytes", "Value"),
            (
                (
                    *(each["id"], each["reason"], each["deliveries"], moment(each["sent"]), moment(each["since"])),
                    *(each["size"], each["value"]),
                )
                for each in items
            ),
            nothing="It has no dead letters.",
        )
    tell_more(more)


@queue.command()
@click.argument("name", metavar="QUEUE")
@click.argument("messages", metavar="[ID]...", type=click.IntRange(min=1), nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that the queue has at this moment.")
@yes_option
@api_client_options
def requeue(name: str, messages: tuple[int, ...], *, client: ApiClient, everything: bool, yes: bool) -> None:
    """Put dead letters of QUEUE back to their places, as if they had never failed."""
    _mend(client, name, messages, everything=everything, yes=yes, action="requeue", done="put back")


@queue.command()
@click.argument("name", metavar="QUEUE")
@click.argument("messages", metavar="[ID]...", type=click.IntRange(min=1), nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that the queue has at this moment.")
@yes_option
@api_client_options
def drop(name: str, messages: tuple[int, ...], *, client: ApiClient, everything: bool, yes: bool) -> None:
    """Drop dead letters of QUEUE for good."""
    _mend(client, name, messages, everything=everything, yes=yes, action="drop", done="dropped")


def _mend(
    client: ApiClient, name: str, messages: tuple[int, ...], *, everything: bool, yes: bool, action: str, done: str
) -> None:
    if everything == bool(messages):
        raise click.UsageError("name the ids of dead letters, or give --all")
    # Named before anything is done: what fails again meanwhile is not taken a second time.
    ids = list(messages) or [each["id"] for each in _all_letters(client, name)]
    if ids:
        confirm(f"{action.capitalize()} {len(ids)} dead letters of {plain(name)}?", yes=yes)
    count = 0
    for first in range(0, len(ids), TOGETHER):
        answer = client.ask("POST", "queues", name, action, body={"messages": ids[first : first + TOGETHER]})
        count += answer["messages"]
    click.echo(f"{count} dead letters of {plain(name)} were {done}")


def _all_letters(client: ApiClient, name: str) -> list[dict[str, Any]]:
    count = client.ask("GET", "queues", name)["dead"]
    return client.all("queues", name, "dead", query={}, limit=count, page_size=TOGETHER)[0] if count else []


def _print_queues(items: Iterable[Mapping[str, Any]], *, nothing: str) -> None:
    size = Bytes()
    print_table(
        ("Queue", "Ready", "Held", "Delayed", "Dead", "Consumers", "Bytes", "Oldest"),
        (
            (
                each["queue"],
                *(each[field] for field in _FIELDS),
                size.show(each["bytes"]),
                "-" if each["oldest"] is None else moment(each["oldest"]),
            )
            for each in items
        ),
        nothing=nothing,
    )
