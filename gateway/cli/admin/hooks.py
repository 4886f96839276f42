"""``gateway admin hooks``: event hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from gateway.cli.admin.api_client import ApiClient, api_client_options
from gateway.cli.admin.lists import as_json_option, moment, plain, print_json, print_table

SHOWN_TYPES: Final = 2
"""Types of events that a table names at most; JSON has all."""


@click.group()
def hooks() -> None:
    """See event hooks, and try a receiver at once."""


@hooks.command("list")
@as_json_option
@api_client_options
def list_hooks(*, client: ApiClient, as_json: bool) -> None:
    """List the event hooks of the cluster, and how their receivers are."""
    items = client.ask("GET", "hooks")["items"]
    if as_json:
        print_json(items)
        return
    print_table(
        (
            *("Hook", "State", "Receiver", "Events", "Node", "Behind", "Failures"),
            *("Last delivery", "Next attempt", "Last failure", "Last error"),
        ),
        (
            (
                *(each["name"], each["state"], each["url"] or "-", _events(each["events"]), each["node"] or "-"),
                *(each["behind"], each["failures"], moment(each["delivered"]), moment(each["attempt"])),
                *(moment(each["failed"]), each["error"] or "-"),
            )
            for each in items
        ),
        nothing="There are no event hooks.",
    )


def _events(types: Sequence[str]) -> str:
    """Name a few types of events; of more tell only how many they are."""
    return ", ".join(types) if len(types) <= SHOWN_TYPES else f"{len(types)} types"


@hooks.command()
@click.argument("name")
@api_client_options
def retry(name: str, *, client: ApiClient) -> None:
    """Try the receiver of the hook NAME at once, also if it said that it is gone."""
    client.ask("POST", "hooks", name, "retry")
    click.echo(
        f"The receiver of {plain(name)} is tried within a few seconds; `gateway admin hooks list` shows the outcome."
    )
